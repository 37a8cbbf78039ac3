"""How far the rank is a function of the features: where it is, two towers can put relevance into the rank.

A method that explains clicks by features and by rank, each by itself, can tell them apart only where documents
with the same features were shown at different ranks (M. Chen et al., "Identifiability matters", ICML 2024). A
ridge regression from features to log rank, fitted on half of the queries and tried on the others, says how much
of the rank features tell: R² and the rank correlation within pages, both out of sample.

Features are taken relative to their mean in the page and in units of their deviation. What trees would find beyond
a line is not seen: R² is a lower bound.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unskew.types import Array, Log

MOST_PAGES = 5000
"""Pages that are looked at, drawn at random."""
LEAST_QUERIES = 20
"""Queries below which nothing is said."""
RIDGE = 1.0
"""Penalty on coefficients, beside sums of squares over results."""


@dataclass(frozen=True)
class RankByFeatures:
    """How well features tell the rank."""

    r2: float | None
    """Share of the variance of log rank within pages, out of sample; 0 or below is nothing."""
    correlation: float | None
    """Mean rank correlation of predicted and shown rank within pages, out of sample."""
    pages: int
    reason: str | None = None
    """Why nothing is said."""

    def to_dict(self) -> dict[str, Any]:
        """Every number, for JSON."""
        return asdict(self)


def rank_by_features(log: Log, *, seed: int = 0) -> RankByFeatures:
    """How well the features of a log's documents tell the ranks that they were shown at."""
    rng = np.random.default_rng(seed)
    several = np.flatnonzero(log.sizes > 1)
    some = log.take(np.sort(rng.permutation(several)[:MOST_PAGES]))
    queries = np.unique(some.query)
    if len(queries) < LEAST_QUERIES:
        why = f"{len(queries)} queries have pages of two results or more; {LEAST_QUERIES} are needed"
        return RankByFeatures(None, None, len(some), why)
    page = np.repeat(np.arange(len(some)), some.sizes)
    features = _within(np.asarray(some.lists.features[some.row], float), page)
    scale = features.std(0)
    features = features[:, scale > 0] / scale[scale > 0]
    if not features.shape[1]:
        return RankByFeatures(None, None, len(some), "no feature differs within a page")
    target = _within(np.log(some.position.astype(float))[:, None], page)[:, 0]
    fitted = np.isin(some.query[page], rng.permutation(queries)[::2])
    x, y = features[fitted], target[fitted]
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y)
    told, held = features[~fitted] @ weights, target[~fitted]
    r2 = 1 - float(((held - told) ** 2).sum() / max(float((held**2).sum()), 1e-300))
    return RankByFeatures(r2, _correlation(told, held, page[~fitted]), len(some))


def _within(values: Array, page: Array) -> Array:
    """Values relative to their mean in the page, [N, D]."""
    _, start, size = np.unique(page, return_index=True, return_counts=True)
    centred: Array = values - np.repeat(np.add.reduceat(values, start, axis=0) / size[:, None], size, axis=0)
    return centred


def _correlation(told: Array, held: Array, page: Array) -> float:
    """Mean over pages of the correlation of ranks."""
    _, place = np.unique(page, return_inverse=True)
    ranks = [_within(_ranked(values, place)[:, None], place)[:, 0] for values in (told, held)]
    products, one, other = (np.bincount(place, a * b) for a, b in (ranks, (ranks[0],) * 2, (ranks[1],) * 2))
    return float(np.mean(products / np.sqrt(np.maximum(one * other, 1e-300))))


def _ranked(values: Array, page: Array) -> Array:
    """Rank of every value in its page, from 0."""
    order = np.lexsort((values, page))
    place = np.empty(len(values))
    place[order] = np.arange(len(values)) - np.searchsorted(page[order], page[order])
    return place
