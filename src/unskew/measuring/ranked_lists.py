"""Ragged lists in ranked order: sort once, then sums, heads and running counts per query.

Legend: Q queries, N documents, list after list; documents of query q are rows offsets[q] to offsets[q + 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from unskew.errors import DataError
from unskew.types import Array


@dataclass(frozen=True)
class RankedLists:
    """Grades in ranked order, list after list; what every metric starts from."""

    labels: Array
    """[N] float64 grades, the best scored document of each list first."""
    offsets: Array
    """[Q + 1] int64."""

    @cached_property
    def sizes(self) -> Array:
        """Documents per query, [Q]."""
        sizes: Array = np.diff(self.offsets)
        return sizes

    @cached_property
    def query(self) -> Array:
        """Query of each document as an index, [N]."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def rank(self) -> Array:
        """Rank of each document in its list, from 1, [N]."""
        rank: Array = np.arange(len(self.labels)) - np.repeat(self.offsets[:-1], self.sizes) + 1
        return rank

    @cached_property
    def ideal(self) -> RankedLists:
        """The same lists, ordered by grade."""
        return RankedLists(self.labels[np.lexsort((-self.labels, self.query))], self.offsets)

    @property
    def longest(self) -> int:
        """Documents in the longest list."""
        return int(self.sizes.max(initial=0))

    def head(self, at: int | None) -> RankedLists:
        """The first `at` documents of every list, or all for None."""
        if at is None or at >= self.longest:
            return self
        offsets = np.concatenate([[0], np.cumsum(np.minimum(self.sizes, at))])
        return RankedLists(self.labels[self.rank <= at], offsets)

    def sums(self, values: Array) -> Array:
        """Sum of `values` [N] per query, [Q]."""
        sums = np.bincount(self.query, weights=values, minlength=len(self.sizes))
        return sums.astype(np.float64, copy=False)  # bincount of nothing is of integers

    def hits(self, relevant: Array) -> Array:
        """Relevant documents down to each rank, [N]: relevant [1,0,1] -> [1,1,2]."""
        running = np.concatenate([[0], np.cumsum(relevant)])
        hits: Array = running[1:] - np.repeat(running[self.offsets[:-1]], self.sizes)
        return hits


def rank_lists(scores: ArrayLike, labels: ArrayLike, *, offsets: ArrayLike) -> RankedLists:
    """Order every list by falling score, ties in the order of the input.

    >>> rank_lists([0.1, 0.9, 0.5, 0.5], [0, 1, 2, 3], offsets=[0, 2, 4]).labels
    array([1., 0., 2., 3.])
    """
    points, grades = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    bounds = checked_offsets(offsets, len(grades) if grades.ndim else 0)
    if points.ndim != 1 or points.shape != grades.shape:
        raise DataError(f"scores {points.shape} and labels {grades.shape} must be flat and of the same length")
    _refuse(np.isnan(points), "score is not a number")
    _refuse(~(np.isfinite(grades) & (grades >= 0)), "label is negative or not a finite number")
    lists = RankedLists(grades, bounds)
    return RankedLists(grades[np.lexsort((-points, lists.query))], bounds)


def checked_offsets(offsets: ArrayLike, documents: int) -> Array:
    """Offsets as int64 [Q + 1], if they rise from 0 to the number of documents.

    >>> checked_offsets([0, 2, 4], 4)
    array([0, 2, 4])
    """
    bounds = np.asarray(offsets)
    if bounds.ndim != 1 or len(bounds) == 0 or bounds.dtype.kind not in "iu":
        raise DataError("offsets must be a flat array of at least one integer")
    bounds = bounds.astype(np.int64)
    if bounds[0] != 0 or bounds[-1] != documents or np.any(np.diff(bounds) < 0):
        raise DataError(f"offsets must rise from 0 to the number of documents, {documents}")
    return bounds


def _refuse(wrong: Array, what: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        raise DataError(f"{what} in {len(rows)} of {len(wrong)} documents, the first at index {rows[0]}")
