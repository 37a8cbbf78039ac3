"""What the order shown says of relevance, how far a query's and a pair's own clicks speak against it.

Where an engine puts a result is evidence of its relevance, and the log tells how much:

    click rate at rank k / examination at rank k = mean relevance at rank k,            which falls with k

Clicks on a pair (a query and a document) are then Poisson around what is expected of it, with gamma factors:

    m_i = E_i r_i L_q       E_i: examination, summed over its shows; r_i what is expected; L_q its query's level
    L_q = (t + C_q) / (t + M_q)        r_i (s + c_i) / (s + m_i)        the means of their posteriors

t and s are the strengths of the gamma distributions, of mean 1, by the marginal likelihood of all counts: negative
binomial. Without levels, s takes up that queries differ, and a pair's own clicks are believed too readily.

Legend: P ranks, M pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.examination import Examination
from unskew.results import Result
from unskew.types import Array

STRICT = 0.001
"""What every e-fold in rank takes from log relevance at least, so that no two ranks say the same."""
STRONGEST = 1e4
"""Strength of a gamma factor that never differs from 1, as far as counts tell."""


@dataclass(frozen=True)
class EnginePrior(Result):
    """Mean relevance by the rank that the engine gave.

    >>> prior = EnginePrior.of(np.array([1000, 1000]), np.array([100, 40]), Examination.of([1.0, 0.5], "numbers"))
    >>> [round(value, 3) for value in prior.relevance], prior.log_at(np.array([1.0, 2.0, 9.0])).round(2).tolist()
    ([0.1, 0.08], [-2.3, -2.52, -3.01])
    """

    relevance: tuple[float, ...]
    """By rank from 1, never rising: clicks of a result that is looked at as rank 1 is."""
    source: str
    """What examination comes from."""
    reason: str | None = None
    """Why examination is not known; then all ranks count as looked at alike, which trusts the engine most."""

    @classmethod
    def of(
        cls, impressions: Array, clicks: Array, examination: Examination | None, reason: str | None = None
    ) -> EnginePrior:
        """From counts by rank [P], with half a click more at each rank, at the rate of the log.

        Halfway, in logs, between a curve that falls where clicks make it fall and a power of the rank, so that
        neighbouring ranks that clicks cannot tell apart keep their order.
        """
        from scipy.optimize import isotonic_regression  # takes long to import

        log_rank = np.log(np.arange(1, len(impressions) + 1))
        theta = np.ones(len(log_rank)) if examination is None else examination.at(np.arange(1, len(log_rank) + 1))
        looked = np.maximum(impressions * theta, 1e-9)
        usual = max(float(clicks.sum()), 1.0) / looked.sum()
        rate = (clicks + 0.5) / (looked + 0.5 / usual)
        steps = np.log(isotonic_regression(rate, weights=looked, increasing=False).x)
        middle, level = (float(np.average(each, weights=clicks + 0.5)) for each in (log_rank, steps))
        along = (clicks + 0.5) * (log_rank - middle)
        power = min(float((along * steps).sum() / max((along * log_rank).sum(), 1e-9)), 0.0)
        found = np.exp((steps + level + power * (log_rank - middle)) / 2)
        return cls(tuple(found.tolist()), "nothing" if examination is None else examination.source, reason)

    def log_at(self, rank: Array) -> Array:
        """Log relevance at ranks from 1, between two as between them, below the last as it falls above; or NaN."""
        known = np.arange(1, len(self.relevance) + 1)
        value = np.log(self.relevance) - STRICT * np.log(known)
        fall = (value[0] - value[-1]) / np.log(known[-1]) if len(known) > 1 else STRICT
        below = value[-1] - fall * np.log(np.maximum(rank, known[-1]) / known[-1])
        found: Array = np.where(rank > known[-1], below, np.interp(rank, known, value))
        return np.where(np.isnan(rank), np.nan, found)

    @property
    def steepness(self) -> float:
        """By what factor mean relevance falls from the first rank to the last."""
        return self.relevance[0] / self.relevance[-1]


def strength(clicks: Array, expected: Array) -> float:
    """Of gamma factors of mean 1 on what was expected, by the marginal likelihood of clicks.

    >>> drawn = np.random.default_rng(0)
    >>> expected = np.full(4000, 3.0)
    >>> 1.8 < strength(drawn.poisson(expected * drawn.gamma(2.0, 0.5, 4000)), expected) < 2.2
    True
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import gammaln

    shown = expected > 0
    c, m = clicks[shown], expected[shown]

    def cost(log_s: float) -> float:
        s = np.exp(log_s)
        return float(-(gammaln(s + c) - gammaln(s) + s * np.log(s / (s + m)) - c * np.log(s + m)).sum())

    if not len(c):
        return STRONGEST
    return float(np.exp(minimize_scalar(cost, bounds=(-4.0, np.log(STRONGEST)), method="bounded").x))


def factors(clicks: Array, expected: Array, s: float) -> Array:
    """(s + c) / (s + m), the mean of each gamma factor after its clicks."""
    found: Array = (s + clicks) / (s + expected)
    return found


def levels(clicks: Array, expected: Array, query: Array) -> Array:
    """The level of each pair's query, [M], from clicks and what was expected of its pairs."""
    c, m = (np.bincount(query, each) for each in (clicks, expected))
    found: Array = factors(c, m, strength(c, m))[query]
    return found
