"""Kernel tests of independence from thin factors of their matrices: the p-values of causal-learn, far sooner.

K. Zhang et al., "Kernel-based conditional independence test and application in causal discovery", UAI 2011. A
kernel matrix of n impressions is K = G G' with few columns in G (F. Bach and M. Jordan, "Kernel
independent component analysis", JMLR 2002), so that nothing costs n³:

    R G = G - Gz (Gz' Gz + e I)^-1 Gz' G        what z explains taken out, R = e (Kz + e I)^-1
    statistic = |(R Gx)' (R Gy)|²               null: a gamma distribution with the mean and variance that

    U = (R Kx R) ∘ (R Ky R)                     says: tr U and 2 tr U²

The columns stop when they leave a millionth of the trace. Widths of kernels are those of causal-learn.

Legend: n impressions, d columns of a variable.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from unskew.types import Array

LEFT = 1e-6
"""Share of the trace that may be left."""
RIDGE = 1e-3
"""e."""


def conditional_p_value(kernel: Any, x: Array, y: Array, z: Array) -> float:
    """P-value of x and y [n, d] being independent given z, by KCI."""
    x, y, z = standard(x), standard(y), standard(z)
    kernel.set_width_empirical_kci(z)
    gx, gy, gz = (factor(kernel, data) for data in (np.concatenate([x, 0.5 * z], axis=1), y, z))
    inner = gz.T @ gz + RIDGE * np.eye(gz.shape[1])
    rx, ry = (g - gz @ np.linalg.solve(inner, gz.T @ g) for g in (gx, gy))
    u = (rx @ rx.T) * (ry @ ry.T)
    return gamma_tail(((rx.T @ ry) ** 2).sum(), np.trace(u), 2 * (u * u).sum())


def marginal_p_value(kernel: Any, x: Array, y: Array) -> float:
    """P-value of x and y [n, d] being independent, by the unconditional test of KCI."""
    x, y = standard(x), standard(y)
    factors = []
    for data in (x, y):
        kernel.set_width_empirical_hsic(data)
        factors.append(factor(kernel, data))
    gx, gy = factors
    traces = [(g**2).sum() for g in factors]
    squares = [((g.T @ g) ** 2).sum() for g in factors]
    mean, variance = np.prod(traces) / len(x), 2 * np.prod(squares) / len(x) ** 2
    return gamma_tail(((gx.T @ gy) ** 2).sum(), mean, variance)


def factor(kernel: Any, data: Array) -> Array:
    """G [n, k] of a kernel with ones on its diagonal, centred: pivots are taken where most is left."""
    left, columns = np.ones(len(data)), np.zeros((len(data), 0))
    while left.sum() > LEFT * len(data) and columns.shape[1] < len(data):
        pivot = int(left.argmax())
        new = kernel.kernel(data, data[pivot : pivot + 1])[:, 0] - columns @ columns[pivot]
        new /= np.sqrt(left[pivot])
        columns = np.column_stack([columns, new])
        left = np.maximum(left - new**2, 0.0)
    centred: Array = columns - columns.mean(0)
    return centred


def gamma_tail(statistic: float, mean: float, variance: float) -> float:
    """Probability of more than the statistic under a gamma distribution of this mean and variance."""
    return float(stats.gamma.sf(statistic, mean**2 / variance, scale=variance / mean))


def standard(data: Array) -> Array:
    """Columns [n, d] less their mean, in deviations."""
    found: Array = np.nan_to_num(stats.zscore(data, ddof=1, axis=0))
    return found
