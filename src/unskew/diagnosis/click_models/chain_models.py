"""Click models of users who read from the top, each by what makes them go on; `chains.py` does the rest.

Cascade: N. Craswell et al., "An experimental comparison of click position-bias models", WSDM 2008.
DCM: F. Guo, C. Liu and Y. M. Wang, "Efficient multiple-click models in web search", WSDM 2009.
DBN and SDBN: O. Chapelle and Y. Zhang, "A dynamic Bayesian network click model for web search ranking", WWW
2009.
CCM: F. Guo et al., "Click chain model in web search", WWW 2009.

               after a skip    after a click
    cascade    g = 1           d = 0
    DCM        g = 1           d = λ_k               by rank
    SDBN       g = 1           d = 1 - s_qd          satisfied by the document
    DBN        g = γ           d = γ(1 - s_qd)
    CCM        g = α1          d = α2(1 - a_qd) + α3 a_qd

Differences from the papers: DCM and SDBN are published with closed forms that take nobody to read on after the
last click; here what follows it is hidden and fitted, as the models have it, and `closed_form` gives the
published SDBN. CCM is published with a distribution for each relevance; here it has a prior and is a point. The
relevance of DBN and SDBN is a s, as in section 4 of their paper. A cascade is fitted on the first click of each
page; where there is a second one, the model holds it for impossible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from unskew.diagnosis.click_models.chains import ChainCounts, ChainModel, Went
from unskew.diagnosis.click_models.contract import RANK_PRIOR
from unskew.diagnosis.click_models.em import Parameters, Prior
from unskew.diagnosis.click_models.pages import ClickPages
from unskew.types import Array

Counted = dict[str, tuple[Array, Array]]


class CascadeModel(ChainModel):
    """Cascade model: everything is read down to the first click, and nothing after it."""

    by_rank: ClassVar[bool] = True

    def moves(self, parameters: Parameters) -> tuple[float, Array]:
        """On after a skip, away after a click."""
        return 1.0, np.zeros(self.ranks)

    def counter(self, pages: ClickPages) -> Callable[[Array], ChainCounts]:
        """Pages down to their first clicks."""
        seen = pages.where & (np.cumsum(pages.click, axis=1) - pages.click == 0)  # no click above
        pair, rank = np.where(seen, pages.pair, -1), np.where(seen, pages.rank, 0)
        return super().counter(replace(pages, pair=pair, rank=rank, click=pages.click & seen))


class DCM(ChainModel):
    """Dependent click model: after a click users go on with a chance that depends on the rank."""

    kinds: ClassVar[tuple[str, ...]] = ("attractiveness", "continuation")
    by_rank: ClassVar[bool] = True
    continuation: Prior = RANK_PRIOR
    """Of the chance to go on after a click."""

    def start(self, pages: ClickPages) -> Parameters:
        """Half go on."""
        return super().start(pages) | {"continuation": np.full(self.ranks, 0.5)}

    def moves(self, parameters: Parameters) -> tuple[float, Array]:
        """On after a skip, λ after a click."""
        return 1.0, parameters["continuation"]

    def latent(self, counts: ChainCounts, parameters: Parameters, went: Went) -> Counted:
        """Who went on after a click."""
        return super().latent(counts, parameters, went) | {"continuation": (went.on, went.on + went.left)}


class DBN(ChainModel):
    """Dynamic Bayesian network: users go on until a clicked document satisfies them or they lose patience."""

    kinds: ClassVar[tuple[str, ...]] = ("attractiveness", "satisfaction", "continuation")
    of_pairs: ClassVar[tuple[str, ...]] = ("attractiveness", "satisfaction")
    hidden: ClassVar[tuple[str, ...]] = ("satisfaction",)
    satisfaction: Prior = Prior()
    """Of the chance that a clicked document satisfies."""
    continuation: Prior = RANK_PRIOR
    """Of the chance that who is not satisfied goes on."""

    def start(self, pages: ClickPages) -> Parameters:
        """Most go on."""
        return super().start(pages) | {"continuation": np.array([0.9])}

    def moves(self, parameters: Parameters) -> tuple[float, Array]:
        """γ, and γ(1 - s)."""
        gamma = float(parameters["continuation"][0])
        return gamma, gamma * (1 - parameters["satisfaction"])

    def latent(self, counts: ChainCounts, parameters: Parameters, went: Went) -> Counted:
        """Who left after a click was satisfied with probability s/(1 - γ(1 - s)), and else out of patience."""
        s, (_, d) = parameters["satisfaction"], self.moves(parameters)
        satisfied = went.left * s / (1 - d)
        on = went.on.sum() + went.skipped_on
        away = (went.left - satisfied).sum() + went.skipped_left
        return super().latent(counts, parameters, went) | {
            "satisfaction": (satisfied, went.on + went.left),
            "continuation": (np.array([on]), np.array([on + away])),
        }

    def uncertain(self, counts: ChainCounts, parameters: Parameters) -> dict[str, Array]:
        """Satisfied or not, after the last click: Σ r(1 - r)(1/s + 1/(1 - s))²."""
        found = self.smoothed(counts, parameters)
        s, (_, d) = parameters["satisfaction"], self.moves(parameters)
        r = np.where(counts.after, (1 - found.click_on) * (s / (1 - d))[counts.key], 0.0)
        spread = counts.by_key(counts.last * r * (1 - r))
        return super().uncertain(counts, parameters) | {"satisfaction": spread * (1 / s + 1 / (1 - s)) ** 2}


class SDBN(DBN):
    """Simplified dynamic Bayesian network: who is not satisfied always goes on."""

    kinds: ClassVar[tuple[str, ...]] = ("attractiveness", "satisfaction")
    closed_form: bool = False
    """Take nobody to have read on after the last click, as published: two ratios, and no rounds."""

    def start(self, pages: ClickPages) -> Parameters:
        """Without patience, which has no end."""
        return ChainModel.start(self, pages)

    def moves(self, parameters: Parameters) -> tuple[float, Array]:
        """Always, and 1 - s."""
        return 1.0, 1 - parameters["satisfaction"]

    def latent(self, counts: ChainCounts, parameters: Parameters, went: Went) -> Counted:
        """Who left after a click was satisfied; or what was published, which has clicks alone."""
        if not self.closed_form:
            satisfied = {"satisfaction": (went.left, went.on + went.left)}
            return ChainModel.latent(self, counts, parameters, went) | satisfied
        unclicked = counts.by_pair(np.broadcast_to(counts.none, counts.pair.shape))
        seen = counts.clicks + counts.skips + unclicked
        return {
            "attractiveness": (counts.clicks, seen),
            "satisfaction": (counts.by_key(counts.last), counts.clicks),
        }


class CCM(ChainModel):
    """Click chain model: after a click users go on the less, the more relevant it was."""

    kinds: ClassVar[tuple[str, ...]] = ("attractiveness", "continuation")
    continuation: Prior = RANK_PRIOR
    """Of the chances to go on: after a skip, after a click that was not relevant, and after one that was."""

    def start(self, pages: ClickPages) -> Parameters:
        """α1, α2, α3."""
        return super().start(pages) | {"continuation": np.array([0.9, 0.8, 0.4])}

    def moves(self, parameters: Parameters) -> tuple[float, Array]:
        """α1, and α2(1 - a) + α3 a."""
        (skip, poor, good), a = parameters["continuation"], parameters["attractiveness"]
        return float(skip), poor * (1 - a) + good * a

    def latent(self, counts: ChainCounts, parameters: Parameters, went: Went) -> Counted:
        """A click was relevant with probability α3 a/d where users went on, (1 - α3)a/(1 - d) where they left."""
        good, a, (_, d) = parameters["continuation"][2], parameters["attractiveness"], self.moves(parameters)
        good_on, good_left = went.on * good * a / d, went.left * (1 - good) * a / (1 - d)
        on = np.array([went.skipped_on, (went.on - good_on).sum(), good_on.sum()])
        left = np.array([went.skipped_left, (went.left - good_left).sum(), good_left.sum()])
        known = went.on + went.left
        return {
            "attractiveness": (counts.clicks + good_on + good_left, went.examined + known),
            "continuation": (on, on + left),
        }

    def uncertain(self, counts: ChainCounts, parameters: Parameters) -> dict[str, Array]:
        """Relevant or not, after every click that something follows: Σ r(1 - r)(1/a + 1/(1 - a))²."""
        found = self.smoothed(counts, parameters)
        good, a, (_, d) = parameters["continuation"][2], parameters["attractiveness"], self.moves(parameters)
        on, left = good * a / d, (1 - good) * a / (1 - d)
        r = found.click_on * on[counts.key] + (1 - found.click_on) * left[counts.key]
        spread = counts.by_key(counts.last * counts.after * r * (1 - r)) + counts.followed * on * (1 - on)
        examined = super().uncertain(counts, parameters)["attractiveness"]
        return {"attractiveness": examined + spread * (1 / a + 1 / (1 - a)) ** 2}
