"""Does a click at the top mean less, and do documents differ in their curves? From random slots.

    affine       P(c | k) = α_k Y + β_k. Over pairs, Cov(c_k, c_j) = α_k α_j Var(Y) for two displays, and
                 E[c_k] = α_k E[Y] + β_k (`clicks/tracking/trust`). How much a click at k tells, relative to rank
                 1:

                     ρ_k = (α_k / E[c_k]) / (α_1 / E[c_1])

                 Under the examination hypothesis β = 0 and ρ is 1 everywhere; where the top is trusted, or some
                 people click there whatever stands there, ρ is above 1 below. Scale: Y is the click rate at rank
                 1.
    documents    P(c | k) = θ_k^a Y with an a that varies from document to document makes covariances of two low
                 ranks too large beside those of a low and a high one: with u_k = log k, standardised,

                     Cov(c_k, c_j) / (α_k α_j Var(Y)) = a_k + a_j + v u_k u_j

                 v is found by weighted least squares. An affine curve that all share has v = 0, and where -log θ
                 runs along u, v is the variance over documents of log θ_k / u_k.

Standard errors leave out a part of the queries at a time (jackknife over `GROUPS` parts).

Legend: P pairs, K ranks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.clicks.tracking.estimators import Tallies
from unskew.clicks.tracking.trust import RandomSlots
from unskew.diagnosis.pairs import SwapPairs, read_pairs
from unskew.errors import DataError
from unskew.types import Array

if TYPE_CHECKING:
    from unskew.diagnosis.tables import LogTables

GROUPS = 50
"""Parts that are left out, one at a time."""
LEAST_CLICKS = 500
"""Clicks in random slots below which nothing is said."""
LEAST_RANKS = 3
"""Ranks up to which nothing is said of documents: a curve of so few fits any covariance."""
LEAST_AT_RANK = 50
"""Clicks at a rank, in random slots, below which it and those under it are left out."""


@dataclass(frozen=True)
class TrustFit:
    """The affine click model of a log by rank, from random slots."""

    ranks: int
    """Ranks that are told of, from the top."""
    clicks: int
    """Clicks in random slots."""
    alpha: tuple[float, ...]
    """Slope by rank; rank 1 is 1."""
    alpha_interval: tuple[tuple[float, float], ...]
    beta: tuple[float, ...]
    """What is clicked whatever it is, by rank, where rank 1 is set to 0."""
    beta_interval: tuple[tuple[float, float], ...]
    informative: tuple[float, ...]
    """ρ: how much a click tells, relative to rank 1."""
    informative_interval: tuple[tuple[float, float], ...]
    slope: float | None
    """Slope of log ρ in log k; above 0 a click at the top means less."""
    slope_error: float | None
    documents: float | None
    """v: how much documents differ in their curves; a share of the covariance of clicks."""
    documents_error: float | None
    reason: str | None = None
    """Why there is no fit."""

    def to_dict(self) -> dict[str, Any]:
        """Every number, for JSON."""
        return asdict(self)


def trust(tables: LogTables) -> TrustFit:
    """The affine click model of a log, from its random slots."""
    pairs = read_pairs(tables, shuffled=True)
    clicks = int(pairs.clicks.sum())
    if not len(pairs):
        return _nothing(clicks, "no slot was filled at random, or no document twice")
    if clicks < LEAST_CLICKS:
        return _nothing(clicks, f"random slots have {clicks} clicks; at least {LEAST_CLICKS} are needed")
    enough = pairs.clicks.sum(0) >= LEAST_AT_RANK
    ranks = int(np.cumprod(enough).sum())
    if ranks < 2:
        return _nothing(clicks, f"ranks 1 and 2 need {LEAST_AT_RANK} clicks in random slots, each")
    try:
        return _fitted(pairs, ranks, clicks)
    except DataError as error:
        return _nothing(clicks, str(error))


def _nothing(clicks: int, reason: str) -> TrustFit:
    return TrustFit(0, clicks, (), (), (), (), (), (), None, None, None, None, reason)


def _fitted(pairs: SwapPairs, ranks: int, clicks: int) -> TrustFit:
    """Curves with jackknife errors."""
    groups = _groups(pairs, ranks)
    total = _added(groups)
    left = [_without(total, group) for group in groups]
    value, rows = _numbers(total), np.stack([_numbers(one) for one in left])  # [3 K + 2], [G, 3 K + 2]
    error = jackknife(value, rows)
    (alpha, beta, log_rho), (alpha_error, beta_error, rho_error) = (
        part[:-2].reshape(3, ranks) for part in (value, error)
    )
    told = ranks > LEAST_RANKS
    return TrustFit(
        ranks, clicks, tuple(alpha.tolist()), _around(alpha, alpha_error), tuple(beta.tolist()),
        _around(beta, beta_error), tuple(np.exp(log_rho).tolist()),
        tuple((float(np.exp(low)), float(np.exp(high))) for low, high in _around(log_rho, rho_error)),
        float(value[-2]), float(error[-2]),
        float(value[-1]) if told else None, float(error[-1]) if told else None,
    )  # fmt: skip


def _numbers(slots: RandomSlots) -> Array:
    """α, β and log ρ of every rank, its slope and v, [3 K + 2]."""
    curves, mean = slots.curves(), slots.clicks / slots.shown
    log_rho = np.log(curves.alpha * mean[0] / mean)
    slope = steepness(log_rho, slots.shown * curves.alpha**2 / mean)
    return np.concatenate([curves.alpha, curves.beta, log_rho, [slope, variation(slots, curves.alpha)]])


def steepness(values: Array, weight: Array) -> float:
    """Slope of values by rank in the logarithm of the rank, by weighted least squares.

    >>> round(steepness(np.log([1.0, 2.0, 3.0]), np.ones(3)), 6)
    1.0
    """
    x = np.log(np.arange(1.0, len(values) + 1))
    x = x - x @ weight / weight.sum()
    return float((values * weight * x).sum() / (weight * x * x).sum())


def _around(value: Array, error: Array) -> tuple[tuple[float, float], ...]:
    low, high = value - 1.96 * error, value + 1.96 * error
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def jackknife(value: Array, left: Array) -> Array:
    """Standard errors from values with a part left out, [G, ...].

    >>> jackknife(np.array(2.0), np.array([1.5, 2.0, 2.5])).round(4).item()
    0.5774
    """
    count = len(left)
    error: Array = np.sqrt((count - 1) / count * ((left - left.mean(0)) ** 2).sum(0))
    return error


def _groups(pairs: SwapPairs, ranks: int) -> list[RandomSlots]:
    """Sums of parts of the queries."""
    order = np.random.default_rng(0).permutation(int(pairs.cluster.max()) + 1)
    group = order[pairs.cluster] % GROUPS
    found = []
    for one in np.unique(group):
        shown, clicks = (table[group == one][:, :ranks] for table in (pairs.shown, pairs.clicks))
        pair, rank = np.nonzero(shown)
        n, c = shown[pair, rank], clicks[pair, rank]
        none = np.zeros(len(n))
        slots = RandomSlots(ranks)
        slots.add(Tallies(pair, rank + 1, n, c, none, none, none, none, pairs=len(shown)))
        found.append(slots)
    return found


SUMS = ("shown", "clicks", "both", "totals", "one", "other")


def _added(groups: list[RandomSlots]) -> RandomSlots:
    """All groups as one."""
    total = RandomSlots(len(groups[0].shown))
    for name in SUMS:
        setattr(total, name, sum(getattr(group, name) for group in groups))
    return total


def _without(total: RandomSlots, group: RandomSlots) -> RandomSlots:
    """All groups but one."""
    left = RandomSlots(len(total.shown))
    for name in SUMS:
        setattr(left, name, getattr(total, name) - getattr(group, name))
    return left


def variation(slots: RandomSlots, alpha: Array) -> float:
    """v: how much documents differ in their curves; 0 where ranks are too few to tell."""
    if len(alpha) <= LEAST_RANKS:
        return 0.0
    safe = np.maximum(slots.both, 1)
    covariance = slots.totals / safe - (slots.one / safe) * (slots.other / safe)
    mean = slots.clicks / slots.shown
    scale = float((slots.both * covariance * np.outer(alpha, alpha)).sum())
    scale /= float((slots.both * np.outer(alpha, alpha) ** 2).sum())
    ratio = covariance / (scale * np.outer(alpha, alpha))
    weight = slots.both * np.outer(alpha, alpha) ** 2 / np.outer(mean, mean)
    k, j = np.triu_indices(len(mean))
    u = np.log(np.arange(1.0, len(mean) + 1))
    u = (u - u.mean()) / u.std()
    design = np.column_stack([u[k] * u[j], *_parts(k, j, len(mean))])
    root = np.sqrt(weight[k, j])
    found, *_ = np.linalg.lstsq(design * root[:, None], ratio[k, j] * root, rcond=None)
    return float(found[0])


def _parts(k: Array, j: Array, ranks: int) -> list[Array]:
    """A column for each rank: 1 where it is one of the two, 2 where it is both."""
    return [(k == one).astype(float) + (j == one) for one in range(ranks)]
