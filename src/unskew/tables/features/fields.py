"""One feature as it is, and what it becomes: a number or a category, with its gaps.

Legend: n documents, U values that lists have, V values that have a column, E columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unskew.errors import DataError
from unskew.types import Array, Lists

Gaps = Literal["indicator", "mean", "refuse"]


@dataclass(frozen=True)
class NumberField:
    """A feature that is a number."""

    name: str
    mean: float
    """What stands where it is missing."""
    gaps: bool
    """Whether it was missing anywhere in training."""
    marked: bool
    """Whether a column then says so."""
    spread: float = 0.0
    """Standard deviation in training, gaps filled."""
    missing: float = 0.0
    """Share of training that lacked it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What the encoded columns are called."""
        return (self.name, *self.flags)

    @property
    def flags(self) -> tuple[str, ...]:
        """Those of 0 and 1."""
        return (f"{self.name} is missing",) if self.gaps and self.marked else ()

    def mapping(self, lists: Lists, at: int) -> Array | None:
        """None where the lists have numbers too; else their values as numbers, [U]."""
        texts = _categories(lists, at)
        if texts is None:
            return None
        numbers = np.empty(len(texts), np.float32)
        for place, text in enumerate(texts):
            try:
                numbers[place] = float(text)
            except ValueError:
                what = f"{self.name} is text here, such as {text!r}, and was a number in training"
                raise DataError(what, path=lists.name, hint="make it a number") from None
        return numbers


@dataclass(frozen=True)
class CategoryField:
    """A feature that is one of several values."""

    name: str
    values: tuple[str, ...]
    """Those with a column of their own, the most frequent first."""
    rare: bool
    """Whether training had others."""
    gaps: bool
    """Whether it was missing anywhere in training."""
    marked: bool
    """Whether a column then says so."""
    shares: tuple[float, ...] = ()
    """Share of training that each encoded column marks."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What the encoded columns are called."""
        own = tuple(f"{self.name}={value}" for value in self.values)
        other = (f"{self.name} is other",) if self.rare else ()
        return own + other + ((f"{self.name} is missing",) if self.gaps and self.marked else ())

    flags = columns

    def mapping(self, lists: Lists, at: int) -> Array | None:
        """The column of each value that the lists have, [U]; V for rare and unseen ones."""
        texts = _categories(lists, at)
        if texts is None:
            what = f"{self.name} is a number here, and was a category in training"
            raise DataError(what, path=lists.name, hint="make it text")
        places = {value: place for place, value in enumerate(self.values)}
        return np.array([places.get(text, len(places)) for text in texts], np.float32)

    def fill(self, column: Array, missing: Array, out: Array) -> None:
        """Write the encoded columns [n, E] of places [n]."""
        out[:] = 0.0
        rows = np.flatnonzero(~missing & (column < len(self.values) + self.rare))
        out[rows, column[rows].astype(np.int64)] = 1.0
        if self.gaps and self.marked:
            out[missing, -1] = 1.0


def _categories(lists: Lists, at: int) -> tuple[str, ...] | None:
    """The values of a feature of lists, None where it is a number."""
    return None if lists.columns is None else lists.columns.categories.get(lists.columns.names[at])
