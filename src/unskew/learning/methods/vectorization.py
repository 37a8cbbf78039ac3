"""Vectorization: the click is a dot product of a relevance embedding and an observation embedding.

Reference: Chen et al., "Scalar is Not Enough: Vectorization-based Unbiased Learning to Rank", KDD 2022.

    z_k = r(x_k) . o(t_k)        r, o in R^d, t the bias factors        (Eq. 2)
    stage 1: list softmax loss of z on clicks                           (Eq. 9)
    stage 2: base model o | x ~ N(mu(x), diag exp v(x)), by likelihood  (Eq. 10)
    base vector of a query  b_j = sum_i exp(-v_ij) mu_ij / sum_i exp(-v_ij)    (Eq. 8)
    rank by  r(x_i) . b                                                 (Eq. 3)

Differences from the paper: o starts at ones and lambda ||W||^2 / 2 joins means, as in the published code, which
trains both stages together from step 500 of 15,000 on (`schedule = "joint"`). v is kept within [-10, 10]. Several
factors add their embeddings. Until the base model is trained, the mean of o over the log stands in for b.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from unskew.learning.bias import FactorTable
from unskew.learning.losses import softmax_loss
from unskew.learning.methods.contract import Context, ListConfig, MethodModule, Side
from unskew.types import ClickBatch


def base_vector(mu: Tensor, v: Tensor, where: Tensor) -> Tensor:
    """The most likely observation embedding common to the documents of each list, [B, d] (Eq. 8).

    >>> base_vector(torch.tensor([[[1.0], [3.0]]]), torch.zeros(1, 2, 1), torch.ones(1, 2) > 0).tolist()
    [[2.0]]
    """
    weight = torch.where(where.unsqueeze(-1), torch.exp(-v), 0.0)
    return (weight * mu.where(weight > 0, 0.0)).sum(-2) / weight.sum(-2).clamp(min=1e-12)


def base_loss(mu: Tensor, v: Tensor, o: Tensor, *, where: Tensor, weights: Tensor) -> Tensor:
    """Mean of (mu - o)^2 exp(-v) + v over documents shown and coordinates (Eq. 10, twice and up to a constant)."""
    each = ((mu - o).square() * torch.exp(-v) + v).mean(-1)
    w = torch.where(where, weights, 0.0)
    return (w * torch.where(where, each, 0.0)).sum() / w.sum().clamp(min=1e-12)


class VectorizationMethod(MethodModule):
    """Softmax loss of r . o, and a Gaussian base model of o given x."""

    config: Vectorization
    ready: Tensor
    mean: Tensor
    step: Tensor

    def __init__(self, config: Vectorization, context: Context) -> None:
        super().__init__(config, context)
        self.outputs = d = config.dimension
        sizes = {"position": context.positions, **context.factors}
        self.observation = FactorTable({name: sizes[name] for name in config.factors}, d)
        self.side = Side(config.base, 2 * d, later=config.schedule == "two_stage", penalty=config.penalty)
        self.register_buffer("ready", torch.zeros(()))  # 1 once the base model has been trained
        self.register_buffer("mean", torch.ones(d))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def parts(self, relevance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """r, mu and v, [B, K, d] each."""
        r, mu, v = relevance.split(self.config.dimension, dim=-1)  # type: ignore[no-untyped-call]
        return r, mu, v.clamp(-10, 10)

    def embedding(self, batch: ClickBatch) -> Tensor:
        """o of each shown result, [B, K, d]."""
        o: Tensor = self.observation(batch)
        return torch.ones_like(o) if self.config.schedule == "joint" and self.step < self.config.freeze else o

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """r . o."""
        return (self.parts(relevance)[0] * self.embedding(batch)).sum(-1)

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The click loss, and under the joint schedule the base loss."""
        relevance = relevance.where(batch.where.unsqueeze(-1), 0.0)
        loss = softmax_loss(self.click_scores(relevance, batch), batch.clicks, where=batch.where)
        if self.config.schedule == "joint" and self.step >= self.config.freeze:
            loss = loss + self.side_loss(relevance, batch)
        if self.training:
            self.note(batch)
        return loss

    @torch.no_grad()
    def note(self, batch: ClickBatch) -> None:
        """Count the step, and follow the mean embedding of what is shown."""
        if self.config.schedule == "joint" and self.step >= self.config.freeze:
            self.ready.fill_(1)
        shown = torch.where(batch.where, batch.impressions, 0.0).unsqueeze(-1)
        now = (shown * self.embedding(batch)).sum((0, 1)) / shown.sum().clamp(min=1e-12)
        self.mean.lerp_(torch.where(shown.sum() > 0, now, self.mean), 0.05)
        self.step += 1

    def side_loss(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Stage 2: the base loss of the documents shown, o held constant."""
        _, mu, v = self.parts(relevance)
        return base_loss(mu, v, self.embedding(batch).detach(), where=batch.where, weights=batch.impressions)

    def side_ready(self) -> None:
        """From now on the base model gives the base vectors."""
        self.ready.fill_(1)

    def score_weights(self) -> Tensor | None:
        """None: every list has a base vector of its own."""
        return None

    def score(self, relevance: Tensor, where: Tensor) -> Tensor:
        """r . b with the base vector of each list."""
        r, mu, v = self.parts(relevance)
        b = base_vector(mu, v, where) if self.ready > 0 else self.mean.expand(len(r), -1)
        return (r * b.unsqueeze(-2)).sum(-1).where(where, 0.0)


class Vectorization(ListConfig):
    """Let relevance and observation be vectors whose dot product is the click."""

    module = VectorizationMethod
    name: Literal["vectorization"] = "vectorization"
    dimension: int = Field(3, ge=1)
    """d, the length of the embeddings; 1 is a scalar model."""
    factors: Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = ("position",)
    """Bias factors: position, and integer columns of the log such as serp_device."""
    schedule: Literal["two_stage", "joint"] = "two_stage"
    """Train the base model after the embeddings, as the paper says, or with them, as its code does."""
    freeze: int = Field(33, ge=0)
    """Steps of the joint schedule in which o stays at ones; published 500 of 15,000, the same share of 1,000."""
    base: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] = (128, 64)
    """Hidden units of the base model; the published 256, 64 makes scoring a third slower than by a scalar."""
    penalty: float = Field(0.001, ge=0)
    """lambda, the L2 penalty on the base model."""

    @property
    def serp(self) -> tuple[str, ...]:
        """Columns of the log that are bias factors."""
        return tuple(name for name in self.factors if name != "position")
