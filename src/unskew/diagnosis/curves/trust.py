"""Does a click at the top mean less? From random slots. And do documents differ in their curves? From all swaps.

    P(c | k) = α_k Y + β_k

Over pairs, Cov(c_k, c_j) = α_k α_j Var(Y) for two displays, and E[c_k] = α_k E[Y] + β_k (`tracking/trust`).
How much a click at k tells, relative to rank 1:

    ρ_k = (α_k / E[c_k]) / (α_1 / E[c_1])

Under the examination hypothesis β = 0 and ρ is 1 everywhere; where the top is trusted, or some people click there
whatever stands there, ρ is above 1 below. Scale: Y is the click rate at rank 1. Documents that differ in how fast
their clicks fall make ρ differ from 1 too. Standard errors leave out a part of the queries at a time (jackknife
over GROUPS parts).

How much documents differ, given what trust explains, is a variance, by marginal likelihood:

    logit P(click of pair p at k) = logit(l_k + (h_k - l_k) g_p) + √v d_p u_k,        u_k = log k, centred

g_p is what a pair is worth, in [0, 1] with any distribution on a grid; d_p is standard normal. With v = 0 this is
the affine click model: examination, trust in the top or several kinds of people, one pair of curves for all
documents. So what trust explains is not taken for documents. Pairs are dealt into strata by the mean rank that
they were shown at, each with a distribution of its own, as rankers show at the top what is worth more: displays in
their natural order count beside random slots.

All are fitted by maximum likelihood (L-BFGS). With r_p what is left of pair p's score of v after regression on its
scores of everything else (the efficient score),

    error² = Σ_queries (Σ_p∈q r_p)² / (Σ_p r_p²)²

v is looked for from 0.0025 on, which is as good as 0. Where documents were only ever swapped with a neighbour, v
comes out somewhat too large.

Legend: P pairs, K ranks, G worths, D standard deviations, S strata.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, logit, logsumexp

from unskew.diagnosis.evidence.likelihood import dealt, jackknife
from unskew.diagnosis.evidence.pairs import SwapPairs, read_pairs
from unskew.diagnosis.evidence.tables import ONE_RANK, LogTables
from unskew.errors import DataError
from unskew.results import Result
from unskew.tracking.estimators import Tallies
from unskew.tracking.trust import RandomSlots
from unskew.types import Array

LEAST_CLICKS = 500
"""Clicks in random slots below which nothing is said of trust; on swapped documents, of these."""
LEAST_RANKS = 4
"""Ranks below which nothing is said of documents: a curve of few bends any way."""
LEAST_AT_RANK = 50
"""Clicks at a rank below which it is left out; of random slots also the ranks under it."""


@dataclass(frozen=True)
class TrustFit(Result):
    """The affine click model of a log by rank, from random slots."""

    ranks: int = 0
    """Ranks that are told of, from the top."""
    clicks: int = 0
    """Clicks in random slots."""
    alpha: tuple[float, ...] = ()
    """Slope by rank; rank 1 is 1."""
    alpha_interval: tuple[tuple[float, float], ...] = ()
    beta: tuple[float, ...] = ()
    """What is clicked whatever it is, by rank, where rank 1 is set to 0."""
    beta_interval: tuple[tuple[float, float], ...] = ()
    informative: tuple[float, ...] = ()
    """ρ: how much a click tells, relative to rank 1."""
    informative_interval: tuple[tuple[float, float], ...] = ()
    slope: float | None = None
    """Slope of log ρ in log k; above 0 a click at the top means less."""
    slope_error: float | None = None
    documents: float | None = None
    """v: variance over documents of the slope of clicks in log rank (see the head of this file)."""
    documents_error: float | None = None
    shuffled_pages: int = 0
    """Pages of random slots that were looked at, about."""
    least_pages: int | None = None
    """Shuffled pages that would have the clicks that are needed, by clicks of a page here; None where few tell."""
    reason: str | None = None
    """Why there is no fit."""
    documents_reason: str | None = None
    """Why nothing is said of documents."""


def trust(tables: LogTables) -> TrustFit:
    """The affine click model of a log, from its random slots, and how much documents differ, from its swaps."""
    facts = tables.facts
    if facts["ranks"] < 2:
        return TrustFit(reason=ONE_RANK, documents_reason=ONE_RANK)
    pairs = read_pairs(tables, shuffled=True)
    found = _by_random_slots(pairs, marked=tables.shuffled != "none")
    spread, reason = _by_document(read_pairs(tables))
    value, error = (None, None) if spread is None else spread
    pages = round(float(pairs.shown.sum(0).max(initial=0.0)) / pairs.share)  # each shows one result at a rank
    least = _least_pages(facts["clicks"], facts["pages"], facts["queries"])
    told = replace(found, documents=value, documents_error=error, documents_reason=reason)
    return replace(told, shuffled_pages=pages, least_pages=least)


def _least_pages(clicks: int, pages: int, queries: int) -> int | None:
    """Shuffled pages that would have the clicks that are needed on queries seen again.

    >>> _least_pages(clicks=400, pages=1000, queries=200), _least_pages(clicks=9, pages=10, queries=1)
    (1563, None)
    """
    if clicks < LEAST_AT_RANK or queries >= pages:
        return None
    return ceil(LEAST_CLICKS * pages / clicks / (1 - queries / pages))


def _by_random_slots(pairs: SwapPairs, *, marked: bool) -> TrustFit:
    """Curves, or why there are none."""
    clicks = int(pairs.clicks.sum())
    ranks = int(np.cumprod(pairs.clicks.sum(0) >= LEAST_AT_RANK).sum())
    if not len(pairs):
        why = "no document was shown at two ranks in random slots" if marked else "no slot is marked as random"
    elif clicks < LEAST_CLICKS:
        why = f"random slots have {clicks} clicks; at least {LEAST_CLICKS} are needed"
    elif ranks < 2:
        why = f"ranks 1 and 2 need {LEAST_AT_RANK} clicks in random slots, each"
    else:
        try:
            return _fitted(pairs, ranks, clicks)
        except DataError as error:
            why = str(error)
    return TrustFit(clicks=clicks, reason=why)


def _by_document(pairs: SwapPairs) -> tuple[SlopeSpread | None, str | None]:
    """How much documents differ, or why that is not told."""
    clicks = int(pairs.clicks.sum())
    if not len(pairs):
        return None, "no document was shown at two ranks for one query"
    several = "documents shown at several ranks"
    if clicks < LEAST_CLICKS:
        return None, f"{several} have {clicks} clicks; at least {LEAST_CLICKS} are needed"
    ranks = np.flatnonzero(pairs.clicks.sum(0) >= LEAST_AT_RANK)
    if len(ranks) < LEAST_RANKS:
        few = f"{several} have {LEAST_AT_RANK} clicks at {len(ranks)} ranks"
        return None, f"{few}; {LEAST_RANKS} ranks are needed"
    spread = slope_spread(replace(pairs, shown=pairs.shown[:, ranks], clicks=pairs.clicks[:, ranks]), ranks + 1)
    return spread, None if spread else f"{several} are too few, or clicked alike"


def _fitted(pairs: SwapPairs, ranks: int, clicks: int) -> TrustFit:
    """Curves with jackknife errors."""
    group = dealt(pairs.cluster)
    parts = [_slots(pairs.take(group == one), ranks) for one in np.unique(group)]
    value = _numbers(parts)  # [3 K + 1]
    error = jackknife(np.stack([_numbers(parts[:at] + parts[at + 1 :]) for at in range(len(parts))]))
    numbers, ends = [], []
    for at in range(0, 3 * ranks, ranks):
        shape = np.exp if at == 2 * ranks else np.asarray  # ρ is told by its logarithm
        middle, wide = value[at : at + ranks], 1.96 * error[at : at + ranks]
        numbers.append(tuple(shape(middle).tolist()))
        ends.append(tuple(zip(shape(middle - wide).tolist(), shape(middle + wide).tolist(), strict=True)))
    (alpha, beta, rho), (alpha_ends, beta_ends, rho_ends) = numbers, ends
    last = float(value[-1]), float(error[-1])
    return TrustFit(ranks, clicks, alpha, alpha_ends, beta, beta_ends, rho, rho_ends, *last)


def _slots(pairs: SwapPairs, ranks: int) -> RandomSlots:
    pair, rank = np.nonzero(pairs.shown[:, :ranks])
    none = np.zeros(len(pair))
    slots = RandomSlots(ranks)
    shown, clicks = pairs.shown[pair, rank], pairs.clicks[pair, rank]
    slots.add(Tallies(pair, rank + 1, shown, clicks, none, none, none, none, pairs=len(pairs)))
    return slots


def _numbers(parts: list[RandomSlots]) -> Array:
    """α, β and log ρ of every rank, and the slope of that, [3 K + 1], of all parts together."""
    slots = RandomSlots(len(parts[0].shown))
    for name in vars(slots):
        setattr(slots, name, sum(getattr(part, name) for part in parts))
    curves, mean = slots.curves(), slots.clicks / slots.shown
    log_rho = np.log(curves.alpha * mean[0] / mean)
    slope = steepness(log_rho, slots.shown * curves.alpha**2 / mean)
    return np.concatenate([curves.alpha, curves.beta, log_rho, [slope]])


def steepness(values: Array, weight: Array) -> float:
    """Slope of values by rank in the logarithm of the rank, by weighted least squares.

    >>> round(steepness(np.log([1.0, 2.0, 3.0]), np.ones(3)), 6)
    1.0
    """
    x = np.log(np.arange(1.0, len(values) + 1))
    x = x - x @ weight / weight.sum()
    return float((values * weight * x).sum() / (weight * x * x).sum())


# ---- how much documents differ ----


MOST_PAIRS = 5000
"""Pairs that are looked at; of more, those that were shown most."""
STRATA = 5
"""Parts of the pairs by mean rank."""
LEAST_PAIRS = 50
"""Pairs below which nothing is said."""
WORTH = (np.arange(12) / 11) ** 2
"""Worths of the grid, closer to each other where clicks are rare."""
_POINTS, _MASS = np.polynomial.hermite_e.hermegauss(5)
_MASS = _MASS / _MASS.sum()
LEAST_SPREAD, MOST_SPREAD = 0.05, 2.5
"""Between these √v is looked for."""
_RIDGE = 1e-3
_FINE = 1e-9


class SlopeSpread(NamedTuple):
    """How much the slopes of documents differ, the variance v, and its standard error."""

    value: float
    error: float


class SlopeFit(NamedTuple):
    """What parameters say of every pair."""

    low: Array
    """l, [K]."""
    high: Array
    """h, [K]."""
    affine: Array
    """l + (h - l) g, [K, G]."""
    spread: float
    """√v."""
    chance: Array
    """P(click), [K, G, D]."""
    share: Array
    """Distribution of worths, [S, G]."""
    level: Array
    """Log-likelihood of every pair, [P]."""
    weight: Array
    """P(worth, deviation | clicks of the pair), [P, G, D]."""


@dataclass(frozen=True)
class SlopeModel:
    """The likelihood of pairs; parameters are logits of l and h, log √v, and logarithms of shares, in a row."""

    shown: Array  # [P, K]
    clicks: Array  # [P, K]
    stratum: Array  # [P] int, 0 to S - 1
    ranks: Array  # [K]

    @property
    def u(self) -> Array:
        """log k, 0 where the mean click is, [K]."""
        u, total = np.log(self.ranks), self.clicks.sum(0)
        return np.asarray(u - u @ total / total.sum())

    def start(self) -> Array:
        """The parameters that the search for the largest likelihood begins with."""
        mean = self.clicks.sum(0) / self.shown.sum(0)
        low, high = logit(np.clip(mean / 5, 1e-4, 0.9)), logit(np.clip(mean * 3, 1e-3, 0.95))
        return np.concatenate([low, high, [np.log(0.3)], np.zeros((self.stratum.max() + 1) * len(WORTH))])

    def fit(self, at: Array) -> SlopeFit:
        """Chances and posteriors at these parameters."""
        ranks = self.shown.shape[1]
        low, high, spread = expit(at[:ranks]), expit(at[ranks : 2 * ranks]), float(np.exp(at[2 * ranks]))
        affine = low[:, None] + (high - low)[:, None] * WORTH  # [K, G]
        bent = logit(affine)[:, :, None] + spread * self.u[:, None, None] * _POINTS
        chance = np.clip(expit(bent), _FINE, 1 - _FINE)  # [K, G, D]
        hit, miss = np.log(chance).reshape(ranks, -1), np.log1p(-chance).reshape(ranks, -1)
        logs = at[2 * ranks + 1 :].reshape(-1, len(WORTH))
        logs = logs - logsumexp(logs, axis=1, keepdims=True)
        before = (logs[:, :, None] + np.log(_MASS)).reshape(len(logs), -1)
        joint = self.clicks @ (hit - miss) + self.shown @ miss + before[self.stratum]  # [P, G D]
        top = joint.max(1, keepdims=True)
        weight = np.exp(joint - top)
        total = weight.sum(1, keepdims=True)
        level, weight = (top + np.log(total))[:, 0], (weight / total).reshape(-1, *chance.shape[1:])
        return SlopeFit(low, high, affine, spread, chance, np.exp(logs), level, weight)

    def loss(self, at: Array) -> tuple[float, Array]:
        """Mean negative log-likelihood, with a trace of a ridge, and its gradient."""
        now, pairs, ranks = self.fit(at), len(self.shown), self.shown.shape[1]
        flat = now.weight.reshape(pairs, -1)
        left = (self.clicks.T @ flat).reshape(now.chance.shape)
        left = left - (self.shown.T @ flat).reshape(now.chance.shape) * now.chance  # [K, G, D]
        slope = left.sum(2) / (now.affine * (1 - now.affine))
        low = (slope * (1 - WORTH)).sum(1) * now.low * (1 - now.low)
        high = (slope * WORTH).sum(1) * now.high * (1 - now.high)
        spread = now.spread * (left * self.u[:, None, None] * _POINTS).sum()
        worth = now.weight.sum(2)
        shares = [(worth[self.stratum == one] - row).sum(0) for one, row in enumerate(now.share)]
        ridge = np.where(np.arange(len(at)) == 2 * ranks, 0.0, _RIDGE) * at
        gradient = np.concatenate([low, high, [spread], *shares]) - ridge
        return float(-now.level.sum() + ridge @ at / 2) / pairs, -gradient / pairs

    def searched(self) -> Array:
        """Parameters of largest likelihood."""
        ranks, begin = self.shown.shape[1], self.start()
        bounds = [(-12.0, 6.0)] * (2 * ranks) + [(np.log(LEAST_SPREAD), np.log(MOST_SPREAD))]
        bounds += [(-15.0, 15.0)] * (len(begin) - len(bounds))
        options = {"maxiter": 200, "ftol": 3e-7, "gtol": 1e-6}
        found: Array = minimize(self.loss, begin, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
        return found

    def scores(self, now: SlopeFit) -> tuple[Array, Array]:
        """Every pair's score of v, [P], and of all else, [P, 2 K + S G], these up to a factor each."""
        bend = self.u[:, None, None] * _POINTS * np.ones_like(now.chance)
        size = len(self.u), -1
        due = self.clicks @ bend.reshape(size) - self.shown @ (bend * now.chance).reshape(size)
        spread = (due * now.weight.reshape(len(due), -1)).sum(1) / (2 * now.spread)
        others = []
        for k, affine in enumerate(now.affine):
            left = self.clicks[:, k, None, None] - self.shown[:, k, None, None] * now.chance[k]
            slope = (left * now.weight).sum(2) / (affine * (1 - affine))  # [P, G]
            others += [slope @ (1 - WORTH), slope @ WORTH]
        worth = now.weight.sum(2)
        for one, share in enumerate(now.share):
            others += list(np.where((self.stratum == one)[:, None], worth - share, 0.0).T)
        return spread, np.stack(others, 1)


def slope_spread(pairs: SwapPairs, ranks: Array) -> SlopeSpread | None:
    """v of pairs seen at several of these ranks, [K], and its standard error; None where they tell nothing."""
    pairs = pairs.take((pairs.shown > 0).sum(1) > 1)
    if len(pairs) > MOST_PAIRS:
        pairs = pairs.take(np.sort(np.argsort(-pairs.shown.sum(1), kind="stable")[:MOST_PAIRS]))
        pairs = replace(pairs, cluster=np.unique(pairs.cluster, return_inverse=True)[1])
    if len(pairs) < LEAST_PAIRS or not pairs.clicks.sum(0).all():
        return None
    model = SlopeModel(pairs.shown, pairs.clicks, strata(pairs.shown, ranks), ranks)
    now = model.fit(model.searched())
    score, others = model.scores(now)
    others = others / np.maximum(np.sqrt((others**2).mean(0)), 1e-12)
    left = score - others @ np.linalg.lstsq(others, score, rcond=1e-8)[0]
    information = float(left @ left)
    if information < _FINE:
        return None
    by_query = np.bincount(pairs.cluster, left)
    return SlopeSpread(now.spread**2, float(np.sqrt(by_query @ by_query)) / information)


def strata(shown: Array, ranks: Array, count: int = STRATA) -> Array:
    """Parts of about equal size by the mean logarithm of the rank of displays, [P]; equal means, equal part.

    >>> strata(np.array([[2.0, 0.0], [1.0, 1.0], [2.0, 2.0], [0.0, 3.0]]), np.array([1, 2]), 2).tolist()
    [0, 0, 0, 1]
    """
    mean = (shown @ np.log(ranks) / shown.sum(1)).round(9)
    cuts = np.quantile(mean, np.arange(1, count) / count, method="inverted_cdf")
    return np.unique(np.searchsorted(cuts, mean), return_inverse=True)[1]
