"""Bias and variance of the affine and the doubly robust estimator: Theorems 1 and 2, as functions.

L. Zou et al., "Approximated doubly robust search relevance estimation", CIKM 2022. Over the displays (k, c, ê) of
one query and document, with true α, β and assumed α̂, β̂, α̃ = ê (ε̂⁺ - ε̂⁻), Δ_α = α - α̂, Δ_β = β - β̂:

    Bias[affine] = mean (Δ_α Y + Δ_β) / α̂                              Var[affine] = mean (α̂ Ŷ_aff + β̂ - c)² / α̂²
    Bias[DR] = mean (Δ_α Y + Δ_β - (α̃ - α̂) Ŷ) / α̂
    Var[DR]  = mean (α̃ Ŷ + β̂ - c)² / α̂² + δ,   δ = (Ŷ_dr - Ŷ)(α̂ Ŷ_dr + (2α̃ - α̂) Ŷ + 2β̂ - 2c) / α̂

Differences from the paper: what it prints as the variance is that of one display; the estimator is a mean of D of
them, so `of_mean` divides by D - 1, which makes it unbiased. Bias of DR is over clicks with ê as it was seen, so
that its expectation over ê is 0 only if E[ê] = θ_k for this query and document.

Legend: D displays of one query and document.
"""

from __future__ import annotations

import numpy as np

from unskew.tracking.estimators import TrustCurves
from unskew.types import Array


def affine_bias(relevance: float, position: Array, true: TrustCurves, assumed: TrustCurves) -> float:
    """Theorem 1, the bias of the affine estimator.

    >>> true, assumed = TrustCurves([1.0], [0.5], [0.1]), TrustCurves([1.0], [0.4], [0.1])
    >>> round(affine_bias(0.8, np.array([1, 1]), true, assumed), 3)
    0.2
    """
    _, alpha, beta = true.at(position)
    _, alpha_hat, beta_hat = assumed.at(position)
    return float(np.mean(((alpha - alpha_hat) * relevance + beta - beta_hat) / alpha_hat))


def affine_variance(position: Array, click: Array, assumed: TrustCurves) -> float:
    """Theorem 1, the variance of one display's term around the affine estimate."""
    _, alpha, beta = assumed.at(position)
    estimate = float(np.mean((click - beta) / alpha))
    return float(np.mean((alpha * estimate + beta - click) ** 2 / alpha**2))


def doubly_robust_bias(
    relevance: float,
    imputation: float,
    position: Array,
    examination: Array,
    true: TrustCurves,
    assumed: TrustCurves,
) -> float:
    """Theorem 2, the bias of the doubly robust estimator given ê of every display."""
    _, alpha, beta = true.at(position)
    _, alpha_hat, beta_hat = assumed.at(position)
    tilde = examination * assumed.trust[assumed.index(position)]  # ê (ε⁺ - ε⁻)
    terms = (alpha - alpha_hat) * relevance + beta - beta_hat - (tilde - alpha_hat) * imputation
    return float(np.mean(terms / alpha_hat))


def doubly_robust_variance(
    imputation: float, position: Array, click: Array, examination: Array, assumed: TrustCurves
) -> float:
    """Theorem 2, the variance of one display's term around the doubly robust estimate."""
    _, alpha, beta = assumed.at(position)
    tilde = examination * assumed.trust[assumed.index(position)]
    estimate = imputation + float(np.mean((click - beta - tilde * imputation) / alpha))
    rest = alpha * estimate + (2 * tilde - alpha) * imputation + 2 * beta - 2 * click
    delta = (estimate - imputation) * rest / alpha
    return float(np.mean((tilde * imputation + beta - click) ** 2 / alpha**2 + delta))


def of_mean(variance: float, displays: int) -> float:
    """Variance of the estimator, from that of one display; infinite for a single one."""
    return variance / (displays - 1) if displays > 1 else float("inf")
