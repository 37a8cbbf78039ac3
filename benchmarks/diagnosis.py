"""Diagnosis of 10 million impressions against the bare group-bys that it cannot do without.

The bare side groups the log by (query, document, position) and by page in DuckDB and keeps both tables. Ours is
`open_tables`, `curves` and `interventions`: checks, the same tables with ranks of clicks and buckets of queries,
rates, three estimators of examination with their draws and tests. Both take turns, one thread, processor time.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import Options, Row, Stopwatch, spread, timed

from unskew.diagnosis.curves import curves
from unskew.diagnosis.interventions import interventions
from unskew.diagnosis.tables import open_tables

MOST, ROOM = 3.0, 4.0
RANKS, DOCUMENTS = 10, 15
CELLS = (
    "select query_id, doc_id, position, count(*) as impressions, sum(click) as clicks from '{log}' group by all"
)
PAGES = "select page_id, count(*) as results, sum(click) as clicks from '{log}' group by all"


def diagnosis(options: Options) -> list[Row]:
    """Times and memory of ours over the bare queries."""
    pages = 100_000 if options.quick else 1_000_000
    with tempfile.TemporaryDirectory(prefix="unskew-diagnosis-") as name:
        path = write(Path(name) / "log.parquet", pages)
        ours(path, None)  # imports, and files in the cache of the system
        times: dict[str, list[Stopwatch]] = {"ours": [], "bare": []}
        for _ in range(options.repeats):
            times["ours"].append(timed(lambda: ours(path, "3GB")))
            times["bare"].append(timed(lambda: bare(path)))
    ratios = [one.cpu / other.cpu for one, other in zip(times["ours"], times["bare"], strict=True)]
    seconds = {side: statistics.median(each.cpu for each in all_of) for side, all_of in times.items()}
    middle, memory = statistics.median(ratios), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    what = f"curves and interventions, {pages * RANKS / 1e6:.0f} million impressions, over bare group-bys"
    measured = f"{middle:.2f} ({seconds['ours']:.1f} s over {seconds['bare']:.1f} s)"
    return [
        Row(what, measured, spread(ratios), f"at most {MOST}", middle <= MOST),
        Row("memory of the process", f"{memory:.1f} GiB", "", f"under {ROOM}", memory < ROOM),
    ]


def write(path: Path, pages: int) -> Path:
    """A log in which documents move by noise in their scores, a tenth as many queries as pages or fewer."""
    rng, queries = np.random.default_rng(0), pages // 20
    share = rng.pareto(1.2, queries) + 0.05
    query = rng.choice(queries, pages, p=share / share.sum())
    relevance = rng.beta(0.8, 2.0, (queries, DOCUMENTS))
    scores = relevance[query] + rng.normal(0, 0.25, (pages, DOCUMENTS))
    shown = np.argsort(-scores, axis=1)[:, :RANKS]
    seen = 0.9 * np.arange(1, RANKS + 1) ** -0.8
    click = rng.random(shown.shape) < seen * np.take_along_axis(relevance[query], shown, axis=1)
    columns = {
        "page_id": pa.array(np.repeat(np.arange(pages), RANKS)),
        "query_id": named("query ", np.repeat(query, RANKS), queries),
        "doc_id": named("item-", (query[:, None] * DOCUMENTS + shown).ravel(), queries * DOCUMENTS),
        "position": pa.array(np.tile(np.arange(1, RANKS + 1, dtype=np.int32), pages)),
        "click": pa.array(click.ravel().astype(np.int8)),
    }
    pq.write_table(pa.table(columns), path, compression="zstd")
    return path


def named(word: str, codes: np.ndarray, values: int) -> pa.Array:
    """Codes as text, as ids mostly are."""
    texts = pa.array([f"{word}{value}" for value in range(values)])
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), texts).cast(pa.string())


def ours(path: Path, memory: str | None) -> None:
    """All of it."""
    with open_tables(path, threads=1, memory=memory) as tables:
        curves(tables)
        interventions(tables)


def bare(path: Path) -> None:
    """The two tables by hand."""
    import duckdb

    con = duckdb.connect(config={"threads": 1, "preserve_insertion_order": False})
    con.execute("SET enable_progress_bar = false")
    for name, query in (("cells", CELLS), ("pages", PAGES)):
        con.execute(f"create temp table {name} as {query.format(log=path)}")
    con.close()
