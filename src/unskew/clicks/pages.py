"""Which rows of a log are one page, where no id says so: by person, query and pause.

A page is one look of a person at the results of a query. Rows of one person and query belong together until

- nothing of them is logged for longer than a pause, or
- a position is shown again: a reload, or the way back from a product. A row that says the same document at the
  same position within `REPEATED` seconds is a beacon sent twice and begins nothing; or
- after `SETTLED` seconds without a row a position comes that is above all of the page: back to the first results
  from further ones.

So times of single rows, seconds apart and out of order, do not tear a page; somebody who leafs on within the pause
(ranks 25 to 48) stays on the page, each result at its rank; and two searches that are looked at side by side stay
two pages.

A page is known by its person, its query and the microsecond at which it begins. Windows give the runs between
pauses. Only runs that show a position again, or fall, are looked at further: pass after pass cuts them, until
nothing is left to cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from unskew.clicks.engine.engine import Engine
from unskew.clicks.ingest.functions import to_micros
from unskew.clicks.visits import person_name, require

if TYPE_CHECKING:
    from ibis.expr.types import Table

SECOND = 1_000_000
REPEATED = 2
"""Seconds within which the same document at the same position is the same impression, told again."""
SETTLED = 10
"""Seconds without a row after which a higher position is no beacon that came late."""
PASSES = 100
"""Cuts within cuts, after which the rest is left to the rules."""
PERSON = "unskew_person"
_KEY = [PERSON, "query_id", "unskew_start"]
_HELP = ("at", "before", "above", "start", "seen", "shown", "again", "fell")
_ADDED = (PERSON, *(f"unskew_{name}" for name in _HELP))


def add_page_ids(rows: Table, engine: Engine, *, by: Sequence[str], gap: int) -> Table:
    """The rows with a page_id; `by` are the columns that name a person, `gap` is the pause in seconds.

    Rows need a person, a query, a document, a position and a time. An id is "PERSON MICROSECONDS QUERY".
    """
    require(rows, ["timestamp", "query_id", "doc_id", "position", *by])
    runs = engine.keep(_runs(rows, engine, by, gap))
    odd = engine.keep(runs.filter(_returns(runs) | _falls(runs)).select(*_KEY).distinct())
    if pages := engine.count(odd):
        calm, torn = runs.anti_join(odd, _KEY), runs.semi_join(odd, _KEY)
        for _ in range(PASSES):
            torn = engine.keep(_cut(torn).select(*runs.columns))
            before, pages = pages, engine.count(torn.select(*_KEY).distinct())
            if pages == before:
                break
        runs = calm.union(torn)
    name: Any = runs[PERSON] + " " + runs.unskew_start.cast("string") + " " + runs.query_id.cast("string")
    return runs.mutate(page_id=name).drop(*_ADDED)


def _runs(rows: Table, engine: Engine, by: Sequence[str], gap: int) -> Table:
    """Rows with the start of their run, and with the last time before that their position was shown."""
    import ibis

    rows = rows.drop("page_id") if "page_id" in rows.columns else rows
    timed = rows.mutate(**{PERSON: person_name(rows, by), "unskew_at": to_micros(rows.timestamp, engine.name)})
    whole = ibis.window(group_by=[PERSON, "query_id"], order_by=["unskew_at", "position"])
    place = ibis.window(group_by=[PERSON, "query_id", "position"], order_by=["unskew_at", "doc_id"])
    told = timed.mutate(
        unskew_before=timed.unskew_at.lag().over(whole),
        unskew_above=timed.position.lag().over(whole),
        unskew_seen=timed.unskew_at.lag().over(place),
        unskew_shown=timed.doc_id.lag().over(place),
    )
    begins = told.unskew_before.isnull() | (told.unskew_at > told.unskew_before + gap * SECOND)
    fell = (told.unskew_at > told.unskew_before + SETTLED * SECOND) & (told.position < told.unskew_above)
    later = told.unskew_at - told.unskew_seen
    again = (later > REPEATED * SECOND) | ((later > 0) & (told.unskew_shown != told.doc_id))
    start = begins.ifelse(told.unskew_at, ibis.null("int64")).max().over(_until([PERSON, "query_id"]))
    flags = {"unskew_again": again.fill_null(False), "unskew_fell": fell.fill_null(False)}
    return told.mutate(unskew_start=start, **flags)


def _until(group: list[str]) -> Any:
    """A group's rows until each moment, with all of that moment, so that the order of rows never matters."""
    import ibis

    return ibis.range_window(group_by=group, order_by="unskew_at", preceding=None, following=0)


def _returns(rows: Table) -> Any:
    """Whether a row shows a position that its page has shown already."""
    return rows.unskew_again & (rows.unskew_seen >= rows.unskew_start)


def _falls(rows: Table) -> Any:
    """Whether a row comes after a rest and above the row before it."""
    return rows.unskew_fell & (rows.unskew_at > rows.unskew_start)


def _cut(rows: Table) -> Table:
    """Pages cut where a position returns, and where the first row comes that is above all of its page.

    The nth return of a position belongs to the nth page at least.
    """
    import ibis

    counted = rows.mutate(
        unskew_nth=_returns(rows).cast("int32").sum().over(_until([*_KEY, "position"])),
        unskew_top=rows.position.min().over(_until(_KEY)),
    )
    falls = _falls(counted) & (counted.position == counted.unskew_top)
    looks = counted.mutate(
        unskew_look=counted.unskew_nth.max().over(_until(_KEY)),
        unskew_fall=falls.ifelse(counted.unskew_at, ibis.null("int64")).min().over(group_by=_KEY),
    )
    looks = looks.mutate(unskew_after=(looks.unskew_at >= looks.unskew_fall).fill_null(False))
    start = looks.unskew_at.min().over(group_by=[*_KEY, "unskew_look", "unskew_after"])
    return looks.mutate(unskew_start=start)
