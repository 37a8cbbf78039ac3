"""One delivery of impressions, page by page: which pages count, their rows once each, and the sums of them.

The page is what is counted: it belongs to the hour of its earliest row, and counts once. What is wrong with a
delivery has a rule and a count each: docs/how_to/tracking.md.

Every sum is of whole numbers, times in milliseconds and examination in thousandths, so that it does not depend on
the order in which rows, hours and runs are added, on either engine: a window of merged hours equals the same
window computed from the whole log, to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unskew.names import REQUIRED
from unskew.settings import require_columns
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Column, Table, ibis
from unskew.tables.engine.functions import as_utc, bit_or, finite
from unskew.tracking.traces import DEEP, rank_bit

HOUR = 3600
"""Seconds of an hour."""
PAUSE = 1800
"""Seconds after which a result that a page has shown already is of another page."""
WEEK = 7 * 24
"""Hours past all others from which on a few pages are taken to be of wrong clocks."""
FEW = 0.01
"""Share of the pages of a store and of what is delivered that a few are, and never half of what is delivered."""
LONGEST = 1e9
"""Seconds that no display or dwell time has."""
TIMES = ("display_time", "dwell_time")
OPTIONAL = (*TIMES, "randomized", "examination")
BROKEN = ("no_time", "no_id", "bad_click", "bad_position", "two_queries", "returns")
"""Why a page cannot be counted, the first reason that holds."""
LEFT_OUT = (*BROKEN, "future", "far_ahead", "too_old", "split", "repeated")
"""All reasons for which a page of a delivery does not count, the first that holds."""


def delivered_rows(engine: Engine, impressions: Table, place: Path | str | None) -> Table:
    """The columns that are tracked, in types that both engines sum alike; times in UTC."""
    require_columns([*REQUIRED, "timestamp"], impressions.columns, path=place, hint="tracking needs them")
    kept = [name for name in OPTIONAL if name in impressions.columns]
    rows = impressions.select(*REQUIRED, "timestamp", *kept)
    numbers = {name: finite(rows[name], engine.name) for name in kept if name != "randomized"}
    return rows.mutate(
        timestamp=as_utc(rows.timestamp, "UTC", engine.name),
        position=rows.position.cast("int32"),
        click=rows.click.cast("int32"),
        **numbers,
    )


def known_time(rows: Table, name: str) -> Column:
    """Whether a time in seconds is known: there, not negative, and shorter than a life."""
    known: Column = rows[name].between(0.0, LONGEST).fill_null(False)
    return known


def page_table(rows: Table) -> Table:
    """One row per page: its hour, what its clicks say, what is wrong, and whether it says a rank `twice`."""
    bit = rank_bit(rows.position)
    clicked = ibis.ifelse(rows.click == 1, rows.position, ibis.null("int32"))
    strange = {  # times that are none
        f"{name}_negative": rows.count(where=rows[name].notnull() & ~known_time(rows, name))
        for name in TIMES
        if name in rows.columns
    }
    if "display_time" in rows.columns:  # most results have no dwell time
        strange["display_time_missing"] = rows.count(where=rows.display_time.isnull())
    pages = rows.group_by("page_id").agg(
        rows=rows.count(),
        start=rows.timestamp.min(),
        last=rows.timestamp.max(),
        of_first=rows.timestamp.argmin(rows.position),
        bits=bit_or(bit),
        total=bit.sum().cast("int64"),
        length=rows.position.max(),
        first_click=clicked.min(),
        last_click=clicked.max(),
        no_time=rows.count(where=rows.timestamp.isnull()),
        no_id=rows.count(where=rows.query_id.isnull() | rows.doc_id.isnull()),
        bad_click=rows.count(where=~rows.click.isin([0, 1]).fill_null(False)),
        bad_position=rows.count(where=~(rows.position >= 1).fill_null(False)),
        two_queries=(rows.query_id.min() != rows.query_id.max()).cast("int64"),
        **strange,
    )
    hour = (pages.start.truncate("h").epoch_seconds() / HOUR).round().cast("int64")
    # a rank said twice; ranks from the last bit on share it, so that deep pages are looked at row by row
    again, deep = pages.bits != pages.total, pages.length >= DEEP
    # what stands there again much later is another page with the same id
    apart = pages.last.epoch_seconds() - pages.start.epoch_seconds() > PAUSE
    made = pages.mutate(hour=hour, twice=again | deep, returns=(again & ~deep & apart).cast("int64"))
    return made.mutate(clock_back=(pages.start < pages.of_first).cast("int64")).drop("last")


def first_far_ahead(pages: Mapping[int, int], clock: int | None, before: int) -> int | None:
    """The hour from which on pages are few and a week past all others; None where there are none such.

    `pages` are those delivered by hour, and `before` is how many were counted up to the hour `clock`.

    >>> first_far_ahead({5: 300, 6: 200, 5000: 1}, None, 0), first_far_ahead({5000: 200}, 7, 10**6)
    (5000, None)
    """
    total = left = sum(pages.values())
    latest = clock
    for hour in sorted(pages):
        few = left <= FEW * (total + before) and 2 * left < total
        if few and latest is not None and hour - latest > WEEK:
            return hour
        latest, left = hour if latest is None else max(latest, hour), left - pages[hour]
    return None


def with_reasons(pages: Table, *, seen: Table | None, until: int, ahead: int | None, oldest: int) -> Table:
    """The pages with `reason`, why each does not count, null where it does.

    `seen` has hour, page_id, ranks and start of those that were counted before; the others are hours.
    """
    if seen is None:
        known = pages.mutate(known=ibis.literal(False), further=ibis.literal(False))
    else:
        before = met_before(pages, seen)
        joined = pages.left_join(before, pages.page_id == before.met).drop("met")
        known = joined.mutate(known=joined.known.fill_null(False), further=joined.further.fill_null(False))
    cases = [(known[name] > 0, name) for name in BROKEN]
    cases += [(known.page_id.isnull(), "no_id")]
    cases += [(known.hour >= until, "future"), (known.hour < oldest, "too_old")]
    cases += [] if ahead is None else [(known.hour >= ahead, "far_ahead")]
    cases += [(known.further, "split"), (known.known, "repeated")]
    return known.mutate(reason=ibis.cases(*cases, else_=ibis.null("string"))).drop("known", "further")


def met_before(pages: Table, seen: Table) -> Table:
    """`met`, the pages of which something was counted before: whether it is `known`, or `further` ranks come now.

    In its hour a page is known by its id, and in the hours beside it too where half an hour has not passed since;
    later what begins with the first rank again is another page. Further ranks share none with what was counted.
    """
    other = seen.select(seen_hour="hour", seen_page="page_id", seen_ranks="ranks", seen_start="start")
    start = pages.start.epoch_seconds()
    near = pages.select("page_id", "hour", "bits", start=start).join(other, pages.page_id == other.seen_page)
    near = near.mutate(apart=(near.hour - near.seen_hour).abs(), shared=near.bits & near.seen_ranks)
    soon = (near.apart == 1) & ((near.start - near.seen_start).abs() <= PAUSE)
    same, beside = (near.apart == 0) | (soon & (near.shared != 0)), (near.apart == 1) & (near.shared == 0)
    near = near.mutate(same=same, more=beside | (same & (near.shared != near.bits)))
    near = near.filter(near.same | near.more)
    return near.group_by(met="page_id").agg(known=near.same.any(), further=near.more.any())


def counted_rows(rows: Table, pages: Table, *, any_twice: bool) -> Table:
    """The rows of these pages, every rank of a page once, with the page's columns."""
    inside = pages.select("page_id", "hour", "first_click", "last_click", "twice")
    inside = inside.rename(page="page_id")
    joined = rows.join(inside, rows.page_id == inside.page).drop("page")
    if not any_twice:
        return joined.drop("twice")
    some = joined.filter(joined.twice)
    order = [some.click.desc(), some.doc_id, *(some[name] for name in OPTIONAL if name in some.columns)]
    nth = ibis.row_number().over(group_by=["page_id", "position"], order_by=order)
    once = some.mutate(nth=nth)
    return joined.filter(~joined.twice).drop("twice").union(once.filter(once.nth == 0).drop("twice", "nth"))


SUMS: Mapping[str, str] = {
    "displays": "times shown",
    "clicks": "times clicked",
    "first_clicks": "clicks that were the first of their page, by rank",
    "last_clicks": "clicks that were the last of their page, by rank",
    "only_clicks": "clicks that were the only one of their page",
    "skips": "times not clicked while something further down was",
    "random_displays": "times shown in a slot filled at random",
    "random_clicks": "clicks there",
    "timed": "displays whose display time is known",
    "display_ms": "their display times together, in milliseconds",
    "dwelt": "clicks whose dwell time is known",
    "dwell_ms": "their dwell times together, in milliseconds",
    "long_dwells": "those of 30 seconds or more",
    "estimated": "displays with an examination estimate ê",
    "examined": "Σ ê, in thousandths",
    "examined_squared": "Σ ê², in millionths",
    "examined_clicks": "Σ c ê, in thousandths",
}
"""Tracked sums, all int64, and what they are."""
KEY = ("query_id", "doc_id", "position")
"""Columns of which a window has one row for each combination."""
LONG = 30.0
"""Seconds of a long dwell time."""
MILLI = 1000


def hourly_sums(rows: Table) -> Table:
    """The sums of the rows of pages that count, by `hour`, query_id, doc_id and position."""
    c = rows.click == 1
    first, last = c & (rows.position == rows.first_click), c & (rows.position == rows.last_click)
    flags: dict[str, Any] = {
        "clicks": c,
        "first_clicks": first,
        "last_clicks": last,
        "only_clicks": first & last,
        "skips": ~c & (rows.position < rows.last_click).fill_null(False),
    }
    if "randomized" in rows.columns:
        random = rows.randomized.fill_null(False)
        flags |= {"random_displays": random, "random_clicks": random & c}
    if "display_time" in rows.columns:
        timed = known_time(rows, "display_time")
        flags |= {"timed": timed, "display_ms": _thousandths(timed, rows.display_time)}
    if "dwell_time" in rows.columns:
        dwelt = known_time(rows, "dwell_time") & c
        long = (dwelt & (rows.dwell_time >= LONG)).fill_null(False)
        flags |= {"dwelt": dwelt, "dwell_ms": _thousandths(dwelt, rows.dwell_time), "long_dwells": long}
    if "examination" in rows.columns:
        estimated = known_time(rows, "examination")
        milli = _thousandths(estimated, ibis.least(rows.examination, 1.0))
        flags |= {"estimated": estimated, "examined": milli, "examined_squared": milli * milli}
        flags["examined_clicks"] = ibis.ifelse(c, milli, 0)
    # a count of rows takes half the memory of a sum, and most of the time of a build goes into memory
    made = {
        name: rows.count(where=flag) if flag.type().is_boolean() else flag.sum().cast("int64")
        for name, flag in flags.items()
    }
    sums = rows.group_by("hour", *KEY).agg(displays=rows.count(), **made)
    absent = {name: ibis.literal(0, "int64") for name in SUMS if name not in sums.columns}
    return sums.mutate(**absent).select("hour", *KEY, *SUMS)


def _thousandths(known: Any, value: Any) -> Any:
    """A number in whole thousandths, rounded half up on every engine; 0 where it is not known."""
    return (ibis.ifelse(known, value, 0.0) * MILLI + 0.5).floor().cast("int64")


def merged(parts: Table) -> Table:
    """Sums of the same query, document and position, added up."""
    return parts.group_by(*KEY).agg(**{name: parts[name].sum().cast("int64") for name in SUMS})
