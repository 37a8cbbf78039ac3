"""Mixture of behaviours: every page is one of four kinds of user.

L. Yan et al., "Revisiting two-tower models for unbiased learning to rank", SIGIR 2022.

    random click (RCM)       P(c_k) = 0.1
    rank only (RCTR)         P(c_k) = 0.5/k
    document only (DCTR)     P(c_k) = 0.5 γ_y
    position-based (PBM)     P(c_k) = γ_y/k

Pages show the whole list unless a cutoff is given. The truth of a log is γ_y and the factor of the page's
kind: 0.1, 0.5/k, 0.5 or 1/k; the first two kinds click without regard to γ_y.
"""

from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from unskew.simulation.behaviours.behaviour import Graded, Outcome, Shown, masked
from unskew.types import Array

Share = Annotated[float, Field(ge=0.0)]


class Mixture(Graded):
    """Users of four kinds, drawn per page.

    >>> Mixture(ratio=(1.0, 1.0, 1.0, 2.0)).shares().tolist()
    [0.2, 0.2, 0.2, 0.4]
    """

    called = "mixture"

    whole_list: ClassVar[bool] = True

    ratio: Annotated[tuple[Share, Share, Share, Share], Field(strict=False)] = (1.0, 1.0, 1.0, 1.0)
    """RCM : RCTR : DCTR : PBM, in any unit."""

    @model_validator(mode="after")
    def _has_a_share(self) -> Self:
        if not 0 < sum(self.ratio) < np.inf:
            raise ValueError("at least one part of the ratio must be positive, and all finite")
        return self

    def shares(self) -> Array:
        """The ratio as probabilities, [4]."""
        ratio = np.asarray(self.ratio)
        shares: Array = ratio / ratio.sum()
        return shares

    def draw(self, shown: Shown, rng: np.random.Generator) -> Outcome:
        """Draw one page for each page: its kind, then its clicks."""
        pages, ranks = shown.where.shape
        chance = rng.random((pages, ranks + 1), dtype=np.float32)
        kind = np.searchsorted(np.cumsum(self.shares())[:3].astype(np.float32), chance[:, 0], side="right")
        gamma = self.relevance(shown)
        examination = factors(ranks)[kind]
        blind = kind[:, None] < 2  # RCM and RCTR
        clicks = chance[:, 1:] < np.where(blind, examination, examination * gamma)
        return Outcome(clicks & shown.where, examination, gamma)

    def click_probability(self, shown: Shown) -> Array:
        """Mean over the four kinds."""
        gamma, factor = self.relevance(shown), factors(shown.where.shape[1])
        random, rank, document, position = self.shares()[:, None] * factor
        return masked(shown, random + rank + (document + position) * gamma)


def factors(ranks: int) -> Array:
    """What each kind multiplies γ with, or uses alone, at ranks 1 to `ranks`: [4, ranks] float32."""
    inverse = 1 / np.arange(1, ranks + 1)
    flat = np.ones(ranks)
    return np.stack([0.1 * flat, 0.5 * inverse, 0.5 * flat, inverse]).astype(np.float32)
