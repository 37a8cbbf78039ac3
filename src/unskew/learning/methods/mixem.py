"""Mixture EM: every page follows one of four click models that share their towers.

Reference: Yan et al., "Revisiting Two-tower Models for Unbiased Learning to Rank", SIGIR 2022 (Sec. 3.1, 4.4).

    z_0 = t_0        z_1 = t_1 + e_k        z_2 = t_2 + f(x)        z_3 = e_k + f(x)
    l_a = sum_k cross-entropy(c_k, z_a,k)                       loss of a page under model a
    p_a = softmax_a(-l_a / T), held constant                    (E-step)
    minimise  sum_a p_a l_a                                     (M-step);  rank by f

Differences from the paper: t_0 and t_2 start at the logit of the log's click rate and e_k at that of its rank, so
that no model wins early; e is a free table unless `bias = "tower"`, and may depend on more factors than the rank;
pages without a click count (the public implementation gives them no weight).
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from unskew.learning.curves import ODDS
from unskew.learning.methods.bases import BiasConfig, LevelConfig, Levelled, LogitBias
from unskew.learning.methods.contract import Context
from unskew.logs.counts.reduction import Reduction
from unskew.types import ClickBatch


def mixture_loss(logits: Tensor, clicks: Tensor, *, where: Tensor, temperature: float = 1.0) -> Tensor:
    """sum_a p_a l_a of each page, [B], from logits [A, B, K].

    >>> z = torch.tensor([[[0.6, 0.8]], [[0.9, 0.2]]])  # two models, one page, two results
    >>> c = torch.tensor([[1.0, 0.0]])
    >>> round(mixture_loss(z, c, where=torch.ones_like(c, dtype=torch.bool)).item(), 6)
    1.31987
    """
    each = clicks * F.softplus(-logits) + (1 - clicks) * F.softplus(logits)
    losses = torch.where(where, each, 0.0).sum(-1)  # [A, B] l_a
    with torch.no_grad():
        share = torch.softmax(-losses / temperature, dim=0)
    return (share * losses).sum(0)


class MixEMMethod(Levelled, LogitBias):
    """The expected loss under the mixture; the odds of a click are those of the models that have e."""

    config: MixEM
    meaning = ODDS

    def __init__(self, config: MixEM, context: Context) -> None:
        super().__init__(config, context)
        usual = context.click_rates().mean().logit()
        self.offsets = nn.Parameter(torch.stack([usual, torch.zeros(()), usual]))

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """z of each of the four models, [4, B, K]."""
        f, e = self.score(relevance, batch.where), self.e(batch)
        t = self.offsets
        return torch.stack([t[0].expand_as(f), t[1] + e, t[2] + f, e + f])

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The expected loss of a page under the mixture, averaged over pages."""
        z = self.logits(self.from_mean(relevance, batch), batch)
        losses = mixture_loss(z, batch.clicks, where=batch.where, temperature=self.config.temperature)
        count = batch.where.any(-1)
        return torch.where(count, losses, 0.0).sum() / count.sum().clamp(min=1)

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Log of the mean click probability over the four models, each as likely as the others."""
        return F.logsigmoid(self.logits(self.from_mean(relevance, batch), batch)).logsumexp(0)


class MixEM(BiasConfig, LevelConfig):
    """Explain each page by one of four click models."""

    module = MixEMMethod
    name: Literal["mixem"] = "mixem"
    reduction: ClassVar[Reduction] = "pages"  # the assignment is not linear in the clicks
    temperature: float = Field(1.0, gt=0)
    """T: how sharply pages are assigned to models."""
