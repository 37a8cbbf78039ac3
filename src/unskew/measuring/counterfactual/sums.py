"""Sums by cluster, added part after part in bounded memory, and what chance may have made of them.

A user, a visit, a query or a page is a cluster. All estimators are functions of totals over them, so drawing them
again is one product of matrices, and every estimator sees the same draws: differences between them are paired too.

    totals of a draw     sum_c w_c s_c          w ~ Multinomial(C, 1/C)
    interval             value -+ t_f sd(values of the draws) sqrt(C / (C - 1))
    f                    2 (sum_c psi_c^2)^2 / sum_c psi_c^4 - 1, at most C - 1

psi_c is how the value changes without cluster c, and f how many clusters there might as well be, were they alike.
Where a few hold most of what is counted, their chance is known from hardly more than themselves: Student's t with
C - 1 degrees of freedom takes all clusters for alike, and was wrong twice as often as it said.

Past MOST clusters they are thrown into that many buckets by a hash of their number, whatever the order in which
they came; a bucket is a larger cluster.

Legend: C clusters, F sums, R draws.
"""

import numpy as np
from scipy.special import stdtrit

from unskew.diagnosis.evidence.likelihood import draw_buckets
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
            old, held = self.ids, self.sums
            self.ids, self.sums, self.folded = np.zeros(0, np.uint64), np.zeros((0, 0)), True
            self.add(bucket_of(old), held)
        return bucket_of(named) if self.folded else named

    def add(self, ids: Array, sums: Array) -> None:
        """Add the sums [c, F] of clusters [c], as `number` calls them."""
        before, held = self.ids, self.sums
        self.ids, place = np.unique(np.concatenate([before, ids.astype(np.uint64)]), return_inverse=True)
        self.sums = np.zeros((len(self.ids), sums.shape[1]))
        if len(before):
            self.sums[place[: len(before)]] = held
        np.add.at(self.sums, place[len(before) :], sums)

    def draw(self, seed: int, draws: int = DRAWS) -> Array:
        """Totals of clusters drawn again with replacement, [R, F]; the same for the same seed."""
        return np.asarray(draw_buckets(len(self.ids), seed, draws) @ self.sums)


def interval_of(
    value: float, drawn: Array, clusters: int, freedom: float, level: float
) -> tuple[float, float] | None:
    """Student's interval around a value, by its draws [R]; None where clusters or draws are too few to tell.

    >>> interval_of(1.0, np.array([0.5, 1.5] * 50), 101, 100, 0.95)     # 1 -+ 1.984 x 0.5025 x sqrt(1.01)
    (-0.0019..., 2.0019...)
    """
    if clusters < FEWEST or np.isfinite(drawn).mean() < 0.9:
        return None
    reach = float(stdtrit(freedom, 0.5 + level / 2)) * standard_error(drawn, clusters)
    return value - reach, value + reach


def effective_clusters(influence: Array, clusters: int) -> float:
    """How many clusters there might as well be, by what each changes when left out, [C]; at most one less.

    >>> effective_clusters(np.array([1.0, -1, 1, -1]), 4), effective_clusters(np.array([8.0, 1, -1, 1]), 4)
    (3, 1.19...)
    """
    squares = influence[np.isfinite(influence)] ** 2
    whole = float((squares**2).sum())
    return min(clusters - 1, 2 * float(squares.sum()) ** 2 / whole - 1) if whole > 0 else clusters - 1


def standard_error(drawn: Array, clusters: int) -> float:
    """Standard deviation of draws, corrected for the number of clusters."""
    fine = drawn[np.isfinite(drawn)]
    return float(fine.std(ddof=1) * np.sqrt(clusters / max(clusters - 1, 1)))


def bucket_of(ids: Array) -> Array:
    """A bucket [0, MOST) of each number, well mixed (the finaliser of splitmix64)."""
    x = ids.copy()
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((x ^ (x >> np.uint64(31))) % np.uint64(MOST))
