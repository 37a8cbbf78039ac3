"""TAL: the trust-bias click model with its two probabilities per rank learned together with the ranker.

Reference: Agarwal et al., "Addressing Trust Bias for Unbiased Learning-to-Rank", WWW 2019, as the trust-aware
learning baseline.

    P(c = 1) = z+_k g + z-_k (1 - g)        g = sig(f(x)),  z+ = theta eps+,  z- = theta eps-;  rank by f

Differences from the paper: theta, eps+ and eps- are three numbers per rank of which clicks determine two. We learn
z+ = sig(u) and z- = z+ sig(v), so z+ >= z- and relevance cannot change its sign.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unskew.learning.bias import PositionTable
from unskew.learning.methods.contract import Context, ImpressionConfig, MethodModule
from unskew.learning.methods.pal import log_probability_loss
from unskew.types import ClickBatch


class TAL(ImpressionConfig):
    """Let high ranks be clicked for being high, too."""

    name: Literal["tal"] = "tal"

    def build(self, context: Context) -> TALMethod:
        """The method, with two probabilities per rank of the log."""
        return TALMethod(context.positions)


class TALMethod(MethodModule):
    """Cross-entropy of the trust-bias click probability."""

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.relevant = PositionTable(positions)
        self.trusted = PositionTable(positions, start=-2.0)

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """log P(c = 1) = log z+ + log(g + (1 - g) sig(v))."""
        f, v = self.score(relevance, batch.where), self.trusted(batch.position)
        either = torch.logaddexp(F.logsigmoid(f), F.logsigmoid(-f) + F.logsigmoid(v))
        return F.logsigmoid(self.relevant(batch.position)) + either

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Cross-entropy of every result shown."""
        return log_probability_loss(self.click_scores(relevance, batch), batch)

    def click_probability(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """P(c = 1)."""
        return self.click_scores(relevance, batch).exp()

    def affine(self) -> tuple[Tensor, Tensor]:
        """alpha_k = z+ - z- and beta_k = z-, up to the scale that g takes up."""
        plus = self.relevant.values.detach().sigmoid()
        minus = plus * self.trusted.values.detach().sigmoid()
        return plus - minus, minus

    def propensity(self) -> Tensor:
        """alpha_k / alpha_1: what a relevant document gains over an irrelevant one, relative to rank 1."""
        alpha, _ = self.affine()
        return alpha / alpha[0]
