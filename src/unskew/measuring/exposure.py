"""Who is seen more and who less under another ranking: exposure of groups of documents.

    exposure of a group    sum over its results of 1 / log2(1 + place), as a share of that of all
    familiarity            how often a query showed a document: the head has the first third of all impressions by
                           that, the middle the second, the tail the rest; new is what was shown once or twice

Only results that pages showed are placed, so a group can gain from or lose to what stood on its pages.

Legend: N impressions, G groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unskew.measuring.counterfactual.pages import LoggedPages, discounts, worth
from unskew.results import Result
from unskew.types import Array

BINS = 64
"""Powers of two that tell how often a document was shown."""
NEW = 2
"""Times shown at most of what counts as new."""
FAMILIARITY = ("head", "middle", "tail", "new")


@dataclass(frozen=True)
class GroupExposure(Result):
    """What share of all that is seen a group of documents has, in two rankings."""

    group: str
    impressions: int
    new: float
    other: float
    told = ("change",)

    @property
    def change(self) -> float:
        """By which share of itself it grows."""
        return self.new / self.other - 1 if self.other else 0.0


class ExposureSums:
    """Exposure by familiarity and by group, added part after part; a part holds whole queries."""

    def __init__(self) -> None:
        self._bins = np.zeros((BINS, 3))  # impressions, exposure in the new and in the other ranking
        self._groups: dict[str, Array] = {}

    def add(self, pages: LoggedPages, new: Array, other: Array, group: Array | None = None) -> None:
        """Places [N] that two rankings give the results of pages, and the group of each."""
        longest = int(pages.sizes.max(initial=1))
        ladder = discounts(longest, longest)
        seen = np.stack([np.ones(len(new)), *(worth(place, pages, ladder) for place in (new, other))])
        often = np.bincount(pages.document, minlength=1)[pages.document]
        # 1 and 2 are bin 0, so that new is one bin; above, each power of two is one
        bins = np.where(often <= NEW, 0, np.floor(np.log2(np.maximum(often, 1))).astype(np.int64))
        self._bins += np.stack([np.bincount(bins, row, minlength=BINS) for row in seen], axis=1)
        if group is not None:
            names, place = np.unique(np.asarray(group, str), return_inverse=True)
            sums = np.stack([np.bincount(place, row, minlength=len(names)) for row in seen], axis=1)
            for name, row in zip(names.tolist(), sums, strict=True):
                self._groups[name] = self._groups.get(name, np.zeros(3)) + row

    def familiarity(self) -> list[GroupExposure]:
        """By how often documents were shown."""
        labels = familiarity_of(self._bins[:, 0])
        sums = {name: self._bins[labels == number].sum(axis=0) for number, name in enumerate(FAMILIARITY)}
        return _exposures({name: row for name, row in sums.items() if row[0]})

    def groups(self) -> list[GroupExposure]:
        """By group, the largest fall first."""
        return sorted(_exposures(self._groups), key=lambda each: each.change)


def familiarity_of(impressions: Array) -> Array:
    """Head 0, middle 1, tail 2 or new 3 of each bin, from its impressions; bin 0 is what is new.

    >>> familiarity_of(np.array([5.0, 10, 10, 10])).tolist()
    [3, 2, 1, 0]
    """
    known = np.where(np.arange(len(impressions)) > 0, impressions, 0.0)
    above = np.cumsum(known[::-1])[::-1] - known  # impressions of what was shown more often
    label: Array = np.minimum(3 * above / max(known.sum(), 1e-12), 2).astype(np.int64)
    label[0] = 3
    return label


def _exposures(sums: dict[str, Array]) -> list[GroupExposure]:
    totals = np.sum(list(sums.values()), axis=0) if sums else np.ones(3)
    return [
        GroupExposure(name, int(row[0]), float(row[1] / totals[1]), float(row[2] / totals[2]))
        for name, row in sums.items()
    ]


def largest_fall(groups: Sequence[GroupExposure]) -> GroupExposure | None:
    """The group that loses the largest share of what it has; None where none loses a hundredth."""
    falling = [each for each in groups if each.change < -0.01]
    return min(falling, key=lambda each: each.change, default=None)
