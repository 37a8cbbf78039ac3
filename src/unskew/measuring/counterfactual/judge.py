"""One ranking held against another on logged pages: add part after part, then ask.

    judge = Judge(examination=None, metric="dcg")
    judge.add(pages, places(scores, pages), shown_places(pages))      # once for every part of the log
    judge.finish().sentence

Every part holds whole queries, since some estimators compare displays of the same document. Only sums by cluster
are kept (`sums`), so memory does not grow with the log.
"""

from dataclasses import replace

import numpy as np

from unskew.errors import DataError
from unskew.examination import Examination
from unskew.measuring.counterfactual.contract import Estimator, PlacedPages, Question, Reading, dense
from unskew.measuring.counterfactual.direct import Direct, RawClicks, Slates
from unskew.measuring.counterfactual.displays import ByDisplay
from unskew.measuring.counterfactual.evidence import ClickEvidence, GainEstimate, Metric, conclude
from unskew.measuring.counterfactual.pages import LoggedPages
from unskew.measuring.counterfactual.sums import FEWEST, ClusterSums, effective_clusters, interval_of
from unskew.measuring.counterfactual.swapped import Swapped
from unskew.measuring.counterfactual.weighted import Weighted
from unskew.names import HEAVY
from unskew.options.runs import MeasureArguments
from unskew.types import Array

ESTIMATORS: tuple[type[Estimator], ...] = (Direct, Slates, RawClicks, Weighted, ByDisplay, Swapped)
"""All of them, in the order in which they are told."""
MOST_PAGES = 100_000
"""Pages of a log that costly estimators look at: whole queries, drawn at random."""


class Judge:
    """Adds up what logged pages say of one ranking against another."""

    def __init__(
        self, *, examination: Examination | None = None, metric: Metric = "dcg", at: int = 10, seed: int = 0
    ) -> None:
        MeasureArguments.check(at=at)
        self.asked = Question(metric, at, examination)
        self.seed, self.pages, self.changed = seed, 0, 0
        self.estimators = [kind(self.asked) for kind in ESTIMATORS]
        self.sums = ClusterSums()
        self.ends: Array = np.zeros(1, int)
        self.outlook = np.zeros(2)  # sums over pages: variance of the difference, value of the other ranking
        self.looked_at = 0  # pages of costly estimators
        self.documents = np.zeros(3)  # clicks of the one with the most, clicks of all, and how many were clicked

    def add(self, pages: LoggedPages, new: Array, other: Array) -> None:
        """Places [N] of the ranking, and of what it is held against: `shown_places`, or those of another."""
        if not len(new) == len(other) == len(pages.position):
            raise DataError(f"{len(new)} and {len(other)} places for {len(pages.position)} results")
        if not len(pages):
            return
        pages = replace(pages, cluster=self.sums.number(pages.cluster))
        part = PlacedPages(pages, np.asarray(new), np.asarray(other), self.asked)
        chosen = some_queries(pages, MOST_PAGES - self.looked_at)
        self.looked_at += int(chosen.sum())
        some, found = part if chosen.all() else part.take(chosen), []
        for one in self.estimators:
            looked = some if one.costly else part
            sums = one.add(looked)
            found.append(np.zeros((len(part.clusters[0]), sums.shape[1])))
            found[-1][np.searchsorted(part.clusters[0], looked.clusters[0])] = sums
        self.ends = np.cumsum([0, *(sums.shape[1] for sums in found)])
        self.sums.add(part.clusters[0], np.concatenate(found, axis=1))
        self.pages += len(pages)
        # on a shuffled page each result would have the mean click rate of the page
        rate, (new_gain, old_gain) = pages.per_page(pages.click) / np.maximum(pages.sizes, 1), part.discounts
        self.outlook += [(rate * pages.per_page(each)).sum() for each in ((new_gain - old_gain) ** 2, old_gain)]
        clicks = np.bincount(dense(pages.document), pages.click)
        most, every, number = self.documents
        self.documents = np.array([max(most, clicks.max()), every + clicks.sum(), number + (clicks > 0).sum()])
        self.changed += int((pages.per_page(part.new != part.other) > 0).sum())

    def finish(self, level: float = 0.95, *, missing_overlap: float | None = None) -> ClickEvidence:
        """What the pages say; intervals at this level."""
        MeasureArguments.check(level=level)
        if not self.pages:
            raise DataError("there are no pages to judge by")
        estimates, drawn = [], {}
        draws = self.sums.draw(self.seed)
        for number, one in enumerate(self.estimators):
            span = slice(self.ends[number], self.ends[number + 1])
            sums = self.sums.sums[:, span]
            for reading in one.readings(sums.sum(axis=0)):
                found, differences = estimate(reading, sums, draws[:, span], level)
                estimates.append(found)
                drawn[found.name] = differences
        most, every, some = self.documents
        evidence = conclude(
            estimates,
            drawn,
            pages=self.pages,
            changed=self.changed,
            outlook=(self.outlook[0] / self.pages, self.outlook[1] / self.pages),
            level=level,
            missing=missing_overlap,
        )
        return replace(evidence, largest_document=float(most / every) if most * some > HEAVY * every else 0.0)


def some_queries(pages: LoggedPages, most: int) -> Array:
    """Pages [P], as a mask, of whole queries drawn at random, about `most` of them; none where that is 0."""
    if len(pages) <= most or most <= 0:
        return np.full(len(pages), most > 0)
    queries, query, sizes = np.unique(pages.query, return_inverse=True, return_counts=True)
    order = np.random.default_rng(len(queries)).permutation(len(queries))
    taken = np.zeros(len(queries), bool)
    taken[order[: int(np.searchsorted(np.cumsum(sizes[order]), most)) + 1]] = True
    chosen: Array = taken[query]
    return chosen


def estimate(reading: Reading, sums: Array, draws: Array, level: float) -> tuple[GainEstimate, Array]:
    """One estimate with its interval, and the difference in every draw, [R]."""
    clusters = int((sums[:, reading.count] > 0).sum())
    if reading.about.reason:
        nothing = replace(reading.about, clusters=clusters, effective=None, overlap=None)
        return nothing, np.full(len(draws), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        new, other = (float(value) for value in reading.values(sums.sum(axis=0)))
        differences = np.subtract(*reading.values(draws))
        without = np.subtract(*reading.values((sums.sum(axis=0) - sums)[None]))[0]  # each cluster left out
    freedom = effective_clusters(without - (new - other), clusters)
    interval = interval_of(new - other, differences, clusters, freedom, level)
    reason = "" if interval else f"fewer than {FEWEST} clusters tell of chance"
    found = replace(reading.about, clusters=clusters, freedom=freedom, new=new, other=other)
    return replace(found, difference=new - other, interval=interval, reason=reason), differences
