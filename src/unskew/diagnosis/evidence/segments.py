"""Columns to tell results by, as text of few values: `serp_*` columns and those that somebody named.

    text, booleans       as they are; more than 50 values are a name, not a kind
    numbers              up to 12 values as they are, else cut at quartiles, the edges in the names: "12 to 30"
    everything else      dates, lists and the like are left out

A column that was named and cannot be taken is an error; one that was found is left out, and the reason is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from unskew.errors import ConfigError
from unskew.tables.engine.engine import Engine

if TYPE_CHECKING:
    from ibis.expr.types import Table

FOUND = "serp_"
"""How columns begin that are taken unasked."""
MOST_VALUES = 50
"""Values that a column of text may have; one with more is no kind but a name."""
MOST_NUMBERS = 12
"""Values of a column of numbers that are taken as they are."""
MOST_FOUND = 12
"""Columns that are taken unasked; each costs another look at the log."""
QUANTILES = (0.25, 0.5, 0.75)
"""Where numbers are cut."""
MISSING = "(missing)"
"""What stands for a value that a row does not tell."""


def choose_segments(
    engine: Engine, shown: Table, named: Sequence[str], *, serp: bool = False
) -> tuple[dict[str, Any], dict[str, str]]:
    """The columns that were named and, with `serp`, all that begin with serp_; why others are not among them.

    Columns are Ibis expressions of text without a missing value.
    """
    found = [name for name in shown.columns if serp and name.startswith(FOUND) and name not in named]
    wanted = {name: _clean(shown[name]) for name in (*named, *found[:MOST_FOUND])}
    asked = {name: column.nunique() for name, column in wanted.items() if column is not None}
    values = engine.rows(shown.agg(**asked))[0] if asked else {}
    chosen: dict[str, Any] = {}
    left_out = dict.fromkeys(found[MOST_FOUND:], f"is past the first {MOST_FOUND}, which are looked at")
    for name, column in wanted.items():
        kind, count = shown[name].type(), int(values.get(name, 0))
        if column is None:
            reason = f"holds values of the type {kind}, not text or numbers"
        elif kind.is_string() and count > MOST_VALUES:
            reason = f"has {count:,} values, and {MOST_VALUES} is the most"
        elif name in found and count < 2:
            reason = "has fewer than two values"
        else:
            many = kind.is_numeric() and not kind.is_boolean() and count > MOST_NUMBERS
            text = ranges(column, edges_of(engine, shown, column)) if many else column.cast("string")
            chosen[name] = text.fill_null(MISSING)
            continue
        if name in named:
            what = f"it {reason}; give a column of few kinds, such as the device"
            raise ConfigError(what, argument="segments", value=[name])
        left_out[name] = reason
    return chosen, left_out


def _clean(column: Any) -> Any:
    """A column without numbers that are none; None where it holds nothing that can be told apart."""
    import ibis

    kind = column.type()
    if kind.is_floating():
        return ibis.cases((column.isnan() | column.isinf(), ibis.null(kind)), else_=column)
    return column if kind.is_string() or kind.is_boolean() or kind.is_numeric() else None


def edges_of(engine: Engine, shown: Table, column: Any) -> list[float]:
    """Where ranges begin, but for the first: quartiles in three digits, fewer where values repeat."""
    number = column.cast("float64")
    cuts = {f"cut_{at}": number.quantile(share) for at, share in enumerate(QUANTILES)}
    told = engine.rows(shown.agg(least=number.min(), **cuts))[0]
    least = float(told["least"])
    edges = sorted({float(f"{float(told[name]):.3g}") for name in cuts})
    if kept := [edge for edge in edges if edge > least]:
        return kept
    above = engine.rows(shown.agg(next=number.min(where=number > least)))[0]["next"]
    return [float(above)]


def ranges(column: Any, edges: Sequence[float]) -> Any:
    """The range of every number, in words; null where there is none."""
    import ibis

    names = range_names(edges)
    below = [(column < edge, ibis.literal(name)) for edge, name in zip(edges, names[:-1], strict=True)]
    return ibis.cases(*below, (column.notnull(), ibis.literal(names[-1])), else_=ibis.null("string"))


def range_names(edges: Sequence[float]) -> list[str]:
    """What ranges are called.

    >>> range_names([1.5, 12000.0])
    ['below 1.5', '1.5 to 12,000', 'from 12,000']
    """
    told = [f"{edge:,.0f}" if abs(edge) >= 1000 else f"{edge:g}" for edge in edges]
    inner = [f"{low} to {high}" for low, high in pairwise(told)]
    return [f"below {told[0]}", *inner, f"from {told[-1]}"]


def in_order(values: Iterable[str]) -> list[str]:
    """Values as people read them: numbers and ranges by size, the missing ones last.

    >>> in_order(["from 30", "(missing)", "below 4", "4 to 30"]), in_order(["10", "9", "b", "a"])
    (['below 4', '4 to 30', 'from 30', '(missing)'], ['9', '10', 'a', 'b'])
    """
    return sorted(values, key=_size)


def _size(value: str) -> tuple[int, float, int, str]:
    number = re.match(r"(below |from |)(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)(?= to |$)", value)
    if number is None:
        return 2 if value == MISSING else 1, 0.0, 0, value
    return 0, float(number[2].replace(",", "")), 0 if number[1] == "below " else 1, value
