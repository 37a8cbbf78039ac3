"""A score that begins as the engine: what its order says, a correction by features, and a pair's own clicks.

    score = a e(rank) + b s(x) + c x v + g(query, document)

e is the log of mean relevance at the rank that the engine gave (`EnginePrior`), s the score of the model, learned
from clicks as ever, x v what prepared features say along straight lines of that order and of clicks, g what is
left of a pair's own clicks. With b = c = 0 and no g the ranking is the one shown. Where nobody says ranks, they
are those of training, and documents that a query did not show there come below. A document without a rank has the
mean of e. Lists of which nothing is known, as other queries in a file of features, are scored by s and v alone.

Legend: M pairs, N documents, D prepared features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from unskew.engine_prior import EnginePrior
from unskew.results import Result
from unskew.types import Array, Lists

KEPT, STRAIGHT = ("pairs.keys", "pairs.gains", "pairs.ranks"), "engine.features"
"""Names of what is kept of pairs, and of features, among the numbers of a model."""
BELOW = 100.0
"""What puts a document below all whose scores are sums of logs."""


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
    slope: float = 0.0
    """c, of what features say along straight lines."""
    straight: Array | None = None
    """v, what each prepared feature says, [D]; None where nothing was found."""
    depth: int | None = None
    """The last rank that features have a say at; what lies below, or has no rank, stays below as it is."""
    pairs: KnownPairs | None = None
    """None where documents have no ids."""
    untold = ("straight", "pairs")

    @property
    def moved(self) -> bool:
        """Whether features have a say."""
        return bool(self.weight or self.slope)

    def along(self, prepared: Array) -> Array:
        """x v of prepared documents, [N]."""
        if self.straight is None:
            return np.zeros(len(prepared), np.float32)
        found: Array = (prepared[:, : len(self.straight)] @ self.straight).astype(np.float32)
        return found

    def reasons(self, parts: Array, prepared: Array) -> Array:
        """What each prepared feature adds, [N, D], from what it adds to s."""
        found = self.weight * parts
        if self.straight is not None:
            known = slice(0, len(self.straight))
            found[:, known] += self.slope * prepared[:, known] * self.straight
        return found

    def times(self, share: float) -> Combination:
        """A share of what features say, beside all that the order says."""
        return replace(self, weight=share * self.weight, slope=share * self.slope)

    def scores(self, sides: Array, lists: Lists) -> Array:
        """What documents are ranked by, [N], from their s and x v [N, 2]; without e where no rank is known."""
        correction = sides @ np.array([self.weight, self.slope]) if self.moved else np.zeros(len(sides))
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
        if self.depth is not None:
            total = np.where(ranks <= self.depth, total, np.nan_to_num(engine, nan=self.middle) - BELOW)
        query = np.repeat(np.arange(len(lists)), lists.sizes)
        told = np.bincount(query, ~np.isnan(ranks), minlength=len(lists))[query] > 0
        return np.where(told, total, alone).astype(np.float32)

    def numbers(self) -> dict[str, Array]:
        """What is kept of pairs and features, for the file of weights."""
        pairs, found = self.pairs, {} if self.straight is None else {STRAIGHT: self.straight}
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
        return cls(**told | {"prior": prior, "pairs": pairs, "straight": numbers.get(STRAIGHT)})
