"""Click logs on the engine: ingest, pages and counts against bare DuckDB queries that do the same grouping.

Generated impressions, ten to a page, 25 pages to a ranking, are read from Parquet with two threads. Each side runs
in a process of its own, so that its peak memory can be told; the two take turns. The bare side is what one would
write by hand: sound pages by one group-by, visits by lag and running sum, the split by quantiles, counts by a hash
of each page, results written as Parquet with the same options.

Ingest is measured on two logs. One has our columns and is sound, so that we copy its files and the bare query does
not. The other has names and types of its own, positions from 0, and one page in a thousand that must go, so that
both sides write the rest anew. From this one pages are also found, without its page ids; the bare query begins a
page where a position does not grow, and so takes results that come out of order for pages.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from common import Options, Row, spread

THREADS, PER_PAGE, PER_RANKING, CHUNK = 2, 10, 25, 1_000_000
SIZES = (1_000_000, 10_000_000, 100_000_000)
MOST, RATE = 1.5, 2_000_000
COPY = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, WRITE_BLOOM_FILTER false, PER_THREAD_OUTPUT true"

THEIRS = {
    "page_id": "page",
    "query_id": "search",
    "doc_id": "product",
    "position": "rank",
    "click": "clicked",
    "timestamp": "shown",
    "user_id": "customer",
}
RENAMED = """
create temp view log as select page as page_id, search as query_id, product as doc_id,
(rank + 1)::integer as position, clicked::tinyint as click, shown as timestamp, customer as user_id from '{log}'"""
SOUND = """
create temp table sound as select page_id, count(*) as rows, sum(click) as clicks from {log} group by all
having count(*) = count(distinct position) and count(*) = max(position) and min(query_id) = max(query_id)
and sum(click) < count(*)"""
INGEST = """
copy (select log.* from {log} as log semi join sound using (page_id) where position > 0 and click in (0, 1)
and page_id is not null and query_id is not null and doc_id is not null) to '{out}/ingest' ({copy})"""
FOUND = """
create temp table found as
with before as (select *, lag(shown) over who as before, lag(rank) over who as above from '{log}'
                window who as (partition by customer, search order by shown, rank)),
numbered as (select *, sum((before is null or shown > before + interval 1800 second or rank <= above)::int)
             over (partition by customer, search order by shown, rank rows unbounded preceding) as number
             from before)
select concat(customer, ' ', number, ' ', search) as page_id, search as query_id, product as doc_id,
(rank + 1)::integer as position, clicked::tinyint as click, shown as timestamp, customer as user_id
from numbered"""
VISITS = """
create temp table visits as
with pages as (select page_id, min(user_id) as who, min(timestamp) as start from '{log}' group by all),
before as (select *, lag(start) over (partition by who order by start, page_id) as before from pages),
numbered as (select *, sum((before is null or start > before + interval 1800 second)::int)
             over (partition by who order by start, page_id rows unbounded preceding) as number from before)
select page_id, start, concat(who, '/', number) as visit_id from numbered"""
STARTS = """
create temp table starts as
select visits.*, second from visits join
(select visit_id, epoch(date_trunc('second', min(start))) as second from visits group by all) using (visit_id)"""
EDGES = "select quantile_disc(second, [0.8, 0.9]) from (select distinct visit_id, second from starts)"
PART = """
copy (select log.*, visit_id from '{log}' as log join starts using (page_id) where second >= {low}
and second < {high}) to '{out}/{name}' ({copy})"""
PAGES = """
create temp table pages as select page_id, bit_xor(hash(hash(query_id, doc_id, position))) as hash
from '{log}' group by all"""
COUNTS = """
copy (with slots as (select hash, query_id, position, doc_id, count(*) as impressions, sum(click)::bigint as clicks
                     from '{log}' join pages using (page_id) group by all),
names as (select hash, min(page_id) as ranking_id from pages group by all)
select * exclude (hash) from slots join names using (hash)) to '{out}/counts' ({copy})"""


def write_log(path: Path, impressions: int, theirs: bool = False) -> None:
    """Impressions in the order of time, with string ids, a million at a time; ours, or a log of another kind."""
    rankings = max(impressions // PER_PAGE // PER_RANKING, 1)
    people = max(impressions // PER_PAGE // 8, 1)
    documents = pa.array([f"doc-{number:04d}" for number in range(1000)])
    writer = None
    for start in range(0, impressions, CHUNK):
        rng = np.random.default_rng(start)
        pages = min(CHUNK, impressions - start) // PER_PAGE
        ranking = rng.integers(0, rankings, pages)
        page = np.arange(pages) + start // PER_PAGE
        position = np.tile(np.arange(1, PER_PAGE + 1, dtype=np.int32), pages)
        shown = (np.repeat(ranking, PER_PAGE) * 37 + position * 101) % 1000
        columns = {
            "page_id": pa.array(np.repeat(page, PER_PAGE)).cast(pa.string()),
            "query_id": pa.array(np.repeat(ranking // 4, PER_PAGE)).cast(pa.string()),
            "doc_id": documents.take(pa.array(shown)),
            "position": position,
            "click": (rng.random(pages * PER_PAGE) < 0.3 / position).astype(np.int8),
            "timestamp": pa.array(np.repeat(page * 1_000_000 + 1_700_000_000_000_000, PER_PAGE)).cast(
                pa.timestamp("us", "UTC")
            ),
            "user_id": np.repeat(rng.integers(0, people, pages), PER_PAGE),
        }
        if theirs:  # every thousandth page lost its second and third result
            columns["position"] = columns["position"].astype(np.int64) - 1
            columns["click"] = columns["click"].astype(np.int64)
            kept = (np.repeat(page, PER_PAGE) % 1000 != 7) | ~np.isin(position, (2, 3))
            columns = {THEIRS[name]: pa.array(column).filter(pa.array(kept)) for name, column in columns.items()}
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    assert writer is not None
    writer.close()


def bare_ingest(log: Path, out: Path) -> None:
    """Pages in numbers, and the rows of those that are sound, by hand."""
    con = _duckdb()
    for query in (SOUND, INGEST):
        con.execute(query.format(log=f"'{log}'", out=out, copy=COPY))


def bare_rewrite(log: Path, out: Path) -> None:
    """The same for the log of another kind."""
    con = _duckdb()
    con.execute(RENAMED.format(log=theirs(log)))
    for query in (SOUND, INGEST):
        con.execute(query.format(log="log", out=out, copy=COPY))


def bare_finding(log: Path, out: Path) -> None:
    """Pages found by hand, then the same."""
    con = _duckdb()
    con.execute(FOUND.format(log=theirs(log)))
    for query in (SOUND, INGEST):
        con.execute(query.format(log="found", out=out, copy=COPY))


def theirs(log: Path) -> Path:
    """Where the log of another kind is."""
    return log.with_name("their-" + log.name)


def bare_pages(log: Path, out: Path) -> None:
    """Visits and the split, by hand."""
    con = _duckdb()
    for query in (VISITS, STARTS):
        con.execute(query.format(log=log))
    ((low, high),) = con.execute(EDGES).fetchone()  # type: ignore[misc]
    edges = {"train": (0, low), "validation": (low, high), "test": (high, 1e18)}
    for name, (first, last) in edges.items():
        con.execute(PART.format(log=log, out=out, name=name, low=first, high=last, copy=COPY))


def bare_counts(log: Path, out: Path) -> None:
    """Counts, by hand."""
    con = _duckdb()
    for query in (PAGES, COUNTS):
        con.execute(query.format(log=log, out=out, copy=COPY))


def _duckdb():  # type: ignore[no-untyped-def]
    import duckdb

    return duckdb.connect(config={"threads": THREADS, "preserve_insertion_order": False})


def our_ingest(log: Path, out: Path) -> None:
    """What `unskew ingest` does."""
    from unskew.logs.ingest.ingest import ingest_files
    from unskew.tables.engine.engine import connect

    with connect(threads=THREADS) as engine:
        ingest_files(log, out / "ingest", engine)


def our_rewrite(log: Path, out: Path) -> None:
    """What `unskew ingest --column ...` does."""
    from unskew.logs.ingest.ingest import ingest_files
    from unskew.tables.engine.engine import connect
    from unskew.tables.reading.options import IngestOptions

    with connect(threads=THREADS) as engine:
        ingest_files(theirs(log), out / "ingest", engine, IngestOptions(columns=THEIRS))


def our_finding(log: Path, out: Path) -> None:
    """What `unskew ingest --page-gap 30m --column ...` does."""
    from unskew.logs.ingest.ingest import ingest_files
    from unskew.tables.engine.engine import connect
    from unskew.tables.reading.options import IngestOptions

    with connect(threads=THREADS) as engine:
        ingest_files(theirs(log), out / "ingest", engine, IngestOptions(columns=THEIRS, pages={"gap": "30m"}))


def our_pages(log: Path, out: Path) -> None:
    """What `unskew split` does."""
    import unskew

    unskew.split(log, out / "pages", threads=THREADS)


def our_counts(log: Path, out: Path) -> None:
    """What `unskew counts` does."""
    import unskew

    unskew.counts(log, out / "counts", threads=THREADS)


STEPS = {
    "ingest": (our_ingest, bare_ingest),
    "ingest anew": (our_rewrite, bare_rewrite),
    "ingest, pages found": (our_finding, bare_finding),
    "pages": (our_pages, bare_pages),
    "counts": (our_counts, bare_counts),
}
TOGETHER = {
    "together": ("ingest", "pages", "counts"),
    "together, ingest anew": ("ingest anew", "pages", "counts"),
}


def measure(step: str, side: int, log: Path) -> dict[str, float]:
    """Seconds by the clock and of the processor, and peak memory in MB, in a process of its own."""
    command = [sys.executable, __file__, step, str(side), str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def once(step: str, side: int, log: Path) -> None:
    """One measurement; libraries are imported before the clock starts."""
    import duckdb  # noqa: F401
    import ibis

    import unskew.logs.counts.rankings
    import unskew.logs.ingest.ingest  # noqa: F401

    ibis.duckdb.connect().disconnect()
    out = Path(tempfile.mkdtemp(dir=log.parent))
    began, worked = time.perf_counter(), time.process_time()
    STEPS[step][side](log, out)
    found = {"wall": time.perf_counter() - began, "cpu": time.process_time() - worked}
    shutil.rmtree(out)
    print(json.dumps(found | {"memory": peak_memory()}))


def peak_memory() -> float:
    """MB of this process at its peak; getrusage would count what the parent had when it started us."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def ingesting(options: Options) -> list[Row]:
    """Every step, at growing sizes."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES[: 1 if options.quick else 3 if options.full else 2]:
            log = Path(folder) / f"{size}.parquet"
            write_log(log, size)
            write_log(theirs(log), size, theirs=True)
            turns = [
                {step: [measure(step, side, log) for side in (0, 1)] for step in STEPS}
                for _ in range(options.repeats)
            ]
            for step in STEPS:
                rows += compared(f"{step}, {size / 1e6:.0f} million", size, [turn[step] for turn in turns])
            for name, steps in TOGETHER.items():
                both = [
                    [
                        {key: sum(turn[step][side][key] for step in steps) for key in ("wall", "cpu")}
                        for side in (0, 1)
                    ]
                    for turn in turns
                ]
                rows += compared(f"{name}, {size / 1e6:.0f} million", size, both, goals=True)
    return rows


def compared(what: str, size: int, turns: list[list[dict[str, float]]], goals: bool = False) -> list[Row]:
    """Ours over bare, by processor time, and impressions a second of both, by the clock and by processor time."""
    ratios = [ours["cpu"] / bare["cpu"] for ours, bare in turns]
    middle = statistics.median(ratios)
    wall = statistics.median(size / ours["wall"] for ours, _ in turns)
    rate, bare_rate = (statistics.median(size / turn[side]["cpu"] * THREADS for turn in turns) for side in (0, 1))
    peak = (
        "; peak {:,.0f} MB, bare {:,.0f} MB".format(
            *(max(turn[side]["memory"] for turn in turns) for side in (0, 1))
        )
        if "memory" in turns[0][0]
        else ""
    )
    limit, least = (f"at most {MOST}", f"{RATE / 1e6:.0f} million/s") if goals else ("", "")
    return [
        Row(
            f"{what}: over bare", f"{middle:.2f}", spread(ratios) + peak, limit, middle <= MOST if goals else None
        ),
        Row(
            f"{what}: impressions",
            f"{rate / 1e6:.1f} million/s",
            f"two threads, by processor time; bare {bare_rate / 1e6:.1f}; by the wall clock {wall / 1e6:.1f}",
            least,
            rate >= RATE if goals else None,
        ),
    ]


if __name__ == "__main__":
    once(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
