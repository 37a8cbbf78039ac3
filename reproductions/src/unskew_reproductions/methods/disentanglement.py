"""Two towers whose bias is kept from what belongs to relevance: by a reversed gradient, or by dropout.

Reference: Zhang et al., "Towards Disentangling Relevance and Bias in Unbiased Learning to Rank", KDD 2023
(gradient reversal, after Ganin et al., "Domain-Adversarial Training of Neural Networks", JMLR 2016; observation
dropout).

    gradient_reversal   z_k = f(x_k) + e_k          cross-entropy over every result shown
                        y_k = w reverse(e_k) + b    a second head that predicts the click from the bias alone
                        minimise  loss(z, c) + strength loss(y, c)
    tower_dropout       z_k = f(x_k) + dropout(e_k)     cross-entropy over every result shown;  rank by f

reverse(.) is the identity whose gradient changes its sign: the head learns to predict clicks from the bias; the
bias, through it, to make that hard. What rank and relevance share is then left to the relevance tower. Where the
logging ranker is good, rank and relevance say the same, and the bias tower takes what belongs to relevance;
dropping its output at times makes the relevance tower explain clicks on its own.

Differences from the paper: the bias tower is a free table per rank, the head is linear in it, and dropout is drawn
for each result.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from unskew.learning.curves import RATE
from unskew.learning.losses import LOSSES
from unskew.learning.methods.additive import AdditiveConfig, AdditiveMethod
from unskew.learning.methods.contract import Context
from unskew.types import ClickBatch


def reverse(x: Tensor) -> Tensor:
    """The identity, whose gradient is negated.

    >>> x = torch.ones(1, requires_grad=True)
    >>> reverse(x).backward()
    >>> x.grad
    tensor([-1.])
    """
    return 2 * x.detach() - x


class GradientReversalMethod(AdditiveMethod):
    """Cross-entropy of f + e, and of a head behind a reversed gradient."""

    config: GradientReversal
    list_meaning = RATE  # what is held back on purpose is no examination

    def __init__(self, config: GradientReversal, context: Context) -> None:
        super().__init__(config, context)
        self.weight = nn.Parameter(torch.ones(()))
        self.offset = nn.Parameter(torch.zeros(()))

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The loss of the click logits and the adversarial one."""
        head = self.weight * reverse(self.e(batch)) + self.offset
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


class TowerDropoutMethod(AdditiveMethod):
    """Cross-entropy of f + dropout(e)."""

    config: TowerDropout
    list_meaning = RATE

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """z of each shown result, [B, K]."""
        kept = F.dropout(torch.ones_like(batch.packed, dtype=relevance.dtype), self.config.rate, self.training)
        # the level is never dropped, or relevance would stand in for it
        level = self.by_rank(self.bias).mean()
        z = relevance[..., 0] + level + (self.e(batch) - level) * batch.pad(kept)
        return z.where(batch.where, 0.0)


class TowerDropout(AdditiveConfig):
    """The additive model whose bias logit is dropped at times; it loses to that where the logging ranker is weak.

    Over a strong logging ranker it gained 0.01 at most, over a weak one it lost 0.01 to 0.03 at a rate of 0.1 and
    0.09 at 0.3: see EXPERIMENTS.md.
    """

    module = TowerDropoutMethod
    name: Literal["tower_dropout"] = "tower_dropout"
    rate: float = Field(0.1, ge=0, lt=1)
    """How often the bias logit is dropped in training; what remains is scaled up by 1 / (1 - rate). Chosen among
    0.1, 0.3 and 0.6 over a strong and a weak logging ranker."""
