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

from unskew.examination import Examination
from unskew.measuring.counterfactual.evidence import GainEstimate, Metric
from unskew.measuring.counterfactual.pages import LoggedPages, discounts, worth
from unskew.types import Array

RANKS = 50
"""Ranks that are told apart; further down all count as the last."""
CLIP = 10.0
"""The largest weight of a click, where weights are clipped."""
LEAST = 20
"""Clicks below which they say nothing."""


@dataclass(frozen=True)
class Question:
    """What is asked of the pages."""

    metric: Metric = "dcg"
    at: int = 10
    examination: Examination | None = None

    @property
    def unit(self) -> str:
        """The unit of a value, in words: DCG by clicks, or clicks a page."""
        return f"DCG@{self.at} by clicks" if self.metric == "dcg" else "clicks a page"

    def ladder(self, longest: int) -> Array:
        """What places 1 to `longest` are worth: discounts up to `at`, or examination."""
        if self.metric == "dcg":
            return discounts(longest, self.at)
        place = np.arange(1, longest + 1)
        return np.full(longest, np.nan) if self.examination is None else self.examination.at(place)


@dataclass(frozen=True)
class PlacedPages:
    """Pages with the places that two rankings give their results."""

    pages: LoggedPages
    new: Array
    """[N], 0 for at random."""
    other: Array
    asked: Question

    def take(self, pages: Array) -> PlacedPages:
        """Some pages (numbers, in that order, or a mask)."""
        rows, _ = self.pages.rows(pages)
        return PlacedPages(self.pages.take(pages), self.new[rows], self.other[rows], self.asked)

    @cached_property
    def clusters(self) -> tuple[Array, Array]:
        """Numbers of the clusters [c], and which of them each page belongs to [P]."""
        return np.unique(self.pages.cluster, return_inverse=True)

    @cached_property
    def gains(self) -> tuple[Array, Array]:
        """What a result is worth at the places that both rankings give it, [N] each."""
        longest = int(max(self.pages.sizes.max(initial=1), self.new.max(initial=1), self.other.max(initial=1)))
        ladder = self.asked.ladder(longest)
        return worth(self.new, self.pages, ladder), worth(self.other, self.pages, ladder)

    @cached_property
    def discounts(self) -> tuple[Array, Array]:
        """1 / log2(1 + place) at the places that both rankings give it, [N] each, whatever is asked."""
        if self.asked.metric == "dcg":
            return self.gains
        return replace(self, asked=replace(self.asked, metric="dcg")).gains

    def by_page(self, values: Array) -> Array:
        """Values [P] added up by cluster, [c]."""
        return np.bincount(self.clusters[1], weights=values, minlength=len(self.clusters[0]))

    def by_cluster(self, values: Array) -> Array:
        """Values [N] added up by cluster, [c]."""
        return self.by_page(self.pages.per_page(values))

    def by_rank(self, values: Array) -> Array:
        """Values [N] added up by cluster and rank shown, [c, RANKS]."""
        count = len(self.clusters[0])
        cell = self.clusters[1][self.pages.page] * RANKS + np.minimum(self.pages.position, RANKS) - 1
        return np.bincount(cell, weights=values, minlength=count * RANKS).reshape(count, RANKS)


@dataclass(frozen=True)
class Reading:
    """An estimate before its numbers, and how these are read from totals [..., F]."""

    about: GainEstimate
    """With a reason where there is no number."""
    values: Callable[[Array], tuple[Array, Array]]
    """Of the new and of the other ranking, [...] each. Of totals [R, F], draws, examination is drawn too."""
    count: int
    """The sum that says how much a cluster has to say."""


class Estimator(ABC):
    """Sums of pages by cluster, and one or several estimates read from them."""

    costly: ClassVar[bool] = False
    """Whether it takes long, and looks at some pages of a large log only."""

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


def ratios(new: int, other: int, pages: int) -> Callable[[Array], tuple[Array, Array]]:
    """Two sums by the number of pages, each named by its column; NaN where there is no page."""

    def read(sums: Array) -> tuple[Array, Array]:
        count = np.where(sums[..., pages] > 0, sums[..., pages], np.nan)
        return sums[..., new] / count, sums[..., other] / count

    return read


def effective_size(total: float, squares: float) -> float | None:
    """(sum w)^2 / sum w^2; None where nothing is weighed."""
    return float(total**2 / squares) if squares > 0 else None


def too_few(clicks: float, where: str = "") -> str:
    """Why so few clicks have no number; "" where they are enough."""
    return "" if clicks >= LEAST else f"{clicks:.0f} clicks{where} are too few"
