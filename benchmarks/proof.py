"""Ten million logged impressions judged, against the bare scan and join that nobody can do without.

The bare side joins the log to scores by (query, document) in DuckDB and keeps the rows; for a linear run it joins
the features and computes the score. Ours is `prove`: checks, the same join, examination from swaps, every estimate
with its interval, and a verdict. Both take turns, one thread, processor time. Features are in the cache, as they
are from the second use on.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import Options, Row, Stopwatch, spread, timed
from diagnosis import DOCUMENTS, RANKS, named, write

import unskew
from unskew.workflows.proofs.proof import prove

MOST, ROOM = 3.0, 4.0
FEATURES = 10
JOIN = """create temp table joined as
select l.*, {score} as score from '{log}' l join '{beside}' using (query_id, doc_id)"""


def proof(options: Options) -> list[Row]:
    """Times and memory of ours over the bare queries, for scores in a table and for a linear run."""
    pages = 100_000 if options.quick else 1_000_000
    rows = []
    with tempfile.TemporaryDirectory(prefix="unskew-proof-") as name:
        folder = Path(name)
        log = write(folder / "log.parquet", pages)
        scores, features = beside(folder, pages // 20)
        linear = learned(folder, log, features)
        weighted = " + ".join(f"0.1 * feature_{at}" for at in range(FEATURES))
        for what, bare, ours in (
            ("scores in a table", JOIN.format(score="score", log=log, beside=scores), scores),
            ("a linear run", JOIN.format(score=weighted, log=log, beside=features), linear),
        ):
            judged = (
                f"a log judged, {what}, {pages * RANKS / 1e6:.0f} million impressions, over bare scan and join"
            )
            given = {"features": features} if ours is linear else {}
            rows.append(
                compared(
                    judged, bare, lambda ours=ours, given=given: prove(ours, log=log, **given, **ENGINE), options
                )
            )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return [*rows, Row("memory of the process", f"{memory:.1f} GiB", "", f"under {ROOM}", memory < ROOM)]


ENGINE = {"threads": 1, "memory": "2GB"}


def compared(what: str, query: str, ours: Callable[[], object], options: Options) -> Row:
    """Ratios of turns."""
    ours()  # imports, and files in the cache of the system
    times: dict[str, list[Stopwatch]] = {"ours": [], "bare": []}
    for _ in range(options.repeats):
        times["ours"].append(timed(ours))
        times["bare"].append(timed(lambda: run(query)))
    ratios = [one.cpu / other.cpu for one, other in zip(times["ours"], times["bare"], strict=True)]
    seconds = {side: statistics.median(each.cpu for each in all_of) for side, all_of in times.items()}
    middle = statistics.median(ratios)
    measured = f"{middle:.2f} ({seconds['ours']:.1f} s over {seconds['bare']:.1f} s)"
    return Row(what, measured, spread(ratios), f"at most {MOST}", middle <= MOST)


def beside(folder: Path, queries: int) -> tuple[Path, Path]:
    """Scores and features of every document of every query."""
    rng, size = np.random.default_rng(1), queries * DOCUMENTS
    ids = {
        "query_id": named("query ", np.repeat(np.arange(queries), DOCUMENTS), queries),
        "doc_id": named("item-", np.arange(size), size),
    }
    values = rng.normal(size=(FEATURES, size)).astype(np.float32)
    pq.write_table(pa.table(ids | {"score": rng.normal(size=size)}), folder / "scores.parquet")
    columns = {f"feature_{at}": values[at] for at in range(FEATURES)}
    pq.write_table(pa.table(ids | columns), folder / "features.parquet")
    return folder / "scores.parquet", folder / "features.parquet"


def learned(folder: Path, log: Path, features: Path) -> Path:
    """A linear run, from a few steps on a small part of the log."""
    part = pq.read_table(log).slice(0, 20_000 * RANKS)
    pq.write_table(part, folder / "part.parquet")
    unskew.learn(
        folder / "part.parquet", "naive", features=features, ranker="linear", steps=20, out=folder / "run"
    )
    return folder / "run"


def run(query: str) -> None:
    """The join by hand."""
    import duckdb

    con = duckdb.connect(config={"threads": 1, "preserve_insertion_order": False})
    con.execute("SET enable_progress_bar = false")
    con.execute(query)
    con.close()
