"""LBD: observation depends on rank and document, kept apart from relevance by a penalty and by dropping it.

Reference: Chen et al., "LBD: Decouple Relevance and Observation for Individual-Level Unbiased Learning to Rank",
NeurIPS 2022.

    z_k = r(x_k) + m_k h_k(x_k)        log click = log relevance + log observation at its own rank
    m_k ~ Bernoulli(1 - t)             with probability t the observation is 1 (Bernoulli decoupling)
    minimise  Lsoft(z, c) + lambda mean_x mean_p || grad_x h_p(x) ||^2        (Lipschitz decoupling);  rank by r

`unlimited` is the model with neither, `lbd_lips` and `lbd_ber` have one each.

Differences from the paper: the mean over ranks is estimated with one random sign per rank, whose expectation it
is. `penalty = "published"` is the form of the released code, lambda sum (d g / d X)^2 with g the mean of a
tenth of all h times 10, whose strength falls with the batch; padding counts there and not here. `gaussian = true`
draws r and h from normal distributions whose variances are learned, as the appendix describes; the released code
has none. The penalty acts on log observation.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from unskew.learning.losses import softmax_loss
from unskew.learning.methods.contract import Context, MethodConfig, MethodModule
from unskew.types import ClickBatch


def lipschitz_penalty(h: Tensor, documents: Tensor, *, weights: Tensor, signs: Tensor) -> Tensor:
    """Mean over documents and ranks of || grad_x h_p(x) ||^2 in expectation, for random `signs` [P] of 1 and -1.

    h [n, P] must have been computed from `documents` [n, D], each on its own; `weights` [n] weigh the documents.
    """
    (gradient,) = torch.autograd.grad((h * signs).sum(), documents, create_graph=True)
    total = (weights * gradient.square().sum(-1)).sum()
    return total / (weights.sum().clamp(min=1e-12) * h.shape[-1])


def published_penalty(h: Tensor, documents: Tensor) -> Tensor:
    """sum (d g / d X)^2 with g = mean(h D), D = 10 for a random tenth of h [n, P] and 0 elsewhere."""
    keep = (torch.rand_like(h) < 0.1).to(h.dtype) * 10
    (gradient,) = torch.autograd.grad((h * keep).mean(), documents, create_graph=True)
    return gradient.square().sum()


class LBD(MethodConfig):
    """Observation of rank and document, decoupled from relevance in two ways."""

    name: Literal["lbd", "lbd_lips", "lbd_ber", "unlimited"] = "lbd"
    strength: float = Field(0.01, ge=0)
    """lambda, the weight of the Lipschitz penalty; 0 turns it off."""
    drop: float = Field(0.1, ge=0, lt=1)
    """t, how often the observation is replaced by 1; 0 turns it off."""
    penalty: Literal["mean", "published"] = "mean"
    """Mean over documents, or the form of the released code."""
    gaussian: bool = False
    """Draw relevance and observation from normal distributions."""

    def build(self, context: Context) -> LBDMethod:
        """The method; its ranker has one output more than there are ranks."""
        return LBDMethod(self, context.positions)


class LBDLips(LBD):
    """LBD with the Lipschitz penalty alone."""

    name: Literal["lbd_lips"] = "lbd_lips"
    drop: float = Field(0.0, ge=0, lt=1)


class LBDBer(LBD):
    """LBD with Bernoulli decoupling alone."""

    name: Literal["lbd_ber"] = "lbd_ber"
    strength: float = Field(0.0, ge=0)


class Unlimited(LBD):
    """Observation of rank and document with nothing to keep it apart from relevance."""

    name: Literal["unlimited"] = "unlimited"
    strength: float = Field(0.0, ge=0)
    drop: float = Field(0.0, ge=0, lt=1)


class LBDMethod(MethodModule):
    """Softmax loss of r + h with decoupling."""

    def __init__(self, config: LBD, positions: int) -> None:
        super().__init__()
        self.config, self.positions = config, positions
        self.outputs = (1 + positions) * (2 if config.gaussian else 1)
        self.input_gradient = config.strength > 0

    def parts(self, relevance: Tensor, batch: ClickBatch) -> tuple[Tensor, Tensor]:
        """r [B, K] and h at every rank [B, K, P]; drawn in training if Gaussian."""
        width = 1 + self.positions
        values = relevance[..., :width]
        if self.config.gaussian and self.training:
            spread = (relevance[..., width:].clamp(-10, 10) / 2).exp()
            values = values + spread * batch.pad(torch.randn(len(batch.packed), width).to(values))
        return values[..., 0], values[..., 1:]

    def own_rank(self, h: Tensor, position: Tensor) -> Tensor:
        """h at the rank that each result is shown at, [B, K]."""
        return h.gather(-1, (position - 1).clamp(0, self.positions - 1).unsqueeze(-1)).squeeze(-1)

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The click loss and the penalty."""
        relevance = relevance.where(batch.where.unsqueeze(-1), 0.0)
        r, h = self.parts(relevance, batch)
        own = self.own_rank(h, batch.position)
        if self.config.drop and self.training:
            draw = batch.pad(torch.rand(len(batch.packed)).to(own))  # per result, so padding changes no draw
            own = torch.where(draw < self.config.drop, 0.0, own)
        loss = softmax_loss(r + own, batch.clicks, where=batch.where)
        if self.config.strength and self.training and len(batch.documents):
            loss = loss + self.config.strength * self.roughness(relevance, batch)
        return loss

    def roughness(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The Lipschitz penalty of the documents shown."""
        h = relevance[..., 1 : 1 + self.positions].flatten(0, 1)[batch.packed]  # [n, P]
        if self.config.penalty == "published":
            return published_penalty(h, batch.documents)
        signs = (torch.randint(0, 2, (self.positions,)) * 2 - 1).to(h)
        weights = batch.impressions.flatten()[batch.packed]
        return lipschitz_penalty(h, batch.documents, weights=weights, signs=signs)

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """r + h at its own rank."""
        r, h = self.parts(relevance, batch)
        return r + self.own_rank(h, batch.position)
