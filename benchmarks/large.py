"""A log larger than memory from end to end: written, ingested, counted, cut into shards, trained on.

Every stage is a process of its own, so that its peak memory is its own. `--full` goes to 100 million impressions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import Options, Row

PAGE, DOCUMENTS, FEATURES, RANKINGS = 10, 20, 20, 8
CHUNK = 100_000
"""Result pages generated at once."""
PEAK = 6.0
"""GB that no stage may exceed at 100 million impressions."""
RUN = """
out = "run"
[data]
counts = "counts"
features = "features"
memory = "1GB"
[method]
name = "dla"
[ranker]
name = "mlp"
sizes = [64, 32]
[training]
steps = 200
threads = {threads}
"""
SHARD = """
from pathlib import Path
from unskew.workflows.runs.request import ask
from unskew.workflows.runs.learn import open_data
open_data(ask(Path("run.toml")))
"""


@dataclass(frozen=True)
class Stage:
    """What a process took."""

    seconds: float
    gigabytes: float


def large(options: Options) -> list[Row]:
    """1 and 10 million impressions; 100 million with --full, 1 million alone with --quick."""
    sizes = [1] if options.quick else [1, 10, 100] if options.full else [1, 10]
    rows: list[Row] = []
    before: dict[str, Stage] = {}
    for millions in sizes:
        with tempfile.TemporaryDirectory(prefix="unskew-large-") as folder:
            stages = run_stages(Path(folder), millions * 1_000_000, options.threads)
        for name, stage in stages.items():
            growth = "" if name not in before else f"{stage.seconds / before[name].seconds:.1f} times the time"
            rows.append(
                Row(
                    f"{millions} million impressions: {name}",
                    f"{stage.seconds:.1f} s, {stage.gigabytes:.2f} GB",
                    growth,
                    f"under {PEAK:.0f} GB",
                    stage.gigabytes < PEAK,
                )
            )
        before = stages
    return rows


def run_stages(folder: Path, impressions: int, threads: int) -> dict[str, Stage]:
    """Each stage in its own process, in order."""
    (folder / "run.toml").write_text(RUN.format(threads=threads))
    python, unskew = [sys.executable], [sys.executable, "-m", "unskew"]
    engine = ["--memory", "2GB", "--threads", str(threads)]
    commands = {
        "write": [*python, __file__, str(impressions)],
        "ingest": [*unskew, "ingest", "raw", "--out", "log", *engine],
        "counts": [*unskew, "counts", "log/impressions", "--out", "counts", *engine],
        "shards": [*python, "-c", SHARD],
        "200 steps": [*unskew, "learn", "run.toml", "-q"],
    }
    return {name: measured(command, folder) for name, command in commands.items()}


def measured(command: list[str], folder: Path) -> Stage:
    """Wall time and peak memory of a command."""
    environment = os.environ | {"UNSKEW_CACHE": str(folder / "cache"), "TMPDIR": str(folder)}
    began = time.perf_counter()
    with (folder / "out.txt").open("w+") as told:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=told, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            told.seek(0)
            raise RuntimeError(f"{' '.join(command)} failed:\n{told.read()}")
    return Stage(time.perf_counter() - began, usage.ru_maxrss * 1024 / 1e9)


def write(folder: Path, impressions: int) -> None:
    """Impressions and features as part files, chunk after chunk; a few rankings for every query."""
    random, pages = np.random.default_rng(0), impressions // PAGE
    queries = max(2000, impressions // 500)
    for name in ("raw", "features"):
        (folder / name).mkdir()
    step = max(1, CHUNK * PAGE // DOCUMENTS)
    for start in range(0, queries, step):
        query = np.arange(start, min(start + step, queries))
        values = random.normal(size=(len(query) * DOCUMENTS, FEATURES)).astype(np.float32)
        documents = np.tile(np.arange(DOCUMENTS), len(query))
        values[:, 0] += relevance(np.repeat(query, DOCUMENTS), documents)
        columns = {f"f{index}": values[:, index] for index in range(FEATURES)}
        table = pa.table(ids(np.repeat(query, DOCUMENTS), documents) | columns)
        pq.write_table(table, folder / "features" / f"part-{start:09d}.parquet")
    for start in range(0, pages, CHUNK):
        count = min(CHUNK, pages - start)
        query = np.repeat((random.random(count) ** 2 * queries).astype(np.int64), PAGE)
        rank = np.tile(np.arange(PAGE), count)
        shift = np.repeat(random.integers(0, RANKINGS, count), PAGE)
        document = (rank + shift) % DOCUMENTS
        clicked = random.random(len(rank)) < (0.1 + 0.4 * relevance(query, document)) / (1 + rank)
        columns = {
            "page_id": np.repeat(np.arange(start, start + count), PAGE),
            "position": (rank + 1).astype(np.int32),
            "click": clicked.astype(np.int8),
        }
        pq.write_table(pa.table(columns | ids(query, document)), folder / "raw" / f"part-{start:09d}.parquet")


def relevance(query: np.ndarray, document: np.ndarray) -> np.ndarray:
    """0 or 1, the same for the same document of a query."""
    return ((query * 7919 + document * 104_729) % 97 < 30).astype(np.float32)


def ids(query: np.ndarray, document: np.ndarray) -> dict[str, pa.Array]:
    """Names as real logs have them: strings."""
    return {"query_id": named("q", query), "doc_id": named("d", document)}


def named(letter: str, numbers: np.ndarray) -> pa.Array:
    """A letter and a number; each name is made once."""
    found, place = np.unique(numbers, return_inverse=True)
    return pa.array(np.char.add(letter, found.astype(np.str_))).take(pa.array(place))


if __name__ == "__main__":
    write(Path.cwd(), int(sys.argv[1]))
