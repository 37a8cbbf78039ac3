"""The sums that are tracked per hour, query, document and position, and how they are merged.

Every sum is of whole numbers, times in milliseconds and examination in thousandths, so that it does not depend on
the order in which rows, hours and runs are added, on either engine: a window of merged hours equals the same
window computed from the whole log, to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unskew.tracking.pages import known_time

if TYPE_CHECKING:
    from ibis.expr.types import Table

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
"""What a window has one row for."""
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
    flags |= _random(rows) | _display(rows) | _dwell(rows) | _examined(rows)
    # a count of rows takes half the memory of a sum, and most of the time of a build goes into memory
    made = {
        name: rows.count(where=flag) if flag.type().is_boolean() else flag.sum().cast("int64")
        for name, flag in flags.items()
    }
    made["displays"] = rows.count()
    return _complete(rows.group_by("hour", *KEY).agg(**made), ("hour", *KEY))


def _random(rows: Table) -> dict[str, Any]:
    if "randomized" not in rows.columns:
        return {}
    random = rows.randomized.fill_null(False)
    return {"random_displays": random, "random_clicks": random & (rows.click == 1)}


def _display(rows: Table) -> dict[str, Any]:
    if "display_time" not in rows.columns:
        return {}
    known = known_time(rows, "display_time")
    return {"timed": known, "display_ms": _thousandths(known, rows.display_time)}


def _dwell(rows: Table) -> dict[str, Any]:
    if "dwell_time" not in rows.columns:
        return {}
    known = known_time(rows, "dwell_time") & (rows.click == 1)
    long = (known & (rows.dwell_time >= LONG)).fill_null(False)
    return {"dwelt": known, "dwell_ms": _thousandths(known, rows.dwell_time), "long_dwells": long}


def _examined(rows: Table) -> dict[str, Any]:
    import ibis

    if "examination" not in rows.columns:
        return {}
    known = known_time(rows, "examination")
    milli = _thousandths(known, ibis.least(rows.examination, 1.0))
    clicked = ibis.ifelse(rows.click == 1, milli, 0)
    return {"estimated": known, "examined": milli, "examined_squared": milli * milli, "examined_clicks": clicked}


def _thousandths(known: Any, value: Any) -> Any:
    """A number in whole thousandths, rounded half up on every engine; 0 where it is not known."""
    import ibis

    return (ibis.ifelse(known, value, 0.0) * MILLI + 0.5).floor().cast("int64")


def _complete(sums: Table, keys: Sequence[str]) -> Table:
    """All columns in order; 0 for those that the log says nothing of."""
    import ibis

    absent = {name: ibis.literal(0, "int64") for name in SUMS if name not in sums.columns}
    return sums.mutate(**absent).select(*keys, *SUMS)


def merged(parts: Table, keys: Sequence[str] = KEY) -> Table:
    """Sums of the same keys, added up."""
    return parts.group_by(list(keys)).agg(**{name: parts[name].sum().cast("int64") for name in SUMS})
