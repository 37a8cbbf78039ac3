"""Which of several rankers to take, by pages that none of them learned from, without labels.

Every ranker is given a place by each of these judges, and the mean of the places, weighted, decides:

    agreement   mean correlation of its scores with those of the others, over all documents of a query: errors of
                methods that assume different things differ, what they have in common is relevance
    corrected   what held-out clicks count in its order, each click / examination of its rank, where examination is
                the geometric mean of what the *other* methods learned: nobody is judged by its own propensities
    raw         the same by clicks as they are, which favour the order shown. Where those who correct for rank
                order pages much as they were shown, that order was good: raw clicks then mislead little, are the
                least noisy, and count most
    shuffled    the same by clicks as they are, on results that were placed at random; where there are some

A click at place k of an order counts 1 / log2(1 + k). Scores are averaged over no two rankers: one is taken.

Legend: M rankers, N documents of the log's lists, I impressions, K ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from unskew.learning.methods import Learner
from unskew.measuring import (
    ClickEvidence,
    Judge,
    LoggedPages,
    examination_of,
    places,
    shown_places,
)
from unskew.results import Result
from unskew.settings import Table
from unskew.types import Array, Log

CLIP = 30.0
"""The most that a click counts for the rank it was made at."""
ENOUGH = 30
"""Clicks on randomly placed results from which these judge."""
GOOD_ORDER = 0.3
"""Correlation of corrected scores with -log(rank shown) from which on the order shown was good."""
RAW_OF_GOOD = 4.0
"""What raw clicks count there."""
WEIGHTS: Mapping[str, float] = {"agreement": 1.0, "corrected": 0.25, "raw": 0.25, "shuffled": 0.25}
"""What the place that each judge gives counts; chosen on simulated worlds that prove nothing."""


@dataclass(frozen=True)
class Contestant:
    """A ranker, as far as it is judged."""

    scores: Array
    """[N] of every document of the log's lists."""
    examination: Array | None = None
    """[K] relative to rank 1, as its method learned it; None where it has none."""
    corrects: bool = True
    """Whether its method corrects for rank at all; naive does not."""


@dataclass(frozen=True)
class Ranked:
    """The places that the judges gave."""

    values: Mapping[str, Mapping[str, float]]
    """What each judge measured of each ranker."""
    order: tuple[str, ...]
    """The rankers, best first."""
    clicks: int
    """Held-out clicks that were looked at."""
    shuffled: int
    """Of them on results that were placed at random."""
    as_shown: float | None = None
    """How far those who correct for rank order pages as they were shown: the median of their correlations."""

    @property
    def weights(self) -> dict[str, float]:
        """What the place that each judge gives counts."""
        good = self.as_shown is not None and self.as_shown >= GOOD_ORDER
        return dict(WEIGHTS) | ({"raw": RAW_OF_GOOD} if good else {})

    @property
    def places(self) -> dict[str, dict[str, float]]:
        """From 0, the last, to 1, the first, by judge and ranker."""
        return {judge: standing(values) for judge, values in self.values.items()}


@dataclass(frozen=True)
class Pick(Result):
    """The method that was taken of several, and why."""

    choice: str
    method: Learner
    because: str
    """In a sentence."""
    candidates: tuple[str, ...] | None = None
    """Those that were judged, best first."""
    judges: Mapping[str, Mapping[str, float]] | None = None
    """What each judge measured of each candidate."""
    clicks: int | None = None
    shuffled_clicks: int | None = None
    as_shown: float | None = None
    weights: Mapping[str, float] | None = None
    against_naive: ClickEvidence | None = None
    """What held-out clicks say of the first against naive."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Candidates that could not learn from this log, and why."""
    absent = ("candidates", "judges", "clicks", "shuffled_clicks", "as_shown", "weights", "against_naive")

    def to_dict(self) -> dict[str, Any]:
        """For metrics.json."""
        return super().to_dict() | {"method": method_table(self.method)}

    def in_short(self) -> Table:
        """For run.toml."""
        return {"choice": self.choice, "candidates": list(self.candidates or ()), "because": self.because}


def method_table(method: Learner) -> Table:
    """A method as a run file has it."""
    return {"name": method.name, **method.model_dump(mode="json", exclude_defaults=True, exclude={"name"})}


class Contest:
    """Adds up what the judges see, one held-out part after another."""

    def __init__(self, names: Sequence[str], kin: Mapping[str, str] | None = None) -> None:
        """`kin` says whose settings a name is: those of one method do not judge each other."""
        self.names = tuple(names)
        family = np.array([name if kin is None else kin[name] for name in self.names])
        self.apart = family[:, None] != family  # [M, M]
        self.sums = {judge: np.zeros((2, len(self.names))) for judge in WEIGHTS}  # what, and out of how much
        self.along = np.zeros((3, len(self.names)))  # products of score and rank shown, squares of each
        self.corrects: Array = np.ones(len(self.names), bool)
        self.clicks = self.shuffled = 0

    def add(self, log: Log, rankers: Mapping[str, Contestant]) -> None:
        """Pages that these rankers did not learn from, one ranker of each name."""
        scores = np.stack([rankers[name].scores for name in self.names])  # [M, N]
        self.sums["agreement"] += agreement(scores, log, self.apart)
        pages = LoggedPages.from_log(log)
        counts = np.stack([1 / np.log2(1 + places(each[log.row], pages)) for each in scores])  # [M, I]
        self.along += along_shown(scores[:, log.row], pages)
        self.corrects = np.array([rankers[name].corrects for name in self.names])
        curves = [rankers[name].examination for name in self.names]
        click, ranks = pages.click, int(pages.position.max(initial=1))
        weights = {
            "corrected": np.stack(
                [click / seen[pages.position - 1] for seen in of_others(curves, self.apart, ranks)]
            ),
            "raw": np.broadcast_to(click, counts.shape),
            "shuffled": np.broadcast_to(click * pages.shuffled, counts.shape),
        }
        for judge, weight in weights.items():
            self.sums[judge] += np.stack([(weight * counts).sum(1), weight.sum(1)])
        self.clicks += int((click > 0).sum())
        self.shuffled += int((click[pages.shuffled] > 0).sum())

    def finish(self) -> Ranked:
        """The places, and the order by their weighted mean; the earlier name where two are level."""
        silent = {"shuffled"} if self.shuffled < ENOUGH else set()
        values = {
            judge: dict(zip(self.names, (total / np.maximum(of, 1e-12)).tolist(), strict=True))
            for judge, (total, of) in self.sums.items()
            if judge not in silent
        }
        products, *squares = self.along[:, self.corrects]
        sized = squares[0] * squares[1] > 0
        likeness = products[sized] / np.sqrt(squares[0] * squares[1])[sized]
        as_shown = float(np.median(likeness)) if len(likeness) else None
        found = Ranked(values, self.names, self.clicks, self.shuffled, as_shown)
        total = dict.fromkeys(self.names, 0.0)
        for judge, places_of in found.places.items():
            for name, place in places_of.items():
                total[name] += found.weights[judge] * place
        return replace(found, order=tuple(sorted(self.names, key=lambda name: -total[name])))


JudgedPages = tuple[LoggedPages, Array, Array | None]
"""Pages, the scores [I] of a ranker, and those of what it is held against; None: as shown."""


def held_against(parts: Sequence[JudgedPages], whole: LoggedPages, level: float = 0.95) -> ClickEvidence:
    """What clicks say of a ranker against another, or against what was shown.

    Examination is what `whole`, the pages of all parts, tell of it.
    """
    judge = Judge(examination=examination_of(whole))
    for pages, new, other in parts:
        judge.add(pages, places(new, pages), shown_places(pages) if other is None else places(other, pages))
    return judge.finish(level)


def standing(values: Mapping[str, float]) -> dict[str, float]:
    """Values as places from 0, the lowest, to 1, the highest; those that are level share theirs.

    >>> standing({"a": 0.3, "b": 0.9, "c": 0.3})
    {'a': 0.25, 'b': 1.0, 'c': 0.25}
    """
    found = np.array(list(values.values()))
    below = (found[:, None] > found).sum(1) + ((found[:, None] == found).sum(1) - 1) / 2
    return dict(zip(values, (below / max(1, len(found) - 1)).tolist(), strict=True))


def agreement(scores: Array, log: Log, apart: Array) -> Array:
    """Sum over documents of the log's queries of z_m times the mean z of those apart, and their number, [2, M].

    z are scores less their mean in the query, of standard deviation 1 over all.
    """
    queries = np.unique(log.query)
    sizes = log.lists.sizes[queries]
    query = np.repeat(np.arange(len(queries)), sizes)
    rows = np.arange(len(query)) - (np.cumsum(sizes) - sizes)[query] + log.lists.offsets[queries][query]
    each = scores[:, rows]
    size = np.bincount(query)
    centred = np.stack([one - (np.bincount(query, one) / size)[query] for one in each])
    z = centred / np.maximum(centred.std(axis=1, keepdims=True), 1e-12)
    others = apart @ z / np.maximum(apart.sum(1, keepdims=True), 1)
    return np.stack([(z * others).sum(1), np.full(len(z), float(len(rows)))])


def along_shown(scores: Array, pages: LoggedPages) -> Array:
    """Of scores [M, I] and -log(rank shown), each less its mean on the page: products and both squares, [3, M].

    Results that were placed at random do not count.
    """
    size, usual = np.maximum(pages.sizes, 1), ~pages.shuffled

    def centred(values: Array) -> Array:
        return (values - (pages.per_page(values) / size)[pages.page])[usual]

    shown = centred(-np.log(pages.position))
    found = [centred(each) for each in scores]
    return np.array([[(each * shown).sum(), (each**2).sum(), (shown**2).sum()] for each in found]).T


def of_others(curves: Sequence[Array | None], apart: Array, ranks: int) -> list[Array]:
    """For each ranker the geometric mean of the examination that those apart learned, [K]; 1 where nobody did.

    >>> curves = [np.array([1.0, 0.5]), None, np.array([1.0, 0.125])]
    >>> [seen.round(3).tolist() for seen in of_others(curves, ~np.eye(3, dtype=bool), 2)]
    [[1.0, 0.125], [1.0, 0.25], [1.0, 0.5]]
    """
    logs, found = [], []
    for curve in curves:  # ranks beyond the end of a curve have its last value
        last = 0 if curve is None else np.minimum(np.arange(ranks), len(curve) - 1)
        logs.append(None if curve is None else np.log(np.maximum(np.asarray(curve, float)[last], 1 / CLIP)))
    for strangers in apart:
        others = [each for each, strange in zip(logs, strangers, strict=True) if each is not None and strange]
        found.append(np.exp(np.mean(others, axis=0)) if others else np.ones(ranks))
    return found
