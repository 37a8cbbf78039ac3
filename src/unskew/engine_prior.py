"""What the order shown says of relevance, how far a query's and a pair's own clicks speak against it.

Where an engine puts a result is evidence of its relevance, and the log tells how much:

    click rate at rank k / examination at rank k = mean relevance at rank k,            which falls with k

Clicks on a pair (a query and a document) are then Poisson around what is expected of it, with gamma factors:

    m_i = E_i r_i L_q       E_i: examination, summed over its shows; r_i what is expected; L_q its query's level
    L_q = (t + C_q) / (t + M_q)        r_i (s + c_i) / (s + m_i)        the means of their posteriors

t and s are the strengths of the gamma distributions, of mean 1, by the marginal likelihood of all counts: negative
binomial. Without levels, s takes up that queries differ, and a pair's own clicks are believed too readily.

Judgments put the same together per examination: with C clicks on T examinations, and m = r L what is expected of
the pair before, relevance is

    (a m + C) / (a + T)        a: how many examinations m is worth, by the marginal likelihood of all clicks

Where r is fitted, the rank of a pair is its mean over all pages of its query: a page without it counts as the rank
below the last one. Examination that clicks tell badly, or not, leans on what click rates r_k by rank say:

    log theta_k = (1 - b) log r_k        b ~ N(LEAN, LEANS), by what the log tells of examination; LEAN if nothing

So where nothing is known most of the fall by rank counts as examination, and what is expected is worth CAUTIOUS
examinations at most: pairs that were looked at often are then judged by clicks over what their ranks get, others
by their rank.

Legend: P ranks, M pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from unskew.examination import Examination
from unskew.results import Result
from unskew.types import Array

STRICT = 0.001
"""What every e-fold in rank takes from log relevance at least, so that no two ranks say the same."""
STRONGEST = 1e4
"""Strength of a gamma factor that never differs from 1, as far as counts tell."""
LEAN, LEANS, OFF = 0.2, 0.1, 0.1
"""Share of the fall of click rates by rank that is relevance, before anything is known; how sure that is; how far
log examination differs from what follows of it.
"""
CAUTIOUS = 20.0
"""Examinations that what is expected is worth at most, where the log does not tell examination."""
FIRST, SURE = 0.08, 0.04
"""Variance of relevance over m (1 - m) before anything is known, and how sure that is."""
SMALL, HIGHEST = 1e-9, 0.95
"""Relevance comes no closer to 0 or 1, and what is expected not above."""
SAMPLE = 200_000
"""Pairs that strengths are found by, at most about."""
NORMAL = 1.96
"""Standard errors on both sides of a 95 % interval."""


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
        neighbouring ranks that clicks cannot tell apart keep their order. From rank to rank it falls by LEAN of
        what click rates fall at least: where people leave after a click, examination takes all of it.
        """
        from scipy.optimize import isotonic_regression  # takes long to import

        log_rank = np.log(np.arange(1, len(impressions) + 1))
        theta = np.ones(len(log_rank)) if examination is None else examination.at(np.arange(1, len(log_rank) + 1))
        looked = np.maximum(impressions * theta, 1e-9)
        usual = max(float(clicks.sum()), 1.0) / looked.sum()
        rate = (clicks + 0.5) / (looked + 0.5 / usual)
        steps = np.log(isotonic_regression(rate, weights=looked, increasing=False).x)
        raw = (clicks + 0.5) / (impressions + 0.5 * impressions.sum() / max(float(clicks.sum()), 1.0))
        least = LEAN * np.log(isotonic_regression(raw, weights=np.maximum(impressions, 1e-9), increasing=False).x)
        middle, level = (float(np.average(each, weights=clicks + 0.5)) for each in (log_rank, steps))
        along = (clicks + 0.5) * (log_rank - middle)
        power = min(float((along * steps).sum() / max((along * log_rank).sum(), 1e-9)), 0.0)
        curve = (steps + level + power * (log_rank - middle)) / 2
        falls = np.minimum(np.diff(curve), np.diff(least))
        found = np.exp(curve[0] + np.append(0.0, np.cumsum(falls)))
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


# ---- judgments ----


def mean_ranks(ranks: Array, shown: Array, pages: Array, last: int) -> Array:
    """Mean rank of pairs over all pages of their queries, by sums of ranks and shows; `last` is the log's."""
    missing = np.maximum(pages - shown, pages == 0)
    found: Array = (ranks + missing * (last + 1)) / np.maximum(shown + missing, 1)
    return found


class Expectation(NamedTuple):
    """What the mean rank of pairs says of relevance, and the strength of their queries' levels, found in a log."""

    prior: EnginePrior
    scale: float
    level: float

    @classmethod
    def fit(cls, clicks: Array, looked: Array, rank: Array, query: Array) -> Expectation:
        """From clicks, examinations, mean rank and query (numbers from 0) of pairs, [M] each."""
        shown, clicked = (np.bincount(np.rint(rank).astype(np.int64), each)[1:] for each in (looked, clicks))
        prior = EnginePrior.of(shown, clicked, None)
        mean = np.exp(prior.log_at(rank))
        scale = max(float(clicks.sum()), 0.5) / max(float(looked @ mean), SMALL)
        c, m = (np.bincount(query, each) for each in (clicks, scale * looked * mean))
        return cls(prior, scale, strength(c, m))

    def of(self, clicks: Array, looked: Array, rank: Array, query: Array) -> Array:
        """Mean relevance that is expected of pairs, [M]; the other pairs of their queries tell their levels."""
        mean = self.scale * np.exp(self.prior.log_at(rank))
        c, m = (np.bincount(query, each)[query] - each for each in (clicks, looked * mean))
        found: Array = np.clip(mean * factors(c, m, self.level), SMALL, HIGHEST)
        return found


def after(mean: Array, worth: float, clicks: Array, looked: Array) -> Array:
    """Mean relevance after clicks on so many examinations, where what was expected is worth so many of them, [M].

    >>> after(np.array([0.1]), 20.0, np.array([1.0]), np.array([3.0])).round(6).tolist()
    [0.130435]
    """
    found: Array = (worth * mean + clicks) / (worth + looked)
    return found


def spread_worth(clicks: Array, looked: Array, squares: Array, mean: Array, more: Array | float = 0.0) -> float:
    """How many examinations a mean of relevance is worth, by how far clicks are from what it expects.

    With T and S the sums of examination and of its square over the shows of a pair, and v = m (1 - m) / (a + 1)
    the variance of relevance, whatever else its distribution is,

        E (C - T m)^2 = T m - S m^2 + (T^2 - S) v        and `more`, where clicks come of more than relevance

    so each pair tells 1 / (a + 1), weighed by what it knows, beside a first guess (FIRST, with error SURE).
    """
    chance = looked * mean - squares * mean**2 + more
    room = np.maximum(looked**2 - squares, 0.0) * mean * (1 - mean)
    told, share = (clicks - looked * mean) ** 2 - chance, FIRST
    for _ in range(5):
        weight = room / (2 * (chance + room * share + SMALL) ** 2)
        share = float((weight @ told + FIRST / SURE**2) / (weight @ room + 1 / SURE**2))
        share = float(np.clip(share, 1 / STRONGEST, 1 / 2))
    return 1 / share - 1


def worth(clicks: Array, looked: Array, mean: Array) -> float:
    """How many examinations a mean of relevance is worth, by the marginal likelihood of clicks."""
    from scipy.optimize import minimize_scalar

    seen = np.flatnonzero(looked > 0)
    seen = seen[:: 1 + len(seen) // SAMPLE]
    told = clicks[seen], looked[seen], mean[seen]
    ends = (-1.0, np.log(STRONGEST))
    return float(np.exp(minimize_scalar(lambda a: -likelihood(*told, np.exp(a)), bounds=ends, method="bounded").x))


def likelihood(clicks: Array, looked: Array, mean: Array, strength: float) -> float:
    """Log of the marginal likelihood of clicks, binomial, where relevance is Beta of this mean and strength."""
    from scipy.special import betaln

    good, bad, unclicked = strength * mean, strength * (1 - mean), np.maximum(looked - clicks, 0.0)
    return float((betaln(good + clicks, bad + unclicked) - betaln(good, bad)).sum())


def leaning(impressions: Array, clicks: Array, told: Examination | None) -> Array:
    """Examination of ranks [P], by what a log tells of it and, as far as that is unsure, by its click rates."""
    from scipy.optimize import isotonic_regression

    rates = isotonic_regression((clicks + 0.5) / (impressions + 1), weights=impressions + 1, increasing=False).x
    fall, known = np.log(rates / rates[0]), 0 if told is None else min(told.known, len(rates))
    found, error = np.zeros(len(rates)), np.full(len(rates), np.inf)
    if told is not None and known:
        found[:known] = np.log(told.values[:known])
        ends = [(np.nan, np.nan) if each is None else each for each in told.interval[:known]]
        low, high = np.log(np.array(ends, np.float64)).T
        error[1:known] = np.nan_to_num((high - low)[1:] / 2 / NORMAL, nan=0.0)
    weight = np.where(fall < 0, 1 / (error**2 + OFF**2), 0.0)
    lean = (weight @ (fall * (fall - found)) + LEAN / LEANS**2) / (weight @ fall**2 + 1 / LEANS**2)
    share = OFF**2 / (error**2 + OFF**2)
    believed: Array = np.exp(share * found + (1 - share) * (1 - lean) * fall)
    return believed
