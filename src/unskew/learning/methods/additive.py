"""Additive two-tower model: click logit = relevance of the document + bias of the rank.

Reference: Yan et al., "Revisiting Two-tower Models for Unbiased Learning to Rank", SIGIR 2022 (Additive); the form
goes back to the shallow tower of Zhao et al., RecSys 2019.

    z_k = f(x_k) + e_k        P(c = 1) = sig(z_k), cross-entropy over every result shown; rank by f

`loss = "softmax"` takes z as the logits of a list softmax instead, which models which result is clicked.

Differences from the paper: e is a free table per rank unless `bias = "tower"`; the paper does not say its towers.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from unskew.learning.bias import PositionTable, PositionTower
from unskew.learning.losses import LOSSES
from unskew.learning.methods.contract import Context, MethodConfig, MethodModule
from unskew.types import ClickBatch


class AdditiveConfig(MethodConfig):
    """What models that add a bias to the relevance logit may be told."""

    loss: Literal["sigmoid", "softmax"] = "sigmoid"
    """Clicks of every result shown, or which result of a page is clicked."""
    bias: Literal["table", "tower"] = "table"
    """A free number per rank, or a small network on the rank."""

    @property
    def needs_clickless(self) -> bool:
        """Only the pointwise loss reads them."""
        return self.loss == "sigmoid"


class Additive(AdditiveConfig):
    """Add a bias per rank to the relevance logit."""

    name: Literal["additive"] = "additive"

    def build(self, context: Context) -> AdditiveMethod:
        """The method, with one bias logit per rank of the log."""
        return AdditiveMethod(self, context.positions)


class AdditiveMethod(MethodModule):
    """Cross-entropy of f + e."""

    def __init__(self, config: AdditiveConfig, positions: int) -> None:
        super().__init__()
        self.config = config
        self.observation = PositionTable(positions) if config.bias == "table" else PositionTower(positions)

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """z of each shown result, [B, K]."""
        z: Tensor = self.score(relevance, batch.where) + self.observation(batch.position)
        return z

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The loss of the click logits."""
        return LOSSES[self.config.loss].function(self.logits(relevance, batch), batch, None)

    def click_probability(self, relevance: Tensor, batch: ClickBatch) -> Tensor | None:
        """sig(z) under the pointwise loss."""
        return self.logits(relevance, batch).sigmoid() if self.config.loss == "sigmoid" else None

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """log sig(z), or z itself under the list loss."""
        z = self.logits(relevance, batch)
        return torch.nn.functional.logsigmoid(z) if self.config.loss == "sigmoid" else z

    def propensity(self) -> Tensor:
        """exp(e_k - e_1): the odds (or, under the list loss, the rate) of a click at rank k relative to rank 1."""
        e = self.observation.values.detach()
        return (e - e[0]).exp()
