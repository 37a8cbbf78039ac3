"""The best of a column: marked where it is ahead by more than its spread, and the reason given where it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan

from unskew.measuring import SeedSummary
from unskew.pages.page import BEST, Table
from unskew.settings import listed

NEAR = "≈"
"""The sign of numbers of which none is ahead of the others by more than the spread."""
SAME = 0.0005
"""Means that are closer than this read the same with three digits."""


@dataclass(frozen=True)
class Value:
    """A number of a table, and by how much it might be another."""

    mean: float
    spread: float = 0.0

    @classmethod
    def of(cls, summary: SeedSummary) -> Value:
        """A mean over seeds, with their standard deviation."""
        return cls(summary.mean, 0.0 if isnan(summary.sd) else summary.sd)


Column = Sequence[Value | None]
"""What the rows have in a column; None for those that are not compared."""


def with_best(
    table: Table,
    columns: Mapping[int, Column],
    *,
    among: str,
    spread: str,
    lowest: Sequence[int] = (),
) -> Table:
    """The table with the best of these columns marked, and what the signs mean below it.

    `among` says which rows are compared, `spread` what a spread is; in the columns `lowest` the lowest is best.
    """
    marks, level = dict(table.marks), list[str]()
    for column, values in columns.items():
        near = _level(values, -1 if column in lowest else 1)
        compared = sum(value is not None and not isnan(value.mean) for value in values)
        if len(near) == 1 and compared > 1:
            marks[near[0], column] = BEST
        elif len(near) == compared > 1:
            level.append(table.columns[column])
        elif compared > 1:
            marks |= {(row, column): NEAR for row in near}
    parts = [table.legend]
    if BEST in marks.values():
        found = {column in lowest for (_, column), sign in marks.items() if sign == BEST}
        best = "lowest" if found == {True} else "highest" if found == {False} else "best"
        parts.append(f"{BEST} {best} of its column among {among}.")
    if NEAR in marks.values():
        parts.append(f"{NEAR} within the spread of the best ({spread}): none of these is marked.")
    if level:
        names = listed(list(dict.fromkeys(level)))
        parts.append(f"{names}: all of {among} lie within the spread of the best ({spread}), none is marked.")
    return replace(table, marks=marks, legend=" ".join(filter(None, parts)))


def _level(values: Column, sign: int) -> list[int]:
    """The rows that may be the best: those behind the first by no more than the spread of either.

    >>> _level([Value(0.5, 0.01), None, Value(0.52, 0.03), Value(0.4)], 1)
    [0, 2]
    """
    known = {row: value for row, value in enumerate(values) if value is not None and not isnan(value.mean)}
    if not known:
        return []
    first = max(known.values(), key=lambda value: sign * value.mean)
    return [
        row
        for row, value in known.items()
        if sign * (first.mean - value.mean) <= max(first.spread, value.spread, SAME)
    ]
