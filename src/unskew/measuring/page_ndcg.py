"""How well a ranker orders the results of logged pages, by clicks or another outcome, raw and corrected for rank.

Reference: Yan et al., "Revisiting Two-tower Models for Unbiased Learning to Rank", SIGIR 2022, section 4.3.

    gain of a result     w_k y          y the outcome (a click, an install), w_k the weight of the rank it had
    nDCG@at of a page    sum_i g_i / log2(1 + i) over the ranker's order  /  the same over the order by gain
    v of a page          sum(w_k y) / sum(y)
    IPS-nDCG             sum_p v_p nDCG_p / sum_p v_p          pages without an outcome do not count

With w = 1 this is the plain nDCG of the pages. The paper takes 1 / (average clicks at rank k) for w_k, of the log
that it measures: that is examination times how good the results there were, so it corrects too much where the
logging ranker was good. Weights from shuffled pages do not.

Differences from the paper: it gives no formula. v is what its authors' toolkit does with weights of
single results; without it a page with one outcome would count the same whatever the weight of its rank.

Legend: P pages, N impressions, list after list; results of page p are rows offsets[p] to offsets[p + 1].
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from unskew.errors import DataError
from unskew.measuring.ranked_lists import checked_offsets
from unskew.measuring.ranking import ndcg_metric
from unskew.types import Array


@dataclass(frozen=True)
class PageNdcg:
    """nDCG of every page, and how much each counts."""

    values: Array
    """[P], NaN for a page without an outcome."""
    weights: Array
    """[P], v; 0 for a page without an outcome."""

    @cached_property
    def mean(self) -> float:
        """The weighted mean; NaN where no page has an outcome."""
        total = self.weights.sum()
        return float(np.nansum(self.weights * self.values) / total) if total > 0 else float("nan")

    @cached_property
    def shares(self) -> Array:
        """[P] values whose plain mean is the weighted one, for paired tests; NaN for a page without an outcome."""
        counted = ~np.isnan(self.values)
        mean = self.weights[counted].mean() if counted.any() else 1.0
        shares: Array = self.values * self.weights / mean
        return shares


def page_ndcg_metric(
    scores: ArrayLike,
    outcomes: ArrayLike,
    *,
    offsets: ArrayLike,
    weights: ArrayLike | None = None,
    at: int | None = 10,
) -> PageNdcg:
    """nDCG of the results of each page under other scores, by an outcome [N] of 0 or more; flat arrays.

    `weights` [N] are those of the ranks that the results were shown at; none counts every result the same.

    >>> page = {"scores": [1, 2, 3, 4], "outcomes": [1, 0, 0, 1], "offsets": [0, 2, 4]}
    >>> round(page_ndcg_metric(**page).mean, 6), round(page_ndcg_metric(**page, weights=[1, 3, 1, 3]).mean, 6)
    (0.815465, 0.907732)
    """
    y = np.asarray(outcomes, np.float64)
    w = np.ones_like(y) if weights is None else np.asarray(weights, np.float64)
    if y.shape != w.shape or y.ndim != 1:
        raise DataError(f"outcomes {y.shape} and weights {w.shape} must be flat and of the same length")
    if not (np.isfinite(y).all() and (y >= 0).all() and np.isfinite(w).all() and (w >= 0).all()):
        raise DataError("outcomes and weights must be finite and not below 0")
    bounds = checked_offsets(offsets, len(y))
    values = ndcg_metric(scores, w * y, offsets=bounds, at=at, gain="linear")
    page = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    gains, counts = (np.bincount(page, weights=each, minlength=len(bounds) - 1) for each in (w * y, y))
    return PageNdcg(values, np.divide(gains, counts, out=np.zeros(len(counts)), where=counts > 0))


def rank_weights(clicks: ArrayLike, positions: ArrayLike) -> Array:
    """1 / (average clicks at its rank) of each impression [N], ranks from 1; 0 at ranks that were never clicked.

    >>> rank_weights([1, 0, 1, 1], [1, 2, 1, 2]).tolist()
    [1.0, 2.0, 1.0, 2.0]
    """
    c, k = np.asarray(clicks, np.float64), np.asarray(positions)
    if c.shape != k.shape or k.dtype.kind not in "iu" or np.any(k < 1):
        raise DataError("clicks and positions must have the same shape, and positions count from 1")
    rate = np.bincount(k, weights=c) / np.maximum(np.bincount(k), 1)
    weights: Array = np.divide(1.0, rate, out=np.zeros(len(rate)), where=rate > 0)[k]
    return weights
