"""What is needed of causal-learn, which is an extra (import this where it is used), and kernel tests far sooner.

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

from collections.abc import Sequence
from typing import Any

import numpy as np
from causallearn.graph.GraphNode import GraphNode
from causallearn.search.ConstraintBased.PC import pc as pc
from causallearn.utils.cit import Chisq_or_Gsq, CIT_Base, register_ci_test
from causallearn.utils.FastKCI.FastKCI import FastKCI_CInd, FastKCI_UInd
from causallearn.utils.KCI.GaussianKernel import GaussianKernel
from causallearn.utils.PCUtils.BackgroundKnowledge import BackgroundKnowledge
from causallearn.utils.RCIT.RCIT import RCIT, RIT
from scipy import stats

from unskew.types import Array

LEFT = 1e-6
"""Share of the trace that may be left."""
RIDGE = 1e-3  # e


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
    return np.asarray(columns - columns.mean(0))


def gamma_tail(statistic: float, mean: float, variance: float) -> float:
    """Probability of more than the statistic under a gamma distribution of this mean and variance."""
    return float(stats.gamma.sf(statistic, mean**2 / variance, scale=variance / mean))


def standard(data: Array) -> Array:
    """Columns [n, d] less their mean, in deviations."""
    return np.asarray(np.nan_to_num(stats.zscore(data, ddof=1, axis=0)))


tiered = "unskew_tiered"
"""The name under which `pc` finds the tests that it is handed."""
knowledge, node = BackgroundKnowledge, GraphNode


_APPROXIMATE = {"rcit": (RIT, RCIT), "fastkci": (FastKCI_UInd, FastKCI_CInd)}


class _Tiered(CIT_Base):  # type: ignore[misc]
    """Hands the questions of `pc` to the tests that were given to it."""

    def __init__(self, data: Array, tests: Any, **_: object) -> None:
        super().__init__(data)
        self.method, self.tests = tiered, tests

    def __call__(self, x: int, y: int, condition_set: Any = None) -> float:
        """P-value of one question."""
        p: float = self.tests.p_value(x, y, tuple(condition_set or ()))
        return p

    def __deepcopy__(self, _: object) -> _Tiered:
        """Itself: `pc` copies its graphs with all that they hold, and a test stays what it is."""
        return self


register_ci_test(tiered, _Tiered)


class test:
    """An independence test of variables, numbers [N, d] each or codes [N]."""

    def __init__(self, variables: Sequence[Array], kind: str) -> None:
        self.variables = variables
        self.counts: Any = None
        if kind == "gsq":
            self.counts = Chisq_or_Gsq(np.stack(variables, axis=1), method_name="gsq")
        self.kernels = [make() for make in _APPROXIMATE.get(kind, ())]

    def __call__(self, x: int, y: int, given: tuple[int, ...]) -> float:
        """P-value of the independence of two of them given others; NaN where it cannot be computed."""
        try:
            return self._p_value(x, y, given)
        except Exception:  # of many kinds, down to plain ones, from the packages that the tests are built on
            return float("nan")

    def _p_value(self, x: int, y: int, given: tuple[int, ...]) -> float:
        if self.counts is not None:
            p: float = self.counts(x, y, given)
            return p
        varied = [z for z in given if np.ptp(self.variables[z], axis=0).any()]
        parts = [varying(self.variables[x]), varying(self.variables[y])]
        parts += [np.concatenate([varying(self.variables[z]) for z in varied], axis=1)] if varied else []
        if not self.kernels:
            return (conditional_p_value if varied else marginal_p_value)(GaussianKernel(), *parts)
        value: float = self.kernels[bool(varied)].compute_pvalue(*parts)[0]
        return value


def varying(values: Array) -> Array:
    """The columns [N, d] of a variable that vary; a sample may lack a category."""
    return np.asarray(values[:, np.ptp(values, axis=0) > 0])
