"""What a click model is: settings, what it counts, what it expects to have happened, and how likely clicks are.

Legend: S pages, K results of a page, P pairs of query and document. Parameters of pairs have P + 1 entries: the
last is what is assumed of a pair that was never shown: as relevant as what stands below the last rank.

A model says four things; `fitted.py` fits, measures, samples and saves with them alone.

    counter      what it needs of pages, as a function of their weights: laid out once, counted for any weights
    expect       log-likelihood, successes and trials of its parameters (the E-step; the M-step is in `em.py`)
    conditional  P(click at k | clicks above k), [S, K], whose logarithms add up to the log-likelihood of a page
    marginal     P(click at k), [S, K]
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from unskew.diagnosis.click_models.em import Assumed, Expected, Parameters, Prior
from unskew.diagnosis.click_models.pages import ClickPages
from unskew.settings import Config
from unskew.types import Array

RANK_PRIOR = Prior(mean=0.5, strength=1.0)
"""Of parameters that few numbers describe: ranks, continuation."""
SURE = 1e-6
"""Chances are taken to be no closer to 0 or 1 when clicks are judged by them."""


class ClickModel(Config, ABC):
    """Settings of a click model; `unskew.click_models.fit` fits it."""

    kinds: ClassVar[tuple[str, ...]] = ("attractiveness",)
    """Kinds of parameters."""

    of_pairs: ClassVar[tuple[str, ...]] = ("attractiveness",)
    """Kinds of parameters that every pair has one of; their product is its relevance."""

    hidden: ClassVar[tuple[str, ...]] = ()
    """Those of them whose successes are mostly hidden."""

    attractiveness: Prior = Prior()
    """Of the chance that an examined result is clicked."""
    ranks: Annotated[int, Field(ge=1, le=200)] = 50
    """Ranks with parameters of their own; those below share the last."""
    rounds: Annotated[int, Field(ge=1)] = 600
    """Rounds of expectation maximisation at most."""
    tolerance: Annotated[float, Field(ge=0)] = 1e-6
    """Ends when three rounds gain less than this share of the penalised log-likelihood."""

    def priors(self) -> dict[str, Prior]:
        """The kinds of parameters, and what is assumed of each, which a field of the same name says."""
        return {name: getattr(self, name) for name in self.kinds}

    @abstractmethod
    def counter(self, pages: ClickPages) -> Callable[[Array], Any]:
        """A function from weights [S] of the pages to what is needed of them, added up."""

    @abstractmethod
    def start(self, pages: ClickPages) -> Parameters:
        """The parameters that the first round of fitting begins with."""

    def held(self, pages: ClickPages) -> Parameters:
        """Parameters that swaps and shuffled slots tell, which no round moves."""
        return {}

    @abstractmethod
    def expect(self, counts: Any, parameters: Parameters) -> Expected:
        """What happened, as far as can be told."""

    @abstractmethod
    def conditional(self, parameters: Parameters, pages: ClickPages) -> Array:
        """P(click at k | clicks above), [S, K]; 0 where padded."""

    def marginal(self, parameters: Parameters, pages: ClickPages) -> Array:
        """P(click at k), [S, K]; 0 where padded. The same, where clicks do not depend on each other."""
        return self.conditional(parameters, pages)

    def relevance(self, parameters: Parameters) -> Array | None:
        """How good each pair is, [P + 1]; None where the model does not tell documents apart."""
        found: Array = np.prod([parameters[name] for name in self.of_pairs], axis=0)
        return found if self.of_pairs else None

    def on_top(self, parameters: Parameters) -> Array | float:
        """Chance that a pair is clicked at rank 1, [P + 1]."""
        return parameters["attractiveness"]

    def uncertain(self, counts: Any, parameters: Parameters) -> dict[str, Array]:
        """Information that is missing for what is hidden, by kind of parameter of pairs, [P + 1]."""
        return {}

    def variance(self, counts: Any, parameters: Parameters, assumed: dict[str, Assumed]) -> Array | None:
        """Variance of the relevance of each pair, [P + 1], with the other parameters taken as they are.

        One over the observed information: that of all that is expected to have happened, less what is hidden.
        """
        relevance = self.relevance(parameters)
        if relevance is None:
            return None
        expected, missing = self.expect(counts, parameters), self.uncertain(counts, parameters)
        relative = np.zeros(len(relevance))
        for name in self.of_pairs:
            p, (x, n), (mean, strength) = parameters[name], expected.counts[name], assumed[name]
            prior = strength * (mean / p**2 + (1 - mean) / (1 - p) ** 2)
            seen = x / p**2 + (n - x) / (1 - p) ** 2 - missing.get(name, 0.0)
            relative += 1 / np.maximum(prior + seen, 1e-12) / p**2
        return np.asarray(relevance**2 * relative)


def log_chances(p: Array, pages: ClickPages) -> Array:
    """log P(what happened) of each result, [S, K], from P(click); 0 where padded."""
    p = np.clip(p, SURE, 1 - SURE)
    return np.where(pages.where, np.log(np.where(pages.click, p, 1 - p)), 0.0)


def rank_index(rank: Array, ranks: int) -> Array:
    """The number of the parameter of each rank; 0 where padded."""
    return np.clip(rank, 1, ranks) - 1
