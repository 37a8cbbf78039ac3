"""Click rates of a document at the ranks where it was shown: the item-position estimator, and weights for `dr`.

Reference: Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay, Wen, "Offline Evaluation of Ranking Policies with
Click Models", KDD 2018.

    weight of a display at rank k    w = pi(k | q, d) / p(k | q, d)     pi: share of displays with place k
    item-position                    sum w click / pages

p is the logged chance of the slot, or how often the log shows the document at that rank: w click then adds up to
displays times the click rate at the place. A result counts in item-position where both rankings put it to ranks
that the log has. The same weights serve the doubly robust estimate (`robust`).

Weights 1 / p add up to the displays, but for chance. Where they add up to less, the policy never or hardly ever
tries some of the places, and their clicks would be missing from the value: it says nothing then.

Differences from the paper: places may differ from page to page (what was shown does), so pi is a share and not 0
or 1. Where chances are logged, pages on which nothing was left to chance do not count; what was shown weighs 1.

Legend: P pages, N impressions; a cell is a document of a query at a rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unskew.measuring.counterfactual.contract import (
    Estimator,
    PlacedPages,
    Reading,
    dense,
    effective_size,
    per_page,
)
from unskew.measuring.counterfactual.evidence import RankExamination
from unskew.measuring.counterfactual.robust import robust_values
from unskew.types import Array

LEAST_OVERLAP = 0.5
"""Share of the moved results below which the log says nothing of a ranking."""
LEAST_WEIGHT, ERRORS = 0.9, 4.0
"""With logged chances: share of what a ranking shows that weights add up to, but for so many standard errors."""
LEAST = 20
"""Clicks of some weight below which they say nothing."""
NEW, OTHER, PAGES, WEIGHT, SQUARES, COVERED, MOVED, CLICKS, MASS, ROBUST = (*range(9), 14)
MODELS = 4
"""Draws of examination that dr is computed with, so that its interval knows of them."""


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

    It is at random, or the order shown on every page. The usual order of a log with random pages is a choice:
    chances of pages that take no part say how often it comes.
    """
    logged: Array = (place == 0) | bool((place == part.index).all())
    return logged


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
            *self._mass(part, shown, by_new, by_other),
        ]
        weights = (shown.weights(new, has_new, logged[0]), shown.weights(other, has_other, logged[1]))
        for curve in self.curves:
            values = robust_values(part, curve, (has_new, has_other), weights, self.asked.clip)
            sums += [part.by_cluster(np.where(shown.used, value, 0.0)) for value in values]
        return np.stack(sums, axis=1)

    def _mass(self, part: PlacedPages, shown: Displays, *weights: Array) -> list[Array]:
        """For both rankings what they show, by discounts, what weights add up to, and squares; [C] each."""
        counted = np.where(shown.used, float(shown.chance is not None), 0.0)
        sums = []
        for discount, weight in zip(part.discounts, weights, strict=True):
            wanted, found = discount * counted, discount * counted * weight
            sums += [part.by_cluster(each) for each in (wanted, found, found**2)]
        return sums

    @cached_property
    def curves(self) -> list[RankExamination]:
        """Examination as given, then some of its draws."""
        given = self.asked.examination
        if given is None:
            return []
        drawn: Array | list[Array] = [] if given.draws is None else given.draws[:MODELS]
        return [given, *(RankExamination(theta, given.kind) for theta in drawn)]

    def _robust(self, totals: Array) -> tuple[Array, Array]:
        """Values of dr: by examination as given, and for draws of clusters by its draws, one after another."""
        models = len(self.curves) - 1
        if totals.ndim == 1 or not models:
            return per_page(totals, ROBUST, ROBUST + 1, PAGES)
        model = 1 + np.arange(len(totals)) % models
        pages, row = np.where(totals[:, PAGES] > 0, totals[:, PAGES], np.nan), np.arange(len(totals))
        return totals[row, ROBUST + 2 * model] / pages, totals[row, ROBUST + 2 * model + 1] / pages

    def readings(self, totals: Array) -> list[Reading]:
        """Item-position and doubly robust."""
        return [
            Reading(
                name="item-position",
                assumes="A click depends on its own document and rank only, and documents moved by chance.",
                grounds="display",
                unit="clicks a page",
                values=lambda some: per_page(some, NEW, OTHER, PAGES),
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
                values=self._robust,
                count=lambda some: some[..., PAGES],
                effective=lambda total: effective_size(total[WEIGHT], total[SQUARES]),
                overlap=_overlap,
                lacks=lambda total: "" if self.asked.examination else "examination is not known: give it",
                pages=lambda total: float(total[PAGES]),
            ),
        ]


def _overlap(totals: Array) -> float:
    """Share of what moves, by discounts, that the log has at both places; by weights where chances are logged."""
    if totals[MASS] > 0:
        return float(min(totals[MASS + 1] / totals[MASS], totals[MASS + 4] / totals[MASS + 3], 1.0))
    return float(totals[COVERED] / totals[MOVED]) if totals[MOVED] > 0 else 1.0


def _untried(totals: Array) -> bool:
    """Whether chances are logged, and leave out much of what one of the rankings shows."""
    for wanted, found, squares in totals[MASS:ROBUST].reshape(2, 3):
        if found + ERRORS * np.sqrt(squares) < wanted and found < LEAST_WEIGHT * wanted:
            return True
    return False


def _lacks(totals: Array) -> str:
    if not totals[PAGES]:
        return "on no page was the order left to chance"
    if _untried(totals):
        return f"only {_overlap(totals):.0%} of what it would show has a chance worth the name in this log"
    if not totals[MASS] and _overlap(totals) < LEAST_OVERLAP:
        return f"only {_overlap(totals):.0%} of what moves was ever shown where it would move to"
    return "" if totals[CLICKS] >= LEAST else f"{totals[CLICKS]:.0f} clicks are too few"
