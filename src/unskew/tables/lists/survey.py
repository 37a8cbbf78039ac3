"""What the features of lists are, in numbers: range, mean, gaps and values of categories, block after block.

Legend: N documents, D features, V values of a category.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unskew.types import Array, Columns, Lists

BLOCK_VALUES = 2**22
"""Matrix entries looked at at once."""
STATISTICS = ("low", "high", "mean", "square")


@dataclass(frozen=True)
class Survey:
    """Statistics of each feature over the documents that have it, [D] each."""

    rows: int
    present: Array
    """Documents that have it, int64."""
    low: Array
    high: Array
    mean: Array
    square: Array
    """Sum of squared distances from the mean."""
    counts: Mapping[str, Array] = field(default_factory=dict)
    """Documents with each value of a category, [V] int64."""

    @property
    def gaps(self) -> Array:
        """[D] whether a document lacks it."""
        return self.present < self.rows

    @property
    def deviation(self) -> Array:
        """[D] standard deviations."""
        deviations: Array = np.sqrt(self.square / np.maximum(self.present, 1))
        return deviations

    def to_dict(self) -> dict[str, Any]:
        """The survey as JSON has it."""
        arrays = {name: getattr(self, name).tolist() for name in ("present", *STATISTICS)}
        return {"rows": self.rows, **arrays, "counts": {name: each.tolist() for name, each in self.counts.items()}}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Survey:
        """The survey that `to_dict` was called on."""
        arrays = {name: np.array(content[name], np.float64) for name in STATISTICS}
        counts = {name: np.array(each, np.int64) for name, each in content["counts"].items()}
        return cls(int(content["rows"]), np.array(content["present"], np.int64), **arrays, counts=counts)


def survey(lists: Lists, *others: Lists) -> Survey:
    """Look at every document of all sets, block after block; their features are those of the first."""
    parts = [
        _survey(np.asarray(each.features[rows], np.float64), lists.columns)
        for each in (lists, *others)
        for rows in row_blocks(*each.features.shape)
    ]
    return merge_surveys(parts or [_survey(np.zeros((0, lists.dim)), lists.columns)])


def _survey(block: Array, columns: Columns | None) -> Survey:
    here = ~np.isnan(block)
    whole, present = bool(here.all()), here.sum(0)

    def filled(value: float | Array) -> Array:
        return block if whole else np.where(here, block, value)

    mean = filled(0.0).sum(0) / np.maximum(present, 1)
    counts = {}
    for at, name in enumerate([] if columns is None else columns.names):
        if columns is not None and name in columns.categories:
            codes = block[here[:, at], at].astype(np.int64)
            counts[name] = np.bincount(codes, minlength=len(columns.categories[name]))
    return Survey(
        rows=len(block),
        present=present,
        low=filled(np.inf).min(0, initial=np.inf),
        high=filled(-np.inf).max(0, initial=-np.inf),
        mean=mean,
        square=np.square(filled(mean) - mean).sum(0),
        counts=counts,
    )


def merge_surveys(parts: Sequence[Survey]) -> Survey:
    """What all documents have, from those of parts."""
    present = np.sum([part.present for part in parts], axis=0)
    mean = np.sum([part.present * part.mean for part in parts], axis=0) / np.maximum(present, 1)
    moved = [part.square + part.present * np.square(part.mean - mean) for part in parts]
    return Survey(
        rows=sum(part.rows for part in parts),
        present=present,
        low=np.min([part.low for part in parts], axis=0),
        high=np.max([part.high for part in parts], axis=0),
        mean=mean,
        square=np.sum(moved, axis=0),
        counts={name: np.sum([part.counts[name] for part in parts], axis=0) for name in parts[0].counts},
    )


def row_blocks(rows: int, width: int, edges: Array | None = None) -> Iterator[slice]:
    """Rows in blocks of a bounded size; with edges, each ends on an edge even if that makes it larger."""
    step, start = max(1, BLOCK_VALUES // max(1, width)), 0
    while start < rows:
        stop = min(rows, start + step)
        if edges is not None:
            last = int(edges[np.searchsorted(edges, stop, "right") - 1])
            stop = last if last > start else int(edges[np.searchsorted(edges, stop)])
        yield slice(start, stop)
        start = stop
