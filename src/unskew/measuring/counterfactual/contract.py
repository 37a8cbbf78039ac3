"""What an estimator is: sums by cluster of a part of the pages, and values read from totals of them.

Legend: P pages, N impressions, c clusters of a part, C of all, F sums, R draws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from unskew.measuring.counterfactual.evidence import Grounds, Metric, RankExamination
from unskew.measuring.counterfactual.pages import LoggedPages
from unskew.types import Array

RANKS = 50
"""Ranks that are told apart; further down all count as the last."""


@dataclass(frozen=True)
class Question:
    """What is asked of the pages."""

    metric: Metric = "dcg"
    at: int = 10
    clip: float = 10.0
    """The largest weight of a click, where weights are clipped."""
    examination: RankExamination | None = None

    @property
    def unit(self) -> str:
        """What a value counts."""
        return f"DCG@{self.at} by clicks" if self.metric == "dcg" else "clicks a page"

    def ladder(self, longest: int) -> Array:
        """What places 1 to `longest` are worth: discounts up to `at`, or examination.

        >>> Question(at=2).ladder(3).round(4).tolist()
        [1.0, 0.6309, 0.0]
        """
        place = np.arange(1, longest + 1)
        if self.metric == "clicks":
            return np.full(longest, np.nan) if self.examination is None else self.examination.at(place)
        return np.where(place <= self.at, 1 / np.log2(1.0 + place), 0.0)


@dataclass(frozen=True)
class PlacedPages:
    """Pages with the places that two rankings give their results."""

    pages: LoggedPages
    new: Array
    """[N], 0 for at random."""
    other: Array
    asked: Question

    def take(self, pages: Array) -> PlacedPages:
        """The given pages (a boolean mask)."""
        rows = pages[self.pages.page]
        return PlacedPages(self.pages.take(pages), self.new[rows], self.other[rows], self.asked)

    @cached_property
    def clusters(self) -> tuple[Array, Array]:
        """Numbers of the clusters [c], and which of them each page belongs to [P]."""
        ids, place = np.unique(self.pages.cluster, return_inverse=True)
        return ids, place

    @cached_property
    def cluster(self) -> Array:
        """The cluster of each impression, [N], from 0."""
        of_impression: Array = self.clusters[1][self.pages.page]
        return of_impression

    @cached_property
    def gains(self) -> tuple[Array, Array]:
        """What a result is worth at the places that both rankings give it, [N] each."""
        return self.worth(self.new), self.worth(self.other)

    @cached_property
    def discounts(self) -> tuple[Array, Array]:
        """1 / log2(1 + place) at the places that both rankings give it, [N] each, whatever is asked."""
        if self.asked.metric == "dcg":
            return self.gains
        same = replace(self, asked=replace(self.asked, metric="dcg"))
        return same.gains

    @cached_property
    def index(self) -> Array:
        """Where a result stood among those of its page, [N] from 1."""
        stood: Array = np.arange(len(self.pages.page)) - self.pages.offsets[self.pages.page] + 1
        return stood

    def worth(self, place: Array) -> Array:
        """Of places [N]: the discount, or how often it is looked at; at random the mean over the page."""
        longest = int(max(self.pages.sizes.max(initial=1), place.max(initial=1)))
        ladder = self.asked.ladder(longest)
        mean = np.cumsum(ladder) / np.arange(1, longest + 1)
        of_place: Array = ladder[np.maximum(place, 1) - 1]
        if (place == 0).any():
            of_place = np.where(place > 0, of_place, mean[self.pages.sizes - 1][self.pages.page])
        return of_place

    def by_cluster(self, values: Array) -> Array:
        """Values [N] added up, [c]."""
        return np.bincount(self.cluster, weights=values, minlength=len(self.clusters[0]))

    def by_page(self, values: Array) -> Array:
        """Values [P] added up, [c]."""
        return np.bincount(self.clusters[1], weights=values, minlength=len(self.clusters[0]))

    def by_rank(self, values: Array) -> Array:
        """Values [N] added up by cluster and rank shown, [c, RANKS]."""
        count = len(self.clusters[0])
        cell = self.cluster * RANKS + np.minimum(self.pages.position, RANKS) - 1
        return np.bincount(cell, weights=values, minlength=count * RANKS).reshape(count, RANKS)


@dataclass(frozen=True)
class Reading:
    """An estimate that can be read from totals [..., F]."""

    name: str
    assumes: str
    grounds: Grounds
    unit: str
    values: Callable[[Array], tuple[Array, Array]]
    """Of the new and of the other ranking, [...] each."""
    count: Callable[[Array], Array]
    """How much a cluster or all of them have to say, [...]."""
    effective: Callable[[Array], float | None] = lambda totals: None
    overlap: Callable[[Array], float | None] = lambda totals: None
    lacks: Callable[[Array], str] = lambda totals: ""
    """Why there is no number, from the totals [F]; "" where there is one."""
    pages: Callable[[Array], float] = lambda totals: 0.0
    """Pages that it looks at."""


class Estimator(ABC):
    """Sums of pages by cluster, and one or several estimates read from them."""

    most: ClassVar[int | None] = None
    """Pages of a log that it looks at, where it takes long: whole queries, drawn at random; None for all."""

    def __init__(self, asked: Question) -> None:
        self.asked = asked

    @abstractmethod
    def add(self, part: PlacedPages) -> Array:
        """Sums of the clusters of this part, [c, F]."""

    @abstractmethod
    def readings(self, totals: Array) -> list[Reading]:
        """What can be read, given the totals of all pages [F]."""


def dense(codes: Array) -> Array:
    """Codes as small numbers; as they are where they are small already."""
    if codes.max(initial=0) <= 4 * len(codes) + 1000:
        return codes
    return np.unique(codes, return_inverse=True)[1]


def per_page(totals: Array, new: int, other: int, pages: int) -> tuple[Array, Array]:
    """Two sums by the number of pages, each named by its column; NaN where there is no page."""
    count = np.where(totals[..., pages] > 0, totals[..., pages], np.nan)
    return totals[..., new] / count, totals[..., other] / count


def effective_size(total: float, squares: float) -> float | None:
    """(sum w)^2 / sum w^2; None where nothing is weighed."""
    return float(total**2 / squares) if squares > 0 else None
