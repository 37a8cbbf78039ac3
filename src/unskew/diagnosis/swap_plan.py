"""Swaps of neighbouring ranks that would link every rank of a log to the first, and what they take.

A pair shown once at k and once at j, with click rates m_k and m_j, adds h = m_k m_j / (m_k + m_j) to what is
known; so M pages in which the results of ranks k and j stand in either order, each half of the time, know
log(θ_j / θ_k) with a standard error of s where

    M = 1 / (s² h r),      r = 1 - queries / pages

r is the share of pages that see a query again: what a query saw once under one order alone tells nothing.
The variance of log(θ_j / θ_k) over all paths is the resistance between them, were the links wires.

A page carries one swap at most, so shares of all swaps add up to 1 or less. Where the log has fewer pages than the
plan needs, every page carries one, for as long as `logs` logs of this size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from unskew.types import Array


@dataclass(frozen=True)
class Swap:
    """Two ranks whose results should stand in either order, half of the time each."""

    ranks: tuple[int, int]
    pages: int
    """Pages that are needed, swapped and unswapped together."""
    impressions: int
    """Results at the two ranks on these pages."""
    share: float
    """Share of the traffic that takes part, 0 to 1; half of it is swapped."""
    precision: float
    """Standard error of log(θ_j / θ_k) that it is for: 0.1 is about a tenth."""


@dataclass(frozen=True)
class SwapPlan:
    """Swaps that link every rank to rank 1 within the wanted precision; serving can carry it out."""

    precision: float
    swaps: tuple[Swap, ...]
    pages: int
    """Pages of all swaps; one page can carry one swap."""
    logs: float
    """How much traffic that is, in logs of this size; up to 1 the log's own span of time is enough."""
    shuffled_pages: int | None
    """Pages that would do as well if the whole page were shuffled."""

    def to_list(self) -> list[dict[str, Any]]:
        """For serving: the ranks of each swap and the share of pages that takes part, of which half is swapped."""
        return [{"ranks": list(swap.ranks), "share": swap.share} for swap in self.swaps]


def resistance(information: Array) -> Array:
    """Variance of log(θ_j / θ_k) over all paths, [K, K]; infinite between parts without a path.

    >>> resistance(np.array([[2.0, -2.0], [-2.0, 2.0]])).round(3).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    edges = -information * (1 - np.eye(len(information))) > 1e-9
    _, part = connected_components(edges, directed=False)
    inverse = np.linalg.pinv(information, hermitian=True)
    d = np.diag(inverse)
    return np.where(part[:, None] == part[None, :], np.maximum(d[:, None] + d[None, :] - 2 * inverse, 0.0), np.inf)


def weak_links(information: Array, precision: float) -> tuple[tuple[int, int], ...]:
    """Neighbouring ranks whose ratio is known worse than wanted, by all paths."""
    known = resistance(information)
    return tuple((k + 1, k + 2) for k in range(len(information) - 1) if known[k, k + 1] > precision**2)


def plan_swaps(
    information: Array, rates: Array, pages: int, queries: int, precision: float
) -> tuple[SwapPlan | None, str | None]:
    """Swaps of neighbours, as many as are weak, or why there are none; `rates` are clicks by rank, [K]."""
    ranks, again = len(rates), 1 - queries / max(pages, 1)
    if ranks < 2:
        return None, "one rank leaves nothing to swap"
    if again <= 0:
        return None, "every query was seen once: swaps within a query would tell nothing"
    weak = weak_links(information, precision)
    if unclicked := sorted({k for pair in weak for k in pair if rates[k - 1] <= 0}):
        return None, f"rank {unclicked[0]} has no clicks: how many pages a swap needs cannot be told"
    known, needed = resistance(information), []
    for k, j in weak:
        missing = 1 / precision**2 - 1 / known[k - 1, j - 1]
        each = rates[k - 1] * rates[j - 1] / (rates[k - 1] + rates[j - 1])
        needed.append(int(np.ceil(missing / (each * again))))
    total = sum(needed)
    swaps = tuple(
        Swap(pair, number, 2 * number, number / max(total, pages), precision)
        for pair, number in zip(weak, needed, strict=True)
    )
    return SwapPlan(precision, swaps, total, total / max(pages, 1), _shuffles(rates, again, precision)), None


def _shuffles(rates: Array, again: float, precision: float) -> int | None:
    """Shuffled pages after which every neighbour is known; each result is at each rank equally often."""
    if (rates <= 0).any():
        return None
    share = rates / rates.sum()
    total = rates.sum()  # clicks of a page; a pair's are dealt out over ranks as their rates
    weight = total * (np.diag(share) - np.outer(share, share))
    worst = max(resistance(weight)[k, k + 1] for k in range(len(rates) - 1))
    return int(np.ceil(worst / (precision**2 * again)))
