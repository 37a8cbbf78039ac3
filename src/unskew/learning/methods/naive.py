"""Click data as they are: what every debiasing method has to beat.

Reference: the "Click Data" and "Naive" rows of Chen et al., "Scalar is Not Enough: Vectorization-based Unbiased
Learning to Rank", KDD 2022, and of every paper since Joachims et al., "Unbiased Learning-to-Rank with Biased
Feedback", WSDM 2017.

    minimise  - sum_q sum_k c_qk log softmax_k(s_q)  /  sum_q sum_k c_qk

Differences from the paper: padding is masked; the pointwise, pairwise and LambdaRank losses are offered too.
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from unskew.clicks.counts.reduction import Reduction
from unskew.learning.losses import LOSSES, LossName
from unskew.learning.methods.contract import Context, MethodConfig, MethodModule
from unskew.types import ClickBatch


class Naive(MethodConfig):
    """Learn from clicks as if they were labels."""

    name: Literal["naive"] = "naive"
    loss: LossName = "softmax"
    """Which ranking loss to use."""

    @property
    def reduction(self) -> Reduction:
        """What the chosen loss can take."""
        return LOSSES[self.loss].reduction

    @property
    def needs_clickless(self) -> bool:
        """Only the pointwise loss reads them."""
        return self.loss == "sigmoid"

    def build(self, context: Context) -> NaiveMethod:
        """The method; it needs nothing from the log."""
        return NaiveMethod(self)


class NaiveMethod(MethodModule):
    """A ranking loss on the first relevance output."""

    def __init__(self, config: Naive) -> None:
        super().__init__()
        self.config = config

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The loss of scores against clicks."""
        return LOSSES[self.config.loss].function(relevance[..., 0], batch, None)

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The score, or log sig(s) under the pointwise loss."""
        s = self.score(relevance, batch.where)
        return F.logsigmoid(s) if self.config.loss == "sigmoid" else s

    def click_probability(self, relevance: Tensor, batch: ClickBatch) -> Tensor | None:
        """sig(s) under the pointwise loss."""
        return relevance[..., 0].sigmoid() if self.config.loss == "sigmoid" else None
