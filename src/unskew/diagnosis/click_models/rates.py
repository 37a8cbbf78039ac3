"""Click rates as click models: one number for all (RCM), one for each rank (RCTR), one for each document (DCTR).

N. Craswell et al., "An experimental comparison of click position-bias models", WSDM 2008 (the baseline), and A.
Chuklin, I. Markov and M. de Rijke, "Click Models for Web Search", 2015, sections 3.1 and 3.2.

    RCM   P(c) = ρ        RCTR  P(c at k) = ρ_k        DCTR  P(c of d for q) = ρ_qd

No click depends on another one, so what is conditional on the clicks above is marginal too. Each is a mean.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.diagnosis.click_models.contract import RANK_PRIOR, ClickModel, rank_index
from unskew.diagnosis.click_models.em import Expected, Parameters, Prior
from unskew.diagnosis.click_models.pages import ClickPages, added
from unskew.types import Array


@dataclass(frozen=True)
class RateIndex:
    """Which rate every impression belongs to."""

    group: Array
    """[S, K] int64; any where padded."""
    where: Array
    """[S, K] bool."""
    click: Array
    """[S, K] bool."""
    size: int

    def counts(self, weight: Array) -> tuple[Array, Array]:
        """Clicks and impressions of every rate."""
        clicks, shown = (added(self.group, some, weight, self.size) for some in (self.click, self.where))
        return clicks, shown


class Rates(ClickModel):
    """A click model with a rate for each group of impressions."""

    rate: ClassVar[str]
    """What its parameters are called."""

    @abstractmethod
    def groups(self, pages: ClickPages) -> tuple[Array, int]:
        """The group of each result, [S, K], and how many there are."""

    def prepared(self, pages: ClickPages) -> RateIndex:
        """The group of every impression."""
        group, size = self.groups(pages)
        return RateIndex(group, pages.where, pages.click, size)

    def start(self, pages: ClickPages) -> Parameters:
        """Anything: the first round is the last."""
        return {self.rate: np.full(self.groups(pages)[1], 0.5)}

    def expect(self, counts: tuple[Array, Array], parameters: Parameters) -> Expected:
        """Everything is seen."""
        clicks, shown = counts
        p = parameters[self.rate]
        likelihood = clicks @ np.log(p) + (shown - clicks) @ np.log1p(-p)
        return Expected(float(likelihood), {self.rate: counts})

    def conditional(self, parameters: Parameters, pages: ClickPages) -> Array:
        """The rate of the group."""
        return np.where(pages.where, parameters[self.rate][self.groups(pages)[0]], 0.0)

    def marginal(self, parameters: Parameters, pages: ClickPages) -> Array:
        """The rate of the group."""
        return self.conditional(parameters, pages)


class RCM(Rates):
    """Random click model: one rate for all that is shown."""

    of_pairs: ClassVar[tuple[str, ...]] = ()
    rate: ClassVar[str] = "rate"

    def priors(self) -> dict[str, Prior]:
        """One number needs no help."""
        return {self.rate: RANK_PRIOR}

    def groups(self, pages: ClickPages) -> tuple[Array, int]:
        """All in one."""
        return np.zeros_like(pages.pair), 1

    def on_top(self, parameters: Parameters) -> float:
        """The rate."""
        return float(parameters[self.rate][0])


class RCTR(RCM):
    """Rank click-through rate: one rate for each rank."""

    def groups(self, pages: ClickPages) -> tuple[Array, int]:
        """By rank."""
        return rank_index(pages.rank, self.ranks), self.ranks


class DCTR(Rates):
    """Document click-through rate: one rate for each pair of query and document, wherever it is shown."""

    rate: ClassVar[str] = "attractiveness"

    def groups(self, pages: ClickPages) -> tuple[Array, int]:
        """By pair."""
        return pages.pair, pages.bound
