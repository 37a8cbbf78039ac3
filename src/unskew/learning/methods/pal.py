"""PAL: P(click) = P(seen at this rank) * P(clicked if seen), both learned together.

Reference: Guo et al., "PAL: A Position-bias Aware Learning Framework for CTR Prediction in Live Recommender
Systems", RecSys 2019.

    P(c = 1) = sig(e_k) sig(f(x_k))        cross-entropy over every result shown;  rank by f

Differences from the paper: the product is taken in log space, log(1 - p) through log1mexp.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unskew.learning.bias import PositionTable
from unskew.learning.losses import log1mexp, page_count
from unskew.learning.methods.contract import Context, ImpressionConfig, MethodModule
from unskew.types import ClickBatch


def log_probability_loss(log_p: Tensor, batch: ClickBatch) -> Tensor:
    """-(c log p + (n - c) log(1 - p)) summed over pages and averaged over pages, from log p [B, K]."""
    log_p = torch.where(batch.where, log_p, -1.0)
    loss = batch.clicks * log_p + (batch.impressions - batch.clicks) * log1mexp(log_p)
    return -torch.where(batch.where, loss, 0.0).sum() / page_count(batch.where, batch.impressions)


class PAL(ImpressionConfig):
    """Multiply the probability of being seen with that of being clicked once seen."""

    name: Literal["pal"] = "pal"

    def build(self, context: Context) -> PALMethod:
        """The method, with one logit per rank of the log."""
        return PALMethod(context.positions)


class PALMethod(MethodModule):
    """Cross-entropy of a product of two probabilities."""

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.seen = PositionTable(positions)

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """log sig(e) + log sig(f)."""
        return F.logsigmoid(self.seen(batch.position)) + F.logsigmoid(self.score(relevance, batch.where))

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Cross-entropy of every result shown."""
        return log_probability_loss(self.click_scores(relevance, batch), batch)

    def click_probability(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """sig(e) sig(f)."""
        return self.click_scores(relevance, batch).exp()

    def propensity(self) -> Tensor:
        """sig(e_k) / sig(e_1)."""
        seen = self.seen.values.detach().sigmoid()
        return seen / seen[0]
