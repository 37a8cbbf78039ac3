"""Diagnosis of 10 million impressions against the bare group-bys that it cannot do without.

The bare side groups the log by (query, document, position) and by page in DuckDB and keeps both tables. Ours is
`unskew.diagnose` without click models: checks, the same tables with ranks of clicks and hashes of queries, click
rates, examination by three estimators with tests, click matrix, trust, co-clicks, the graph over ranks, verdicts.
Both take turns, one thread, processor time. `python benchmarks/diagnosis.py spark` does the same on Spark with a
fifth of the pages, in time by the clock, and compares what both engines found.
"""

from __future__ import annotations

import math
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import Options, Row, Stopwatch, spread, timed

from unskew.diagnosis.diagnosis import Diagnosis, diagnose

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
    what = f"a diagnosis of {pages * RANKS / 1e6:.0f} million impressions over bare group-bys"
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
    diagnose(path, threads=1, memory=memory)


def bare(path: Path) -> None:
    """The two tables by hand."""
    import duckdb

    con = duckdb.connect(config={"threads": 1, "preserve_insertion_order": False})
    con.execute("SET enable_progress_bar = false")
    for name, query in (("cells", CELLS), ("pages", PAGES)):
        con.execute(f"create temp table {name} as {query.format(log=path)}")
    con.close()


def on_spark(pages: int = 200_000) -> None:
    """Seconds of the whole diagnosis and of the bare group-bys on Spark, and whether DuckDB found the same."""
    from unskew.tables.engine.engine import connect

    with tempfile.TemporaryDirectory(prefix="unskew-diagnosis-") as name:
        path = write(Path(name) / "log.parquet", pages)
        with connect("spark", threads=1, memory="2GB") as engine:
            seconds = []
            for _ in range(2):  # the first turn warms up
                engine.con._session.catalog.clearCache()  # or the second turn has its tables
                log, start = engine.read_parquet(path), time.perf_counter()
                for keys in (["query_id", "doc_id", "position"], ["page_id"]):
                    engine.count(engine.keep(log.group_by(keys).agg(n=log.count(), c=log.click.sum())))
                bare_seconds = time.perf_counter() - start
                engine.con._session.catalog.clearCache()
                start = time.perf_counter()
                found = diagnose(path, engine=engine)
                seconds.append((time.perf_counter() - start, bare_seconds))
        same = differences(found, diagnose(path, threads=1))
    for ours_seconds, bare_seconds in seconds:
        print(f"{ours_seconds:.1f} s over {bare_seconds:.1f} s: {ours_seconds / bare_seconds:.2f}")
    print("the same numbers as on DuckDB" if not same else f"differs from DuckDB: {same[:5]}")


def differences(one: Diagnosis, other: Diagnosis) -> list[str]:
    """Names of numbers that differ by more than rounding."""
    return list(_differ("", one.to_dict(), other.to_dict()))


def _differ(name: str, one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from _differ(f"{name}.{key}", one[key], other[key])
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for at, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from _differ(f"{name}[{at}]", first, second)
    elif isinstance(one, float) and isinstance(other, float):
        if not math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9):
            yield name
    elif one != other:
        yield name


if __name__ == "__main__":
    if sys.argv[1:] != ["spark"]:
        sys.exit("usage: python benchmarks/diagnosis.py spark; DuckDB is a part of `make bench`")
    on_spark()
