"""Click rates of a document at the ranks where it was shown: the item-position and the doubly robust estimator.

Reference: Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay, Wen, "Offline Evaluation of Ranking Policies with
Click Models", KDD 2018.

    weight of a display at rank k    w = pi(k | q, d) / p(k | q, d)     pi: share of displays with place k
    item-position                    sum w click / pages

p is the logged chance of the slot, or how often the log shows the document at that rank: w click then adds up to
displays times the click rate at the place. A result counts in item-position where both rankings put it to ranks
that the log has. The same weights serve the doubly robust estimate: a click model, corrected by clicks.

    r(d, k)      theta_k rel_d, examination by rank times relevance of (query, document)
    dr           r(d, place) + w (click - r(d, k))
    at places that the log lacks      theta_place (rel_d + (click - theta_k rel_d) / rho_d)

rel_d is learned from all other pages and pulled towards the mean of the query; rho_d is how much the document was
examined on average, and no less than 1 / clip (Dudik, Langford, Li, "Doubly Robust Policy Evaluation and
Learning", ICML 2011; Oosterhuis, "Doubly Robust Estimation for Correcting Position Bias in Click Feedback for
Unbiased Learning to Rank", TOIS 2023).

Weights 1 / p add up to the displays, but for chance. Where they add up to less, the policy never or hardly ever
tries some of the places, and their clicks would be missing from the value: it says nothing then.

Differences from the papers: places may differ from page to page (what was shown does), so pi is a share and not 0
or 1. Where chances are logged, pages on which nothing was left to chance do not count; what was shown weighs 1.
Each page is left out of its own model, in place of folds.

Legend: P pages, N impressions; a cell is a document of a query at a rank.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from unskew.examination import Examination
from unskew.measuring.counterfactual.contract import (
    CLIP,
    Estimator,
    PlacedPages,
    Reading,
    dense,
    effective_size,
    ratios,
    too_few,
)
from unskew.measuring.counterfactual.evidence import GainEstimate
from unskew.types import Array

LEAST_OVERLAP = 0.5
"""Share of the moved results below which the log says nothing of a ranking."""
LEAST_WEIGHT, ERRORS = 0.9, 4.0
"""With logged chances: share of what a ranking shows that weights add up to, but for so many standard errors."""
NEW, OTHER, PAGES, WEIGHT, SQUARES, COVERED, MOVED, CLICKS, MASS, ROBUST = (*range(9), 14)
PRIOR = 2.0
"""Displays at rank 1 that the mean of the query counts for, where relevance is learned."""
MODELS = 4
"""Draws of examination that dr is computed with, so that its interval knows of them."""


class Displays:
    """Displays of documents by rank, and where a ranking puts them."""

    def __init__(self, part: PlacedPages) -> None:
        pages = self.pages = part.pages
        self.chance = pages.propensity
        """[N], logged, where it is."""
        # pages may begin further down
        self.start = (pages.position - pages.index)[pages.offsets[:-1]][pages.page]
        self.width = int((pages.index + self.start).max(initial=0)) + 1
        self.document = dense(pages.document)
        self.cell = self.document * self.width + pages.index + self.start
        """[N], document and rank shown."""
        self.used = np.ones(len(self.document), bool)
        """[N], displays that count."""
        if self.chance is not None:
            self.used = (pages.per_page(self.chance < 1) > 0)[pages.page]
        self.cells = (int(self.document.max(initial=0)) + 1) * self.width
        self.shown = np.bincount(self.cell[self.used], minlength=self.cells)
        """Displays by cell."""

    def target(self, place: Array) -> Array:
        """The cells that a ranking puts results to, [N]; at random counts as shown."""
        rank = np.where(place > 0, place, self.pages.index) + self.start
        cell: Array = self.document * self.width + np.minimum(rank, self.width - 1)
        return cell

    def covers(self, place: Array) -> Array:
        """Whether the log may have the result at its place [N], bool."""
        return self.used if self.chance is not None else self.used & (self.shown[self.target(place)] > 0)

    def weights(self, place: Array, where: Array) -> Array:
        """w of every display [N], over the places that count `where`.

        It is 1 where the ranking is what was shown and no choice of its own: at random, or the order shown on
        every page. The usual order of a log with random pages is a choice: chances of pages that take no part say
        how often it comes.
        """
        target = self.target(place)
        if self.chance is not None:
            logged = (place == 0) | bool((place == self.pages.index).all())
            hit = where & (target == self.cell)
            return np.where(hit, np.where(logged, 1.0, 1 / self.chance), 0.0)
        wanted = np.bincount(target[where], minlength=self.cells) / np.maximum(self.shown, 1)
        return np.where(self.used, wanted[self.cell], 0.0)


class ByDisplay(Estimator):
    """Click rates of documents at ranks."""

    costly = True

    def add(self, part: PlacedPages) -> Array:
        """Values, pages, weights, what is covered, and the doubly robust values."""
        pages, shown, places = part.pages, Displays(part), (part.new, part.other)
        has = [shown.covers(place) for place in places]
        both = has[0] & has[1]
        by_new, by_other = (shown.weights(place, both) for place in places)
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
        # for both rankings what they show, by discounts, what weights add up to, and squares
        counted = np.where(shown.used, float(shown.chance is not None), 0.0)
        for discount, weight in zip(part.discounts, (by_new, by_other), strict=True):
            wanted, found = discount * counted, discount * counted * weight
            sums += [part.by_cluster(each) for each in (wanted, found, found**2)]
        weights = [shown.weights(place, where) for place, where in zip(places, has, strict=True)]
        for curve in self.curves:
            values = robust_values(part, curve, has, weights)
            sums += [part.by_cluster(np.where(shown.used, value, 0.0)) for value in values]
        return np.stack(sums, axis=1)

    @cached_property
    def curves(self) -> list[Examination]:
        """Examination as given, then some of its draws."""
        given = self.asked.examination
        if given is None:
            return []
        drawn: Array | list[Array] = [] if given.draws is None else given.draws[:MODELS]
        return [given, *(Examination.of(theta, given.source) for theta in drawn)]

    def _robust(self, totals: Array) -> tuple[Array, Array]:
        """Values of dr: by examination as given, and for draws of clusters by its draws, one after another."""
        models = len(self.curves) - 1
        if totals.ndim != 2 or not models:
            return ratios(ROBUST, ROBUST + 1, PAGES)(totals)
        model = 1 + np.arange(len(totals)) % models
        pages, row = np.where(totals[:, PAGES] > 0, totals[:, PAGES], np.nan), np.arange(len(totals))
        return totals[row, ROBUST + 2 * model] / pages, totals[row, ROBUST + 2 * model + 1] / pages

    def readings(self, totals: Array) -> list[Reading]:
        """Item-position and doubly robust."""
        overlap = _overlap(totals)
        shown = GainEstimate(
            "item-position",
            "A click depends on its own document and rank only, and documents moved by chance.",
            "display",
            "clicks a page",
            effective=effective_size(totals[WEIGHT], totals[SQUARES]),
            overlap=overlap,
            pages=int(totals[PAGES]),
            reason=_lacks(totals, overlap),
        )
        robust = replace(
            shown,
            name="dr",
            assumes="As item-position; where the log lacks a place, a click is examination times relevance.",
            grounds="examination",
            reason="" if self.asked.examination else "examination is not known: give it",
        )
        return [Reading(shown, ratios(NEW, OTHER, PAGES), MOVED), Reading(robust, self._robust, PAGES)]


def _overlap(totals: Array) -> float:
    """Share of what moves, by discounts, that the log has at both places; by weights where chances are logged."""
    if totals[MASS] > 0:
        return float(min(totals[MASS + 1] / totals[MASS], totals[MASS + 4] / totals[MASS + 3], 1.0))
    return float(totals[COVERED] / totals[MOVED]) if totals[MOVED] > 0 else 1.0


def _lacks(totals: Array, overlap: float) -> str:
    if not totals[PAGES]:
        return "on no page was the order left to chance"
    for wanted, found, squares in totals[MASS:ROBUST].reshape(2, 3):
        if found + ERRORS * np.sqrt(squares) < wanted and found < LEAST_WEIGHT * wanted:
            return f"only {overlap:.0%} of what it would show has a chance worth the name in this log"
    if not totals[MASS] and overlap < LEAST_OVERLAP:
        return f"only {overlap:.0%} of what moves was ever shown where it would move to"
    return too_few(totals[CLICKS])


def query_model(part: PlacedPages, theta: Array) -> Array:
    """Relevance of every result [N] on the scale of rank 1, from all other pages, given examination theta [N].

    (clicks + PRIOR m) / (theta + PRIOR) over the document's other displays; m is clicks / theta of the query's.
    """
    pages = part.pages
    document, query = dense(pages.document), dense(pages.query)
    both, own = (pages.click, theta), [pages.per_page(each) for each in (pages.click, theta)]
    # of all pages but this one
    click, seen = (np.bincount(document, weights=each)[document] - each for each in both)
    clicks, looks = ((np.bincount(query, weights=each)[query] - each)[pages.page] for each in own)
    mean = clicks / np.maximum(looks, 1e-9)
    relevance: Array = (click + PRIOR * mean) / (seen + PRIOR)
    return relevance


def robust_values(
    part: PlacedPages, curve: Examination, has: Sequence[Array], weights: Sequence[Array]
) -> list[Array]:
    """What each result adds to the values of both rankings, [N] each; `has`: whether the log has its place."""
    pages = part.pages
    theta, document = curve.at(pages.position), dense(pages.document)
    relevance = query_model(part, theta)
    rest = pages.click - relevance * theta
    examined = (np.bincount(document, weights=theta) / np.maximum(np.bincount(document), 1))[document]
    found = []
    for place, seen, weight in zip((part.new, part.other), has, weights, strict=True):
        there = curve.at(np.where(place > 0, place, pages.index) + pages.position - pages.index)
        lacking = there * rest / np.maximum(examined, 1 / CLIP)
        found.append(relevance * there + weight * rest + np.where(seen, 0.0, lacking))
    return found
