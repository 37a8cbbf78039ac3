"""A score that begins as the engine: what its order says, a correction by features, and a pair's own clicks.

    score = a e(rank) + b s(x) + g(query, document)

e is the log of mean relevance at the rank that the engine gave (`EnginePrior`), s the score of the model, learned
from clicks as ever, g what is left of a pair's own clicks. With b = 0 and no g the ranking is the one shown.
Where nobody says ranks, they are those of training, and documents that a query did not show there come below. A
document without a rank has the mean of e. Lists of which nothing is known, as other queries in a file of features,
are scored by s alone.

a and b maximise the likelihood of which pair of a query is clicked, on pages that s has not learned from:

    P(i | a click of q) = E_i exp(a e_i + b s_i) / sum over the pairs of q      E_i: examination, summed over shows

under a normal prior around the engine alone, a = 1 and b = 0, in which s has standard deviation 1. Of b DOUBT
standard errors are taken off, and a follows: few clicks, or such as say little, do not move the order.

Legend: M pairs, N documents, C columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from unskew.engine_prior import EnginePrior
from unskew.results import Result
from unskew.types import Array, Lists

BELIEF = np.array([0.4, 0.8])
"""Standard deviations of the prior of a, and of b in units of 1 / sd(s)."""
DOUBT = 1.5
"""Standard errors that b is believed to be too high by."""
KEPT = ("pairs.keys", "pairs.gains", "pairs.ranks")
"""Names of what is kept of pairs among the numbers of a model."""


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
    """Those that a and b rest on."""
    pairs: KnownPairs | None = None
    """None where documents have no ids."""
    untold = ("pairs",)

    def scores(self, correction: Array, lists: Lists) -> Array:
        """What documents are ranked by, [N]; the correction alone in lists of which no rank is known."""
        ranks, gains = lists.shown, np.zeros(len(correction))
        if self.pairs is not None and lists.doc_ids is not None:
            known, gains = self.pairs.at(lists)
            rows = np.flatnonzero(~np.isnan(known))
            if ranks is None and len(rows):
                ranks = lists.ranked(rows, known[rows], known[rows]).shown
        if ranks is None:
            return correction
        engine = self.prior.log_at(ranks)
        total = self.scale * np.where(np.isnan(engine), self.middle, engine) + self.weight * correction + gains
        query = np.repeat(np.arange(len(lists)), lists.sizes)
        told = np.bincount(query, ~np.isnan(ranks), minlength=len(lists))[query] > 0
        return np.where(told, total, correction).astype(np.float32)

    def numbers(self) -> dict[str, Array]:
        """What is kept of pairs, for the file of weights."""
        pairs = self.pairs
        return {} if pairs is None else dict(zip(KEPT, (pairs.keys, pairs.gains, pairs.ranks), strict=True))

    @classmethod
    def read(cls, told: dict[str, Any] | None, numbers: dict[str, Array]) -> Combination | None:
        """What `to_dict` and `numbers` told; None where a model has none."""
        if told is None:
            return None
        prior = EnginePrior(**told["prior"] | {"relevance": tuple(told["prior"]["relevance"])})
        pairs = KnownPairs(*(numbers[name] for name in KEPT)) if KEPT[0] in numbers else None
        return cls(**told | {"prior": prior, "pairs": pairs})


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

    def doubted(self, mean: Array, deviation: Array) -> tuple[float, float]:
        """a and b of columns e and s, with DOUBT standard errors taken off b; never below 0."""
        weights = self.fit(mean, deviation)
        error = np.sqrt(np.linalg.inv(self.bend(weights, deviation))[1, 1])
        b = max(float(weights[1] - DOUBT * error), 0.0)
        if not b:
            return 1.0, 0.0
        a = self.fit(np.array([mean[0], b]), np.array([deviation[0], 1e-6 * b]))[0]
        return max(float(a), 0.0), b

    def value(self, weights: Array, mean: Array, deviation: Array) -> float:
        """Log-likelihood and log prior."""
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
