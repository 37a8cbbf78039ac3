"""The contract of a simulated user: a page of results in, clicks and the truth behind them out.

Legend: S pages, K results of a page, N documents. Column k - 1 of an [S, K] array is rank k.

A behaviour draws all its random numbers in one call, page by page, so a log does not depend on how its
pages were cut into chunks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import Field

from unskew.settings import Config
from unskew.types import Array, Lists

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Curve = Annotated[tuple[Probability, ...], Field(min_length=1, strict=False)]

EYE_TRACKING = (0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06)
"""Share of users who look at ranks 1 to 10, from the eye-tracking study of Joachims et al. (2005)."""


@dataclass(frozen=True)
class Shown:
    """The pages that simulated users see."""

    lists: Lists
    rows: Array  # [S, K] int, row of `lists.features`; -1 where padded
    labels: Array  # [S, K] int grades; 0 where padded
    where: Array  # [S, K] bool, true where there is a result
    terms: Array | None = None
    """[N], what `Behaviour.document_terms` said of every document; None where nobody asked it."""

    def take(self, pages: Array) -> Shown:
        """Some of the pages."""
        rows, labels, where = (table.take(pages, axis=0) for table in (self.rows, self.labels, self.where))
        return Shown(self.lists, rows, labels, where, self.terms)


class Outcome(NamedTuple):
    """What simulated users did on pages, and the relevance and examination behind it."""

    clicks: Array  # [S, K] bool; never true where padded
    examination: Array  # [S, K] float32, probability of examination given the earlier clicks of the page
    relevance: Array  # [S, K] float32, probability γ that an examined result is found relevant
    looks: Mapping[str, Array] = {}
    """[S, K] each: what else the page says of each result, columns of the log such as `serp_*`."""

    def take(self, pages: Array) -> Outcome:
        """Some of the pages."""
        looks = {name: column[pages] for name, column in self.looks.items()}
        return Outcome(self.clicks[pages], self.examination[pages], self.relevance[pages], looks)


class Behaviour(Config, ABC):
    """How users click; a frozen configuration that can draw clicks and knows its click probabilities."""

    called: ClassVar[str] = ""
    """What people call it; the name of its class unless it says."""
    whole_list: ClassVar[bool] = False
    """Whether pages show the whole list unless a cutoff is given."""

    def prepare(self, lists: Lists) -> Self:
        """Return this behaviour with everything decided that depends on the lists; called once per simulation."""
        return self

    def document_terms(self, lists: Lists) -> Array | None:
        """Return a number for every document, [N], that costs too much to find again for every page."""
        return None

    @abstractmethod
    def draw(self, shown: Shown, rng: np.random.Generator) -> Outcome:
        """Draw one page for each page."""

    @abstractmethod
    def click_probability(self, shown: Shown) -> Array:
        """Marginal probability of a click, [S, K]; 0 where padded."""


class Graded(Behaviour):
    """A behaviour whose γ follows from the grade."""

    noise: Probability = 0.1
    """Probability ε that a result of grade 0 is found relevant once it is examined."""
    max_grade: Annotated[int, Field(ge=1, le=30)] = 4
    """Highest grade; higher ones count as this."""

    def relevance(self, shown: Shown) -> Array:
        """γ of every result, [S, K] float32."""
        return relevance_probability(shown.labels, noise=self.noise, max_grade=self.max_grade)


class RankCurve(Graded):
    """A behaviour that examines each rank with a probability of its own."""

    curve: Curve = EYE_TRACKING
    """Examination probability θ of ranks 1, 2, ...; ranks beyond its end reuse the last value."""
    severity: Annotated[float, Field(ge=0.0)] = 1.0
    """Power η of the curve: 0 is no bias of examination, 2 is a strong one."""

    def examination(self, ranks: int) -> Array:
        """θ_k^η of ranks 1 to `ranks`, float32."""
        return (at_ranks(self.curve, ranks) ** self.severity).astype(np.float32)


class Independent(Behaviour):
    """A user who clicks each result by itself, whatever else is clicked."""

    @abstractmethod
    def causes(self, shown: Shown) -> tuple[Array, Array, Array]:
        """Probability of a click, of examination, and of relevance, [K] or [S, K] each."""

    def draw(self, shown: Shown, rng: np.random.Generator) -> Outcome:
        """Draw one page for each page."""
        probability, examination, relevance = self.causes(shown)
        clicks = rng.random(shown.where.shape, dtype=np.float32) < probability.astype(np.float32, copy=False)
        clicks &= shown.where
        shape = clicks.shape
        return Outcome(clicks, np.broadcast_to(examination, shape), np.broadcast_to(relevance, shape))

    def click_probability(self, shown: Shown) -> Array:
        """The product of the causes, examination and relevance, where these are independent."""
        return masked(shown, self.causes(shown)[0])


class Sequential(Graded):
    """A user who reads from the top; what was clicked above decides what is examined below.

    The state is the probability that the next rank is examined, and everybody examines rank 1.
    """

    def begin(self, pages: int) -> Array:
        """The state before rank 1, [S]."""
        return np.ones(pages, np.float32)

    def examine(self, rank: int, state: Array) -> Array:
        """Probability that this rank is examined, [S] float32, given the state."""
        return state

    @abstractmethod
    def move_on(self, rank: int, state: Array, click: Array, relevance: Array) -> Array:
        """The state of each page below this rank: the chance to look further, given what was clicked."""

    def draw(self, shown: Shown, rng: np.random.Generator) -> Outcome:
        """Draw one page for each page, rank by rank."""
        relevance = self.relevance(shown)
        examination = np.empty_like(relevance)
        clicks = np.zeros(shown.where.shape, bool)
        chance = rng.random(shown.where.shape, dtype=np.float32)
        state = self.begin(len(clicks))
        for k in range(shown.where.shape[1]):
            examination[:, k] = self.examine(k + 1, state)
            clicks[:, k] = (chance[:, k] < examination[:, k] * relevance[:, k]) & shown.where[:, k]
            state = self.move_on(k + 1, state, clicks[:, k], relevance[:, k])
        return Outcome(clicks, examination, relevance)


def relevance_probability(labels: Array, *, noise: float = 0.1, max_grade: int = 4) -> Array:
    """Probability that a result of this grade is found relevant: γ_y = ε + (1 - ε)(2^y - 1)/(2^ymax - 1).

    >>> [round(float(g), 2) for g in relevance_probability(np.array([0, 1, 2, 3, 4, 9]))]
    [0.1, 0.16, 0.28, 0.52, 1.0, 1.0]
    """
    grades = np.arange(max_grade + 1)
    table = (noise + (1 - noise) * (2.0**grades - 1) / (2.0**max_grade - 1)).astype(np.float32)
    return np.take(table, labels, mode="clip")


def at_ranks(curve: tuple[float, ...], ranks: int) -> Array:
    """The curve at ranks 1 to `ranks`, [ranks] float64; beyond its end the last value is used again.

    >>> at_ranks((0.5, 0.25), 4).tolist()
    [0.5, 0.25, 0.25, 0.25]
    """
    return np.asarray(curve)[np.minimum(np.arange(ranks), len(curve) - 1)]


def masked(shown: Shown, probability: Array) -> Array:
    """The probability as float64, 0 where padded."""
    return np.where(shown.where, probability, 0.0)


def reached(goes_on: Array) -> Array:
    """Probability to come to each rank [S, K], given that to go on from each.

    >>> reached(np.array([[0.5, 0.5, 0.5]])).tolist()
    [[1.0, 0.5, 0.25]]
    """
    before = np.cumprod(goes_on, axis=1)[:, :-1]
    return np.concatenate([np.ones((len(goes_on), 1)), before], axis=1)
