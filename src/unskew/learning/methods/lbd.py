"""LBD: observation depends on rank and document, kept apart from relevance by a penalty and by a floor under it.

Reference: Chen et al., "LBD: Decouple Relevance and Observation for Individual-Level Unbiased Learning to Rank",
NeurIPS 2022.

    z_k = r(x_k) + log o'_k(x_k)       log click = log relevance + log observation at its own rank
    o'_p = t + (1 - t) o_p             with probability t the observation is 1 (t-BOM, Bernoulli decoupling)
    minimise  Lsoft(z, c) + lambda mean_x mean_p || grad_x o_p(x) ||^2        (Lipschitz decoupling);  rank by r

with o_p(x) = sig(b_p + h_p(x)); factors add to b. `unlimited` has neither, `lbd_lips` and `lbd_ber` one each.

Differences from the paper: h starts at 0, so a large lambda leaves one b per rank (started at random, it spoils
the ranker); b has the method's step size. One random sign per rank estimates the mean over ranks. In the released
code log o is h (`observation = "free"`), 1 is drawn for single results (`dropping = "drawn"`), and the penalty is
lambda sum (d g / d X)^2, g the mean of a tenth of all values times 10 (`penalty = "published"`). Only the appendix
draws r and h with learned variances (`gaussian = true`). Trees have no gradient by x: with a penalty they give r,
a network beside them the rest (`ranker.beside`); without one they give everything.
"""

from __future__ import annotations

import math
from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from unskew.learning.factors import BiasTable, Values
from unskew.learning.losses import lipschitz_penalty, published_penalty
from unskew.learning.methods.bases import Biased, FactorConfig
from unskew.learning.methods.contract import Context, ListConfig
from unskew.types import ClickBatch


class LBDMethod(Biased):
    """Softmax loss of r + log o' and the penalty."""

    config: DecoupledConfig

    def __init__(self, config: DecoupledConfig, context: Context) -> None:
        super().__init__(config, context)
        self.outputs = (1 + self.positions) * (1 + config.gaussian)
        self.input_gradient, self.boosted = (True, 1) if config.strength else (False, None)
        self.level = None if config.observation == "free" else BiasTable(self.factors)  # b
        self.at_zero = slice(0, 0) if self.level is None else slice(1, 1 + self.positions)  # h
        # nothing is seen by rank alone where there is no level
        self.meaning = "" if self.level is None else "observation before the document"

    def parts(self, relevance: Tensor, batch: ClickBatch) -> tuple[Tensor, Tensor]:
        """r [B, K] and log o at every rank [B, K, P]; drawn in training if Gaussian."""
        width, values = 1 + self.positions, relevance[..., : 1 + self.positions]
        if self.config.gaussian and self.training:
            spread = (relevance[..., width:].clamp(-10, 10) / 2).exp()
            values = values + spread * batch.pad(torch.randn(len(batch.packed), width).to(values))
        h = values[..., 1:]
        return values[..., 0], h if self.level is None else F.logsigmoid(h + self.by_rank(self.level, batch))

    def observed(self, log_o: Tensor, batch: ClickBatch) -> Tensor:
        """log o' at the rank that each result is shown at, [B, K]."""
        t, rank = self.config.drop, (batch.position - 1).clamp(0, self.positions - 1).unsqueeze(-1)
        own = log_o.gather(-1, rank).squeeze(-1)
        if t and self.config.dropping == "expected":
            return torch.logaddexp(own + math.log1p(-t), torch.full_like(own, math.log(t)))
        if not t or not self.training:
            return own
        return torch.where(batch.pad(torch.rand(len(batch.packed)).to(own)) < t, 0.0, own)  # padding draws none

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The click loss and the penalty."""
        relevance = relevance.where(batch.where.unsqueeze(-1), 0.0)
        loss = super().forward(relevance, batch)
        on = self.config.strength and self.training and len(batch.documents)
        return loss + self.config.strength * self.roughness(relevance, batch) if on else loss

    def roughness(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The Lipschitz penalty of the documents shown."""
        o, n = (x.flatten(0, 1)[batch.packed] for x in (relevance[..., 1 : 1 + self.positions], batch.impressions))
        o = o if self.level is None else (o + self.by_rank(self.level)).sigmoid()
        if self.config.penalty == "published":
            return published_penalty(o, batch.documents)
        signs = (torch.randint(0, 2, (self.positions,)) * 2 - 1).to(o)
        return lipschitz_penalty(o, batch.documents, weights=n, signs=signs)

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """r + log o' at its own rank."""
        r, log_o = self.parts(relevance, batch)
        return r + self.observed(log_o, batch)

    def log_seen(self, values: Values) -> Tensor:
        """log o' where h = 0."""
        b: Tensor = torch.zeros(()) if self.level is None else self.level(values)
        return (self.config.drop + (1 - self.config.drop) * b.sigmoid()).log()


class DecoupledConfig(FactorConfig, ListConfig):
    """What models with an observation of rank and document may be told."""

    module = LBDMethod
    strength: float = Field(0.03, ge=0)
    """lambda, the weight of the Lipschitz penalty; 0 turns it off."""
    drop: float = Field(0.01, ge=0, lt=1)
    """t, how often the observation is replaced by 1; 0 turns it off."""
    observation: Literal["probability", "free"] = "probability"
    """o = sig(b + h) between 0 and 1, or log o = h of either sign as in the released code."""
    dropping: Literal["expected", "drawn"] = "expected"
    """The mean t + (1 - t) o, or 1 drawn anew for single results as in the released code."""
    penalty: Literal["mean", "published"] = "mean"
    """Mean over documents, or the form of the released code."""
    gaussian: bool = False
    """Draw relevance and observation from normal distributions."""

    @model_validator(mode="after")
    def _levels_have_factors(self) -> Self:
        if not self.position or (self.observation == "free" and (self.factors or self.page_size)):
            raise ValueError('factors add to the level of each rank, which observation = "probability" has')
        return self


class LBD(DecoupledConfig):
    """Observation of rank and document, decoupled from relevance in two ways."""

    name: Literal["lbd"] = "lbd"


class LBDLips(DecoupledConfig):
    """LBD with the Lipschitz penalty alone."""

    name: Literal["lbd_lips"] = "lbd_lips"
    drop: float = Field(0.0, ge=0, lt=1)


class LBDBer(DecoupledConfig):
    """LBD with Bernoulli decoupling alone."""

    name: Literal["lbd_ber"] = "lbd_ber"
    strength: float = Field(0.0, ge=0)


class Unlimited(DecoupledConfig):
    """Observation of rank and document with nothing to keep it apart from relevance."""

    name: Literal["unlimited"] = "unlimited"
    strength: float = Field(0.0, ge=0)
    drop: float = Field(0.0, ge=0, lt=1)
