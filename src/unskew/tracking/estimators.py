"""Relevance of a query and document from its tracked clicks: IPW, affine and doubly robust estimators.

L. Zou et al., "Approximated doubly robust search relevance estimation", CIKM 2022. With P(c | k) = α_k Y + β_k,
α_k = θ_k (ε⁺_k - ε⁻_k), β_k = θ_k ε⁻_k, and D displays (k, c, ê) of one query and document:

    IPW      Y = mean c / θ_k
    affine   Y = mean (c - β_k) / α_k
    DR       Y = Ŷ + mean (c - β_k - ê τ_k Ŷ) / α_k = ζ Ŷ + affine,    ζ = mean (1 - ê τ_k / α_k)         (Eq. 4)

τ_k is ε⁺_k - ε⁻_k, and Ŷ the imputation, what a model without clicks says. DR is right on average if either α or Ŷ
is, as long as β is and the mean of ê τ is the true α (Theorem 2): τ must then come from elsewhere than α / θ. All
three are means of one value per display, so they follow from the sums that are tracked per position: n, Σ c, Σ ê,
Σ ê², Σ c ê.

Differences from the paper: without a display DR is Ŷ. A display without an estimate of examination has the mean ê
of its rank, or θ_k. Where τ is not given it is α / θ, and DR as right as the affine estimator. Estimates leave
[0, 1] and are not clipped. Standard errors are of the mean and count one display's worth of the model's own
variance, so that a result never clicked is not certain. With few displays Eq. 4 keeps most of the affine
estimator's variance, as only what ê explains goes; what `unskew judge` makes of that is in `shrinkage`.

Legend: R rows (a query, document and position each), P pairs (a query and document each), K ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unskew.engine_prior import Expectation, after, mean_ranks, spread_worth
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
    trust: Array = None  # type: ignore[assignment]  # α / θ unless given, made an array below
    """τ: how much more often a result that is examined is clicked if it is relevant; α / θ unless given."""

    def __post_init__(self) -> None:
        given = ("theta", "alpha", "beta") if self.trust is None else ("theta", "alpha", "beta", "trust")
        for name in given:
            object.__setattr__(self, name, np.asarray(getattr(self, name), float))
        if len({len(getattr(self, name)) for name in given} | {len(self.alpha) or -1}) > 1:
            raise DataError("theta, alpha, beta and trust must have a value for each rank, and the same ranks")
        positive = np.array([getattr(self, name) for name in given if name != "beta"])
        if not (np.isfinite(positive).all() and (positive > 0).all()):
            raise DataError(
                "alpha, theta and trust must be positive at every rank", hint="leave out ranks without clicks"
            )
        if self.trust is None:
            object.__setattr__(self, "trust", self.alpha / self.theta)

    def at(self, position: Array) -> tuple[Array, Array, Array]:
        """θ, α and β at these ranks."""
        index = self.index(position)
        return self.theta[index], self.alpha[index], self.beta[index]

    def index(self, position: Array) -> Array:
        """Where the values of these ranks stand."""
        return np.asarray(np.minimum(np.asarray(position, int), len(self.theta)) - 1)


@dataclass(frozen=True)
class Tallies:
    """Tracked sums of displays, one row per pair and position; [R] each."""

    pair: Array
    """int, from 0."""
    position: Array
    n: Array
    """How often the pair was displayed there."""
    c: Array
    """How often it was clicked there."""
    estimated: Array
    """Displays whose examination a model estimated as ê."""
    e: Array
    """Σ ê."""
    ee: Array
    """Σ ê²."""
    ce: Array
    """Σ c ê."""
    pairs: int
    """P, the number of pairs."""

    def per_pair(self, values: Array) -> Array:
        """Values of rows, added up by pair, [P]."""
        return np.bincount(self.pair, values, minlength=self.pairs)

    @property
    def displays(self) -> Array:
        """D, how often every pair was displayed, [P]."""
        return self.per_pair(self.n)


class Estimate(NamedTuple):
    """Relevance of pairs, [P] each."""

    relevance: Array
    """NaN where there is nothing to estimate from."""
    standard_error: Array
    """NaN where it is not known."""


class Terms(NamedTuple):
    """The values of displays whose mean an estimator is, [P] each."""

    mean: Array
    """0 where there is no display."""
    within: Array
    """Sum of squared differences to the mean over displays, Σ (x - mean)²."""


def weights_of(estimator: str, tallies: Tallies, curves: TrustCurves) -> tuple[Array, Array]:
    """w and o of the values w c - o, [R] each."""
    theta, alpha, beta = curves.at(tallies.position)
    return (1 / theta, np.zeros_like(theta)) if estimator == "ipw" else (1 / alpha, beta / alpha)


def terms(
    tallies: Tallies,
    curves: TrustCurves,
    estimator: str,
    imputation: Array | None = None,
    usual: Array | None = None,
    share: Array | None = None,
) -> Terms:
    """Mean and spread of x = w c - o over the displays of each pair, of x + Ŷ (1 - ê τ/α) with an imputation.

    `usual` is m, the mean ê of every rank [K], θ unless given; of what ê differs from it a `share` counts [P].
    """
    weight, offset = weights_of(estimator, tallies, curves)
    n, c, d = tallies.n, tallies.c, np.maximum(tallies.displays, 1)
    first = weight * c - n * offset
    second = weight**2 * c - 2 * weight * offset * c + n * offset**2  # Σ (w c - o)², as c² = c
    if imputation is not None:
        index, guess = curves.index(tallies.position), imputation[tallies.pair]
        m = (curves.theta if usual is None else usual)[index]
        slope = curves.trust[index] / curves.alpha[index]
        level, scale = 1 - m * slope, slope if share is None else slope * share[tallies.pair]
        # Σ f, Σ f² and Σ (w c - o) f of f = level + scale (m - ê), which is level where there is no ê
        known = tallies.estimated
        less, square = known * m - tallies.e, known * m**2 - 2 * m * tallies.e + tallies.ee
        part = np.divide(known, n, out=np.zeros_like(n), where=n > 0)
        clicks = np.where(n > known, part * c, c)  # clicks of displays with an ê; exact where all have one
        f = n * level + scale * less
        ff = n * level**2 + 2 * level * scale * less + scale**2 * square
        cross = weight * (c * level + scale * (clicks * m - tallies.ce)) - offset * f
        first, second = first + guess * f, second + 2 * guess * cross + guess**2 * ff
    mean = tallies.per_pair(first) / d
    return Terms(mean, np.maximum(tallies.per_pair(second) - d * mean**2, 0.0))


def estimate(
    tallies: Tallies,
    curves: TrustCurves,
    estimator: str,
    imputation: Array | None = None,
    usual: Array | None = None,
) -> Estimate:
    """What ipw, affine or doubly_robust says of every pair; the last takes the imputation, [P].

    Without a display doubly robust is the imputation, and the others are unknown.

    >>> one = Tallies(*(np.array([v]) for v in (0, 2, 4.0, 1.0, 0.0, 0.0, 0.0, 0.0)), pairs=1)
    >>> float(estimate(one, TrustCurves([1, 0.5], [1, 0.5], [0, 0]), "ipw").relevance[0])
    0.5
    """
    guess = imputation if estimator == "doubly_robust" else None
    mean, within = terms(tallies, curves, estimator, guess, usual)
    weight, _ = weights_of(estimator, tallies, curves)
    _, alpha, beta = curves.at(tallies.position)
    d, shown = np.maximum(tallies.displays, 1), tallies.displays > 0
    p = np.clip(alpha * np.clip(mean, 0.0, 1.0)[tallies.pair] + beta, 1e-6, 1 - 1e-6)
    model = tallies.per_pair(tallies.n * weight**2 * p * (1 - p)) / d
    error = np.sqrt((within + model) / d / d)
    return Estimate(np.where(shown, mean, np.nan if guess is None else guess), np.where(shown, error, np.nan))


class OrderShown(NamedTuple):
    """What the order shown and clicks say of pairs, [P] each, with P(click) = alpha relevance + beta.

    Clicks but those of beta; sums of alpha, its square, beta (1 - beta) and alpha beta; mean rank over all pages
    of the query, and the query's number from 0.
    """

    clicks: Array
    looked: Array
    squares: Array
    noise: Array
    trusted: Array
    rank: Array
    query: Array

    @classmethod
    def of(cls, tallies: Tallies, query: Array, curves: TrustCurves, estimator: str) -> OrderShown:
        """Of pairs of these queries; a query has as many pages as showed anything at one position."""
        weight, offset = weights_of(estimator, tallies, curves)
        n, alpha, beta = tallies.n, 1 / weight, offset / weight
        _, cell = np.unique(tallies.position * len(query) + query[tallies.pair], return_inverse=True)
        pages = np.zeros(int(query.max()) + 1)
        np.maximum.at(pages, query[tallies.pair], np.bincount(cell, n)[cell])
        sums = (tallies.c - n * beta, n * alpha, n * alpha**2, n * beta * (1 - beta), n * alpha * beta)
        clicks, looked, squares, noise, trusted = map(tallies.per_pair, sums)
        ranks, last = tallies.per_pair(n * tallies.position), int(tallies.position.max())
        rank = mean_ranks(ranks, tallies.displays, pages[query], last)
        return cls(clicks, looked, squares, noise, trusted, rank, query)

    @property
    def told(self) -> tuple[Array, Array, Array, Array]:
        """What the expectation of a pair is made of: clicks, looks, mean rank and query."""
        return np.maximum(self.clicks, 0.0), self.looked, self.rank, self.query

    def worth(self, mean: Array) -> float:
        """How many displays that are looked at an expectation is worth."""
        return spread_worth(self.clicks, self.looked, self.squares, mean, self.noise - 2 * self.trusted * mean)

    def estimate(self, order: Expectation, worth: float) -> Estimate:
        """Relevance of pairs after their displays; the expectation counts as `worth` displays looked at."""
        mean = order.of(*self.told)
        found = after(mean, worth, self.clicks, self.looked)
        y = np.clip(found, 0.0, 1.0)
        chance = self.looked * y - self.squares * y**2 + self.noise - 2 * self.trusted * y
        spread = worth**2 * mean * (1 - mean) / (worth + 1) + np.maximum(chance, 0.0)
        return Estimate(found, np.sqrt(spread) / (worth + self.looked))
