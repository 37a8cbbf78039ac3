"""Two towers with dropout on the bias tower, so that relevance cannot hide behind the rank.

Reference: Zhang et al., "Towards Disentangling Relevance and Bias in Unbiased Learning to Rank", KDD 2023
(observation dropout).

    z_k = f(x_k) + dropout(e_k)        cross-entropy over every result shown;  rank by f

Where the logging ranker is good, rank and relevance say the same, and the bias tower takes what belongs to
relevance. Dropping its output at times makes the relevance tower explain clicks on its own.

Differences from the paper: the bias tower is a free table per rank; dropout is drawn for each result.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from unskew.learning.curves import ODDS, RATE
from unskew.learning.methods.additive import AdditiveConfig, AdditiveMethod
from unskew.types import ClickBatch


class TowerDropoutMethod(AdditiveMethod):
    """Cross-entropy of f + dropout(e)."""

    config: TowerDropout

    @property
    def meaning(self) -> str:
        """Odds of a click, or under the list loss a rate; dropped at times, so no examination."""
        return ODDS if self.loss == "sigmoid" else RATE

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """z of each shown result, [B, K]."""
        kept = F.dropout(torch.ones_like(batch.packed, dtype=relevance.dtype), self.config.rate, self.training)
        level = self.log_seen(
            self.here(self.factors.ranks())
        ).mean()  # never dropped, or relevance would stand in for it
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
