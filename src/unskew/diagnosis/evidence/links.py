"""Which ranks can be compared at all: the graph over ranks, its weak links, and the swaps that would mend it.

Two ranks are linked by documents that one query saw at both; with features, by documents of equal features too
(`equal`). The weight of a link is the information that they carry on the ratio of examination: `pairs` has the
formula. A link is weak where the ratio of neighbours is known worse than wanted over all paths: see `swap_plan`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from unskew.diagnosis.evidence.equality import EqualDocuments, equal_documents
from unskew.diagnosis.evidence.pairs import RANKS, SwapPairs, WithinFit, fit_within, rank_design, read_pairs
from unskew.types import Array

if TYPE_CHECKING:
    from unskew.diagnosis.evidence.tables import LogTables


# ---- Swaps of neighbouring ranks that would link every rank of a log to the first, and what they take


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


# ----


PRECISION = 0.1
"""Standard error of log(θ_j / θ_k) that a swap plan aims at: about a tenth."""
LEAST_CLICKS = 30
"""Clicks on pairs seen at several ranks below which no curve is told."""
MOST_DRAWN = 60
"""Links that a picture has room for."""
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
    drawn: int
    """How many links a picture shows: the strongest ones."""
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
    by: str
    """What links ranks: "documents", or "features" where documents of equal features count as one."""
    reason: str | None = None
    """Why there is no curve, or no plan."""

    @property
    def swap_plan(self) -> list[dict[str, Any]]:
        """The plan as serving carries it out; empty where nothing is weak or nothing can be planned."""
        return [] if self.plan is None else self.plan.to_list()

    def to_dict(self) -> dict[str, Any]:
        """Every number, for JSON."""
        return asdict(self)


def identify(tables: LogTables, *, precision: float = PRECISION, features: Any = None) -> Identifiability:
    """Which ranks of a log can be compared, how well, and which swaps would mend what cannot.

    `features` say which documents are equal (`equal_documents`): these link ranks as one document does.
    """
    rates, pages, queries = _traffic(tables)
    ranks = len(rates)
    equal = None if features is None else equal_documents(features)
    pairs = _widened(read_pairs(tables, equal=equal), ranks)
    clicks = int(pairs.clicks.sum())
    plan, unplanned = plan_swaps(np.zeros((ranks, ranks)), rates, pages, queries, precision)
    if tables.facts["clicks"] < LEAST_CLICKS:
        plan, unplanned = None, f"{tables.facts['clicks']} clicks do not tell how many pages swaps need"
    nothing = Identifiability(
        ranks=ranks, pairs=len(pairs), clicks=clicks, share=pairs.share,
        components=tuple((k + 1,) for k in range(ranks)), links=(), drawn=0, weak=(), examination=(None,) * ranks,
        interval=(None,) * ranks, flat=None, connected=ranks == 1, plan=plan,
        by="documents" if equal is None else "features", reason=unplanned,
    )  # fmt: skip
    if reason := _too_little(ranks, pairs, clicks):
        return _because(nothing, reason)
    fit, components = _fitted(pairs, ranks)
    plan, unplanned = plan_swaps(fit.information, rates, pages, queries, precision)
    if len(components[0]) == 1:
        why = f"no other rank is linked to rank 1 by {_what(equal)} that one query saw at both"
        return _because(nothing, why, components=components, plan=plan)
    curve, interval, flat = _curve(fit, components[0], ranks)
    links = _links(pairs, fit.information)
    return replace(
        nothing, components=components, links=links, drawn=min(len(links), MOST_DRAWN),
        weak=weak_links(fit.information, precision), examination=curve, interval=interval, flat=flat,
        connected=len(components) == 1, plan=plan, reason=unplanned,
    )  # fmt: skip


def _what(equal: EqualDocuments | None) -> str:
    return "documents" if equal is None else "documents, or documents of equal features,"


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
