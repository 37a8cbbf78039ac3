"""UPE: propensities that are not confounded by relevance.

Reference: Luo et al., "Unconfounded Propensity Estimation for Unbiased Learning to Rank", arXiv 2305.09918, 2023.

Documents at high ranks are relevant, since a ranker put them there; a propensity model that sees ranks alone takes
part of that relevance for examination. So the logging ranker is learned first, from the ranks it gave,

    Lm = Lsoft(m(x), 1 / rank)                           m: a second output of the ranker
    e_k(x) = a_k + g(m(x))                               propensity with the confounder in it, m held constant
    Le = Lsoft(e, c; exp(s_1 - s_k))                     as in dual learning
    Lr = Lsoft(s, c; exp(a_1 - a_k))                     the ranker sees a_k alone: the confounder is averaged out

Differences from the paper: g is linear, so the average over the confounder (the backdoor adjustment) is a_k up
to a constant, with no sum over the log; confounder, propensity and ranker are learned together, gradients kept
apart.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from unskew.learning.losses import softmax_loss
from unskew.learning.methods.contract import Context, MethodConfig
from unskew.learning.methods.dla import dual_weights
from unskew.learning.methods.skeletons import RankBias
from unskew.types import ClickBatch


class UPEMethod(RankBias):
    """Dual learning whose propensity model knows the logging ranker."""

    outputs = 2
    config: UPE

    def __init__(self, config: UPE, context: Context) -> None:
        super().__init__(config, context)
        self.taste = nn.Parameter(torch.zeros(()))  # g

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Lm + Le + Lr; no gradient crosses from one to another."""
        where = batch.where
        s, m = relevance[..., 0].where(where, 0.0), relevance[..., 1].where(where, 0.0)
        a = self.e(batch.position)
        shown = torch.where(where, batch.impressions / batch.position.clamp(min=1), 0.0)
        logging = softmax_loss(m, shown, where=where)
        limit = self.config.max_weight
        w_r = dual_weights(s.detach(), where, max_weight=limit)
        w_e = dual_weights(a.detach(), where, max_weight=limit)
        propensity = softmax_loss(a + self.taste * m.detach(), batch.clicks, where=where, weights=w_r)
        return logging + propensity + softmax_loss(s, batch.clicks, where=where, weights=w_e)


class UPE(MethodConfig):
    """Learn examination with the logging ranker's taste taken out."""

    module = UPEMethod
    name: Literal["upe"] = "upe"
    max_weight: Annotated[float, Field(ge=1)] | None = None
    """Clip both weights at this value; none clips nothing."""
