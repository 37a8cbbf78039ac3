"""A lower bound on a mean gain that holds with high probability, from sums by cluster.

Reference: Maurer, Pontil, "Empirical Bernstein Bounds and Sample Variance Penalization", COLT 2009, theorem 4;
Thomas, Theocharous, Ghavamzadeh, "High-Confidence Off-Policy Evaluation", AAAI 2015.

    X_c in [-R/2, R/2], mean X and variance V of C clusters
    mean X - sqrt(2 V log(2 / risk) / C) - 7 R log(2 / risk) / (3 (C - 1))   lies above the mean with a chance of
                                                                             `risk` at most

It assumes nothing of how gains are distributed, so it is wide. R is known: on a page the gain of clicks that move
from some places to others is at most the sum of what they gain, and a cluster is at most as many pages as the
largest. Intervals by drawing clusters again are narrower; they hold where clusters are many.

Legend: C clusters.
"""

from __future__ import annotations

import numpy as np

from unskew.measuring.counterfactual.pages import LoggedPages, discounts, worth
from unskew.types import Array


def bernstein_bound(values: Array, spread: float, risk: float) -> float:
    """Lower bound of the mean of values [C] that lie in a range of this width; -inf with fewer than two.

    >>> round(bernstein_bound(np.array([0.0, 1.0] * 200), 1.0, 0.05), 4)  # 0.5 - 0.0680 - 0.0216
    0.4104
    """
    count = len(values)
    if count < 2:
        return float("-inf")
    log = float(np.log(2 / risk))
    noise = np.sqrt(2 * values.var(ddof=1) * log / count)
    return float(values.mean() - noise - 7 * spread * log / (3 * (count - 1)))


class RandomGains:
    """Gains of clicks on random slots by cluster, added part after part; memory grows with the clusters alone."""

    def __init__(self, at: int = 10) -> None:
        self.at, self.most = at, 0.0
        self._parts: list[tuple[Array, Array]] = []

    def add(self, pages: LoggedPages, new: Array, other: Array) -> None:
        """Pages of a part with the places that two rankings give their results, [N] each."""
        ladder = discounts(int(pages.sizes.max(initial=1)), self.at)
        gain_new, gain_other = worth(new, pages, ladder), worth(other, pages, ladder)
        change = np.where(pages.shuffled, gain_new - gain_other, 0.0)
        random = pages.per_page(pages.shuffled) > 0
        gain, base = (pages.per_page(each * pages.click) for each in (change, pages.shuffled * gain_other))
        ids, cluster = np.unique(pages.cluster[random], return_inverse=True)
        columns = [np.bincount(cluster, each[random], minlength=len(ids)) for each in (gain, base, random * 1.0)]
        self._parts.append((ids, np.stack(columns, axis=1)))
        # clicks on all that rises and on nothing else, or the other way round
        ends = [pages.per_page(np.maximum(sign * change, 0.0)).max(initial=0.0) for sign in (1, -1)]
        self.most = max(self.most, float(max(ends) * pages.click.max(initial=1.0)))

    def sums(self) -> Array:
        """Gain, what it is held against, and pages, of each cluster, [C, 3]."""
        if not self._parts:
            return np.zeros((0, 3))
        ids, place = np.unique(np.concatenate([each for each, _ in self._parts]), return_inverse=True)
        rows = np.concatenate([each for _, each in self._parts])
        return np.stack([np.bincount(place, column, minlength=len(ids)) for column in rows.T], axis=1)

    def lower(self, risk: float) -> float | None:
        """Lower bound of the gain as a share of what it is held against; None where no slot is random."""
        gain, base, pages = self.sums().T
        if not base.sum():
            return None
        return bernstein_bound(gain, 2 * self.most * pages.max(), risk) / float(base.mean())
