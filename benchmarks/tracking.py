"""Click tracking: a month counted against bare queries, and hours of several sizes on top of 1, 7 and 28 days.

The log is a simulated search engine's, with few pages an hour, so hours reduce it little. The bare side is what
one would write by hand in DuckDB, sorted and written with the same options, without any check, in two ways:

    windows   what the clicks of a page say by one group-by, joined to its results and summed for each window
    store     the same sums by hour, written by day, then the pages, and the windows summed from the hours:
              all that our store holds and that an hourly update needs

All take turns in one process, one thread, processor time.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from common import Options, Row, Stopwatch, spread, timed

import unskew
from unskew.tables.engine.engine import COPY
from unskew.tracking.delivery import SUMS as TRACKED
from unskew.tracking.track import track

MOST = 1.5
HISTORIES, SIZES = (1, 7, 28), (10_000, 40_000, 160_000, 640_000)
PAGES = """
create temp table pages as select page_id, min(timestamp) as start,
min(position) filter (click = 1) as first_click, max(position) filter (click = 1) as last_click,
bit_or(1::bigint << least(position, 40)) as ranks,
epoch_ms(min(timestamp)) // 3600000 as hour from '{log}' group by page_id"""
SUMS = """count(*) as displays, sum(click)::bigint as clicks,
count(*) filter (click = 1 and position = first_click) as first_clicks,
count(*) filter (click = 1 and position = last_click) as last_clicks,
count(*) filter (click = 1 and position = first_click and position = last_click) as only_clicks,
count(*) filter (click = 0 and position < last_click) as skips,
count(*) filter (randomized) as random_displays, count(*) filter (randomized and click = 1) as random_clicks,
count(display_time) as timed, sum(floor(display_time * 1000 + 0.5)::bigint)::bigint as display_ms,
count(dwell_time) as dwelt, sum(floor(dwell_time * 1000 + 0.5)::bigint)::bigint as dwell_ms,
count(*) filter (dwell_time >= 30) as long_dwells, count(examination) as estimated,
sum(floor(examination * 1000 + 0.5)::bigint)::bigint as examined,
sum(floor(examination * 1000 + 0.5)::bigint ** 2)::bigint as examined_squared,
(sum(floor(examination * 1000 + 0.5)::bigint) filter (click = 1))::bigint as examined_clicks"""
WINDOW = """
copy (select query_id, doc_id, position, {sums} from '{log}' join pages using (page_id)
where start >= timestamp '{end}' - interval {hours} hour
group by all order by query_id, doc_id, position) to '{out}' ({copy})"""
HOURLY = """
copy (select hour // 24 as day, hour, query_id, doc_id, position, {sums} from '{log}' join pages using (page_id)
group by all) to '{out}' ({copy}, partition_by (day))"""
LEDGER = "copy (select hour // 24 as day, hour, page_id, ranks from pages) to '{out}' ({copy}, partition_by (day))"
MERGED = """
copy (select query_id, doc_id, position, {sums} from read_parquet('{parts}/*/*.parquet')
where hour >= epoch_ms(timestamp '{end}') // 3600000 - {hours}
group by all order by query_id, doc_id, position) to '{out}' ({copy})"""
WINDOWS = {"day": 24, "week": 168, "month": 672}
END = "2024-01-29"


def tracking(options: Options) -> list[Row]:
    """The build, then hours on top of histories of several lengths."""
    pages = 30_000 if options.quick else 300_000
    with tempfile.TemporaryDirectory(prefix="unskew-tracking-") as name:
        folder = Path(name)
        lists = unskew.make_lists(max(500, pages // 60), documents=(10, 20), seed=0)
        log = write(folder / "whole.parquet", lists, unskew.Traffic(pages=pages, days=28, seed=0))
        sizes = SIZES[:2] if options.quick else SIZES
        return [*building(folder, log, options.repeats), *updating(folder, lists, log, sizes, options.repeats)]


def write(path: Path, lists: unskew.Lists, traffic: unskew.Traffic) -> pa.Table:
    """A log with examination, in the order of time."""
    made = traffic.draw(lists)
    columns = dict(made.columns) | {"examination": np.round(made.columns["true_examination"].astype(float), 3)}
    columns = {key: column for key, column in columns.items() if not key.startswith("true_")}
    whole = unskew.Log(
        lists, made.query, made.offsets, made.row, made.position, made.click, made.randomized, columns
    )
    unskew.write_log(whole, path)
    return pq.read_table(path)


def between(log: pa.Table, first: float, last: float, path: Path) -> Path:
    """The pages of a stretch of time, in hours since the log began."""
    start = np.datetime64("2024-01-01", "us")
    low, high = (pa.scalar(start + np.timedelta64(int(hour * 3600), "s")) for hour in (first, last))
    inside = pc.and_(pc.greater_equal(log["timestamp"], low), pc.less(log["timestamp"], high))
    pq.write_table(log.filter(inside), path, compression="zstd")
    return path


def building(folder: Path, log: pa.Table, repeats: int) -> list[Row]:
    """28 days into an empty store, against the bare queries."""
    path = between(log, 0, 28 * 24, folder / "month.parquet")
    rows = pq.read_metadata(path).num_rows
    sides = {
        "ours": lambda: track(path, folder / "store", threads=1),
        "windows": lambda: bare_windows(path, folder / "windows"),
        "store": lambda: bare_store(path, folder / "bare"),
    }
    times: dict[str, list[Stopwatch]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            for place in ("store",) if name == "ours" else ("windows", "bare"):
                shutil.rmtree(folder / place, ignore_errors=True)
            times[name].append(timed(side))
            same(folder, folder / {"windows": "windows", "store": "bare"}.get(name, "none"))
    made = []
    for name in ("windows", "store"):
        ratios = [one.cpu / other.cpu for one, other in zip(times["ours"], times[name], strict=True)]
        middle = statistics.median(ratios)
        seconds = [statistics.median(each.cpu for each in times[side]) for side in ("ours", name)]
        what = f"build, {rows / 1e6:.1f} million impressions of 28 days, over bare queries for the {name}"
        measured = f"{middle:.2f} ({seconds[0]:.1f} s over {seconds[1]:.1f} s)"
        made.append(Row(what, measured, spread(ratios), f"at most {MOST}", middle <= MOST))
    return made


def _duckdb(path: Path, out: Path):  # type: ignore[no-untyped-def]
    import duckdb

    out.mkdir()
    con = duckdb.connect(config={"threads": 1, "preserve_insertion_order": False})
    con.execute(PAGES.format(log=path))
    return con


def bare_windows(path: Path, out: Path) -> None:
    """The three windows from the log."""
    con = _duckdb(path, out)
    for name, hours in WINDOWS.items():
        place = out / f"{name}.parquet"
        con.execute(WINDOW.format(sums=SUMS, log=path, end=END, hours=hours, out=place, copy=COPY))


def bare_store(path: Path, out: Path) -> None:
    """Hours and pages from the log, and the three windows from the hours."""
    con = _duckdb(path, out)
    con.execute(HOURLY.format(sums=SUMS, log=path, out=out / "hours", copy=COPY))
    con.execute(LEDGER.format(out=out / "pages", copy=COPY))
    merged = ", ".join(f"sum({name})::bigint as {name}" for name in TRACKED)
    for name, hours in WINDOWS.items():
        place = out / f"{name}.parquet"
        con.execute(MERGED.format(sums=merged, parts=out / "hours", end=END, hours=hours, out=place, copy=COPY))


def same(folder: Path, bare: Path) -> None:
    """Both sides have computed the same."""
    for name in WINDOWS if bare.exists() else ():
        (place,) = (folder / "store" / "windows").glob(f"{name}-*")
        ours, other = pq.read_table(place), pq.read_table(bare / f"{name}.parquet")
        for column in ours.column_names:
            filled = pc.fill_null(other[column], 0) if other[column].null_count else other[column]
            assert ours[column].equals(filled.cast(ours[column].type)), (name, column)


def updating(folder: Path, lists: unskew.Lists, log: pa.Table, sizes: tuple[int, ...], repeats: int) -> list[Row]:
    """An hour of each size on top of each history; week and month are not due, the day is."""
    hours = {}
    for size in sizes:
        hour = unskew.Traffic(pages=size // 10, days=1 / 24, start=date(2024, 1, 29), seed=1)
        hours[size] = folder / f"hour-{size}.parquet"
        write(hours[size], lists, hour)
    found: dict[int, list[float]] = {size: [] for size in sizes}
    for days in HISTORIES:
        store = folder / f"store-{days}"
        track(between(log, (28 - days) * 24, 672, folder / "history.parquet"), store, threads=1)
        for size, path in hours.items():
            found[size].append(statistics.median(_update(path, store, folder / "copy") for _ in range(repeats)))
    rows = [
        Row(
            f"an hour of {size:,} impressions on top of {', '.join(map(str, HISTORIES))} days",
            ", ".join(f"{each:.2f}" for each in times) + " s",
            f"{max(times) / min(times):.2f} between them",
            "flat",
            times[-1] < 1.5 * times[0],
        )
        for size, times in found.items()
    ]
    for place, days in enumerate(HISTORIES):
        slope, constant = np.polyfit(sizes, [found[size][place] for size in sizes], 1)
        said = f"{constant:.2f} s and {1e6 * slope:.2f} s a million impressions"
        rows.append(Row(f"an hour on top of {days} days", said, "", "", None))
    return rows


def _update(path: Path, store: Path, copy: Path) -> float:
    """Processor seconds of one hour on a fresh copy of a store."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(store, copy)
    return timed(lambda: track(path, copy, threads=1)).cpu
