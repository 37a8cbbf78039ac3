"""α, β and θ of every rank, from tracked sums: by shuffled pages, by EM, or as given.

    shuffled   over two displays of one query and document, at ranks k and j, in slots that were filled at random,
               Cov(c_k, c_j) = α_k α_j Var(Y), and E[c_k] = α_k E[Y] + β_k. Clicks alone leave the level and the
               scale of Y open, so α_1 and β_1 are asked for; with 1 and 0, Y is the click rate at rank 1, which
               is what random first slots show. Where that is high for anything, because rank 1 is trusted, β of
               lower ranks is below 0 on this scale.
    em         A. Agarwal et al., "Addressing trust bias for unbiased learning-to-rank", WWW 2019: z⁺ = α + β and
               z⁻ = β are the click probabilities of what is and what is not relevant, found by EM with the
               relevance that a model states. A relevance free for every query and document would not do: any
               wider z fits as well. Where the model is noisy α comes out too small.
    θ          mean ê of the rank; α where there is no ê.
    τ          ε⁺ - ε⁻, from a file; else α / θ, so that E[ê τ] is α, right or wrong. Theorem 2 forgives a wrong α
               where E[ê τ] is the true one all the same.

Legend: R rows (a query, document and position each), P pairs, K ranks.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from unskew.errors import DataError
from unskew.files import read_json
from unskew.tracking.estimators import Tallies, TrustCurves
from unskew.types import Array

_SMALL = 1e-9
FINE = 1000
"""Steps of relevance that EM tells apart, in judging a store."""
ROUNDS = 200
"""Steps of EM, and of alternating least squares."""
LEAST = 0.02
"""Slope of a rank, relative to the steepest, below which random slots are too few to tell it from 0."""


class Looks(NamedTuple):
    """What ê is at every rank, [K] each."""

    mean: Array
    variance: Array


class RankSums:
    """Examination by rank; adds up part by part."""

    def __init__(self, ranks: int) -> None:
        self.known, self.e, self.ee = np.zeros((3, ranks))

    def add(self, tallies: Tallies) -> None:
        """Count some more; ranks beyond the last count as the last."""
        ranks = len(self.known)
        rank = np.minimum(tallies.position, ranks) - 1
        pairs = ((self.known, tallies.estimated), (self.e, tallies.e), (self.ee, tallies.ee))
        for sums, values in pairs:
            sums += np.bincount(rank, values, minlength=ranks)

    def theta(self) -> Array | None:
        """Mean ê of every rank, [K]; None where a rank has none."""
        return None if not (self.known > 0).all() else np.maximum(self.e / self.known, 1e-3)

    def looks(self, curves: TrustCurves) -> Looks:
        """Mean and variance of ê, for every rank of the curves; θ and 0 where there is no ê."""
        known, index = np.maximum(self.known, 1), np.arange(len(curves.theta)).clip(max=len(self.known) - 1)
        mean = np.where(self.known > 0, self.e / known, 0.0)
        variance = np.maximum(self.ee / known - mean**2, 0.0)
        return Looks(np.where(self.known[index] > 0, mean[index], curves.theta), variance[index])


class RandomSlots:
    """Displays and clicks of pairs at every two ranks, in slots filled at random; adds up part by part."""

    def __init__(self, ranks: int) -> None:
        self.shown, self.clicks = np.zeros((2, ranks))
        self.both, self.totals, self.one, self.other = np.zeros((4, ranks, ranks))

    def add(self, tallies: Tallies) -> None:
        """Add further rows; the rows of a pair come together."""
        ranks = len(self.shown)
        shown, clicks = _by_rank(tallies, tallies.n, ranks), _by_rank(tallies, tallies.c, ranks)
        self.shown += shown.sum(axis=0)
        self.clicks += clicks.sum(axis=0)
        self.both += _products(shown, shown)
        self.totals += _products(clicks, clicks)
        self.one += _products(clicks, shown)
        self.other += _products(shown, clicks)

    def curves(self, first: tuple[float, float] = (1.0, 0.0), theta: Array | None = None) -> TrustCurves:
        """What they say of the ranks; `first` is α_1 and β_1."""
        alone = np.flatnonzero(self.both.sum(axis=1) <= 0)
        if len(alone):
            raise DataError(
                f"no result of rank {alone[0] + 1} was shown twice in random slots",
                hint="shuffle more pages, give the curves, or find them by EM",
            )
        safe = np.maximum(self.both, 1)
        covariance = self.totals / safe - (self.one / safe) * (self.other / safe)
        slope = _rank_one(covariance, self.both)
        flat = np.flatnonzero(slope < LEAST * slope.max())
        if len(flat):
            raise DataError(
                f"random slots tell nothing of rank {flat[0] + 1}: what is clicked elsewhere is not clicked more",
                hint="shuffle more pages, give the curves, or find them by EM",
            )
        mean = self.clicks / np.maximum(self.shown, 1)
        alpha = first[0] * slope / slope[0]
        beta = mean - alpha * (mean[0] - first[1]) / first[0]
        return TrustCurves(alpha if theta is None else theta, alpha, beta)


class ClicksByRelevance:
    """Displays and clicks by rank and relevance in thousandths, which is all that EM looks at; adds up."""

    def __init__(self, ranks: int) -> None:
        self.n, self.c = np.zeros((2, FINE + 1, ranks))

    def add(self, tallies: Tallies, relevance: Array) -> None:
        """Add the displays and clicks of more tallies, by relevance and rank."""
        grade = np.rint(np.clip(relevance, 0.0, 1.0) * FINE).astype(np.int64)[tallies.pair]
        rank = np.minimum(tallies.position, self.n.shape[1]) - 1
        for sums, values in ((self.n, tallies.n), (self.c, tallies.c)):
            sums += np.bincount(grade * sums.shape[1] + rank, values, minlength=sums.size).reshape(sums.shape)

    def curves(self, theta: Array | None = None) -> TrustCurves:
        """Curves by EM over all displays, given the relevance that a model states."""
        n, c, r = self.n, self.c, np.arange(FINE + 1)[:, None] / FINE
        plus, minus = np.full(n.shape[1], 0.999), np.full(n.shape[1], 0.001)
        for _ in range(ROUNDS):
            click = np.clip(plus * r + minus * (1 - r), _SMALL, 1 - _SMALL)
            hit, miss = c * r * plus / click, (n - c) * r * (1 - plus) / (1 - click)
            sums = [values.sum(axis=0) for values in (hit, miss, c - hit, n - c - miss)]
            plus = np.clip(sums[0] / np.maximum(sums[0] + sums[1], _SMALL), 1e-3, 0.999)
            minus = np.clip(sums[2] / np.maximum(sums[2] + sums[3], _SMALL), 1e-3, 0.999)
        alpha = np.maximum(plus - minus, 1e-3)
        return TrustCurves(alpha if theta is None else theta, alpha, minus)


def _by_rank(tallies: Tallies, values: Array, ranks: int) -> Array:
    cell = tallies.pair * ranks + np.minimum(tallies.position, ranks) - 1
    return np.bincount(cell, values, minlength=tallies.pairs * ranks).reshape(tallies.pairs, ranks)


def _products(left: Array, right: Array) -> Array:
    """Σ over pairs of left_k right_j over two different displays, [K, K].

    On the diagonal a display is not taken twice: clicks are 0 or 1, so that of both there are as many as clicks.
    """
    made: Array = left.T @ right
    made[np.diag_indices(len(made))] -= np.minimum(left, right).sum(axis=0)
    return made


def _rank_one(matrix: Array, weight: Array) -> Array:
    """a such that a_k a_j is nearest to the matrix, by weighted alternating least squares, [K]."""
    a = np.sqrt(np.maximum(np.diag(matrix), matrix.max() * 1e-3).clip(min=_SMALL))
    for _ in range(ROUNDS):
        new = (weight * matrix) @ a / np.maximum(weight @ (a**2), _SMALL)
        a = 0.5 * a + 0.5 * np.maximum(new, _SMALL)
    return np.asarray(a)


def read_curves(path: Path, theta: Array | None = None) -> TrustCurves:
    """Curves from a JSON file with lists `alpha`, `beta` and, where wanted, `theta` and `trust`."""
    content = read_json(path)
    try:
        alpha, beta = (np.asarray(content[name], float) for name in ("alpha", "beta"))
        given = np.asarray(content["theta"], float) if "theta" in content else theta
        trust = np.asarray(content["trust"], float) if "trust" in content else None
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"no curves ({error})", path=path, hint='write {"alpha": [..], "beta": [..]}') from error
    return TrustCurves(alpha if given is None else given, alpha, beta, trust)  # type: ignore[arg-type]
