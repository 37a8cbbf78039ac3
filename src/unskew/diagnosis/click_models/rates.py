"""Click rates as click models: one number for all (RCM), one for each rank (RCTR), one for each document (DCTR).

N. Craswell et al., "An experimental comparison of click position-bias models", WSDM 2008 (the baseline), and A.
Chuklin, I. Markov and M. de Rijke, "Click Models for Web Search", 2015, sections 3.1 and 3.2.

    RCM   P(c) = ρ        RCTR  P(c at k) = ρ_k        DCTR  P(c of d for q) = ρ_qd

No click depends on another one, so what is conditional on the clicks above is marginal too. Each is a mean.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from unskew.diagnosis.click_models.contract import RANK_PRIOR, ClickModel, rank_index
from unskew.diagnosis.click_models.em import Expected, Parameters, Prior
from unskew.diagnosis.click_models.pages import ClickPages, added
from unskew.types import Array


class Rates(ClickModel):
    """A click model with a rate for each group of impressions."""

    @abstractmethod
    def groups(self, pages: ClickPages) -> tuple[Array, int]:
        """The group of each result, [S, K], and how many there are."""

    def counter(self, pages: ClickPages) -> Callable[[Array], tuple[Array, Array]]:
        """Clicks and impressions of every group."""
        group, size = self.groups(pages)
        return lambda weight: (added(group, pages.click, weight, size), added(group, pages.where, weight, size))

    def start(self, pages: ClickPages) -> Parameters:
        """Anything: the first round is the last."""
        return {self.kinds[0]: np.full(self.groups(pages)[1], 0.5)}

    def expect(self, counts: tuple[Array, Array], parameters: Parameters) -> Expected:
        """Everything is seen."""
        clicks, shown = counts
        p = parameters[self.kinds[0]]
        likelihood = clicks @ np.log(p) + (shown - clicks) @ np.log1p(-p)
        return Expected(float(likelihood), {self.kinds[0]: counts})

    def conditional(self, parameters: Parameters, pages: ClickPages) -> Array:
        """The rate of the group."""
        return np.where(pages.where, parameters[self.kinds[0]][self.groups(pages)[0]], 0.0)


class RCM(Rates):
    """Random click model: one rate for all that is shown."""

    kinds: ClassVar[tuple[str, ...]] = ("rate",)
    of_pairs: ClassVar[tuple[str, ...]] = ()
    rate: Prior = RANK_PRIOR
    """Of the rates."""

    def groups(self, pages: ClickPages) -> tuple[Array, int]:
        """All in one."""
        return np.zeros_like(pages.pair), 1

    def on_top(self, parameters: Parameters) -> float:
        """The first rate."""
        return float(parameters["rate"][0])


class RCTR(RCM):
    """Rank click-through rate: one rate for each rank."""

    def groups(self, pages: ClickPages) -> tuple[Array, int]:
        """By rank."""
        return rank_index(pages.rank, self.ranks), self.ranks


class DCTR(Rates):
    """Document click-through rate: one rate for each pair of query and document, wherever it is shown."""

    def groups(self, pages: ClickPages) -> tuple[Array, int]:
        """By pair."""
        return pages.pair, pages.bound
