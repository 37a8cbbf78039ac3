"""Approximated doubly robust: relevance read from text, corrected by what was clicked, one network for each part.

Reference: Zou et al., "Approximated Doubly Robust Search Relevance Estimation", CIKM 2022, sections 4 and 6.2.

    y_imp = sig(i + l)                      i from the text: the imputation
    y_aff = sig(a + m)                      a from tracked clicks x: the approximated affine estimate
    y     = sg(y_aff) + tanh(z) sg(y_imp - y_aff)     z from x: the trade-off coefficient; sg stops the gradient
    minimise  CE(y_imp, c) + CE(y_aff, c) + CE(y, c)  over results shown first at random;  rank by y

i, a and z are the three outputs of the ranker; those of `doubly_robust_mix` and `doubly_robust_mlp` share no
weight, so that each of the terms trains a part of its own. The clicks behind x must be from before those that are
learned from.

Differences from the paper: there y = tanh(z) sg(y_imp) + sg(y_aff), which is `combination = "published"`. But
y_aff is trained by itself to be the click rate, so that what is added to it is too much: the coefficient that fits
is small where y_imp should rule. Ours goes from one estimate towards the other. The paper's loss for the
coefficient, - (2c - 1) log y (Eq. 5), has no lower bound where c = 0 and is not defined for y <= 0. We take the
cross-entropy of y within [floor, 1 - floor], and where y is outside add how far, which brings it back;
`coefficient_loss = "published"` is Eq. 5 with y from `floor` on. z starts at 0. The three terms are minimised
together, not one after another; as no gradient passes between them that is the same. Levels l and m are parameters
of their own, which start at the click rate.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from unskew.learning.losses import page_count, sigmoid_loss
from unskew.learning.methods.bases import LevelConfig, Levelled
from unskew.learning.methods.contract import Context, LearnFrom
from unskew.types import ClickBatch


def between(imputed: Tensor, affine: Tensor, z: Tensor) -> Tensor:
    """sg(y_aff) + tanh(z) sg(y_imp - y_aff).

    >>> round(between(torch.tensor(0.5), torch.tensor(0.3), torch.tensor(0.2)).item(), 6)  # 0.3 + 0.197375 * 0.2
    0.339475
    """
    return affine.detach() + z.tanh() * (imputed - affine).detach()


def published(imputed: Tensor, affine: Tensor, z: Tensor) -> Tensor:
    """tanh(z) sg(y_imp) + sg(y_aff), section 6.2.2.

    >>> round(published(torch.tensor(0.5), torch.tensor(0.3), torch.tensor(0.2)).item(), 6)  # 0.197375 * 0.5 + 0.3
    0.398688
    """
    return z.tanh() * imputed.detach() + affine.detach()


COMBINATIONS = {"between": between, "published": published}
"""How the two estimates are put together, by name."""


def repaired_loss(y: Tensor, batch: ClickBatch, floor: float) -> Tensor:
    """Cross-entropy of y within [floor, 1 - floor], and how far y is outside [0, 1]; averaged over pages."""
    c, n, inside = batch.clicks, batch.impressions, y.clamp(floor, 1 - floor)
    outside = (y - y.clamp(0.0, 1.0)).abs()
    loss = -(c * inside.log() + (n - c) * torch.log1p(-inside)) + n * outside
    return torch.where(batch.where, loss, 0.0).sum() / page_count(batch.where, n)


def published_loss(y: Tensor, batch: ClickBatch, floor: float) -> Tensor:
    """- (2c - 1) log y, with y from the floor on; averaged over pages (Eq. 5)."""
    loss = -(2 * batch.clicks - batch.impressions) * y.clamp(min=floor).log()
    return torch.where(batch.where, loss, 0.0).sum() / page_count(batch.where, batch.impressions)


class ApproximatedDRMethod(Levelled):
    """Cross-entropy of imputation and affine estimate, and a loss of the coefficient between them."""

    outputs, linear = 3, False
    at_zero = slice(2, 3)
    config: ApproximatedDR

    def __init__(self, config: ApproximatedDR, context: Context) -> None:
        super().__init__(config, context)
        self.levels = nn.Parameter(context.click_rates().mean().logit().repeat(2))  # l and m
        self.register_buffer("centre", torch.zeros(2))

    def parts(self, logits: Tensor, z: Tensor) -> Tensor:
        """y from i and a, less their means, [..., 2], and z."""
        estimates = (logits + self.levels).sigmoid()
        return COMBINATIONS[self.config.combination](estimates[..., 0], estimates[..., 1], z)

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The losses of imputation, affine estimate and coefficient, added up."""
        relevance = relevance.where(batch.where.unsqueeze(-1), 0.0)
        logits = self.from_mean(relevance[..., :2], batch)
        loss = repaired_loss if self.config.coefficient_loss == "repaired" else published_loss
        total = loss(self.parts(logits, relevance[..., 2]), batch, self.config.floor)
        for part, level in zip(logits.unbind(-1), self.levels, strict=True):
            total = total + sigmoid_loss(
                part + level, batch.clicks, where=batch.where, impressions=batch.impressions
            )
        return total

    def score(self, relevance: Tensor, where: Tensor) -> Tensor:
        """y, an estimate of relevance that may leave [0, 1]."""
        centre = self.centre if self.config.centred else torch.zeros_like(self.centre)
        return self.parts(relevance[..., :2] - centre, relevance[..., 2]).where(where, 0.0)

    def click_probability(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """y within [floor, 1 - floor], as for a result shown first."""
        y = self.parts(self.from_mean(relevance[..., :2], batch), relevance[..., 2])
        return y.clamp(self.config.floor, 1 - self.config.floor)

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """log y."""
        return self.click_probability(relevance, batch).log()


class ApproximatedDR(LevelConfig):
    """Combine what a text says with what was clicked before."""

    module = ApproximatedDRMethod
    name: Literal["approximated_dr"] = "approximated_dr"
    usual_rows: ClassVar[LearnFrom] = "randomized"
    combination: Literal["between", "published"] = "between"
    """y from the two estimates: from the affine one towards the imputation, or the imputation added on top of it.
    Chosen on seeds 0 to 4 of a simulated search engine: docs/records/adr.md."""
    coefficient_loss: Literal["repaired", "published"] = "repaired"
    """The cross-entropy of y, or Eq. 5, which is not bounded below."""
    floor: float = Field(1e-3, gt=0, lt=0.5)
    """How near y may come to 0 and 1 inside logarithms."""
