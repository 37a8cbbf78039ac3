"""Clicks of levels by rank against what one curve lets expect: the sums behind the click matrix.

With T_p the clicks of a pair, n_pk its displays and θ the curve of all, a pair is worth T_p / Σ_k n_pk θ_k, and at
rank k m_pk = n_pk θ_k times that is expected of it. Only cells with displays are kept, level after level, so that
a draw takes a few passes over them.

Legend: C cells, P pairs, L levels, K ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.diagnosis.pairs import SwapPairs
from unskew.types import Array


@dataclass(frozen=True)
class LevelSums:
    """Pairs by level as cells with displays, [C] each."""

    pair: Array
    """From 0, by ascending level."""
    rank: Array
    """From 0."""
    shown: Array
    group: Array
    """level x K + rank."""
    first: Array
    """[P] where the cells of each pair begin."""
    bounds: Array
    """[L + 1] where the pairs of each level begin."""
    ranks: int

    @classmethod
    def of(cls, pairs: SwapPairs, level: Array) -> tuple[LevelSums, Array]:
        """The cells of some pairs, and their clicks."""
        levels = np.arange(int(level.max()) + 2)
        order = np.argsort(level, kind="stable")
        order = order[pairs.shown[order].any(axis=1)]
        shown, clicks, level = pairs.shown[order], pairs.clicks[order], level[order]
        pair, rank = np.nonzero(shown)
        ranks = shown.shape[1]
        first = np.searchsorted(pair, np.arange(len(shown)))
        bounds = np.searchsorted(level, levels)
        cells = cls(pair, rank, shown[pair, rank], level[pair] * ranks + rank, first, bounds, ranks)
        return cells, clicks[pair, rank]

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return len(self.bounds) - 1

    def totals(self, values: Array) -> Array:
        """Sums over the cells of each pair, [P]."""
        added: Array = np.add.reduceat(values, self.first)
        return added

    def by_level(self, values: Array) -> Array:
        """Sums over pairs, [L, K]."""
        size = self.levels * self.ranks
        return np.bincount(self.group, values, minlength=size).reshape(self.levels, self.ranks)

    def expected(self, clicks: Array, theta: Array) -> Array:
        """m: what the curve lets expect of pairs with so many clicks in all, [C]."""
        weight = self.shown * theta[self.rank]
        due: Array = weight * (self.totals(clicks) / np.maximum(self.totals(weight), 1e-300))[self.pair]
        return due

    def refitted(self, clicks: Array, theta: Array, rounds: int = 3) -> Array:
        """θ of other clicks, from a θ that is near: it grows at k by clicks over what is expected there."""
        for _ in range(rounds):
            due = np.bincount(self.rank, self.expected(clicks, theta), minlength=self.ranks)
            theta = theta * np.bincount(self.rank, clicks, minlength=self.ranks) / np.maximum(due, 1e-300)
            theta = np.maximum(theta, 1e-12) / max(theta[0], 1e-12)
        return theta

    def rates(self, clicks: Array, theta: Array) -> Array:
        """Rates of levels, [L, K]: worth of a level times its curve, one step from the curve of all."""
        got, due = self.by_level(clicks), self.by_level(self.expected(clicks, theta))
        weight = self.by_level(self.shown) @ theta
        mean = got.sum(1) / np.maximum(weight, 1e-300)
        rates: Array = mean[:, None] * theta * np.where(due > 0, got / np.maximum(due, 1e-300), 1.0)
        return rates

    def excess(self, clicks: Array, theta: Array) -> float:
        """X: residuals of levels over their information."""
        expected, total = self.expected(clicks, theta), 0.0
        share = np.zeros((len(self.first), self.ranks))
        weight = self.shown * theta[self.rank]
        share[self.pair, self.rank] = weight / np.maximum(self.totals(weight), 1e-300)[self.pair]
        scaled = share * self.totals(clicks)[:, None]
        left, due = self.by_level(clicks - expected), self.by_level(expected)
        for one in range(self.levels):
            own = slice(int(self.bounds[one]), int(self.bounds[one + 1]))
            information = np.diag(due[one]) - scaled[own].T @ share[own]
            inverse = np.linalg.pinv(information, hermitian=True, rcond=1e-9)
            total += float(left[one] @ inverse @ left[one])
        return total

    def draw(self, chance: Array, rng: np.random.Generator) -> Array:
        """Clicks by chance, [C]; most cells have one display, which needs a single comparison."""
        clicks = np.zeros(len(chance))
        once = self.shown == 1
        clicks[once] = rng.random(int(once.sum())) < chance[once]
        clicks[~once] = rng.binomial(self.shown[~once].astype(np.int64), chance[~once])
        return clicks
