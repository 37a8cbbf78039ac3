"""Clicks of levels by rank against what one curve lets expect: the sums behind the click matrix.

With T_p the clicks of a pair, n_pk its displays and θ the curve of all, a pair is worth T_p / Σ_k n_pk θ_k, and at
rank k n_pk θ_k times that is expected of it. Pairs stand level after level, so that sums of levels are products of
slices, and a draw of all clicks takes a few passes over the table.

Legend: C cells with displays, P pairs, L levels, K ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.diagnosis.pairs import SwapPairs
from unskew.types import Array


@dataclass(frozen=True)
class LevelSums:
    """Pairs by ascending level."""

    shown: Array
    """[P, K]."""
    bounds: Array
    """[L + 1] where the pairs of each level begin."""
    cells: Array
    """[C] where displays are, in the table laid out flat."""
    once: Array
    """[C] whether there is a single one."""

    @classmethod
    def of(cls, pairs: SwapPairs, level: Array) -> tuple[LevelSums, Array]:
        """The sums of some pairs, and their clicks [P, K] in the same order."""
        order = np.argsort(level, kind="stable")
        shown, clicks = pairs.shown[order], pairs.clicks[order]
        bounds = np.searchsorted(level[order], np.arange(int(level.max()) + 2))
        cells = np.flatnonzero(shown)
        return cls(shown, bounds, cells, shown.ravel()[cells] == 1), clicks

    def by_level(self, values: Array) -> Array:
        """Sums over pairs, [L, K]."""
        ones = np.ones(len(values))  # products with it take a quarter of the time of sums
        return np.stack([ones[first:last] @ values[first:last] for first, last in self._spans()])

    def worth(self, clicks: Array, theta: Array) -> Array:
        """Clicks of every pair over what its ranks let expect, [P]."""
        worth: Array = _totals(clicks) / np.maximum(self.shown @ theta, 1e-300)
        return worth

    def expected(self, clicks: Array, theta: Array) -> Array:
        """What the curve lets expect of pairs with so many clicks in all, [P, K]."""
        due: Array = self.shown * theta * self.worth(clicks, theta)[:, None]
        return due

    def refitted(self, clicks: Array, theta: Array, rounds: int = 3) -> Array:
        """θ of other clicks, from a θ that is near: θ_k = clicks at k / what pairs of this worth would get."""
        got = np.ones(len(clicks)) @ clicks
        for _ in range(rounds):
            theta = got / np.maximum(self.worth(clicks, theta) @ self.shown, 1e-300)
            theta = np.maximum(theta, 1e-12) / max(theta[0], 1e-12)
        return theta

    def rates(self, clicks: Array, theta: Array) -> Array:
        """Rates of levels, [L, K]: worth of a level times its curve, one step from the curve of all."""
        got, due = self.by_level(clicks), self.by_level(self.expected(clicks, theta))
        mean = got.sum(1) / np.maximum(self.by_level(self.shown) @ theta, 1e-300)
        rates: Array = mean[:, None] * theta * np.where(due > 0, got / np.maximum(due, 1e-300), 1.0)
        return rates

    def excess(self, clicks: Array, theta: Array) -> float:
        """X: residuals of levels over their information."""
        expected, totals = self.expected(clicks, theta), np.maximum(_totals(clicks), 1e-300)
        left, due, total = self.by_level(clicks - expected), self.by_level(expected), 0.0
        share = expected / totals[:, None]
        for one, (first, last) in enumerate(self._spans()):
            information = np.diag(due[one]) - expected[first:last].T @ share[first:last]
            inverse = np.linalg.pinv(information, hermitian=True, rcond=1e-9)
            total += float(left[one] @ inverse @ left[one])
        return total

    def draw(self, chance: Array, rng: np.random.Generator) -> Array:
        """Clicks by the chance of a click on a display [C], [P, K]; for a single display a comparison will do."""
        drawn, several = rng.random(len(chance)) < chance, ~self.once
        clicks = np.zeros(self.shown.size)
        clicks[self.cells] = drawn
        shown = self.shown.ravel()[self.cells[several]].astype(np.int64)
        clicks[self.cells[several]] = rng.binomial(shown, chance[several])
        return clicks.reshape(self.shown.shape)

    def chance(self, clicks: Array, theta: Array) -> Array:
        """How often a display of each cell is clicked by the curve, [C]."""
        expected, shown = (values.ravel()[self.cells] for values in (self.expected(clicks, theta), self.shown))
        chance: Array = np.minimum(expected / shown, 1.0)
        return chance

    def _spans(self) -> list[tuple[int, int]]:
        """Where the pairs of each level begin and end."""
        return list(zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True))


def _totals(clicks: Array) -> Array:
    """Clicks of every pair, [P]."""
    totals: Array = clicks @ np.ones(clicks.shape[1])
    return totals
