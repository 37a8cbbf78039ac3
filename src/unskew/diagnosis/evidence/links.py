"""Which ranks can be compared: the graph over ranks, its weak links, and the swaps that would mend it.

Two ranks are linked by documents that one query saw at both; with features, by documents of equal features too.
The weight of a link is the information that they carry on the ratio of examination: `pairs` has the formula. A
link is weak where the ratio of neighbours is known worse than wanted over all paths.

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

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.sparse.csgraph import connected_components

from unskew.diagnosis.evidence.likelihood import ENOUGH, WIDEST
from unskew.diagnosis.evidence.pairs import RANKS, SwapPairs, equal_documents, fit_within, rank_design, read_pairs
from unskew.diagnosis.evidence.tables import LogTables
from unskew.examination import Examination
from unskew.results import Result
from unskew.types import Array, Lists

PRECISION = 0.1
"""Standard error of log(θ_j / θ_k) that a swap plan aims at: about a tenth."""


@dataclass(frozen=True)
class RankLink:
    """Two ranks and what is known of the one by the other."""

    ranks: tuple[int, int]
    pairs: int
    """Query-document pairs that were seen at both."""
    clicks: int
    """Clicks on these, at both."""
    information: float
    """1 / variance of log(θ_j / θ_k), by the swaps of this link alone."""


@dataclass(frozen=True)
class RankGraph(Result):
    """Which ranks can be compared with which, of the first ones."""

    ranks: int
    """Ranks that are looked at, from the top."""
    pairs: int
    """Query-document pairs that were seen at several ranks."""
    clicks: int
    """Clicks on them."""
    share: float
    """Share of the queries that was looked at."""
    components: tuple[tuple[int, ...], ...]
    """Ranks that can be compared with each other, those with rank 1 first."""
    links: tuple[RankLink, ...]
    weak: tuple[tuple[int, int], ...]
    """Neighbouring ranks whose ratio is known worse than the precision, by all paths."""
    plan: SwapPlan | None
    unplanned: str | None = None
    """Why there is no plan."""
    reason: str | None = None
    """Why no rank is linked to rank 1."""
    told: ClassVar = ("connected",)

    @property
    def connected(self) -> bool:
        """Whether all ranks that are shown can be compared."""
        return len(self.components) == 1

    @property
    def swap_plan(self) -> list[dict[str, Any]]:
        """The ranks of each swap and the share of pages that takes part, of which half is swapped, for serving."""
        swaps = () if self.plan is None else self.plan.swaps
        return [{"ranks": list(swap.ranks), "share": swap.share} for swap in swaps]


def rank_graph(
    tables: LogTables, curve: Examination, reason: str | None = None, precision: float = PRECISION
) -> RankGraph:
    """Which ranks of a log can be compared, how well, and which swaps would mend what cannot.

    `curve` says which ranks are linked to rank 1, and `reason` why none is.
    """
    rates, shown = _click_rates(tables)
    pairs, facts = _widened(read_pairs(tables), len(rates)), tables.facts
    linked = tuple(k for k in shown if k <= len(curve.theta) and curve.theta[k - 1] is not None)
    information = fit_within(pairs, rank_design(len(rates), np.array(linked or (1,)) - 1)).information
    if told := len(linked) > 1:
        components = (linked, *_parts(information, [k for k in shown if k not in linked]))
    else:
        information, components = 0 * information, tuple((k,) for k in shown)
    plan, unplanned = plan_swaps(information, rates, facts["pages"], facts["queries"], precision)
    if facts["clicks"] < ENOUGH:
        plan, unplanned = None, f"{facts['clicks']} clicks do not tell how many pages swaps need"
    return RankGraph(
        len(rates), len(pairs), int(pairs.clicks.sum()), pairs.share, components, _links(pairs, information),
        weak_links(information, precision) if told else (), plan, unplanned, reason,
    )  # fmt: skip


def linked_by_features(tables: LogTables, lists: Lists) -> tuple[tuple[int, ...], ...]:
    """Ranks that documents, or documents of equal features (`equal_documents`), link with each other."""
    rates, shown = _click_rates(tables)
    pairs = _widened(read_pairs(tables, equal=equal_documents(lists)), len(rates))
    if pairs.clicks.sum() < ENOUGH:
        return tuple((k,) for k in shown)
    return _parts(fit_within(pairs, np.zeros((len(rates), 0))).information, shown)


def _parts(information: Array, ranks: list[int]) -> tuple[tuple[int, ...], ...]:
    """Parts of the graph over some ranks: an edge is a ratio that is known within WIDEST."""
    at = np.array(ranks, int) - 1
    edges = -information[np.ix_(at, at)] * (1 - np.eye(len(at))) >= 1 / WIDEST**2
    count, part = connected_components(edges, directed=False)
    return tuple(sorted(tuple(ranks[k] for k in np.flatnonzero(part == number)) for number in range(count)))


def _click_rates(tables: LogTables) -> tuple[Array, list[int]]:
    """Click rate of every rank down to the last that is looked at and shown, [K], and the ranks that are shown."""
    shown, clicks = tables.laid_out(tables.cells, {"position": range(1, RANKS + 1)}, "impressions", "clicks")
    ranks = [k + 1 for k in np.flatnonzero(shown).tolist()]
    return (clicks / np.maximum(shown, 1))[: max(ranks, default=1)], ranks


def _widened(pairs: SwapPairs, ranks: int) -> SwapPairs:
    """The same pairs with a column for every rank of the log."""
    more = ((0, 0), (0, max(ranks - pairs.shown.shape[1], 0)))
    return replace(pairs, shown=np.pad(pairs.shown, more), clicks=np.pad(pairs.clicks, more))


def _links(pairs: SwapPairs, information: Array) -> tuple[RankLink, ...]:
    """All links with any information."""
    seen = (pairs.shown > 0).astype(float)
    both, clicks = seen.T @ seen, pairs.clicks.T @ seen
    found = []
    for k, j in zip(*np.nonzero(np.triu(-information, 1) > 0), strict=True):
        number = int(clicks[k, j] + clicks[j, k])
        found.append(RankLink((int(k) + 1, int(j) + 1), int(both[k, j]), number, float(-information[k, j])))
    return tuple(found)


# ---- swaps ----


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
