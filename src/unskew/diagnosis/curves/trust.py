"""Does a click at the top mean less? From random slots. And do documents differ in their curves? From all swaps.

    P(c | k) = α_k Y + β_k

Over pairs, Cov(c_k, c_j) = α_k α_j Var(Y) for two displays, and E[c_k] = α_k E[Y] + β_k (`tracking/trust`).
How much a click at k tells, relative to rank 1:

    ρ_k = (α_k / E[c_k]) / (α_1 / E[c_1])

Under the examination hypothesis β = 0 and ρ is 1 everywhere; where the top is trusted, or some people click there
whatever stands there, ρ is above 1 below. Scale: Y is the click rate at rank 1. Documents that differ in how fast
their clicks fall make ρ differ from 1 too; how much they differ, given what trust explains, is told by `slopes`.

Standard errors leave out a part of the queries at a time (jackknife over GROUPS parts).

Legend: P pairs, K ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from unskew.diagnosis.curves.slopes import slope_spread
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
    """v: variance over documents of the slope of clicks in log rank (`slopes`)."""
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
    return replace(
        found,
        documents=value,
        documents_error=error,
        documents_reason=reason,
        shuffled_pages=pages,
        least_pages=least,
    )


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


def _by_document(pairs: SwapPairs) -> tuple[tuple[float, float] | None, str | None]:
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
    """Sums of some pairs."""
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
