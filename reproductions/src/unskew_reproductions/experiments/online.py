"""Learning while serving: pairwise differentiable gradient descent, and dueling bandits as its baseline.

H. Oosterhuis, M. de Rijke, "Differentiable unbiased online learning to rank", CIKM 2018 (`Pdgd`):

    P(R)        Plackett-Luce of the scores f: every page is drawn, none is the best guess
    d >_c e     d clicked, e not, and e above the last click or right below it
    rho         P(R*) / (P(R) + P(R*)),  R* = R with d and e in each other's place
    gradient    sum over d >_c e of  rho  exp(f_d) exp(f_e) / (exp(f_d) + exp(f_e))^2  (f'_d - f'_e)

P(R) rho is the same for R and R*, so a pair of equal relevance is preferred as often one way as the other,
whatever the ranks are: the expected gradient has no position bias of its own.

Y. Yue, T. Joachims, "Interactively optimizing information retrieval systems as a dueling bandits problem", ICML
2009 (`DuelingBandit`):

    u on the unit sphere,  w' = w + delta u;   w <- w + gamma u  where w' wins the page

Differences from the papers: rankers are linear, score = w x, without an intercept. Dueling bandits compare by
team-draft interleaving, and w is not held within a ball. Scores of PDGD count as at most 50 below the best.

Legend: K candidates of a query, D features, S results that a page shows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from unskew.errors import ConfigError
from unskew.measuring.experiments.interleaving import team_draft
from unskew.settings import Config
from unskew.types import Array
from unskew_reproductions.experiments.visitors import Visitors

SPAN = 50.0
"""Largest difference of scores that PDGD tells apart."""


@dataclass(frozen=True)
class OnlinePage:
    """What a learner showed, and what it needs to know when the clicks come."""

    order: Array
    """[S] int, candidates from the first slot on."""
    team: Array | None = None
    """[S] int, 1 where the changed ranker picked the result."""
    direction: Array | None = None
    """[D], how the changed ranker differs."""


class OnlineLearner(Config, ABC):
    """A linear ranker that learns from every page; frozen settings, the weights are the caller's."""

    name: ClassVar[str]
    results: Annotated[int, Field(ge=1)] = 10
    """Results that a page shows."""

    @abstractmethod
    def show(self, weights: Array, features: Array, rng: np.random.Generator) -> OnlinePage:
        """A page for candidates [K, D]."""

    @abstractmethod
    def learn(self, weights: Array, features: Array, page: OnlinePage, clicks: Array) -> Array:
        """The weights [D] after the clicks [S] of a page."""


class Pdgd(OnlineLearner):
    """Pairwise differentiable gradient descent."""

    name: ClassVar[str] = "pdgd"
    rate: Annotated[float, Field(gt=0)] = 0.1
    """Learning rate."""

    def show(self, weights: Array, features: Array, rng: np.random.Generator) -> OnlinePage:
        """A page drawn by Plackett-Luce: scores with Gumbel noise, sorted."""
        noisy = _floored(features @ weights) + rng.gumbel(size=len(features))
        return OnlinePage(np.argsort(-noisy)[: self.results])

    def learn(self, weights: Array, features: Array, page: OnlinePage, clicks: Array) -> Array:
        """One step along the gradient."""
        gradient = features.T @ pdgd_gradient(features @ weights, page.order, clicks)
        return np.asarray(weights + self.rate * gradient)


class DuelingBandit(OnlineLearner):
    """Dueling-bandit gradient descent."""

    name: ClassVar[str] = "dueling_bandit"
    explore: Annotated[float, Field(gt=0)] = 1.0
    """delta, how far the changed ranker is away."""
    rate: Annotated[float, Field(gt=0)] = 0.01
    """gamma, how far a win moves the ranker."""

    def show(self, weights: Array, features: Array, rng: np.random.Generator) -> OnlinePage:
        """The ranker and a changed one, interleaved."""
        direction = rng.standard_normal(len(weights))
        direction /= np.linalg.norm(direction)
        first, second = (np.argsort(-(features @ w)) for w in (weights, weights + self.explore * direction))
        page = team_draft(first.tolist(), second.tolist(), length=self.results, seed=rng)
        return OnlinePage(np.array(page.items), np.array(page.teams), direction)

    def learn(self, weights: Array, features: Array, page: OnlinePage, clicks: Array) -> Array:
        """A step towards the changed ranker where it won."""
        assert page.team is not None
        assert page.direction is not None
        won = (clicks[page.team == 1] > 0).sum() > (clicks[page.team == 0] > 0).sum()
        return np.asarray(weights + self.rate * page.direction if won else weights)


LEARNERS: dict[str, type[OnlineLearner]] = {"pdgd": Pdgd, "dueling_bandit": DuelingBandit}
"""Every online learner by its name."""


def preferred(clicks: Array) -> tuple[Array, Array]:
    """Slots of preferences d >_c e, [P] each: clicked slots, and slots that were passed over for them.

    >>> [slots.tolist() for slots in preferred(np.array([0, 1, 0, 0]))]
    [[1, 1], [0, 2]]
    """
    clicks = np.asarray(clicks, bool)
    seen = np.zeros(len(clicks), bool)
    if clicks.any():
        seen[: int(np.flatnonzero(clicks)[-1]) + 2] = True
    better, worse = np.meshgrid(np.flatnonzero(clicks), np.flatnonzero(seen & ~clicks), indexing="ij")
    return better.ravel(), worse.ravel()


def swap_weight(scores: Array, order: Array, one: Array, two: Array) -> Array:
    """rho of pairs of slots, [P]: P(R*) / (P(R) + P(R*)) for the page `order` [S] of candidates with scores [K].

    Only the sums below the upper slot and down to the lower one differ between R and R*.
    """
    weight = np.exp(_floored(scores))
    shown = weight[order]
    rest = weight.sum() - shown.sum() if len(order) < len(weight) else 0.0
    left = np.cumsum(shown[::-1])[::-1] + max(rest, 0.0)  # [S], what can still come at each slot
    upper, lower = np.minimum(one, two), np.maximum(one, two)
    change = (shown[upper] - shown[lower])[:, None]
    between = (np.arange(len(order)) > upper[:, None]) & (np.arange(len(order)) <= lower[:, None])
    swapped = np.maximum(left + change, shown[upper][:, None])
    log_ratio = np.where(between, np.log(left) - np.log(swapped), 0.0).sum(1)  # log P(R*) / P(R)
    ratio: Array = 1 / (1 + np.exp(-np.clip(log_ratio, -500, 500)))
    return ratio


def pdgd_gradient(scores: Array, order: Array, clicks: Array) -> Array:
    """The gradient of PDGD by candidate, [K]: how much its score should rise.

    >>> pdgd_gradient(np.zeros(3), np.array([2, 0, 1]), np.array([0, 1, 0])).tolist()
    [0.25, -0.125, -0.125]
    """
    better, worse = preferred(clicks)
    f = _floored(scores)[order]
    chance = 1 / (1 + np.exp(f[worse] - f[better]))
    size = swap_weight(scores, order, better, worse) * chance * (1 - chance)
    gradient = np.zeros(len(scores))
    np.add.at(gradient, order[better], size)
    np.add.at(gradient, order[worse], -size)
    return gradient


def _floored(scores: Array) -> Array:
    """Scores from the best down, none more than SPAN below it."""
    floored: Array = np.maximum(scores - scores.max(initial=-np.inf), -SPAN)
    return floored


def learn_online(
    learner: OnlineLearner,
    visitors: Visitors,
    pages: int,
    *,
    seed: int = 0,
    weights: Array | None = None,
    every: int | None = None,
) -> Iterator[tuple[int, Array]]:
    """Serve pages to visitors and learn from each; pages so far and weights, `every` so many pages and at the end.

    Without `weights` the first pages are ordered by nothing.
    """
    features = np.asarray(visitors.lists.features, np.float64)
    if not np.isfinite(features).all():
        raise ConfigError("online learners need finite features; encode them first")
    weights = np.zeros(features.shape[1]) if weights is None else np.asarray(weights, np.float64)
    rng = np.random.default_rng(seed)
    for number in range(1, pages + 1):
        rows = visitors.candidates(visitors.ask())
        page = learner.show(weights, features[rows], rng)
        weights = learner.learn(weights, features[rows], page, visitors.click(rows[page.order]))
        if number == pages or (every is not None and number % every == 0):
            yield number, weights
