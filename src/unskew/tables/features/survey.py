"""What lists of features as they are have in them: numbers, gaps and values of categories, part after part.

Legend: N documents, D features, V values of a category, E encoded features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.tables.lists.scaling import Range
from unskew.types import Array, Lists

if TYPE_CHECKING:
    from unskew.tables.features.encoding import Encoding

BLOCK_VALUES = 2**22
"""Matrix entries looked at at once."""


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
    counts: Mapping[str, Array]
    """Documents with each value of a category, [V] int64."""

    @property
    def gaps(self) -> Array:
        """[D] whether a document lacks it."""
        return self.present < self.rows

    def range(self) -> Range:
        """As scalers take it."""
        return Range(self.low, self.high, self.mean, np.sqrt(self.square / np.maximum(self.present, 1)))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        arrays = {name: getattr(self, name).tolist() for name in ("present", "low", "high", "mean", "square")}
        return {"rows": self.rows, **arrays, "counts": {name: each.tolist() for name, each in self.counts.items()}}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Survey:
        """What `to_dict` gave."""
        arrays = {name: np.array(content[name], np.float64) for name in ("low", "high", "mean", "square")}
        counts = {name: np.array(each, np.int64) for name, each in content["counts"].items()}
        return cls(int(content["rows"]), np.array(content["present"], np.int64), **arrays, counts=counts)


def survey(lists: Lists) -> Survey:
    """Look at every document, block after block."""
    blocks = row_blocks(*lists.features.shape)
    parts = [_survey(np.asarray(lists.features[rows], np.float64), lists) for rows in blocks]
    return merge_surveys(parts or [_survey(np.zeros((0, lists.dim)), lists)])


def _survey(block: Array, lists: Lists) -> Survey:
    here = ~np.isnan(block)
    present = here.sum(0)
    mean = np.where(here, block, 0.0).sum(0) / np.maximum(present, 1)
    counts = {}
    for name, values in (lists.columns.categories if lists.columns is not None else {}).items():
        assert lists.columns is not None
        at = lists.columns.names.index(name)
        counts[name] = np.bincount(block[here[:, at], at].astype(np.int64), minlength=len(values))
    return Survey(
        rows=len(block),
        present=present,
        low=np.where(here, block, np.inf).min(0, initial=np.inf),
        high=np.where(here, block, -np.inf).max(0, initial=-np.inf),
        mean=mean,
        square=np.square(np.where(here, block - mean, 0.0)).sum(0),
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


def encoded_range(encoding: Encoding, found: Survey) -> Range:
    """The statistics that the same documents have once they are encoded, [E] each."""
    flags = [*encoding.columns.flags]
    names = encoding.columns.names
    rows = max(found.rows, 1)
    low, high, mean, deviation = (np.zeros(len(names)) for _ in range(4))
    for at, name in enumerate(names):
        origin = int(encoding.origins[at])
        if name in flags:
            high[at] = 1.0
            continue
        filled = found.present[origin] > 0
        low[at], high[at] = (found.low[origin], found.high[origin]) if filled else (0.0, 0.0)
        mean[at], deviation[at] = found.mean[origin], np.sqrt(found.square[origin] / rows)
    return Range(low, high, mean, deviation)


def row_blocks(rows: int, width: int) -> Iterator[slice]:
    """Rows in blocks of a bounded size."""
    step = max(1, BLOCK_VALUES // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, min(rows, start + step))
