"""Click rates of a document at the ranks where it was shown: the item-position estimator, and doubly robust.

Reference: Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay, Wen, "Offline Evaluation of Ranking Policies with
Click Models", KDD 2018 (item-position); Dudik, Langford, Li, "Doubly Robust Policy Evaluation and Learning",
ICML 2011.

    weight of a display at rank k    w = pi(k | q, d) / p(k | q, d)     pi: share of displays with place k
    item-position                    sum w click / pages
    dr                               sum over results of r(d, place) + w (click - r(d, k))  / pages

p is the logged chance of the slot, or how often the log shows the document at that rank: w click then adds up to
displays times the click rate at the place. A result counts in item-position where both rankings put it to ranks
that the log has; for the others dr takes the model r alone. r is examination by rank times relevance of (query,
document), learned from all other pages and pulled towards the mean of the query.

Differences from the papers: places may differ from page to page (what was shown does), so pi is a share and not 0
or 1. Where chances are logged, pages on which nothing was left to chance do not count; what was shown weighs 1.

Legend: P pages, N impressions; a cell is a document of a query at a rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.measuring.counterfactual.contract import Estimator, PlacedPages, Reading, effective_size
from unskew.types import Array

PRIOR = 2.0
"""Displays at rank 1 that the mean of the query counts for."""
LEAST_OVERLAP = 0.5
"""Share of the moved results below which the log says nothing of a ranking."""
LEAST = 20
"""Clicks of some weight below which they say nothing."""
NEW, OTHER, PAGES, WEIGHT, SQUARES, COVERED, MOVED, CLICKS, DR_NEW, DR_OTHER = range(10)


@dataclass(frozen=True)
class Displays:
    """Displays of documents by rank, and where a ranking puts them."""

    cell: Array
    """[N], document and rank shown."""
    used: Array
    """[N] bool, displays that count."""
    chance: Array | None
    """[N], logged, where it is."""
    cells: int

    def count(self, cell: Array, where: Array) -> Array:
        """Displays by cell, [cells]."""
        return np.bincount(cell[where], minlength=self.cells)

    def covers(self, target: Array) -> Array:
        """Whether the log may have the result at its place [N], bool."""
        if self.chance is not None:
            return self.used
        found: Array = self.used & (self.count(self.cell, self.used)[target] > 0)
        return found

    def weights(self, target: Array, where: Array, logged: Array) -> Array:
        """w of every display [N], over the places that count `where`; 1 where the order is the `logged` one."""
        if self.chance is not None:
            hit = where & (target == self.cell)
            return np.where(hit, np.where(logged, 1.0, 1 / self.chance), 0.0)
        wanted = self.count(target, where) / np.maximum(self.count(self.cell, self.used), 1)
        return np.where(self.used, wanted[self.cell], 0.0)


def displays_of(part: PlacedPages) -> tuple[Displays, Array, Array]:
    """Displays as cells, and the cells that both rankings put them to, [N] each; at random counts as shown."""
    pages = part.pages
    start = (pages.position - part.index)[pages.offsets[:-1]][pages.page]  # pages that begin further down
    width = int((part.index + start).max(initial=0)) + 1
    document = dense(pages.document)
    new, other = (
        document * width + np.minimum(np.where(place > 0, place, part.index) + start, width - 1)
        for place in (part.new, part.other)
    )
    used = np.ones(len(document), bool)
    if pages.propensity is not None:
        used = (pages.per_page(pages.propensity < 1) > 0)[pages.page]
    cells = (int(document.max(initial=0)) + 1) * width
    cell = document * width + part.index + start
    return Displays(cell, used, pages.propensity, cells), new, other


def logged_order(part: PlacedPages, place: Array) -> Array:
    """Where a ranking is what was shown and no choice of its own, [N] bool.

    It is at random, or on every page without random slots the order shown.
    """
    pages = part.pages
    random = pages.per_page(pages.shuffled) > 0
    shown = ((pages.per_page(place != part.index) == 0) | random).all()
    logged: Array = (place == 0) | ((~random)[pages.page] & shown)
    return logged


def dense(codes: Array) -> Array:
    """Codes as small numbers; as they are where they are small already."""
    if codes.max(initial=0) <= 4 * len(codes) + 1000:
        return codes
    return np.unique(codes, return_inverse=True)[1]


def query_model(part: PlacedPages, theta: Array) -> Array:
    """Relevance of every result [N] on the scale of rank 1, from all other pages, given examination theta [N].

    (clicks + PRIOR m) / (theta + PRIOR) over the document's other displays; m is clicks / theta of the query's.
    """
    pages = part.pages
    document, query = dense(pages.document), dense(pages.query)
    click, seen = (
        np.bincount(document, weights=each)[document] - each for each in (pages.click, theta)
    )  # without this page
    of_query = []
    for each in (pages.click, theta):
        own = pages.per_page(each)
        of_query.append((np.bincount(query, weights=own)[query] - own)[pages.page])
    mean = of_query[0] / np.maximum(of_query[1], 1e-9)
    relevance: Array = (click + PRIOR * mean) / (seen + PRIOR)
    return relevance


class ByDisplay(Estimator):
    """Click rates of documents at ranks."""

    most = 100_000

    def add(self, part: PlacedPages) -> Array:
        """Values, pages, weights, what is covered, and the doubly robust values."""
        pages = part.pages
        shown, new, other = displays_of(part)
        has_new, has_other = shown.covers(new), shown.covers(other)
        both = has_new & has_other
        logged = [logged_order(part, place) for place in (part.new, part.other)]
        by_new, by_other = (shown.weights(new, both, logged[0]), shown.weights(other, both, logged[1]))
        moved = np.where(shown.used, np.abs(np.subtract(*part.discounts)), 0.0)
        sums = [
            part.by_cluster(pages.click * by_new),
            part.by_cluster(pages.click * by_other),
            part.by_page(pages.per_page(shown.used) > 0),
            part.by_cluster(by_new),
            part.by_cluster(by_new**2),
            part.by_cluster(moved * both),
            part.by_cluster(moved),
            part.by_cluster(pages.click * (by_new > 0)),
        ]
        weights = (shown.weights(new, has_new, logged[0]), shown.weights(other, has_other, logged[1]))
        robust = self._robust(part, shown.used, weights)
        return np.stack([*sums, *(part.by_cluster(value) for value in robust)], axis=1)

    def _robust(self, part: PlacedPages, used: Array, weights: tuple[Array, Array]) -> list[Array]:
        """What each result adds to the doubly robust values, [N] each."""
        given, pages = self.asked.examination, part.pages
        if given is None:
            return [np.zeros(len(used))] * 2
        start = pages.position - part.index
        theta = given.at(pages.position)
        relevance = query_model(part, theta)
        found = []
        for place, weight in zip((part.new, part.other), weights, strict=True):
            there = given.at(np.where(place > 0, place, part.index) + start)
            value = relevance * there + weight * (pages.click - relevance * theta)
            found.append(np.where(used, value, 0.0))
        return found

    def readings(self, totals: Array) -> list[Reading]:
        """Item-position and doubly robust."""
        return [
            Reading(
                name="item-position",
                assumes="A click depends on its own document and rank only, and documents moved by chance.",
                grounds="display",
                unit="clicks a page",
                values=lambda some: _per_page(some, NEW, OTHER),
                count=lambda some: some[..., MOVED],
                effective=lambda total: effective_size(total[WEIGHT], total[SQUARES]),
                overlap=_overlap,
                lacks=_lacks,
                pages=lambda total: float(total[PAGES]),
            ),
            Reading(
                name="dr",
                assumes="As item-position; where the log lacks a place, a click is examination times relevance.",
                grounds="examination",
                unit="clicks a page",
                values=lambda some: _per_page(some, DR_NEW, DR_OTHER),
                count=lambda some: some[..., PAGES],
                effective=lambda total: effective_size(total[WEIGHT], total[SQUARES]),
                overlap=_overlap,
                lacks=lambda total: "" if self.asked.examination else "examination is not known: give it",
                pages=lambda total: float(total[PAGES]),
            ),
        ]


def _per_page(totals: Array, new: int, other: int) -> tuple[Array, Array]:
    pages = np.where(totals[..., PAGES] > 0, totals[..., PAGES], np.nan)
    return totals[..., new] / pages, totals[..., other] / pages


def _overlap(totals: Array) -> float:
    """Share of what moves, by discounts, that the log has at both places."""
    return float(totals[COVERED] / totals[MOVED]) if totals[MOVED] > 0 else 1.0


def _lacks(totals: Array) -> str:
    if not totals[PAGES]:
        return "on no page was the order left to chance"
    if _overlap(totals) < LEAST_OVERLAP:
        return f"only {_overlap(totals):.0%} of what moves was ever shown where it would move to"
    return "" if totals[CLICKS] >= LEAST else f"{totals[CLICKS]:.0f} clicks are too few"
