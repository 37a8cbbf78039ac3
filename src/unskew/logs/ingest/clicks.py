"""Clicks that come as events of their own, joined to the results that were shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unskew.errors import DataError
from unskew.logs.ingest.columns import REASON
from unskew.tables.engine.engine import Engine
from unskew.tables.reading.options import IngestOptions

if TYPE_CHECKING:
    from ibis.expr.types import Table


@dataclass(frozen=True)
class Joined:
    """Impressions with their clicks, and the click events that found none."""

    impressions: Table
    removed: list[Table]
    """Click events with a reason each, to be written to the rejected rows."""
    counts: dict[str, int]
    """How many click events each rule found."""


def event_column(columns: Sequence[str], options: IngestOptions) -> str | None:
    """The column that says what an event is, of a log whose rows are events."""
    name = options.events.column or ("event" if "event" in columns and "click" not in columns else None)
    if name is not None and name not in columns:
        raise DataError(f"there is no column {name!r} that says what an event is", hint="set events.column")
    return name


def split_events(raw: Table, name: str, options: IngestOptions) -> tuple[Table, Table, Table]:
    """Impressions, clicks, and the events that are neither, of a table whose rows are events."""
    import ibis

    kind = raw[name].cast("string").lower()
    shown, clicked = (
        kind.isin([value.lower() for value in values])
        for values in (options.events.impression, options.events.click)
    )
    rest = raw.filter(ibis.coalesce(~(shown | clicked), True))
    return raw.filter(shown).drop(name), raw.filter(clicked).drop(name), rest


def join_clicks(impressions: Table, clicks: Table, options: IngestOptions, engine: Engine) -> Joined:
    """Set `click` where there is a click event; events without a result, or before it, are put aside.

    Of several clicks on a result the earliest one that does not come before its page is taken.
    """
    import ibis

    # a click is tied to a result by its document, or by its position where there are no documents
    key = ["page_id", *[name for name in ("doc_id", "position") if name in clicks.columns][:1]]
    if len(key) < 2 or "page_id" not in clicks.columns:
        missing = "page_id" if "page_id" not in clicks.columns else "doc_id or position"
        raise DataError(f"click events have no {missing}", hint=f"they have {', '.join(clicks.columns)[:300]}")
    clicks = _with_documents(impressions, clicks, engine)
    looked = _looked_up(impressions, clicks, key)
    groups = [*key, *(["unskew_place"] if "unskew_place" in looked.columns else [])]
    order = [looked.unskew_early, *([looked.timestamp] if "timestamp" in looked.columns else [])]
    events = engine.keep(looked.mutate(unskew_nth=ibis.row_number().over(group_by=groups, order_by=order)))
    first, shown = events.unskew_nth == 0, events.unskew_found.notnull()
    found = {"duplicate_events": ~first, "clicks_without_impression": first & ~shown}
    if "timestamp" in impressions.columns and "timestamp" in clicks.columns:
        found["clicks_before_query"] = first & shown & events.unskew_early
    numbers = engine.rows(events.agg(**{name: which.sum() for name, which in found.items()}))[0]
    counts = {name: int(number or 0) for name, number in numbers.items()}
    kept = {"clicks_before_query"} & set(options.rules.off)
    removed = [
        events.filter(which).mutate(**{REASON: ibis.literal(name)})
        for name, which in found.items()
        if counts[name] and name not in kept
    ]
    taken = events.filter(first & shown if kept else first & shown & ~events.unskew_early)
    return Joined(_clicked(impressions, taken, key), removed, counts)


def _with_documents(impressions: Table, clicks: Table, engine: Engine) -> Table:
    """Events with ids of the same types as the impressions, and with the document where they name a position only.

    An event whose position shows nothing keeps no document; `unskew_place` tells such events of a page apart.
    """
    import ibis

    made: dict[str, Any] = {}
    both = "doc_id" in clicks.columns and "position" in clicks.columns
    if both:
        made["unskew_place"] = ibis.ifelse(clicks.doc_id.isnull(), clicks.position, ibis.null("int32"))
    for name in ("page_id", "doc_id"):
        if name in clicks.columns and impressions[name].type() != clicks[name].type():
            made[name] = clicks[name].try_cast(impressions[name].type())  # 7 and "7" are the same id
    clicks = clicks.mutate(**made) if made else clicks
    if not both or not engine.count(clicks.filter(clicks.unskew_place.notnull())):
        return clicks.drop("unskew_place") if both else clicks
    place = [("page_id", "page_id"), ("unskew_place", "position")]
    asked = impressions.semi_join(clicks, [("page_id", "page_id"), ("position", "unskew_place")])
    there = asked.group_by("page_id", "position").agg(unskew_doc=asked.doc_id.min())
    filled = clicks.left_join(there, place)
    filled = filled.select(*(filled[name] for name in clicks.columns), filled.unskew_doc)
    found = filled.unskew_doc.notnull()
    return filled.mutate(
        doc_id=ibis.coalesce(filled.doc_id, filled.unskew_doc),
        unskew_place=ibis.ifelse(found, ibis.null("int32"), filled.unskew_place),
    ).drop("unskew_doc")


def _looked_up(impressions: Table, clicks: Table, key: list[str]) -> Table:
    """Events with the number of results that they may mean, and whether they are earlier than these."""
    import ibis

    timed = "timestamp" in impressions.columns and "timestamp" in clicks.columns
    meant = impressions.semi_join(clicks, key)
    made: dict[str, Any] = {"unskew_found": meant.count()}
    if timed:
        made["unskew_shown"] = meant.timestamp.min()
    there = clicks.left_join(meant.group_by(key).agg(**made), key)
    there = there.select(*(there[name] for name in (*clicks.columns, *made)))
    early = (there.timestamp < there.unskew_shown).fill_null(False) if timed else ibis.literal(False)
    return there.mutate(unskew_early=early)


def _clicked(impressions: Table, taken: Table, key: list[str]) -> Table:
    """The impressions with `click`, and with what the clicks alone know: dwell_time and serp columns."""
    import ibis

    carried = [name for name in taken.columns if name == "dwell_time" or name.startswith("serp_")]
    named = {f"unskew_{name}": taken[name] for name in carried}
    right = taken.select(*key, unskew_clicked=ibis.literal(1, "int8"), **named)
    both = impressions.left_join(right, key)
    both = both.select(*(both[name] for name in (*impressions.columns, "unskew_clicked", *named)))
    clicked = both.unskew_clicked.fill_null(0)
    if "click" in impressions.columns:
        clicked = ibis.greatest(clicked, both.click.fill_null(0))
    filled: dict[str, Any] = {"click": clicked.cast("int8")}
    for name in carried:
        filled[name] = value = both[f"unskew_{name}"]
        if name in impressions.columns:  # what the page says of its results stands over what a click says
            own = both[name]
            filled[name] = ibis.coalesce(own, value if value.type() == own.type() else value.try_cast(own.type()))
    return both.mutate(**filled).drop("unskew_clicked", *named)
