"""Vectorization: the click is a dot product of a relevance embedding and an observation embedding.

Reference: Chen et al., "Scalar is Not Enough: Vectorization-based Unbiased Learning to Rank", KDD 2022.

    z_k = r(x_k) . o(t_k)        r, o in R^d, t the bias factors        (Eq. 2)
    stage 1: list softmax loss of z on clicks                           (Eq. 9)
    stage 2: base model o | x ~ N(mu(x), diag exp v(x)), by likelihood  (Eq. 10)
    rank by  r(x_i) . b                                                 (Eq. 3)
    b by the base model (Eq. 8), or as `project` says                   (base_vectors.py)

Differences from the paper: o starts at ones and lambda ||W||^2 / 2 joins means, as in the published code, which
trains both stages together from step 500 of 15,000 on (`schedule = "joint"`). In two stages the base model learns
beside stage 1 too, gradients and clipping apart, so that validation ranks as the model will; then it goes on
alone, and where labels choose, so do they among its weights. v is kept within [-10, 10]. Several factors add their
embeddings, or with `bias = "tower"` o is a network on all of them. Where there is no base model yet, the mean of o
over the log stands in for b.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from unskew.learning.losses import softmax_loss
from unskew.learning.methods.base_vectors import CommonVector, base_loss, base_vector, label_vector
from unskew.learning.methods.biased import BiasConfig, bias_model
from unskew.learning.methods.contract import Context, ListConfig, MethodModule, Side
from unskew.types import ClickBatch


class VectorizationMethod(MethodModule):
    """Softmax loss of r . o, and what is projected on."""

    config: Vectorization
    ready: Tensor
    mean: Tensor
    step: Tensor

    def __init__(self, config: Vectorization, context: Context) -> None:
        super().__init__(config, context)
        self.outputs = d = config.dimension
        self.factors = config.factors_in(context)
        starts = {name: torch.zeros(size, d) for name, size in self.factors.sizes.items()}
        for name in list(starts)[:1]:
            starts[name] += 1  # so that at first nothing is told apart
        self.observation = bias_model(config, self.factors, starts, torch.ones(d))
        self.common = CommonVector(d, labels=config.project == "labels")
        if config.project == "gaussian":
            self.side = Side(config.base, 2 * d, later=config.schedule == "two_stage", penalty=config.penalty)
        self.register_buffer("ready", torch.zeros(()))  # 1 once the base model has learned
        self.register_buffer("mean", torch.ones(d))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def parts(self, relevance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """r, mu and v, [B, K, d] each."""
        r, mu, v = relevance.split(self.config.dimension, dim=-1)  # type: ignore[no-untyped-call]
        return r, mu, v.clamp(-10, 10)

    def embedding(self, batch: ClickBatch) -> Tensor:
        """o of each shown result, [B, K, d]."""
        o: Tensor = self.observation(self.factors.of(batch))
        return torch.ones_like(o) if self.frozen else o

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """r . o."""
        return (relevance[..., : self.outputs] * self.embedding(batch)).sum(-1)

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The click loss and, once o may move, the base loss."""
        relevance = relevance.where(batch.where.unsqueeze(-1), 0.0)
        loss = softmax_loss(self.click_scores(relevance, batch), batch.clicks, where=batch.where)
        if self.side is not None and not self.frozen:
            loss = loss + self.side_loss(relevance, batch)
        if self.training:
            self.note(relevance[..., : self.outputs], batch)
        return loss

    @property
    def frozen(self) -> bool:
        """Whether o is held at ones, in the first steps of the joint schedule."""
        return self.config.schedule == "joint" and bool(self.step < self.config.freeze)

    @torch.no_grad()
    def note(self, r: Tensor, batch: ClickBatch) -> None:
        """Count the step, and follow what is shown."""
        self.ready.fill_(float(self.side is not None and not self.frozen))
        shown = torch.where(batch.where, batch.impressions, 0.0).unsqueeze(-1)
        if shown.sum() > 0:
            share = shown / shown.sum()
            self.mean.lerp_((share * self.embedding(batch)).sum((0, 1)), 0.05)
            self.common.follow(r, share)
        self.step += 1

    def side_loss(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Stage 2: the base loss of the documents shown, o held constant."""
        _, mu, v = self.parts(relevance)
        return base_loss(mu, v, self.embedding(batch).detach(), where=batch.where, weights=batch.impressions)

    def settle(self, relevance: Tensor, labels: Tensor, where: Tensor) -> None:
        """Solve for the base vector that labels ask for."""
        self.common.solved.copy_(label_vector(relevance[..., : self.outputs], labels, where))

    def score_weights(self) -> Tensor | None:
        """b, or None where every list has a base vector of its own."""
        found: Tensor | None = self.common(self.mean) if self.side is None else None
        return found

    def score(self, relevance: Tensor, where: Tensor) -> Tensor:
        """r . b with the base vector of each list."""
        r = relevance[..., : self.outputs]
        if self.side is None:
            b = self.common(self.mean).expand(len(r), -1)
        elif self.ready == 0:
            b = self.mean.expand(len(r), -1)
        else:
            b = base_vector(*self.parts(relevance)[1:], where)
        scores: Tensor = (r * b.unsqueeze(-2)).sum(-1).where(where, 0.0)
        return scores


class Vectorization(BiasConfig, ListConfig):
    """Let relevance and observation be vectors whose dot product is the click."""

    module = VectorizationMethod
    name: Literal["vectorization"] = "vectorization"
    dimension: int = Field(3, ge=1)
    """d, the length of the embeddings; 1 is a scalar model."""
    schedule: Literal["two_stage", "joint"] = "two_stage"
    """Train the base model after the embeddings, as the paper says, or with them, as its code does."""
    freeze: int = Field(33, ge=0)
    """Steps of the joint schedule in which o stays at ones; published 500 of 15,000, the same share of 1,000."""
    base: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] = (128, 64)
    """Hidden units of the base model; the published 256, 64 makes scoring a third slower than by a scalar."""
    project: Literal["gaussian", "labels", "pca"] = "gaussian"
    """What embeddings are projected on to be ranked: the most likely observation embedding of the list; a vector
    solved for from labelled validation lists; or the direction in which they vary most, a baseline."""
    penalty: float = Field(0.001, ge=0)
    """lambda, the L2 penalty on the base model."""

    @property
    def settles(self) -> bool:
        """Labels of validation lists say what to project on, where that is asked for."""
        return self.project == "labels"
