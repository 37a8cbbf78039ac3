"""Which document of a query is clicked: what pages showed, and weights of columns by the likelihood of clicks.

    P(i | a click of q) = E_i exp(x_i w) / sum over the pairs of q

    E_i: examination, summed over the shows of a pair (a query and a document); x_i: its columns

Weights have a normal prior. A query that is asked often tells less than its clicks are, as its pairs differ by
more than columns say (`tempered`); and of a weight that comes of clicks DOUBT standard errors are taken off
(`doubted`), so that few clicks, or such as say little, do not move an order.

Legend: M pairs, N documents, C columns, Q queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unskew.engine_prior import factors, levels, strength
from unskew.examination import Examination
from unskew.learning.scoring.combination import KnownPairs
from unskew.types import Array, Lists, Log

BELIEF = np.array([0.4, 0.8])
"""Standard deviations of the prior of a, around 1, and of the weight b of a column with standard deviation 1."""
DOUBT = 1.5
"""Standard errors that a weight is believed to be too high by."""


@dataclass(frozen=True)
class Shows:
    """For each pair that pages showed, how often, where and how often clicked."""

    lists: Lists
    rows: Array
    """[M] of the lists, ascending, so query after query."""
    exposure: Array
    """[M] the sum of examination over its shows."""
    clicks: Array
    """[M]"""

    @classmethod
    def of(cls, logs: Sequence[Log], examination: Examination | None) -> Shows:
        """The sums over the pages of logs that have the same lists."""
        lists = logs[0].lists
        exposure, clicks = np.zeros((2, len(lists.features)))
        for log in logs:
            seen = np.ones(len(log.row)) if examination is None else examination.at(log.position)
            exposure += np.bincount(log.row, seen, minlength=len(exposure))
            clicks += np.bincount(log.row, log.click, minlength=len(clicks))
        rows = np.flatnonzero(exposure > 0)
        return cls(lists, rows, exposure[rows], clicks[rows])

    @property
    def query(self) -> Array:
        """[M] index into the lists."""
        found: Array = np.searchsorted(self.lists.offsets, self.rows, side="right") - 1
        return found

    def some(self, mask: Array) -> Shows:
        """The pairs where a mask [M] holds."""
        return replace(self, rows=self.rows[mask], exposure=self.exposure[mask], clicks=self.clicks[mask])

    def sample(self, most: int) -> Shows:
        """The pairs of some queries, drawn so that there are about as many at most."""
        queries, sizes = np.unique(self.query, return_counts=True)
        drawn = np.random.default_rng(0).permutation(len(queries))
        kept = np.zeros(len(queries), bool)
        kept[drawn[np.cumsum(sizes[drawn]) - sizes[drawn] < most]] = True
        return self.some(np.repeat(kept, sizes))

    def choices(self, *columns: Array) -> QueryChoices:
        """Which pair of a query is clicked, by columns [N] of all documents."""
        return QueryChoices(np.stack(columns, 1)[self.rows], self.exposure, self.clicks, self.query)

    def pairs(self, score: Array, *, clicks: bool) -> KnownPairs | None:
        """What is kept of pairs, with what their clicks add to scores [N], logs of relevance; None without ids."""
        if self.lists.doc_ids is None or not self.clicks.any():
            return None
        if not clicks:
            return KnownPairs.of(self.lists, self.rows, np.zeros(len(self.rows)))
        expected = self.exposure * np.exp(score[self.rows] - score[self.rows].max())
        expected *= self.clicks.sum() / expected.sum()
        expected *= levels(self.clicks, expected, self.query)
        found = np.log(factors(self.clicks, expected, strength(self.clicks, expected)))
        return KnownPairs.of(self.lists, self.rows, found)


@dataclass(frozen=True)
class QueryChoices:
    """Which pair of a query is clicked: what is known of the pairs that pages showed, query after query."""

    columns: Array
    """[M, C]"""
    exposure: Array
    """[M] E, the sum of examination over shows; above 0."""
    clicks: Array
    """[M]"""
    query: Array
    """[M] ascending."""

    def some(self, mask: Array) -> QueryChoices:
        """The pairs where a mask [M] holds."""
        return QueryChoices(self.columns[mask], self.exposure[mask], self.clicks[mask], self.query[mask])

    def fit(self, mean: Array, deviation: Array, start: Array | None = None, rounds: int = 30) -> Array:
        """Weights of the columns [C] under a normal prior, by Newton's steps, halved where they do not help."""
        weights = (mean if start is None else start).astype(float)
        value = self.value(weights, mean, deviation)
        for _ in range(rounds):
            p, total = self.chances(weights)
            slope = self.columns.T @ (self.clicks - total * p) - (weights - mean) / deviation**2
            step = np.linalg.solve(self.bend(weights, deviation), slope)
            for _ in range(20):
                after = self.value(weights + step, mean, deviation)
                if after >= value:
                    break
                step = step / 2
            if after - value < 1e-9 * max(abs(value), 1.0):
                break
            weights, value = weights + step, after
        return weights

    def bend(self, weights: Array, deviation: Array) -> Array:
        """How sharply the value bends at some weights, [C, C]: the inverse of their covariance."""
        p, total = self.chances(weights)
        centre = self.columns - self._sums(p[:, None] * self.columns)[self._place]
        found: Array = centre.T @ ((total * p)[:, None] * centre) + np.diag(1 / deviation**2)
        return found

    def evidence(self, mean: Array, deviation: Array) -> tuple[float, Array]:
        """Log marginal likelihood of the choices, by Laplace's approximation and up to a constant; the weights."""
        weights = self.fit(mean, deviation)
        bend = np.linalg.slogdet(self.bend(weights, deviation))[1]
        return self.value(weights, mean, deviation) - bend / 2 - np.log(deviation).sum(), weights

    def tempered(self, mean: Array, deviation: Array, start: Array | None = None, rounds: int = 2) -> QueryChoices:
        """The same with clicks counted for as much as they tell where pairs differ by more than columns say.

        Clicks on a pair vary by m (1 + m / s) around the m that is expected, with gamma factors of strength s; so
        those of a query count for a share of sum m / sum m (1 + m / s).
        """
        found = self
        for _ in range(rounds):
            start = found.fit(mean, deviation, start)
            p, total = self.chances(start)
            m = total * p
            clicks, squares = self._sums(m), self._sums(m**2)
            share = clicks / np.maximum(clicks + squares / strength(self.clicks, m), 1e-300)
            found = replace(self, clicks=self.clicks * share[self._place])
        return found

    def doubted(self) -> tuple[float, float]:
        """a and b of two columns, tempered, with DOUBT standard errors taken off b; never below 0."""
        mean = np.array([1.0, 0.0])
        some = self.tempered(mean, BELIEF)
        weights = some.fit(mean, BELIEF)
        error = np.sqrt(np.linalg.inv(some.bend(weights, BELIEF))[1, 1])
        b = max(float(weights[1] - DOUBT * error), 0.0)
        if not b:
            return 1.0, 0.0
        a = some.fit(np.array([1.0, b]), np.array([BELIEF[0], 1e-6 * b]))[0]
        return max(float(a), 0.0), b

    def value(self, weights: Array, mean: Array, deviation: Array) -> float:
        """Log-likelihood of the choices plus the log prior of the weights."""
        return float(self.likelihood(weights).sum() - 0.5 * (((weights - mean) / deviation) ** 2).sum())

    def likelihood(self, weights: Array) -> Array:
        """Log-likelihood of the clicks of each query, [Q]."""
        p, _ = self.chances(weights)
        return self._sums(self.clicks * np.log(np.maximum(p, 1e-300)))

    def chances(self, weights: Array) -> tuple[Array, Array]:
        """P(i | a click of its query), and the clicks of its query, [M] each."""
        z = self.columns @ weights + np.log(self.exposure)
        z = np.exp(z - np.maximum.reduceat(z, self._starts)[self._place])
        return z / self._sums(z)[self._place], self._sums(self.clicks)[self._place]

    @property
    def _starts(self) -> Array:
        return np.flatnonzero(np.r_[True, self.query[1:] != self.query[:-1]])

    @property
    def _place(self) -> Array:
        place: Array = np.cumsum(np.r_[0, self.query[1:] != self.query[:-1]])
        return place

    def _sums(self, values: Array) -> Array:
        found: Array = np.add.reduceat(values, self._starts)
        return found


def within(values: Array, query: Array) -> float:
    """Standard deviation of values [M] within their queries."""
    _, place = np.unique(query, return_inverse=True)
    mean = np.bincount(place, values) / np.bincount(place)
    return float(np.sqrt(np.square(values - mean[place]).mean()))
