"""Estimates pulled towards the imputation by how far both are off, and examination used as far as it is chance.

Ours. For a pair with D displays and the imputation Ŷ, an estimate Y, mean of D values x, becomes

    Y* = Ŷ + w (Y - Ŷ)                           w = τ² / (τ² + ρ v)
    v  = Σ p (1 - p) / α_k² / D²,  p = α_k Ŷ + β_k     variance of the affine estimate were the imputation true
    ρ  = Σ (x - mean)² / Σ (D - 1) D v           over all pairs: what is seen of it
    τ² with Σ (Y - Ŷ)² / (τ² + ρ v) = number of pairs  how far the imputation is off

v knows nothing of the clicks of its pair, so that a weight made of it does not lean with them; ρ takes out that a
noisy Ŷ gives too large a p (1 - p), and puts in what ê explains. The equation for τ² is that of R. Paule and J.
Mandel, "Consensus values and weighting factors", 1982.

The doubly robust estimate is Y = mean (1 - m_k t_k) Ŷ + λ ζ Ŷ + affine, with m_k the mean ê of a rank, t_k its
(ε⁺ - ε⁻) / α and ζ = mean (m_k - ê) t_k; Eq. 4 has λ = 1. The first part is 0 unless α is wrong. The second takes
ζ for chance, but ê depends on the results around, and for a pair that was shown often ζ is mostly that: a bias,
while there is hardly any chance left to explain. With u the variance of ζ by chance, and σ² beyond it, as τ² is
found,

    λ = u / (u + σ²)      u = Σ Var(ê) t_k² / D²

All that is learned of a window are sums, so that it may be larger than memory.

Legend: R rows, P pairs, K ranks.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from unskew.tracking.estimators import Estimate, Tallies, Terms, TrustCurves, terms
from unskew.tracking.trust import Looks
from unskew.types import Array

STEP = 0.02
"""Variances that are this close, on a logarithmic scale, share a bin."""
LEAST, BINS = 1e-15, 3000
"""The first bin's variance, and how many there are: up to 1e11."""
Part = tuple[Tallies, Array]
"""Some pairs of a window, and their imputation [P]."""


class Pull(NamedTuple):
    """The numbers, learned of a window, that say how far its estimates are shrunk."""

    bias: float
    """σ² of ζ."""
    scale: float
    """ρ."""
    off: float
    """τ²."""


class Spread:
    """Squares and the variances that chance gives them, in bins of like variance; adds up part by part.

    >>> spread = Spread()
    >>> spread.add(np.array([1.0, 3.0]), np.array([0.5, 0.5]))
    >>> round(spread.excess(), 6)  # 4 / (τ² + 0.5) = 2
    1.5
    """

    def __init__(self) -> None:
        self.count, self.squares, self.variances = np.zeros((3, BINS))

    def add(self, squares: Array, variances: Array) -> None:
        """Add further squares and the variances that chance gives them."""
        at = np.clip((np.log(np.maximum(variances, LEAST) / LEAST) / STEP).astype(np.int64), 0, BINS - 1)
        self.count += np.bincount(at, minlength=BINS)
        self.squares += np.bincount(at, squares, minlength=BINS)
        self.variances += np.bincount(at, variances, minlength=BINS)

    def excess(self, scale: float = 1.0) -> float:
        """What is to be added to every variance, times the scale, so that squares are as large as they; or 0."""
        some = self.count > 0
        v, squares = scale * self.variances[some] / self.count[some], self.squares[some]
        low, high = 0.0, float(squares.sum()) + 1.0
        for _ in range(100):
            middle = (low + high) / 2
            enough = (squares / np.maximum(middle + v, 1e-300)).sum() > self.count.sum()
            low, high = (middle, high) if enough else (low, middle)
        return (low + high) / 2


def imputed_variance(tallies: Tallies, curves: TrustCurves, imputation: Array) -> Array:
    """v: variance of the affine estimate were the imputation true, [P]; inf without displays."""
    _, alpha, beta = curves.at(tallies.position)
    p = np.clip(alpha * np.clip(imputation, 0.0, 1.0)[tallies.pair] + beta, 1e-3, 1 - 1e-3)
    return _by_square(tallies, tallies.n * p * (1 - p) / alpha**2, np.inf)


def _by_square(tallies: Tallies, values: Array, otherwise: float) -> Array:
    d = tallies.displays
    found: Array = np.divide(tallies.per_pair(values), d**2, out=np.full(len(d), otherwise), where=d > 0)
    return found


def zeta(tallies: Tallies, curves: TrustCurves, looks: Looks) -> Array:
    """Mean (m - ê) t over displays, [P]; a display without an ê counts 0."""
    index = curves.index(tallies.position)
    less = (tallies.estimated * looks.mean[index] - tallies.e) * _steepness(curves)[index]
    found: Array = tallies.per_pair(less) / np.maximum(tallies.displays, 1)
    return found


def _steepness(curves: TrustCurves) -> Array:
    return np.asarray(curves.trust / curves.alpha)


def zeta_variance(tallies: Tallies, curves: TrustCurves, looks: Looks) -> Array:
    """u: variance of ζ by chance, [P]."""
    noise = looks.variance * _steepness(curves) ** 2
    return _by_square(tallies, tallies.estimated * noise[curves.index(tallies.position)], 0.0)


def chance_share(tallies: Tallies, curves: TrustCurves, looks: Looks, bias: float) -> Array:
    """λ, [P]; 1 where there is nothing to tell by."""
    u = zeta_variance(tallies, curves, looks)
    found: Array = np.divide(u, u + bias, out=np.ones_like(u), where=u > 0)
    return found


def learn_pull(
    parts: Callable[[], Iterable[Part]], curves: TrustCurves, looks: Looks, estimator: str = "doubly_robust"
) -> Pull:
    """Learn the pull from all parts of a window, which is read twice."""
    by_chance, bias = Spread(), 0.0
    if estimator == "doubly_robust":
        for tallies, _ in parts():
            u = zeta_variance(tallies, curves, looks)
            by_chance.add(zeta(tallies, curves, looks)[u > 0] ** 2, u[u > 0])
        bias = by_chance.excess()
    spread, seen, expected = Spread(), 0.0, 0.0
    for tallies, imputation in parts():
        found = _terms(tallies, curves, looks, imputation, bias, estimator)
        shown = tallies.displays > 0
        v, d = imputed_variance(tallies, curves, imputation)[shown], tallies.displays[shown]
        spread.add((found.mean - imputation)[shown] ** 2, v)
        seen += float(found.within[shown].sum())
        expected += float(((d - 1) * d * v).sum())
    scale = seen / expected if seen > 0 and expected > 0 else 1.0
    return Pull(bias, scale, spread.excess(scale))


def _terms(
    tallies: Tallies, curves: TrustCurves, looks: Looks, imputation: Array, bias: float, estimator: str
) -> Terms:
    """What the estimate before shrinking is the mean of."""
    if estimator != "doubly_robust":
        return terms(tallies, curves, estimator)
    return terms(tallies, curves, estimator, imputation, looks.mean, chance_share(tallies, curves, looks, bias))


def shrunken(
    tallies: Tallies,
    curves: TrustCurves,
    looks: Looks,
    imputation: Array,
    pull: Pull,
    estimator: str = "doubly_robust",
) -> Estimate:
    """Y* of every pair, and the square root of what is left of its variance, w v; Ŷ and τ without displays."""
    y = _terms(tallies, curves, looks, imputation, pull.bias, estimator).mean
    shown = tallies.displays > 0
    v = np.where(shown, pull.scale * imputed_variance(tallies, curves, imputation), 1.0)
    weight = np.where(shown, pull.off / np.maximum(pull.off + v, 1e-300), 0.0)
    left = np.where(shown, weight * v, pull.off)
    return Estimate(imputation + weight * np.where(shown, y - imputation, 0.0), np.sqrt(left))
