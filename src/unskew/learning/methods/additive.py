"""Additive two-tower model: click logit = relevance of the document + bias of the rank.

Reference: Yan et al., "Revisiting Two-tower Models for Unbiased Learning to Rank", SIGIR 2022 (Additive); the form
goes back to the shallow tower of Zhao et al., RecSys 2019.

    z_k = f(x_k) + e_k        P(c = 1) = sig(z_k), cross-entropy over every result shown; rank by f

`loss = "softmax"` takes z as the logits of a list softmax instead, which models which result is clicked.

Differences from the paper: e is a free table per rank unless `bias = "tower"`; the paper does not say its towers.
Further factors add their own numbers to e, or go into the tower.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from unskew.learning.curves import EXAMINATION, ODDS
from unskew.learning.methods.bases import ClickLogits, ListBiasConfig, LogitBias, LossConfig
from unskew.learning.methods.contract import Context
from unskew.types import ClickBatch


class AdditiveMethod(ClickLogits, LogitBias):
    """Cross-entropy of f + e."""

    list_meaning = EXAMINATION
    """What e is under the list loss, where log click = f + e."""

    def __init__(self, config: AdditiveConfig, context: Context) -> None:
        super().__init__(config, context)
        self.meaning = ODDS if self.loss == "sigmoid" else self.list_meaning

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """z of each shown result, [B, K]."""
        return self.score(relevance, batch.where) + self.e(batch)


class AdditiveConfig(ListBiasConfig, LossConfig):
    """What models that add a bias to the relevance logit may be told."""

    loss: Literal["sigmoid", "softmax"] = "sigmoid"
    """Clicks of every result shown, or which result of a page is clicked."""


class Additive(AdditiveConfig):
    """Add a bias per rank to the relevance logit."""

    module = AdditiveMethod
    name: Literal["additive"] = "additive"
