"""Whole-page bias: what a result looks like decides with its rank and its relevance whether it is clicked.

The setting of "Whole Page Unbiased Learning to Ranking" (BAL) with every cause known: media type, height, maximum
height and position. With the grade's γ, the rank k, and z the document's value of one feature, standardised,

    P(media of kind j)  ∝ exp(j s),  s = start + feature z + relevance (2γ - 1) + rank (5.5 - k)/4.5
    t = tall j + grows (2γ - 1) + normal                      height = 120 + 40 t pixels, at least 20
    maximum height      = height + an exponential number of pixels of mean 80
    P(c)                = θ_k^η v (γ + (1 - γ) lure_j),       v = sig(1 + sees t)

so media lures to what is not relevant, and height draws the eye. Nobody clicks for the maximum height. The feature
is the one that the logging ranker likes wrongly, where lists have one: then rank and media share a cause that a
ranker can learn, and that has nothing to do with relevance. A strength of 0 takes an edge out of the graph.

Legend: S pages, K results of a page, N documents, J kinds of media.
"""

from typing import Annotated

import numpy as np
from pydantic import Field
from scipy.special import expit, ndtri

from unskew.errors import DataError
from unskew.simulation.behaviours.behaviour import Outcome, Probability, RankCurve, Shown, at_ranks, masked
from unskew.types import Array, Lists

COLUMNS = ("serp_media", "serp_height", "serp_max_height")
"""What a page says of each result besides its rank."""
PIXELS = (120.0, 40.0, 20.0)
"""Height of a plain result, of one deviation, and of the smallest result."""


class WholePage(RankCurve):
    """Users click by rank, relevance, media type and height of a result."""

    called = "whole-page bias"

    media: Annotated[tuple[str, ...], Field(min_length=2, strict=False)] = ("text", "image", "video")
    """Kinds of media, plain ones first."""
    lure: Annotated[tuple[Probability, ...], Field(min_length=1, strict=False)] = (0.0, 0.2, 0.4)
    """Probability that an irrelevant result is clicked for its kind of media; the last serves all others."""
    sees: Annotated[float, Field(ge=0)] = 1.0
    """How much more a tall result is seen."""
    start: float = -1.0
    """How rich pages are at large."""
    by_feature: float = 1.0
    """How much the feature makes media rich."""
    by_relevance: float = 1.0
    """How much relevance makes media rich."""
    by_rank: float = 0.0
    """How much richer media is at the top of the page."""
    tall: float = 1.0
    """How much taller a richer result is, in deviations."""
    grows: float = 0.0
    """How much taller a relevant result is, in deviations."""
    feature: Annotated[int, Field(ge=0)] | None = None
    """The feature that makes media rich; none takes the one that was planted, or else the first."""

    def edges(self) -> frozenset[tuple[str, str]]:
        """The causes and effects among relevance, position, the columns and the click."""
        media, height, highest = COLUMNS
        known = {
            ("relevance", "position"): True,
            ("relevance", media): self.by_relevance != 0,
            ("position", media): self.by_rank != 0,
            ("relevance", height): self.grows != 0,
            (media, height): self.tall != 0,
            (height, highest): True,
            ("relevance", "click"): True,
            ("position", "click"): self.severity != 0,
            (media, "click"): len({*at_ranks(self.lure, len(self.media))}) > 1,
            (height, "click"): self.sees != 0,
        }
        return frozenset(edge for edge, there in known.items() if there)

    def document_terms(self, lists: Lists) -> Array:
        """The feature of every document, standardised, [N] float32."""
        column = self.feature if self.feature is not None else lists.confounder or 0
        if column >= lists.dim:
            raise DataError(f"there is no feature {column} among {lists.dim}", path=lists.name)
        values = np.asarray(lists.features[:, column], float)
        standard: Array = ((values - values.mean()) / (values.std() or 1.0)).astype(np.float32)
        return standard

    def draw(self, shown: Shown, rng: np.random.Generator) -> Outcome:
        """Draw the looks of every result, then the clicks."""
        chance = rng.random((*shown.where.shape, 4), dtype=np.float32)  # [S, K, 4]
        gamma, shares = self.relevance(shown), self.media_shares(shown)
        kind = (chance[..., 0, None] > shares.cumsum(-1)[..., :-1]).sum(-1)  # [S, K]
        tallness = self._tallness(kind, gamma) + ndtri(chance[..., 1].clip(1e-6, 1 - 1e-6))
        height = np.maximum(PIXELS[0] + PIXELS[1] * tallness, PIXELS[2])
        seen = self.examination(shown.where.shape[1]) * visibility(self.sees * tallness)
        clicks = (chance[..., 3] < seen * self._wanted(kind, gamma)) & shown.where
        highest = height - 2 * PIXELS[1] * np.log1p(-chance[..., 2])
        looks = (np.array(self.media, object)[kind], height.astype(np.float32), highest.astype(np.float32))
        return Outcome(clicks, seen.astype(np.float32), gamma, dict(zip(COLUMNS, looks, strict=True)))

    def click_probability(self, shown: Shown) -> Array:
        """P(c) averaged over what the result may look like."""
        gamma, shares = self.relevance(shown), self.media_shares(shown)
        total = np.zeros(shown.where.shape)
        points, weights = np.polynomial.hermite_e.hermegauss(16)  # of a standard normal mean
        for j in range(len(self.media)):
            kind = np.full(shown.where.shape, j)
            tallness = self._tallness(kind, gamma)[..., None] + points
            eye = visibility(self.sees * tallness) @ (weights / weights.sum())
            total += shares[..., j] * eye * self._wanted(kind, gamma)
        return masked(shown, self.examination(shown.where.shape[1]) * total)

    def media_shares(self, shown: Shown) -> Array:
        """Probability of each kind of media, [S, K, J]."""
        terms = self.document_terms(shown.lists) if shown.terms is None else shown.terms
        z = np.append(terms, np.float32(0))[shown.rows]  # row -1 is padding
        rank = np.arange(1, shown.where.shape[1] + 1)
        slope = self.start + self.by_feature * z + self.by_relevance * (2 * self.relevance(shown) - 1)
        slope = slope + self.by_rank * (5.5 - rank) / 4.5
        odds = np.exp(slope[..., None].clip(-20, 20) * np.arange(len(self.media)))
        shares: Array = odds / odds.sum(-1, keepdims=True)
        return shares

    def _tallness(self, kind: Array, gamma: Array) -> Array:
        """Height but for chance, in deviations, [S, K]; about 0 for what is in the middle."""
        middle: Array = self.tall * (kind - 0.5) + self.grows * (2 * gamma - 1)
        return middle

    def _wanted(self, kind: Array, gamma: Array) -> Array:
        wanted: Array = gamma + (1 - gamma) * at_ranks(self.lure, len(self.media))[kind]
        return wanted


def visibility(tallness: Array) -> Array:
    """Share of users who see a result of this height, of those who look at its rank.

    >>> visibility(np.array([-2.0, 0.0, 2.0])).round(3).tolist()
    [0.269, 0.731, 0.953]
    """
    share: Array = expit(1 + tallness)
    return share
