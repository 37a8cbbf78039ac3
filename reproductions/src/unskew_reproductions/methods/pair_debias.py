"""Pairwise debiasing: position ratios for clicked and unclicked results, learned with the ranker.

Reference: Hu et al., "Unbiased LambdaMART: An Unbiased Pairwise Learning-to-Rank Algorithm", WWW 2019.

For ranks i, j with a click on i and none on j, l_ij = sum log(1 + exp(-(s_i - s_j))), the loss is

    sum_ij l_ij / (t+_i t-_j)
    t+_i <- (1 - step) t+_i + step (sum_j l_ij / t-_j  /  sum_j l_1j / t-_j)^(1 / (p + 1))
    t-_j <- (1 - step) t-_j + step (sum_i l_ij / t+_i  /  sum_i l_i1 / t+_i)^(1 / (p + 1))

Every right-hand side uses the old t; both stay 1 at rank 1.

Differences from the paper: a network with plain pairs in the place of LambdaMART (`gains = "lambda"` needs
pages and weights pairs by the nDCG they decide); the loss is averaged over pairs, which only rescales it. The
published code's loss is 256 times larger through a broadcast. `regularization = 0` is what the paper's table used.

What it does not do: t+ and t- balance the losses of the ranks among pairs of a click and a skip, so they are no
estimate of examination, and a favourite of the logging ranker that the learned ranker can see is not undone.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from unskew.learning.curves import Curve
from unskew.learning.factors import at_rank, sums_at
from unskew.learning.losses import lambda_gains, pair_counts, pair_losses
from unskew.learning.methods.contract import Context, MethodConfig, MethodModule
from unskew.logs.counts.reduction import Reduction
from unskew.types import ClickBatch


def ratio_update(total: Tensor, old: Tensor, *, step: float, power: float) -> Tensor:
    """(1 - step) old + step (total_k / total_1)^power; ranks without a pair stay, and so do all without rank 1.

    >>> t = ratio_update(torch.tensor([4.0, 1.0, 0.0]), torch.ones(3), step=0.5, power=0.5)
    >>> t.tolist()
    [1.0, 0.75, 1.0]
    """
    known = (total > 0) & (total[0] > 0)
    ratio = torch.where(known, total / torch.where(total[0] > 0, total[0], 1.0), 1.0) ** power
    return torch.where(known, (1 - step) * old + step * ratio, old)


class PairDebiasMethod(MethodModule):
    """Pairwise logistic loss divided by t+ of the clicked and t- of the unclicked rank."""

    config: PairDebias
    clicked: Tensor
    unclicked: Tensor

    def __init__(self, config: PairDebias, context: Context) -> None:
        super().__init__(config, context)
        self.register_buffer("clicked", torch.ones(context.positions))
        self.register_buffer("unclicked", torch.ones(context.positions))

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The weighted mean of pair losses; updates the ratios in training."""
        s = relevance[..., 0].where(batch.where, 0.0)
        n = pair_counts(batch.clicks, batch.where) if batch.pairs is None else batch.pairs
        if self.config.gains == "lambda":
            n = n * lambda_gains(s, batch.clicks, where=batch.where)
        losses = torch.where(n > 0, n * pair_losses(s), 0.0)  # [B, K, K] l_ij
        plus, minus = at_rank(self.clicked, batch.position), at_rank(self.unclicked, batch.position)
        loss = (losses / (plus.unsqueeze(-1) * minus.unsqueeze(-2))).sum() / n.sum().clamp(min=1e-8)
        if self.training:
            self.update(losses.detach(), plus, minus, batch)
        return loss

    @torch.no_grad()
    def update(self, losses: Tensor, plus: Tensor, minus: Tensor, batch: ClickBatch) -> None:
        """Move t+ and t- towards the ratios of this batch."""
        by_clicked = (losses / minus.unsqueeze(-2)).sum(-1)
        by_unclicked = (losses / plus.unsqueeze(-1)).sum(-2)
        for ratio, values in ((self.clicked, by_clicked), (self.unclicked, by_unclicked)):
            total = sums_at(values, batch.position - 1, batch.where, self.positions)
            power = 1 / (self.config.regularization + 1)
            ratio.copy_(ratio_update(total, ratio, step=self.config.step, power=power))

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Relevance times t+, in log space."""
        return relevance[..., 0] + at_rank(self.clicked.clamp(min=1e-6).log(), batch.position)

    def curves(self) -> tuple[Curve, ...]:
        """t+ and t-."""
        ratios = {"clicked": self.clicked, "skipped": self.unclicked}
        return tuple(Curve.of(f"pair ratio of {side} results", t.tolist()) for side, t in ratios.items())


class PairDebias(MethodConfig):
    """Learn pairs with position ratios for clicked and for unclicked results."""

    module = PairDebiasMethod
    name: Literal["pair_debias"] = "pair_debias"
    step: float = Field(0.05, gt=0, le=1)
    """How far the ratios move at every batch."""
    regularization: float = Field(1.0, ge=0)
    """p: ratios are raised to 1 / (p + 1)."""
    gains: Literal["none", "lambda"] = "none"
    """Weight pairs by the nDCG they decide."""

    @property
    def reduction(self) -> Reduction:
        """Pair counts; nDCG weights need single pages."""
        return "pairs" if self.gains == "none" else "pages"
