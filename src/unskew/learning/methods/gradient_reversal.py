"""Two towers with a reversed gradient: the bias tower unlearns what predicts clicks by itself.

Reference: Zhang et al., "Towards Disentangling Relevance and Bias in Unbiased Learning to Rank", KDD 2023
(gradient reversal), after Ganin et al., "Domain-Adversarial Training of Neural Networks", JMLR 2016.

    z_k = f(x_k) + e_k                  cross-entropy over every result shown
    y_k = w reverse(e_k) + b            a second head that predicts the click from the bias alone
    minimise  loss(z, c) + strength loss(y, c)        reverse(.) is the identity whose gradient changes its sign

The head learns to predict clicks from the bias; the bias, through the reversed gradient, to make that hard. What
rank and relevance share is then left to the relevance tower.

Differences from the paper: the bias tower is a free table per rank and the head is linear in it.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from unskew.learning.curves import ODDS, RATE
from unskew.learning.losses import LOSSES
from unskew.learning.methods.additive import AdditiveConfig, AdditiveMethod
from unskew.learning.methods.contract import Context
from unskew.types import ClickBatch


class Reverse(torch.autograd.Function):
    """The identity, whose gradient is negated.

    >>> x = torch.ones(1, requires_grad=True)
    >>> Reverse.apply(x).backward()
    >>> x.grad
    tensor([-1.])
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """What came in."""
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """The negated gradient."""
        return -gradients[0]


class GradientReversalMethod(AdditiveMethod):
    """Cross-entropy of f + e, and of a head behind a reversed gradient."""

    config: GradientReversal

    def __init__(self, config: GradientReversal, context: Context) -> None:
        super().__init__(config, context)
        self.weight = nn.Parameter(torch.ones(()))
        self.offset = nn.Parameter(torch.zeros(()))

    @property
    def meaning(self) -> str:
        """Odds of a click, or under the list loss a rate; held back on purpose, so no examination."""
        return ODDS if self.loss == "sigmoid" else RATE

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The loss of the click logits and the adversarial one."""
        reversed_bias: Tensor = Reverse.apply(self.e(batch))  # type: ignore[no-untyped-call]
        head = self.weight * reversed_bias + self.offset
        adversary = LOSSES[self.loss].function(head, batch, None)
        return super().forward(relevance, batch) + self.config.strength * adversary


class GradientReversal(AdditiveConfig):
    """The additive model whose bias is kept from predicting clicks alone; no gain over additive was found.

    Over strong and weak logging rankers it ranked within 0.004 of `additive`: see EXPERIMENTS.md.
    """

    module = GradientReversalMethod
    name: Literal["gradient_reversal"] = "gradient_reversal"
    strength: float = Field(0.1, ge=0)
    """Weight of the adversarial loss."""
