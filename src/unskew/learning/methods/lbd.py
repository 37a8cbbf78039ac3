"""LBD: observation depends on rank and document, kept apart from relevance by a penalty and by a floor under it.

Reference: Chen et al., "LBD: Decouple Relevance and Observation for Individual-Level Unbiased Learning to Rank",
NeurIPS 2022.

    z_k = r(x_k) + log o'_k(x_k)       log click = log relevance + log observation at its own rank
    o'_p = t + (1 - t) o_p             with probability t the observation is 1 (t-BOM, Bernoulli decoupling)
    minimise  Lsoft(z, c) + lambda mean_x mean_p || grad_x o_p(x) ||^2        (Lipschitz decoupling);  rank by r

with o_p(x) = sig(b_p + h_p(x)); factors add to b. A strength or t of 0 turns its decoupling off.

Differences from the paper: h starts at 0, so a large lambda leaves one b per rank (started at random, it spoils
the ranker); b has the method's step size. One random sign per rank estimates the mean over ranks. The floor is its
mean and not drawn. Trees have no gradient by x: with a penalty they give r, a network beside them the rest
(`ranker.beside`); without one they give everything. The forms of the released code lie with the reproductions.
"""

from __future__ import annotations

import math
from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from unskew.learning.factors import BiasTable, Values
from unskew.learning.losses import lipschitz_penalty
from unskew.learning.methods.bases import Biased, FactorConfig
from unskew.learning.methods.contract import Context, ListConfig
from unskew.types import ClickBatch


class LBDMethod(Biased):
    """Softmax loss of r + log o' and the penalty."""

    config: DecoupledConfig
    meaning = "observation before the document"

    def __init__(self, config: DecoupledConfig, context: Context) -> None:
        super().__init__(config, context)
        self.outputs = 1 + self.positions
        self.input_gradient, self.boosted = (True, 1) if config.strength else (False, None)
        self.level = BiasTable(self.factors)  # b
        self.at_zero = slice(1, 1 + self.positions)  # h

    def parts(self, relevance: Tensor, batch: ClickBatch) -> tuple[Tensor, Tensor]:
        """r [B, K] and log o at every rank [B, K, P]."""
        h = relevance[..., 1 : 1 + self.positions]
        return relevance[..., 0], F.logsigmoid(h + self.by_rank(self.level, batch))

    def probability(self, h: Tensor) -> Tensor:
        """o at every rank, [..., P], of documents with this h."""
        return (h + self.by_rank(self.level)).sigmoid()

    def observed(self, log_o: Tensor, batch: ClickBatch) -> Tensor:
        """log o' at the rank that each result is shown at, [B, K]."""
        rank = (batch.position - 1).clamp(0, self.positions - 1).unsqueeze(-1)
        return self.floored(log_o.gather(-1, rank).squeeze(-1), batch)

    def floored(self, own: Tensor, batch: ClickBatch) -> Tensor:
        """log o' of log o [B, K]."""
        t = self.config.drop
        return torch.logaddexp(own + math.log1p(-t), torch.full_like(own, math.log(t))) if t else own

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The click loss and the penalty."""
        relevance = relevance.where(batch.where.unsqueeze(-1), 0.0)
        loss = super().forward(relevance, batch)
        on = self.config.strength and self.training and len(batch.documents)
        return loss + self.config.strength * self.roughness(relevance, batch) if on else loss

    def roughness(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The Lipschitz penalty of the documents shown."""
        o, n = (x.flatten(0, 1)[batch.packed] for x in (relevance[..., 1 : 1 + self.positions], batch.impressions))
        signs = (torch.randint(0, 2, (self.positions,)) * 2 - 1).to(o)
        return lipschitz_penalty(self.probability(o), batch.documents, weights=n, signs=signs)

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """r + log o' at its own rank."""
        r, log_o = self.parts(relevance, batch)
        return r + self.observed(log_o, batch)

    def log_seen(self, values: Values) -> Tensor:
        """log o' where h = 0."""
        b: Tensor = self.level(values)
        return (self.config.drop + (1 - self.config.drop) * b.sigmoid()).log()


class DecoupledConfig(FactorConfig, ListConfig):
    """What models with an observation of rank and document may be told."""

    strength: float = Field(0.03, ge=0)
    """lambda, the weight of the Lipschitz penalty; 0 turns it off."""
    drop: float = Field(0.01, ge=0, lt=1)
    """t, how often the observation is replaced by 1; 0 turns it off."""

    @model_validator(mode="after")
    def _knows_the_rank(self) -> Self:
        if not self.position:
            raise ValueError("factors add to the level of each rank")
        return self


class LBD(DecoupledConfig):
    """Observation of rank and document, decoupled from relevance in two ways."""

    module = LBDMethod
    name: Literal["lbd"] = "lbd"
