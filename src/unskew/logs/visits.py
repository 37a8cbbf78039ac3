"""Visits: which pages a person saw in one go.

A page (page_id) is one list of results; a visit (visit_id) is a run of pages of one person with no pause longer
than a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING

from unskew.settings import require_columns

if TYPE_CHECKING:
    from ibis.expr.types import Column, Table


LACKING = "ingest the log with them, or name others"
"""What to do about columns that are not there."""


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
    import ibis

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
