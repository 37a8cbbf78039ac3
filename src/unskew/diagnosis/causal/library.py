"""What is needed of causal-learn, which is an extra: import this where it is used."""

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

from unskew.diagnosis.causal.kernels import conditional_p_value, marginal_p_value
from unskew.types import Array

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
    found: Array = values[:, np.ptp(values, axis=0) > 0]
    return found
