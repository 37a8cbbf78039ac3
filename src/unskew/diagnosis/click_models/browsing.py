"""Models fitted on counts of impressions and clicks: click rates, the position-based and the browsing model.

N. Craswell et al., "An experimental comparison of click position-bias models", WSDM 2008 (the baseline, and PBM),
and A. Chuklin, I. Markov and M. de Rijke, "Click Models for Web Search", 2015, sections 3.1 and 3.2.

    RCM   P(c) = ρ        RCTR  P(c at k) = ρ_k        DCTR  P(c of d for q) = ρ_qd

No click depends on another one, so what is conditional on the clicks above is marginal too. Each is a mean.

PBM: M. Richardson, E. Dominowska and R. Ragno, "Predicting clicks", WWW 2007.
UBM: G. Dupret and B. Piwowarski, "A user browsing model to predict search engine click data from past
observations", SIGIR 2008.

    PBM  P(c_k) = θ_k a_qd                      UBM  P(c_k | last click at l) = θ_{k,l} a_qd,  l = 0 for none

Each is fitted on counts: impressions n and clicks c of a pair under a condition (rank; rank and last click).
Where there is no click the result was examined with probability q = θ(1 - a)/(1 - θa), so

    successes, trials of θ:  c + (n - c)q, n           of a:  c, c + (n - c)q

Differences from the papers: attraction is counted among what was examined, and not among all that was shown,
which climbs to the same place in fewer rounds; both kinds of parameters have priors. Only products θa are seen:
θ of the position-based model is what swaps and shuffled slots tell, and held (`pages.examined`). Of the browsing
model its scale is up to its start (the rank that is clicked most is always examined), and what of click rates by
rank is θ to the prior of a, which holds what remains (`pages.by_rank`).

"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.diagnosis.click_models.contract import RANK_PRIOR, ClickModel, rank_index
from unskew.diagnosis.click_models.em import SMALLEST, Expected, Parameters, Prior
from unskew.diagnosis.click_models.pages import ClickPages, added, grouped
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
        """One half for every group; any start would do, as a rate is exact after one round."""
        return {self.kinds[0]: np.full(self.groups(pages)[1], 0.5)}

    def expect(self, counts: tuple[Array, Array], parameters: Parameters) -> Expected:
        """Clicks and impressions of each group as they are: these models have nothing hidden to expect."""
        clicks, shown = counts
        p = parameters[self.kinds[0]]
        likelihood = clicks @ np.log(p) + (shown - clicks) @ np.log1p(-p)
        return Expected(float(likelihood), {self.kinds[0]: counts})

    def conditional(self, parameters: Parameters, pages: ClickPages) -> Array:
        """The rate of the group of each result, whatever was clicked above it."""
        return np.where(pages.where, parameters[self.kinds[0]][self.groups(pages)[0]], 0.0)


class RCM(Rates):
    """Random click model: one rate for all that is shown."""

    kinds: ClassVar[tuple[str, ...]] = ("rate",)
    of_pairs: ClassVar[tuple[str, ...]] = ()
    rate: Prior = RANK_PRIOR
    """Of the rates."""

    def groups(self, pages: ClickPages) -> tuple[Array, int]:
        """One group that holds every result."""
        return np.zeros_like(pages.pair), 1

    def on_top(self, parameters: Parameters) -> float:
        """The click rate at rank 1."""
        return float(parameters["rate"][0])


class RCTR(RCM):
    """Rank click-through rate: one rate for each rank."""

    def groups(self, pages: ClickPages) -> tuple[Array, int]:
        """The rank of each result as its group."""
        return rank_index(pages.rank, self.ranks), self.ranks


class DCTR(Rates):
    """Document click-through rate: one rate for each pair of query and document, wherever it is shown."""

    def groups(self, pages: ClickPages) -> tuple[Array, int]:
        """The query-document pair of each result as its group."""
        return pages.pair, pages.bound


# ---- examination ----


@dataclass(frozen=True)
class CellCounts:
    """Impressions and clicks of pairs under conditions; C cells that occur."""

    pair: Array
    """[C] int64."""
    condition: Array
    """[C] int64."""
    clicks: Array
    """[C] float64."""
    unclicked: Array
    """[C] float64."""
    pairs: int
    conditions: int

    def by_pair(self, values: Array) -> Array:
        """Values of cells added up, [P + 1]."""
        return np.bincount(self.pair, values, minlength=self.pairs)

    def by_condition(self, values: Array) -> Array:
        """Values of cells added up by condition."""
        return np.bincount(self.condition, values, minlength=self.conditions)


class ExaminedModel(ClickModel):
    """A model of examination under conditions that the page and the clicks above tell."""

    kinds: ClassVar[tuple[str, ...]] = ("attractiveness", "examination")
    examination: Prior = RANK_PRIOR
    """Of the chance that a result is examined."""

    @abstractmethod
    def condition(self, pages: ClickPages) -> tuple[Array, int]:
        """The condition of each result, [S, K], and how many there are."""

    def counter(self, pages: ClickPages) -> Callable[[Array], CellCounts]:
        """Impressions and clicks of every pair under every condition that occurs."""
        condition, conditions = self.condition(pages)
        occur, short = grouped(condition.ravel(), conditions)
        codes, cell = grouped(np.maximum(pages.pair, 0).ravel() * len(occur) + short, pages.bound * len(occur))
        pair, at = np.divmod(codes, len(occur))
        cell = cell.reshape(pages.pair.shape)

        def counts(weight: Array) -> CellCounts:
            shown, clicks = (added(cell, some, weight, len(pair)) for some in (pages.where, pages.click))
            return CellCounts(pair, occur[at], clicks, shown - clicks, pages.bound, conditions)

        return counts

    def expect(self, counts: CellCounts, parameters: Parameters) -> Expected:
        """Examinations without a click that are expected, by the formulas at the head of the module."""
        hidden, likelihood = self._unclicked(counts, parameters)
        seen = counts.clicks + hidden
        made = {
            "attractiveness": (counts.by_pair(counts.clicks), counts.by_pair(seen)),
            "examination": (counts.by_condition(seen), counts.by_condition(counts.clicks + counts.unclicked)),
        }
        return Expected(likelihood, made)

    def _unclicked(self, counts: CellCounts, parameters: Parameters) -> tuple[Array, float]:
        """Examinations without click that are expected, [C], and the log-likelihood."""
        a = parameters["attractiveness"][counts.pair]
        theta = parameters["examination"][counts.condition]
        p = theta * a
        hidden = counts.unclicked * theta * (1 - a) / (1 - p)
        return hidden, float(counts.clicks @ np.log(p) + counts.unclicked @ np.log1p(-p))

    def uncertain(self, counts: CellCounts, parameters: Parameters) -> dict[str, Array]:
        """Σ (n - c) q(1 - q) / (1 - a)²: examined or not, where there is no click."""
        hidden, _ = self._unclicked(counts, parameters)
        q = np.divide(hidden, counts.unclicked, out=np.zeros_like(hidden), where=counts.unclicked > 0)
        return {"attractiveness": counts.by_pair(hidden * (1 - q)) / (1 - parameters["attractiveness"]) ** 2}

    def conditional(self, parameters: Parameters, pages: ClickPages) -> Array:
        """θ a: the chance of a click given the clicks above it."""
        theta = parameters["examination"][self.condition(pages)[0]]
        return np.where(pages.where, theta * parameters["attractiveness"][pages.pair], 0.0)

    def on_top(self, parameters: Parameters) -> Array:
        """θ of rank 1, with no click above, times a."""
        return np.asarray(parameters["examination"][0] * parameters["attractiveness"])


class PBM(ExaminedModel):
    """Position-based model: examination depends on the rank."""

    def condition(self, pages: ClickPages) -> tuple[Array, int]:
        """The rank of each result: examination depends on nothing else."""
        return rank_index(pages.rank, self.ranks), self.ranks

    def start(self, pages: ClickPages) -> Parameters:
        """Ranks by their click rates, over the highest; all pairs alike."""
        at = rank_index(pages.rank, self.ranks)
        shown, clicked = (added(at, some, pages.weight, self.ranks) for some in (pages.where, pages.click))
        rates = clicked / np.maximum(shown, 1.0)
        curve = rates / max(float(rates.max()), 1e-9)
        attraction = np.full(pages.bound, np.clip(rates.max(), 0.01, 0.9))
        return {"attractiveness": attraction, "examination": np.clip(curve, 0.02, 0.98)}

    def held(self, pages: ClickPages) -> Parameters:
        """Examination; below the last rank it is that of the last."""
        told = pages.examined[np.minimum(np.arange(self.ranks), len(pages.examined) - 1)]
        return {"examination": np.clip(told / max(told.max(), 1.0), SMALLEST, 1 - SMALLEST)}


class UBM(ExaminedModel):
    """User browsing model: examination depends on the rank and on the rank of the last click above."""

    def condition(self, pages: ClickPages) -> tuple[Array, int]:
        """The rank of each result and that of the last click above it."""
        clicked = np.where(pages.click, pages.rank, 0)
        above = np.maximum.accumulate(clicked, axis=1)[:, :-1]  # clicks [1, 0, 0, 1] -> last [0, 1, 1, 1]
        last = np.concatenate([np.zeros((len(pages), 1), above.dtype), above], axis=1)
        at = rank_index(pages.rank, self.ranks) * (self.ranks + 1)
        return at + np.minimum(last, self.ranks), self.ranks * (self.ranks + 1)

    def start(self, pages: ClickPages) -> Parameters:
        """As the position-based model, whatever was clicked last."""
        begun = PBM(ranks=self.ranks).start(pages)
        return begun | {"examination": np.repeat(begun["examination"], self.ranks + 1)}

    def marginal(self, parameters: Parameters, pages: ClickPages) -> Array:
        """Forward over which result was clicked last: P(l = j before k), [S, k + 1]."""
        a = parameters["attractiveness"][pages.pair]
        table = parameters["examination"].reshape(self.ranks, self.ranks + 1)
        at = rank_index(pages.rank, self.ranks)
        lasts = np.concatenate([np.zeros((len(pages), 1), np.int64), np.minimum(pages.rank, self.ranks)], axis=1)
        mass, clicks = np.ones((len(pages), 1)), np.zeros(pages.pair.shape)
        for k in range(pages.pair.shape[1]):
            click = mass * table[at[:, k, None], lasts[:, : k + 1]] * a[:, k, None]
            clicks[:, k] = np.where(pages.where[:, k], click.sum(1), 0.0)
            mass = np.concatenate([mass - click, click.sum(1, keepdims=True)], axis=1)
        return clicks
