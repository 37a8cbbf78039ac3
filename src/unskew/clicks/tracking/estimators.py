"""Relevance of a query and document from its tracked clicks: IPW, affine and doubly robust estimators.

L. Zou et al., "Approximated doubly robust search relevance estimation", CIKM 2022. With P(c | k) = α_k Y + β_k,
α_k = θ_k (ε⁺_k - ε⁻_k), β_k = θ_k ε⁻_k, and D displays (k, c, ê) of one query and document:

    IPW      Y = mean c / θ_k
    affine   Y = mean (c - β_k) / α_k
    DR       Y = Ŷ + mean (c - β_k - ê (ε⁺_k - ε⁻_k) Ŷ) / α_k = ζ Ŷ + affine,    ζ = mean (1 - ê / θ_k)     (Eq. 4)

Ŷ is the imputation, what a model without clicks says. All three are means of one value per display, so they
follow from the sums that are tracked per position: n, Σ c, Σ ê, Σ ê², Σ c ê.

Differences from the paper: without a display DR is Ŷ. A display without an estimate of examination has ê = θ_k,
which makes its term that of the affine estimator. Estimates leave [0, 1] and are not clipped. Standard errors are
of the mean and count one display's worth of the model's own variance, so that a result never clicked is not
certain. `shrunken` is ours: with few displays Eq. 4 keeps most of the affine estimator's variance (only what ê
explains goes), so an estimate is pulled towards Ŷ by how much both are worth.

Legend: R rows (a query, document and position each), P pairs (a query and document each), K ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unskew.errors import DataError
from unskew.types import Array


@dataclass(frozen=True)
class TrustCurves:
    """What is assumed of every rank, [K] each; ranks beyond the last count as the last."""

    theta: Array
    """Probability of examination."""
    alpha: Array
    """Slope of the click probability in relevance."""
    beta: Array
    """Click probability of what is not relevant at all."""

    def __post_init__(self) -> None:
        for name in ("theta", "alpha", "beta"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), float))
        if not len(self.theta) == len(self.alpha) == len(self.beta) > 0:
            raise DataError("theta, alpha and beta must have a value for each rank, and the same ranks")
        if not (np.isfinite(self.alpha).all() and (self.alpha > 0).all() and (self.theta > 0).all()):
            raise DataError(
                "alpha and theta must be positive at every rank", hint="leave out ranks without clicks"
            )

    def at(self, position: Array) -> tuple[Array, Array, Array]:
        """θ, α and β at these ranks."""
        index = np.minimum(np.asarray(position, int), len(self.theta)) - 1
        return self.theta[index], self.alpha[index], self.beta[index]


@dataclass(frozen=True)
class Tallies:
    """Tracked sums of displays, one row per pair and position; [R] each."""

    pair: Array
    """int, from 0."""
    position: Array
    """Rank."""
    n: Array
    """Displays."""
    c: Array
    """Clicks."""
    estimated: Array
    """Displays with an ê."""
    e: Array
    """Σ ê."""
    ee: Array
    """Σ ê²."""
    ce: Array
    """Σ c ê."""
    pairs: int
    """P."""

    def per_pair(self, values: Array) -> Array:
        """Values of rows, added up by pair, [P]."""
        return np.bincount(self.pair, values, minlength=self.pairs)

    @property
    def displays(self) -> Array:
        """D of every pair, [P]."""
        return self.per_pair(self.n)


class Estimate(NamedTuple):
    """Relevance of pairs, [P] each."""

    relevance: Array
    """NaN where there is nothing to estimate from."""
    standard_error: Array
    """NaN where it is not known."""


def ipw_estimate(tallies: Tallies, curves: TrustCurves) -> Estimate:
    """Mean c / θ_k.

    >>> one = Tallies(*(np.array([v]) for v in (0, 2, 4.0, 1.0, 0.0, 0.0, 0.0, 0.0)), pairs=1)
    >>> float(ipw_estimate(one, TrustCurves([1, 0.5], [1, 0.5], [0, 0])).relevance[0])
    0.5
    """
    theta, _, _ = curves.at(tallies.position)
    return _mean(tallies, curves, 1 / theta, np.zeros_like(theta), None)


def affine_estimate(tallies: Tallies, curves: TrustCurves) -> Estimate:
    """Mean (c - β_k) / α_k."""
    _, alpha, beta = curves.at(tallies.position)
    return _mean(tallies, curves, 1 / alpha, beta / alpha, None)


def doubly_robust_estimate(tallies: Tallies, curves: TrustCurves, imputation: Array) -> Estimate:
    """Eq. 4, with the imputation of every pair, [P]; without displays it is the imputation."""
    _, alpha, beta = curves.at(tallies.position)
    found = _mean(tallies, curves, 1 / alpha, beta / alpha, np.asarray(imputation, float))
    return Estimate(np.where(tallies.displays > 0, found.relevance, imputation), found.standard_error)


def _mean(
    tallies: Tallies, curves: TrustCurves, weight: Array, offset: Array, imputation: Array | None
) -> Estimate:
    """The mean of x = w c - o (+ Ŷ - Ŷ ê/θ) over the displays of each pair, and its standard error."""
    theta, alpha, beta = curves.at(tallies.position)
    n, c, d = tallies.n, tallies.c, np.maximum(tallies.displays, 1)
    first = weight * c - n * offset
    second = weight**2 * c - 2 * weight * offset * c + n * offset**2  # Σ (w c - o)², as c² = c
    shown = tallies.displays > 0
    if imputation is not None:
        guess, missing = imputation[tallies.pair], n - tallies.estimated
        # Σ f and Σ f² of f = 1 - ê/θ, and Σ (w c - o) f; f = 0 where there is no ê
        f = tallies.estimated - tallies.e / theta
        ff = tallies.estimated - 2 * tallies.e / theta + tallies.ee / theta**2
        share = np.divide(tallies.estimated, n, out=np.zeros_like(n), where=n > 0)
        clicks = np.where(missing > 0, share * c, c)  # clicks of displays with an ê; exact where all have one
        cross = weight * (clicks - tallies.ce / theta) - offset * f
        first, second = first + guess * f, second + 2 * guess * cross + guess**2 * ff
    mean = tallies.per_pair(first) / d
    spread = np.maximum(tallies.per_pair(second) / d - mean**2, 0.0)
    p = np.clip(alpha * np.clip(mean, 0.0, 1.0)[tallies.pair] + beta, 1e-6, 1 - 1e-6)
    model = tallies.per_pair(n * weight**2 * p * (1 - p)) / d
    error = np.sqrt((d * spread + model) / d / d)
    return Estimate(np.where(shown, mean, np.nan), np.where(shown, error, np.nan))


def imputed_variance(tallies: Tallies, curves: TrustCurves, imputation: Array) -> Array:
    """Variance of the affine estimator were the imputation true, [P]: Σ p (1 - p)/α_k² / D²; inf without displays.

    It knows nothing of the clicks, so that a weight made of it does not lean with them.
    """
    _, alpha, beta = curves.at(tallies.position)
    p = np.clip(alpha * np.clip(imputation, 0.0, 1.0)[tallies.pair] + beta, 1e-3, 1 - 1e-3)
    d = tallies.displays
    total = tallies.per_pair(tallies.n * p * (1 - p) / alpha**2)
    variance: Array = np.divide(total, d**2, out=np.full(len(d), np.inf), where=d > 0)
    return variance


def shrunken(estimate: Array, variance: Array, imputation: Array) -> Estimate:
    """Estimates pulled towards the imputation: Ŷ + w (Y - Ŷ), w = τ²/(τ² + v), [P] each.

    τ², how far the imputation is off, is such that Σ (Y - Ŷ)²/(τ² + v) is the number of pairs with displays
    (R. Paule and J. Mandel, "Consensus values and weighting factors", 1982).

    >>> found = shrunken(np.array([1.0, 0.0]), np.array([0.1, 0.1]), np.array([0.5, 0.5]))
    >>> found.relevance.round(2).tolist()
    [0.8, 0.2]
    """
    known = np.isfinite(variance) & np.isfinite(estimate)
    off, v = (estimate - imputation)[known] ** 2, variance[known]
    low, high = 0.0, float(off.max(initial=0.0)) + 1.0
    for _ in range(60):
        middle = (low + high) / 2
        enough = (off / (middle + v)).sum() > known.sum()
        low, high = (middle, high) if enough else (low, middle)
    tau = (low + high) / 2
    weight = np.where(known, tau / (tau + np.where(known, variance, 1.0)), 0.0)
    moved = imputation + weight * np.where(known, estimate - imputation, 0.0)
    return Estimate(moved, np.sqrt(np.where(known, weight * np.where(known, variance, 0.0), tau)))
