"""Vectorization: the click is a dot product of a relevance embedding and an observation embedding.

Reference: Chen et al., "Scalar is Not Enough: Vectorization-based Unbiased Learning to Rank", KDD 2022.

    z_k = r(x_k) . o(t_k) + l(t_k)        r, o in R^d, t the bias factors        (Eq. 2 with l = 0)
    stage 1: list softmax loss of z on clicks                           (Eq. 9)
    stage 2: base model o | x ~ N(mu(x), diag exp v(x)), by likelihood  (Eq. 10)
    rank by  r(x_i) . b                                                 (Eq. 3)
    b by the base model (Eq. 8); before it is there, the mean of o

Differences from the paper: l, which starts at the click rates, is ours: without it a constant of r must say
through o which ranks are clicked more, and o may turn its sign on the way. r starts at 0 and o around 1, as a
random r misleads o, whose steps are larger. `levels = false` is as published: no l, r drawn, o at ones. lambda
||W||^2 / 2 joins means, as in the published code, which trains both stages together from step 500 of 15,000 on
(`schedule = "joint"`). In two stages the base model learns beside stage 1 too, gradients and clipping apart, so
that validation ranks as the model will; then it goes on alone, and where labels choose, so do they among its
weights. v is kept within [-10, 10]. Factors add up, or share a network (`bias = "tower"`). What else the
paper projects on lies with the reproductions.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from unskew.learning.methods import base_vectors as to
from unskew.learning.methods.bases import BiasConfig, Biased, apart
from unskew.learning.methods.contract import Context, ListConfig, MethodModule, Side
from unskew.types import ClickBatch


class VectorizationMethod(Biased):
    """Softmax loss of r . o, and what is projected on."""

    meaning = ""  # a vector is no examination
    linear = False  # every list has a base vector of its own
    config: Vectorization
    ready: Tensor
    step: Tensor

    def __init__(self, config: Vectorization, context: Context) -> None:
        super().__init__(config, context)
        self.outputs = d = config.dimension
        start, rates = apart(d) if config.levels else torch.ones(d), context.click_rates().log()
        sizes = self.factors.sizes.items()  # the vectors of the first factor start here, those of others at 0
        starts = {name: (at == 0) * start.expand(n, -1) for at, (name, n) in enumerate(sizes)}
        self.observation = config.model(self.factors, starts, start)
        self.level = None  # l
        if config.levels:
            self.level = config.model(self.factors, self.factors.shares(rates), rates.mean())
        self.at_zero = slice(0, d if config.levels else 0)
        self.common = to.CommonVector(d)
        self.side = Side(config.base, 2 * d, later=config.schedule == "two_stage", penalty=config.penalty)
        self.register_buffer("ready", torch.zeros(()))  # 1 once the base model has learned
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def embedding(self, batch: ClickBatch) -> Tensor:
        """o of each shown result, [B, K, d]."""
        o: Tensor = self.observation(self.factors.of(batch))
        return torch.ones_like(o) if self.frozen else o

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """r . o + l."""
        z = (relevance[..., : self.outputs] * self.embedding(batch)).sum(-1)
        return z if self.level is None else z + self.level(self.factors.of(batch))

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The click loss and, once o may move, the base loss."""
        relevance = relevance.where(batch.where.unsqueeze(-1), 0.0)
        loss = super().forward(relevance, batch)
        if not self.frozen:
            loss = loss + self.side_loss(relevance, batch)
        if self.training:
            self.ready.fill_(float(not self.frozen))
            shown = torch.where(batch.where, batch.impressions, 0.0)
            self.common.follow(relevance[..., : self.outputs], self.embedding(batch), shown)
            self.step += 1
        return loss

    @property
    def frozen(self) -> bool:
        """Whether o is held at ones, in the first steps of the joint schedule."""
        return self.config.schedule == "joint" and bool(self.step < self.config.freeze)

    def side_loss(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Stage 2: how likely o of the documents shown is; o held constant."""
        mu, v = to.moments(relevance, self.outputs)
        o = self.embedding(batch).detach()
        return to.base_loss(mu, v, o, where=batch.where, weights=batch.impressions)

    def base(self, relevance: Tensor, where: Tensor) -> Tensor:
        """b of each list, [B, d]."""
        if self.ready == 0:
            return torch.as_tensor(self.common()).expand(len(relevance), -1)
        return to.base_vector(*to.moments(relevance, self.outputs), where)

    def score(self, relevance: Tensor, where: Tensor) -> Tensor:
        """r . b with the base vector of each list."""
        b = self.base(relevance, where).unsqueeze(-2)
        return (relevance[..., : self.outputs] * b).sum(-1).where(where, 0.0)


class Vectorization(BiasConfig, ListConfig):
    """Let relevance and observation be vectors whose dot product is the click."""

    module: ClassVar[type[MethodModule]] = VectorizationMethod
    name: Literal["vectorization"] = "vectorization"
    dimension: int = Field(3, ge=1)
    """d, the length of the embeddings; 1 is a scalar model."""
    levels: bool = True
    """l, a level of clicks by factor, and relevance that starts at 0 (docs/records/levels.md), or as published."""
    schedule: Literal["two_stage", "joint"] = "two_stage"
    """Train the base model after the embeddings, as the paper says, or with them, as its code does."""
    freeze: int = Field(33, ge=0)
    """Steps of the joint schedule in which o stays at ones; published 500 of 15,000, the same share of 1,000."""
    base: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] = (128, 64)
    """Hidden units of the base model; the published 256, 64 makes scoring a third slower than by a scalar."""
    penalty: float = Field(0.001, ge=0)
    """lambda, the L2 penalty on the base model."""
