"""How well a model predicts clicks: log-likelihood, perplexity, AUC.

Every function takes counts, so a reduced log gives the same number as the pages it came from: an entry was
clicked `clicks` times out of `impressions` (default 1, so plain 0/1 clicks work as they are). Arrays may have
any shape as long as it is the same; an entry with 0 impressions is padding and never counts.
"""

import numpy as np
from numpy.typing import ArrayLike

from unskew.errors import DataError
from unskew.types import Array

EPS = 1e-6
"""How near predictions come to 0 and 1."""


def click_loglikelihood_metric(
    probabilities: ArrayLike, clicks: ArrayLike, *, impressions: ArrayLike | None = None
) -> float:
    """sum(c log p + (n - c) log(1 - p)) / sum(n), natural logarithm, p clamped to [EPS, 1 - EPS].

    0 is a perfect prediction; NaN where nothing was shown.

    >>> round(click_loglikelihood_metric([0.5, 0.2], [1, 0]), 6)
    -0.458145
    """
    p, c, n, _ = _counts(probabilities, clicks, impressions)
    total = _loglikelihood(p, c, n).sum()
    return float(total / n.sum()) if n.sum() > 0 else float("nan")


def perplexity_metric(
    probabilities: ArrayLike, clicks: ArrayLike, *, impressions: ArrayLike | None = None
) -> float:
    """2^(-mean over impressions of log2 P(what happened)): 1 is perfect, 2 is a coin.

    Click-model papers often print the plain mean of the perplexities per rank instead; for that one average
    `perplexity_by_rank_metric`.

    >>> round(perplexity_metric([0.5, 0.2], [1, 0]), 6)
    1.581139
    """
    return float(np.exp(-click_loglikelihood_metric(probabilities, clicks, impressions=impressions)))


def perplexity_by_rank_metric(
    probabilities: ArrayLike, clicks: ArrayLike, *, positions: ArrayLike, impressions: ArrayLike | None = None
) -> Array:
    """Perplexity of the impressions at each rank, [K]: entry k - 1 is rank k, NaN where nothing was shown.

    >>> perplexity_by_rank_metric([0.5, 0.5, 0.2], [1, 0, 0], positions=[1, 1, 2])
    array([2.  , 1.25])
    """
    given = np.asarray(positions)
    if given.shape != np.shape(clicks) or given.dtype.kind not in "iu":
        raise DataError(
            f"positions must be integers of the shape {np.shape(clicks)}, not {given.dtype} {given.shape}"
        )
    p, c, n, shown = _counts(probabilities, clicks, impressions)
    rank = given.ravel()[shown].astype(np.int64)
    if np.any(rank < 1):
        raise DataError("positions count from 1; 0 is only for entries with 0 impressions")
    total = np.bincount(rank, weights=_loglikelihood(p, c, n))[1:]
    times = np.bincount(rank, weights=n)[1:]
    mean = np.divide(total, times, out=np.full(len(times), np.nan), where=times > 0)
    perplexity: Array = np.exp(-mean)
    return perplexity


def auc_metric(scores: ArrayLike, clicks: ArrayLike, *, impressions: ArrayLike | None = None) -> float:
    """P(score of a clicked impression > score of an unclicked one) + P(equal) / 2, over all pairs.

    Entries count as often as they were shown. NaN where there is no click or nothing without one.

    >>> auc_metric([0.9, 0.5, 0.5, 0.1], [1, 1, 0, 0])
    0.875
    """
    values, c, n, _ = _counts(scores, clicks, impressions, what="score")
    _, level = np.unique(values, return_inverse=True)
    clicked, unclicked = np.bincount(level, weights=c), np.bincount(level, weights=n - c)
    below = np.cumsum(unclicked) - unclicked
    pairs = clicked.sum() * unclicked.sum()
    return float(np.sum(clicked * (below + unclicked / 2)) / pairs) if pairs > 0 else float("nan")


def _counts(
    values: ArrayLike, clicks: ArrayLike, impressions: ArrayLike | None, *, what: str = "probability"
) -> tuple[Array, Array, Array, Array]:
    """Predictions, clicks and impressions as flat float64 arrays without padding, checked; and what was shown."""
    p, c = np.asarray(values, dtype=np.float64), np.asarray(clicks, dtype=np.float64)
    n = np.ones_like(c) if impressions is None else np.asarray(impressions, dtype=np.float64)
    if not p.shape == c.shape == n.shape:
        raise DataError(f"shapes differ: predictions {p.shape}, clicks {c.shape}, impressions {n.shape}")
    if not np.all((c >= 0) & (c <= n) & np.isfinite(n)):
        raise DataError("clicks must lie between 0 and impressions", hint="pass the impressions of counted clicks")
    shown = n.ravel() > 0
    p, c, n = (x.ravel()[shown] for x in (p, c, n))
    wrong = np.isnan(p) if what == "score" else ~((p >= 0) & (p <= 1))
    if np.any(wrong):
        first = p[np.flatnonzero(wrong)[0]]
        raise DataError(f"{what} is out of range in {wrong.sum()} of {len(p)} entries, the first is {first}")
    return p, c, n, shown


def _loglikelihood(p: Array, c: Array, n: Array) -> Array:
    p = np.clip(p, EPS, 1 - EPS)
    likelihood: Array = c * np.log(p) + (n - c) * np.log1p(-p)
    return likelihood
