"""Dual learning algorithm: ranker and propensity model each learn from clicks weighted by the other.

Reference: Ai et al., "Unbiased Learning to Rank with Unbiased Propensity Estimation", SIGIR 2018.

    wE_k = exp(e_1 - e_k)        relevance loss   Lr = Lsoft(s, c; wE)
    wR_k = exp(s_1 - s_k)        propensity loss  Le = Lsoft(e, c; wR)

with s the scores, e_k the propensity model at rank k, weights held constant, and Lsoft the list softmax loss
divided by the sum of weighted clicks. exp(e_k - e_1) is the examination of rank k relative to rank 1.

Differences from the paper: ratios are taken in log space and clipped; e is a free table, where the
published code passes it through an ELU (`elu = true`) and the first version through a small network
(`bias = "tower"`). The reference of wR is the first result shown in each list, as published.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from unskew.learning.factors import Values
from unskew.learning.losses import softmax_loss
from unskew.learning.methods.bases import ListBiasConfig, LogitBias
from unskew.learning.methods.contract import ListConfig
from unskew.types import ClickBatch


def dual_weights(logits: Tensor, where: Tensor, *, max_weight: float | None = None) -> Tensor:
    """p_1 / p_k of each list with p = softmax(logits), in log space.

    >>> e = torch.tensor([[0.5, 0.2, -0.1]])
    >>> [round(w, 6) for w in dual_weights(e, torch.ones_like(e, dtype=torch.bool))[0].tolist()]
    [1.0, 1.349859, 1.822119]
    """
    ratio = (logits[..., :1] - logits).clamp(max=50.0).exp()  # sums of these times a score stay finite in float32
    ratio = ratio if max_weight is None else ratio.clamp(max=max_weight)
    return torch.where(where, ratio, 0.0)


class DLAMethod(LogitBias):
    """Two softmax losses, each weighted by the other side."""

    config: DLA

    def log_seen(self, values: Values) -> Tensor:
        """e at these values, through an ELU if asked for."""
        e = super().log_seen(values)
        return F.elu(e) if self.config.elu else e

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Lr + Le; no gradient crosses from one to the other."""
        s, e, limit = relevance[..., 0], self.e(batch), self.config.max_weight
        w_e = dual_weights(e.detach(), batch.where, max_weight=limit)
        w_r = dual_weights(s.detach(), batch.where, max_weight=limit)
        ranking = softmax_loss(s, batch.clicks, where=batch.where, weights=w_e)
        return ranking + softmax_loss(e, batch.clicks, where=batch.where, weights=w_r)


class DLA(ListBiasConfig, ListConfig):
    """Learn ranker and examination together."""

    module = DLAMethod
    name: Literal["dla"] = "dla"
    max_weight: Annotated[float, Field(ge=1)] | None = 30.0
    """Clip both weights at this value; none clips nothing, as published, and on steep curves ranks hardly better
    than naive. Chosen among none, 30, 10, 5 and 3 at severities 0.5 and 2: see EXPERIMENTS.md."""
    elu: bool = False
    """Pass the propensity logit through an ELU, as the published code does."""
