"""Sums by cluster, added part after part in bounded memory, and what chance may have made of them.

A cluster is a visit, a query or a page. All estimators are functions of totals over clusters, so drawing clusters
again is one product of matrices, and every estimator sees the same draws: differences between them are paired too.

    totals of a draw     sum_c w_c s_c          w ~ Multinomial(C, 1/C)
    interval             value -+ t_{C-1} sd(values of the draws) sqrt(C / (C - 1))

Past MOST clusters they are thrown into that many buckets by a hash of their number, whatever the order in which
they came; a bucket is a larger cluster.

Legend: C clusters, F sums, R draws.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from unskew.types import Array

MOST = 1024
DRAWS = 1000
FEWEST = 5
"""Clusters below which nothing is said of chance."""


class ClusterSums:
    """Sums [C, F] by cluster; parts may come in any order and any cut."""

    def __init__(self) -> None:
        self.ids: Array = np.zeros(0, np.uint64)
        self.sums: Array = np.zeros((0, 0))
        self.folded = False

    def number(self, clusters: Array) -> Array:
        """What to call clusters [n] int when they are added: as they are, or by bucket once they are many."""
        named: Array = clusters.astype(np.int64).view(np.uint64)
        if not self.folded and len(np.union1d(self.ids, named)) > MOST:
            self.folded = True
            old, held = self.ids, self.sums
            self.ids, self.sums = np.zeros(0, np.uint64), np.zeros((0, held.shape[1]))
            self._merge(bucket_of(old), held)
        return bucket_of(named) if self.folded else named

    def add(self, ids: Array, sums: Array) -> None:
        """Add the sums [c, F] of clusters [c], as `number` calls them."""
        if not self.sums.shape[1]:
            self.sums = np.zeros((0, sums.shape[1]))
        self._merge(ids, sums)

    def _merge(self, ids: Array, sums: Array) -> None:
        every = np.concatenate([self.ids, ids])
        self.ids, place = np.unique(every, return_inverse=True)
        order = np.argsort(place, kind="stable")
        starts = np.flatnonzero(np.diff(place[order], prepend=-1) != 0)
        stacked = np.concatenate([self.sums, sums])[order]
        self.sums = np.add.reduceat(stacked, starts) if len(starts) else stacked

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def totals(self) -> Array:
        """[F]."""
        totals: Array = self.sums.sum(axis=0)
        return totals

    def draw(self, seed: int, draws: int = DRAWS) -> Array:
        """Totals of clusters drawn again with replacement, [R, F]; the same for the same seed."""
        count = len(self)
        rng = np.random.default_rng(seed)
        taken = rng.multinomial(count, np.full(count, 1 / count), size=draws).astype(np.float64)
        drawn: Array = taken @ self.sums
        return drawn


def interval_of(value: float, drawn: Array, clusters: int, level: float) -> tuple[float, float] | None:
    """Student's interval around a value, by its draws [R]; None where clusters or draws are too few to tell.

    >>> interval_of(1.0, np.array([0.5, 1.5] * 50), 101, 0.95)     # 1 -+ 1.984 x 0.5025 x sqrt(1.01)
    (-0.0019..., 2.0019...)
    """
    fine = drawn[np.isfinite(drawn)]
    if clusters < FEWEST or len(fine) < 0.9 * len(drawn):
        return None
    error = standard_error(fine, clusters)
    reach = float(stdtrit(clusters - 1, 0.5 + level / 2)) * error
    return value - reach, value + reach


def standard_error(drawn: Array, clusters: int) -> float:
    """Standard deviation of draws, corrected for the number of clusters."""
    fine = drawn[np.isfinite(drawn)]
    return float(fine.std(ddof=1) * np.sqrt(clusters / max(clusters - 1, 1)))


def bucket_of(ids: Array) -> Array:
    """A bucket [0, MOST) of each number, well mixed (the finaliser of splitmix64)."""
    x = ids.copy()
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    mixed: Array = (x ^ (x >> np.uint64(31))) % np.uint64(MOST)
    return mixed
