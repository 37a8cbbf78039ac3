"""The commands that are stopped before every file operation, as a person types them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import typer
import vl_convert
from stops import Job

import unskew
from unskew.files import restore, writing
from unskew.terminal import main as terminal
from unskew.tracking.store import open_tracking

torch.set_num_threads(1)
terminal.app = typer.main.get_command(terminal.app)  # made once here, not in every process that is forked
vl_convert.vegalite_to_svg = lambda chart: '<svg viewBox="0 0 1 1"></svg>'  # drawing takes longer than all else
LOG, LISTS = "log.parquet", "lists.txt"


def command(text: str) -> Callable[[], None]:
    """A part of a job: one command of unskew."""

    def work() -> None:
        sys.argv = ["unskew", *text.split()]
        try:
            terminal.main()
        except SystemExit as left:
            if left.code:
                raise

    return work


def without_exchange(work: Callable[[], None]) -> Callable[[], None]:
    """The same where the file system cannot exchange two folders."""

    def done() -> None:
        writing.exchange = lambda one, other: False
        work()

    return done


def write_lists() -> None:
    """Six lists of four documents."""
    rng = np.random.default_rng(0)
    Path(LISTS).write_text(
        "".join(
            f"{rng.integers(3)} qid:{query} 1:{rng.random():.3f} 2:{rng.random():.3f} 3:{rng.random():.3f}\n"
            for query in range(6)
            for _ in range(4)
        )
    )


def write_log() -> None:
    """A log over the lists, with times."""
    write_lists()
    lists = unskew.read_letor(LISTS, cache=False)
    log = unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=60, seed=0, logger="random")
    unskew.write_log(log, Path(LOG))
    table = pq.read_table(LOG)
    seconds = 1_700_000_000 + 7_200 * table["page_id"].to_numpy().astype(np.int64)
    times = pa.array(seconds * 1_000_000, pa.timestamp("us", "UTC"))
    pq.write_table(table.append_column("timestamp", times), LOG)


def write_run_files(data: str, method: str, ranker: str) -> Callable[[], None]:
    """A log, and a run file over it."""

    def begin() -> None:
        write_log()
        Path("run.toml").write_text(
            f'out = "run"\n[data]\nlog = "{LOG}"\nfeatures = "{LISTS}"\n{data}\n'
            f'[method]\nname = "{method}"\n{ranker}\n'
            '[training]\nvalidate_on = "nothing"\n'
            + "steps = 2\nvalidate_every = 1\ncheckpoint_every = 1\n"
            * bool(ranker)
        )

    return begin


def tables(place: str) -> Callable[[], Any]:
    """The rows of every Parquet file at a place, and its summary."""

    def read() -> Any:
        root = restore(Path(place))
        files = [root] if root.is_file() else sorted(root.rglob("*.parquet"))
        rows = {file.parent.name: sorted(map(str, pq.ParquetFile(file).read().to_pylist())) for file in files}
        summary = root / "summary.json"
        if root.is_dir() and not summary.exists():
            raise FileNotFoundError(place)
        return [rows, json.loads(summary.read_text()) if summary.exists() else None] if rows else 1 / 0

    return read


def scores(place: str) -> Callable[[], Any]:
    """What a trained model gives for documents, and how it was trained."""

    def read() -> Any:
        model = unskew.load(place)
        config = Path(place) / "config.json"
        seed = json.loads(config.read_text())["training"]["seed"] if config.exists() else None
        given = np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
        return [seed, np.asarray(model.score(given)).tolist()]

    return read


def save(seed: int) -> Callable[[], None]:
    """Train in memory and save the model."""

    def work() -> None:
        log = unskew.read_log(Path(LOG), unskew.read_letor(LISTS))
        unskew.learn(log, "naive", ranker="linear", steps=2, seed=seed, validate_on="nothing").save(
            "model", force=True
        )

    return work


def learning(
    data: str = "", method: str = "naive", ranker: str = '[ranker]\nname = "linear"', *, afresh: bool = False
) -> Job:
    """`learn` over a finished run with --force, or where there is none."""
    begin, read = write_run_files(data, method, ranker), scores("run")
    if afresh:
        return Job(begin, command("learn run.toml --quiet --seed 1"), read)
    again = "learn run.toml --quiet --force --seed"
    return Job(begin, command(f"{again} 2"), read, command(f"{again} 1"))


def write_compare() -> None:
    """A comparison of two cells."""
    Path("compare.toml").write_text(
        'out = "study"\npages = 50\nseeds = [0]\n'
        "[data]\nsynthetic = { queries = 12, features = 4, documents = 4 }\n"
        '[[behaviours]]\nname = "position"\n[[methods]]\nname = "naive"\n[ranker]\nname = "linear"\n'
        '[logger]\nname = "random"\n[training]\nsteps = 3\n'
    )


def compared() -> Any:
    """The rows of a comparison without times, and that its other files are of it."""
    place = Path("study")
    rows = pq.ParquetFile(place / "results.parquet").read().drop_columns(["seconds", "largest_mb"]).to_pylist()
    asked = json.loads((place / "compare.json").read_text())
    for name in ("table.md", "report.html"):
        assert (place / name).read_text()
    return [str(rows), asked["pages"]]


def compare(pages: int, force: bool) -> Callable[[], None]:
    """`compare` with so many pages."""

    def work() -> None:
        path = Path("compare.toml")
        path.write_text(path.read_text().replace("pages = 50", f"pages = {pages}"))
        command("compare compare.toml --jobs 1 --quiet" + " --force" * force)()
        path.write_text(path.read_text().replace(f"pages = {pages}", "pages = 50"))

    return work


def write_deliveries() -> None:
    """Two deliveries of a log."""
    write_log()
    table = pq.read_table(LOG)
    early = pa.array(table["page_id"].to_numpy() < 40)
    pq.write_table(table.filter(early), "first.parquet")
    pq.write_table(table, "second.parquet")


def tracked() -> Any:
    """What a tracking store holds: pages by delivery, its clock, and the windows."""
    store = open_tracking("store")
    windows = {
        name: sorted(
            str(row)
            for file in sorted((store.path / "windows" / window.folder).rglob("*.parquet"))
            for row in pq.ParquetFile(file).read().to_pylist()
        )
        for name, window in store.manifest.windows.items()
    }
    return [[delivery.pages for delivery in store.manifest.deliveries], store.manifest.clock, windows]


AGAIN = "--threads 1 --force"
JOBS: dict[str, Job] = {
    "simulate": Job(
        write_lists,
        command(f"simulate --lists {LISTS} --out made.parquet --pages 20 --seed 2 --logger random --force"),
        tables("made.parquet"),
        command(f"simulate --lists {LISTS} --out made.parquet --pages 20 --seed 1 --logger random"),
    ),
    "ingest": Job(
        write_deliveries,
        command(f"ingest second.parquet --out read {AGAIN}"),
        tables("read"),
        command(f"ingest first.parquet --out read {AGAIN}"),
    ),
    "split": Job(
        write_log,
        command(f"split {LOG} --out parts --test 0.4 {AGAIN}"),
        tables("parts"),
        command(f"split {LOG} --out parts {AGAIN}"),
    ),
    "counts": Job(
        write_log,
        command(f"counts {LOG} --out counted --pairs {AGAIN}"),
        tables("counted"),
        command(f"counts {LOG} --out counted {AGAIN}"),
    ),
    "learn": learning(),
    "learn afresh": learning(afresh=True),
    "learn mlp": learning(ranker='[ranker]\nname = "mlp"\nsizes = [4]', method="dla"),
    "learn trees": learning(ranker='[ranker]\nname = "trees"\nrounds = 2\nleaves = 3\nmin_data_in_leaf = 1'),
    "learn package": learning(method="lightgbm", ranker=""),
    "learn shards": learning(data="shards = 2"),
    "save": Job(write_log, save(2), scores("model"), save(1)),
    "compare": Job(write_compare, compare(60, force=True), compared, compare(50, force=False)),
    "compare afresh": Job(write_compare, compare(60, force=False), compared),
    "track": Job(
        write_deliveries,
        command("track second.parquet --out store --threads 1"),
        tracked,
        command("track first.parquet --out store --threads 1"),
        adds=True,
    ),
}
"""Commands by name."""
JOBS |= {
    f"{name} in two renames": replace(JOBS[name], new=without_exchange(JOBS[name].new))
    for name in ("learn", "split")
}
