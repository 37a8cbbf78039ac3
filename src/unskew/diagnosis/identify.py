"""Which ranks can be compared at all: the graph over ranks, its weak links, and the swaps that would mend it.

Two ranks are linked by documents that one query saw at both. The weight of a link is the information that they
carry on the ratio of examination: `pairs` has the formula. A pair shown once at k and once at j, with click rates
m_k and m_j, adds h = m_k m_j / (m_k + m_j); so M pages in which the results of ranks k and j stand in either
order, each half of the time, know log(θ_j / θ_k) with a standard error of s where

    M = 1 / (s² h r),      r = 1 - queries / pages

r is the share of pages that see a query again: what a query saw once under one order alone tells nothing.
The variance of log(θ_j / θ_k) over all paths is the resistance between them, were the links wires.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from unskew.diagnosis.pairs import RANKS, SwapPairs, WithinFit, fit_within, rank_design, read_pairs
from unskew.types import Array

if TYPE_CHECKING:
    from unskew.diagnosis.tables import LogTables

PRECISION = 0.1
"""Standard error of log(θ_j / θ_k) that a swap plan aims at: about a tenth."""
LEAST_CLICKS = 30
"""Clicks on pairs seen at several ranks below which no curve is told."""
LEAST_INFORMATION = 4.0
"""Information of a link that counts: its ratio is known within a factor of e^(1/2), one standard error."""


@dataclass(frozen=True)
class RankLink:
    """Two ranks and what is known of the one by the other."""

    ranks: tuple[int, int]
    pairs: int
    """Query-document pairs that were seen at both."""
    clicks: int
    """Clicks on these, at both."""
    information: float
    """1 / variance of log(θ_j / θ_k), from these alone."""


@dataclass(frozen=True)
class Swap:
    """Two ranks whose results should stand in either order, half of the time each."""

    ranks: tuple[int, int]
    pages: int
    """Pages that are needed, swapped and unswapped together."""
    share: float
    """Of the traffic that the log stands for; above 1 is more than it has."""


@dataclass(frozen=True)
class SwapPlan:
    """Swaps that link every rank to rank 1 within the wanted precision; serving can carry it out."""

    precision: float
    swaps: tuple[Swap, ...]
    pages: int
    """Pages of all swaps; one page can carry one swap."""
    shuffled_pages: int | None
    """Pages that would do as well if the whole page were shuffled."""


@dataclass(frozen=True)
class Identifiability:
    """The graph over ranks."""

    ranks: int
    pairs: int
    """Query-document pairs that were seen at several ranks."""
    clicks: int
    """Clicks on them."""
    share: float
    """Share of the queries that was looked at."""
    components: tuple[tuple[int, ...], ...]
    """Ranks that can be compared with each other."""
    links: tuple[RankLink, ...]
    weak: tuple[tuple[int, int], ...]
    """Neighbouring ranks whose ratio is known worse than the precision, by all paths."""
    examination: tuple[float | None, ...]
    """θ of ranks 1, 2, ... relative to rank 1, within pairs."""
    interval: tuple[tuple[float, float] | None, ...]
    """95 % intervals of these."""
    flat: float | None
    """p of the hypothesis that all ranks are examined alike."""
    connected: bool
    """Whether all ranks hang together."""
    plan: SwapPlan | None
    reason: str | None = None
    """Why there is no curve, or no plan."""

    def to_dict(self) -> dict[str, Any]:
        """Every number, for JSON."""
        return asdict(self)


def identify(tables: LogTables, *, precision: float = PRECISION) -> Identifiability:
    """Which ranks of a log can be compared, how well, and which swaps would mend what cannot."""
    rates, pages, queries = _traffic(tables)
    ranks = len(rates)
    pairs = read_pairs(tables)
    pairs = _widened(pairs, ranks)
    clicks = int(pairs.clicks.sum())
    plan, unplanned = _plan(np.zeros((ranks, ranks)), rates, pages, queries, precision)
    nothing = Identifiability(
        ranks, len(pairs), clicks, pairs.share, tuple((k + 1,) for k in range(ranks)), (), (), (None,) * ranks,
        (None,) * ranks, None, ranks == 1, plan, unplanned,
    )  # fmt: skip
    if reason := _too_little(ranks, pairs, clicks):
        return _because(nothing, reason)
    fit, components = _fitted(pairs, ranks)
    plan, unplanned = _plan(fit.information, rates, pages, queries, precision)
    if len(components[0]) == 1:
        why = "no other rank is linked to rank 1 by documents that one query saw at both"
        return _because(nothing, why, components=components, plan=plan)
    curve, interval, flat = _curve(fit, components[0], ranks)
    return Identifiability(
        ranks, len(pairs), clicks, pairs.share, components, _links(pairs, fit.information),
        _weak(fit.information, ranks, precision), curve, interval, flat, len(components) == 1, plan, unplanned,
    )  # fmt: skip


def _because(nothing: Identifiability, reason: str, **changes: Any) -> Identifiability:
    return replace(nothing, reason="; ".join(part for part in (reason, nothing.reason) if part), **changes)


def _too_little(ranks: int, pairs: SwapPairs, clicks: int) -> str | None:
    """Why pairs tell nothing."""
    if ranks < 2:
        return "the log has one rank only"
    if not len(pairs):
        return "no document was shown at two ranks for one query"
    if clicks < LEAST_CLICKS:
        return f"documents shown at several ranks have {clicks} clicks; at least {LEAST_CLICKS} are needed"
    return None


def _traffic(tables: LogTables) -> tuple[Array, int, int]:
    """Click rate of every rank, [K], pages and queries."""
    cells: Any = tables.cells
    by = cells.group_by("position").agg(shown=cells.impressions.sum(), clicks=cells.clicks.sum())
    rows = [row for row in tables.engine.rows(by) if row["position"] <= RANKS]
    rates = np.zeros(max((int(row["position"]) for row in rows), default=1))
    for row in rows:
        rates[int(row["position"]) - 1] = float(row["clicks"]) / float(row["shown"])
    pages: Any = tables.pages
    found = tables.engine.rows(pages.agg(pages=pages.count(), queries=pages.query_id.nunique()))[0]
    return rates, int(found["pages"]), int(found["queries"])


def _widened(pairs: SwapPairs, ranks: int) -> SwapPairs:
    """The same pairs with a column for every rank of the log."""
    more = ((0, 0), (0, max(ranks - pairs.shown.shape[1], 0)))
    return replace(pairs, shown=np.pad(pairs.shown, more), clicks=np.pad(pairs.clicks, more))


def _fitted(pairs: SwapPairs, ranks: int) -> tuple[WithinFit, tuple[tuple[int, ...], ...]]:
    """A coefficient for each rank that can have one, and the parts of the graph, that of rank 1 first."""
    alike = fit_within(pairs, np.zeros((ranks, 0)), rounds=0)
    components = _components(alike.information)
    return fit_within(pairs, rank_design(ranks, np.array(components[0]) - 1)), components


def _components(information: Array) -> tuple[tuple[int, ...], ...]:
    """Parts of the graph over ranks, that of rank 1 first."""
    edges = -information * (1 - np.eye(len(information))) >= LEAST_INFORMATION
    count, part = connected_components(edges, directed=False)
    found = [tuple(int(k) + 1 for k in np.flatnonzero(part == number)) for number in range(count)]
    return tuple(sorted(found))


def _curve(
    fit: WithinFit, linked: tuple[int, ...], ranks: int
) -> tuple[tuple[float | None, ...], tuple[tuple[float, float] | None, ...], float]:
    """θ of linked ranks, intervals, and p of a flat curve."""
    curve: list[float | None] = [None] * ranks
    interval: list[tuple[float, float] | None] = [None] * ranks
    curve[linked[0] - 1], interval[linked[0] - 1] = 1.0, (1.0, 1.0)
    for number, rank in enumerate(linked[1:]):
        b, error = float(fit.b[number]), fit.error(number)
        curve[rank - 1] = float(np.exp(b))
        interval[rank - 1] = (float(np.exp(b - 1.96 * error)), float(np.exp(b + 1.96 * error)))
    return tuple(curve), tuple(interval), fit.wald(np.arange(len(linked) - 1))[1]


def _links(pairs: SwapPairs, information: Array) -> tuple[RankLink, ...]:
    """All links with any information."""
    seen = (pairs.shown > 0).astype(float)
    both, clicks = seen.T @ seen, pairs.clicks.T @ seen
    found = []
    for k, j in zip(*np.nonzero(np.triu(-information, 1) > 0), strict=True):
        number = int(clicks[k, j] + clicks[j, k])
        found.append(RankLink((int(k) + 1, int(j) + 1), int(both[k, j]), number, float(-information[k, j])))
    return tuple(found)


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


def _weak(information: Array, ranks: int, precision: float) -> tuple[tuple[int, int], ...]:
    """Neighbours that are known worse than wanted."""
    known = resistance(information)
    return tuple((k + 1, k + 2) for k in range(ranks - 1) if known[k, k + 1] > precision**2)


def _plan(
    information: Array, rates: Array, pages: int, queries: int, precision: float
) -> tuple[SwapPlan | None, str | None]:
    """Swaps of neighbours, as many as are weak, or why there are none."""
    ranks, again = len(rates), 1 - queries / max(pages, 1)
    if ranks < 2:
        return None, "one rank leaves nothing to swap"
    if again <= 0:
        return None, "every query was seen once: swaps within a query would tell nothing"
    weak = _weak(information, ranks, precision)
    if unclicked := sorted({k for pair in weak for k in pair if rates[k - 1] <= 0}):
        return None, f"rank {unclicked[0]} has no clicks: how many pages a swap needs cannot be told"
    known = resistance(information)
    swaps = []
    for k, j in weak:
        missing = 1 / precision**2 - 1 / known[k - 1, j - 1]
        each = rates[k - 1] * rates[j - 1] / (rates[k - 1] + rates[j - 1])
        needed = int(np.ceil(missing / (each * again)))
        swaps.append(Swap((k, j), needed, needed / max(pages, 1)))
    return SwapPlan(
        precision, tuple(swaps), sum(swap.pages for swap in swaps), _shuffles(rates, again, precision)
    ), None


def _shuffles(rates: Array, again: float, precision: float) -> int | None:
    """Shuffled pages after which every neighbour is known; each result is at each rank equally often."""
    if (rates <= 0).any():
        return None
    share = rates / rates.sum()
    total = rates.sum()  # clicks of a page; a pair's are dealt out over ranks as their rates
    weight = total * (np.diag(share) - np.outer(share, share))
    worst = max(resistance(weight)[k, k + 1] for k in range(len(rates) - 1))
    return int(np.ceil(worst / (precision**2 * again)))
