"""Which rows of a log are one page, where no id says so: by person, query and pause; which pages are one visit.

A page is one look of a person at the results of a query. Rows of one person and query belong together until

- nothing of them is logged for longer than a pause, or
- a position is shown again: a reload, or the way back from a product. A row that says the same document at the
  same position within `REPEATED` seconds is a beacon sent twice and begins nothing; or
- after `SETTLED` seconds without a row a position comes that is above all of the page: back to the first results
  from further ones.

So times of single rows, seconds apart and out of order, do not tear a page; somebody who leafs on within the pause
(ranks 25 to 48) stays on the page, each result at its rank; and two searches that are looked at side by side stay
two pages.

A page is known by its person, its query and the microsecond at which it begins. Most people look at the results of
a query once, which one aggregation tells. Only the others are looked at row by row: windows give the runs between
pauses, and runs that show a position again, or fall, are cut pass after pass, until nothing is left to cut.

A visit (visit_id) is a run of pages of one person with no pause longer than a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from unskew.settings import require_columns
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Column, Table, ibis
from unskew.tables.engine.functions import bit_or, to_micros

SECOND = 1_000_000
REPEATED = 2
"""Seconds within which the same document at the same position is the same impression, told again."""
SETTLED = 10
"""Seconds without a row after which a higher position is no beacon that came late."""
PASSES = 100
"""Cuts within cuts, after which the rest is left to the rules."""
WORD = 30
"""Positions that share a number of bits; from two of them on a group is looked at row by row."""
_START = "unskew_start"
LACKING = "ingest the log with them, or name others"
"""What to do about columns that are not there."""


def add_page_ids(rows: Table, engine: Engine, *, by: Sequence[str], gap: int) -> Table:
    """The rows with a page_id; `by` are the columns that name a person, `gap` is the pause in seconds.

    Rows need a person, a query, a document, a position and a time. An id is "PERSON MICROSECONDS QUERY".
    """
    require_columns(["timestamp", "query_id", "doc_id", "position", *by], rows.columns, hint=LACKING)
    rows = rows.drop("page_id") if "page_id" in rows.columns else rows
    timed = rows.mutate(unskew_at=to_micros(rows.timestamp, engine.name))
    key = [*by, "query_id"]
    groups = engine.keep(_groups(timed, key, gap))
    once = groups.filter(groups.once)
    started = timed.inner_join(once.select(*key, _START), key).select(*timed.columns, _START)
    several = groups.filter(~groups.once).select(*key)
    if engine.count(several):
        looked = _looked(timed.semi_join(several, key), engine, key, gap)
        started = started.union(looked.select(*started.columns).cast(dict(started.schema().items())))
    person: Any = person_name(started, by)
    name = person + " " + started[_START].cast("string") + " " + started.query_id.cast("string")
    return started.mutate(page_id=name).drop("unskew_at", _START)


def _groups(rows: Table, key: list[str], gap: int) -> Table:
    """Persons and queries: when they begin, and whether all of their rows are surely one page.

    They are where no position comes twice, all is within the pause, and the first result came at once. A sum of
    powers of two is their union only where no power comes twice.
    """
    words = {}
    for nth in range(2):
        inside = rows.position.between(nth * WORD, nth * WORD + WORD - 1)
        bit = ibis.literal(1, "int64") << (rows.position - nth * WORD).clip(0, WORD).cast("int32")
        words[nth] = inside.ifelse(bit.cast("int64"), 0)
    grouped = rows.group_by(key).agg(
        **{_START: rows.unskew_at.min()},
        end=rows.unskew_at.max(),
        top=rows.unskew_at.argmin(rows.position),
        last=rows.position.max(),
        same=bit_or(words[0]) == words[0].sum().cast("int64"),
        further=bit_or(words[1]) == words[1].sum().cast("int64"),
    )
    begun = grouped[_START]
    once = grouped.same & grouped.further & (grouped["last"] < 2 * WORD) & (grouped.end <= begun + gap * SECOND)
    return grouped.select(*key, _START, once=once & (grouped.top <= begun + SETTLED * SECOND))


def _looked(rows: Table, engine: Engine, key: list[str], gap: int) -> Table:
    """Rows with the start of their page, found row by row."""
    pages = [*key, _START]
    runs = engine.keep(_runs(rows, key, gap))
    odd = engine.keep(runs.filter(_returns(runs) | _falls(runs)).select(*pages).distinct())
    if not (count := engine.count(odd)):
        return runs
    calm, torn = runs.anti_join(odd, pages), runs.semi_join(odd, pages)
    for _ in range(PASSES):
        torn = engine.keep(_cut(torn, pages).select(*runs.columns))
        before, count = count, engine.count(torn.select(*pages).distinct())
        if count == before:
            break
    return calm.union(torn)


def _runs(rows: Table, key: list[str], gap: int) -> Table:
    """Rows with the start of their run, and with the last time before that their position was shown."""
    whole = ibis.window(group_by=key, order_by=["unskew_at", "position"])
    place = ibis.window(group_by=[*key, "position"], order_by=["unskew_at", "doc_id"])
    told = rows.mutate(
        unskew_before=rows.unskew_at.lag().over(whole),
        unskew_above=rows.position.lag().over(whole),
        unskew_seen=rows.unskew_at.lag().over(place),
        unskew_shown=rows.doc_id.lag().over(place),
    )
    begins = told.unskew_before.isnull() | (told.unskew_at > told.unskew_before + gap * SECOND)
    fell = (told.unskew_at > told.unskew_before + SETTLED * SECOND) & (told.position < told.unskew_above)
    later = told.unskew_at - told.unskew_seen
    again = (later > REPEATED * SECOND) | ((later > 0) & (told.unskew_shown != told.doc_id))
    start = begins.ifelse(told.unskew_at, ibis.null("int64")).max().over(_until(key))
    flags = {"unskew_again": again.fill_null(False), "unskew_fell": fell.fill_null(False)}
    return told.mutate(unskew_start=start, **flags)


def _until(group: list[str]) -> Any:
    """A group's rows until each moment, with all of that moment, so that the order of rows never matters."""
    return ibis.range_window(group_by=group, order_by="unskew_at", preceding=None, following=0)


def _returns(rows: Table) -> Any:
    return rows.unskew_again & (rows.unskew_seen >= rows.unskew_start)


def _falls(rows: Table) -> Any:
    return rows.unskew_fell & (rows.unskew_at > rows.unskew_start)


def _cut(rows: Table, pages: list[str]) -> Table:
    """Pages cut where a position returns, and where the first row comes that is above all of its page.

    The nth return of a position belongs to the nth page at least.
    """
    counted = rows.mutate(
        unskew_nth=_returns(rows).cast("int32").sum().over(_until([*pages, "position"])),
        unskew_top=rows.position.min().over(_until(pages)),
    )
    falls = _falls(counted) & (counted.position == counted.unskew_top)
    looks = counted.mutate(
        unskew_look=counted.unskew_nth.max().over(_until(pages)),
        unskew_fall=falls.ifelse(counted.unskew_at, ibis.null("int64")).min().over(group_by=pages),
    )
    looks = looks.mutate(unskew_after=(looks.unskew_at >= looks.unskew_fall).fill_null(False))
    start = looks.unskew_at.min().over(group_by=[*pages, "unskew_look", "unskew_after"])
    return looks.mutate(unskew_start=start)


# ---- visits ----


def add_visits(events: Table, pages: Table) -> Table:
    """The impressions of these pages, with their visit_id."""
    kept = [name for name in events.columns if name != "visit_id"]
    return events.select(kept).join(pages.select("page_id", "visit_id"), "page_id")


def find_visits(events: Table, *, by: Sequence[str], gap: int) -> Table:
    """One row per page: page_id, `start`, visit_id, when the visit `began`, and whether the page `opens` it.

    A visit ends with a pause of more than `gap` seconds between the starts of two pages; a page without a person
    is a visit of its own. Ids are the person's name and a number. Pages of one moment are peers in the running
    window, so that their order never matters. A visit began with the last page until then that came after a pause.
    """
    require_columns(["timestamp", *by], events.columns, hint=LACKING)
    people = {name: events[name].min() for name in by}
    pages = events.group_by("page_id").agg(start=events.timestamp.min(), **people)
    order = ibis.window(group_by=list(by), order_by="start")
    before = pages.mutate(before=pages.start.lag().over(order))
    pause = before.before.isnull() | (before.start > before.before + ibis.interval(seconds=gap))
    opened = before.mutate(opens=pause)
    running = ibis.range_window(group_by=list(by), order_by="start", preceding=None, following=0)
    numbered = opened.mutate(
        number=opened.opens.cast("int32").sum().over(running),
        began=opened.opens.ifelse(opened.start, ibis.null(opened.start.type())).max().over(running),
    )
    known = reduce(lambda left, right: left & right, [numbered[name].notnull() for name in by])
    person = person_name(numbered, by) + "/" + numbered.number.cast("string")
    own = "//" + numbered.page_id.cast("string")
    return numbered.select(
        "page_id",
        "start",
        visit_id=known.ifelse(person, own),
        began=known.ifelse(numbered.began, numbered.start),
        opens=numbered.opens | ~known,
    )


def person_name(table: Table, by: Sequence[str]) -> Column:
    """The columns as one string; several are escaped, so that no two people get one name."""
    texts = [table[name].cast("string") for name in by]
    if len(texts) > 1:
        texts = [text.replace("~", "~0").replace("/", "~1") for text in texts]
    return reduce(lambda left, right: left + "/" + right, texts)


def clock(second: int) -> str:
    """A second since 1970 as text, in UTC.

    >>> clock(0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(second, UTC).isoformat().replace("+00:00", "Z")
