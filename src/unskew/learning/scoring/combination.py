"""A score that begins as the engine: what its order says, a correction by features, and a pair's own clicks.

    score = a e(rank) + b s(x) + c t(x) + g(query, document)

e is the log of mean relevance at the rank that the engine gave (`EnginePrior`), s the score of the model, learned
from clicks as ever, t what features say of e (linear, by the ranks of all that was shown, without clicks), g what
is left of a pair's own clicks. With b = c = 0 and no g the ranking is the one shown. t knows the engine's habits
without the chance of each place: where clicks are few, nothing else tells as much of features.
Where nobody says ranks, they are those of training, and documents that a query did not show there come below. A
document without a rank has the mean of e. Lists of which nothing is known, as other queries in a file of features,
are scored by s and t alone.

a, b and c maximise the likelihood of which pair of a query is clicked, on pages that s has not learned from:

    P(i | a click of q) = E_i exp(a e_i + b s_i + c t_i) / sum over the pairs of q

    E_i: examination, summed over its shows

under a normal prior around the engine alone, a = 1 and b = c = 0, in which s and t have standard deviation 1. What
they come to together is one more column; of its weight DOUBT standard errors are taken off, and a follows: few
clicks, or such as say little, do not move the order. A query that is asked often tells less than its clicks are,
as its pairs differ by more than columns say (`tempered`).

Legend: M pairs, N documents, C columns, D prepared features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from unskew.engine_prior import EnginePrior, strength
from unskew.results import Result
from unskew.types import Array, Lists

BELIEF = np.array([0.4, 0.8])
"""Standard deviations of the prior of a, and of b and c in units of 1 / sd(s) and 1 / sd(t)."""
DOUBT = 1.5
"""Standard errors that the weight of s and t is believed to be too high by."""
KEPT, HABITS = ("pairs.keys", "pairs.gains", "pairs.ranks"), "engine.features"
"""Names of what is kept of pairs, and of features, among the numbers of a model."""


@dataclass(frozen=True)
class KnownPairs:
    """What training knows of pairs: the rank that the engine gave, what clicks add; by a hash of both ids."""

    keys: Array
    """[M] int64, ascending."""
    gains: Array
    """[M] float32, what clicks add to the score."""
    ranks: Array
    """[M] float32."""

    @classmethod
    def of(cls, lists: Lists, rows: Array, gains: Array) -> KnownPairs:
        """Of documents at these rows of lists; there is one at least."""
        assert lists.shown is not None, "a log to learn from has ranks"
        keys = pair_keys(lists)[rows]
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], gains[order].astype(np.float32), lists.shown[rows][order].astype(np.float32))

    def at(self, lists: Lists) -> tuple[Array, Array]:
        """Rank of each document, NaN where it is not known, and what is added to its score, [N] each."""
        keys = pair_keys(lists)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        known = self.keys[place] == keys
        return np.where(known, self.ranks[place], np.nan), np.where(known, self.gains[place], 0.0)


def pair_keys(lists: Lists) -> Array:
    """A hash of the query and document of each row, [N] int64."""
    queries = np.repeat(np.asarray(lists.query_ids), lists.sizes).tolist()
    both = zip(queries, np.asarray(lists.document_ids()).tolist(), strict=True)
    texts = (f"{query}\0{document}".encode() for query, document in both)
    return np.frombuffer(b"".join(blake2b(text, digest_size=8).digest() for text in texts), "<i8").astype(np.int64)


@dataclass(frozen=True)
class Combination(Result):
    """How the engine, the correction and pairs are put together."""

    prior: EnginePrior
    scale: float
    """a, of what the engine says: 1 where features know nothing of it, 0 where they know all of it and more."""
    weight: float
    """b, of the correction."""
    middle: float
    """e of a document without a rank."""
    clicks: int
    """Those that the weights rest on."""
    imitation: float = 0.0
    """c, of what features say of the engine."""
    habits: Array | None = None
    """[D] what prepared features add to t; None where there are none."""
    pairs: KnownPairs | None = None
    """None where documents have no ids."""
    untold = ("habits", "pairs")

    @property
    def moved(self) -> bool:
        """Whether features have a say."""
        return bool(self.weight or self.imitation)

    def imitated(self, prepared: Array) -> Array:
        """t of prepared documents, [N]."""
        if self.habits is None:
            return np.zeros(len(prepared), np.float32)
        found: Array = (prepared[:, : len(self.habits)] @ self.habits).astype(np.float32)
        return found

    def reasons(self, parts: Array, prepared: Array) -> Array:
        """What each prepared feature adds, [N, D], from what it adds to s."""
        found = self.weight * parts
        if self.habits is not None:
            known = slice(0, len(self.habits))
            found[:, known] += self.imitation * prepared[:, known] * self.habits
        return found

    def scores(self, sides: Array, lists: Lists) -> Array:
        """What documents are ranked by, [N], from their s and t [N, 2]; without e where no rank is known."""
        correction = sides @ np.array([self.weight, self.imitation]) if self.moved else np.zeros(len(sides))
        alone = correction if self.moved else sides[:, 0]
        ranks, gains = lists.shown, np.zeros(len(correction))
        if self.pairs is not None and lists.doc_ids is not None:
            known, gains = self.pairs.at(lists)
            rows = np.flatnonzero(~np.isnan(known))
            if ranks is None and len(rows):
                ranks = lists.ranked(rows, known[rows], known[rows]).shown
        if ranks is None:
            return alone.astype(np.float32)
        engine = self.prior.log_at(ranks)
        total = self.scale * np.where(np.isnan(engine), self.middle, engine) + correction + gains
        query = np.repeat(np.arange(len(lists)), lists.sizes)
        told = np.bincount(query, ~np.isnan(ranks), minlength=len(lists))[query] > 0
        return np.where(told, total, alone).astype(np.float32)

    def numbers(self) -> dict[str, Array]:
        """What is kept of pairs and features, for the file of weights."""
        pairs, found = self.pairs, {} if self.habits is None else {HABITS: self.habits}
        if pairs is not None:
            found |= dict(zip(KEPT, (pairs.keys, pairs.gains, pairs.ranks), strict=True))
        return found

    @classmethod
    def read(cls, told: dict[str, Any] | None, numbers: dict[str, Array]) -> Combination | None:
        """What `to_dict` and `numbers` told; None where a model has none."""
        if told is None:
            return None
        prior = EnginePrior(**told["prior"] | {"relevance": tuple(told["prior"]["relevance"])})
        pairs = KnownPairs(*(numbers[name] for name in KEPT)) if KEPT[0] in numbers else None
        return cls(**told | {"prior": prior, "pairs": pairs, "habits": numbers.get(HABITS)})


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

    def fit(self, mean: Array, deviation: Array, rounds: int = 30) -> Array:
        """Weights of the columns [C] under a normal prior, by Newton's steps, halved where they do not help."""
        weights, value = mean.astype(float), self.value(mean, mean, deviation)
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

    def tempered(self, mean: Array, deviation: Array, rounds: int = 2) -> QueryChoices:
        """The same with clicks counted for as much as they tell where pairs differ by more than columns say.

        Clicks on a pair vary by m (1 + m / s) around the m that is expected, with gamma factors of strength s; so
        those of a query count for a share of sum m / sum m (1 + m / s).
        """
        found = self
        for _ in range(rounds):
            p, total = self.chances(found.fit(mean, deviation))
            m = total * p
            clicks, squares = self._sums(m), self._sums(m**2)
            share = clicks / np.maximum(clicks + squares / strength(self.clicks, m), 1e-300)
            found = replace(self, clicks=self.clicks * share[self._place])
        return found

    def joined(self) -> tuple[float, Array]:
        """a of the first column and weights of the others, which have standard deviation 1; see the module."""
        sides, mean = np.arange(1, self.columns.shape[1]), np.array([1.0, 0.0])
        found = np.zeros(len(sides))
        while len(sides):  # a side that speaks against itself is left out
            own = replace(self, columns=self.columns[:, np.append(0, sides)])
            prior = np.append(1.0, np.zeros(len(sides))), np.append(BELIEF[0], np.full(len(sides), BELIEF[1]))
            weights = own.tempered(*prior).fit(*prior)[1:]
            if (weights > 0).all():
                found[sides - 1] = weights
                break
            sides = sides[weights > 0]
        together = self.columns[:, 1:] @ found
        spread = within(together, self.query)
        if spread <= 0:
            return 1.0, np.zeros(len(found))
        both = replace(self, columns=np.stack([self.columns[:, 0], together / spread], 1))
        a, b = both.tempered(mean, BELIEF).doubted(mean, BELIEF)
        return a, b / spread * found

    def doubted(self, mean: Array, deviation: Array) -> tuple[float, float]:
        """a and b of two columns, with DOUBT standard errors taken off b; never below 0."""
        weights = self.fit(mean, deviation)
        error = np.sqrt(np.linalg.inv(self.bend(weights, deviation))[1, 1])
        b = max(float(weights[1] - DOUBT * error), 0.0)
        if not b:
            return 1.0, 0.0
        a = self.fit(np.array([mean[0], b]), np.array([deviation[0], 1e-6 * b]))[0]
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
