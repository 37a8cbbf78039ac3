"""LBD in the forms that its released code has, and one that only its appendix has.

Reference: Chen et al., "LBD: Decouple Relevance and Observation for Individual-Level Unbiased Learning to Rank",
NeurIPS 2022.

    observation = "free"         log o = h, of either sign; there is no b
    dropping = "drawn"           with probability t the observation of a single result is 1 in training
    penalty = "published"        lambda sum (d g / d X)^2, g the mean of a tenth of all values times 10
    gaussian = true              r and h drawn from normal distributions with learned variances     (appendix)

Differences from the paper: those of `lbd`, where the settings do not take them back.
"""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from unskew.learning.factors import Values
from unskew.learning.methods.contract import Context
from unskew.learning.methods.lbd import DecoupledConfig, LBDMethod
from unskew.types import ClickBatch


def published_penalty(o: Tensor, documents: Tensor) -> Tensor:
    """sum (d g / d X)^2 with g = mean(o D), D = 10 for a random tenth of o [n, P] and 0 elsewhere."""
    (gradient,) = torch.autograd.grad((o * (torch.rand_like(o) < 0.1) * 10).mean(), documents, create_graph=True)
    return gradient.square().sum()


class ReleasedMethod(LBDMethod):
    """LBD with what the released code does differently."""

    config: ReleasedConfig

    def __init__(self, config: ReleasedConfig, context: Context) -> None:
        super().__init__(config, context)
        self.outputs *= 1 + config.gaussian
        if config.observation == "free":  # nothing is seen by rank alone
            del self.level
            self.at_zero, self.meaning = slice(0, 0), ""

    def parts(self, relevance: Tensor, batch: ClickBatch) -> tuple[Tensor, Tensor]:
        """r [B, K] and log o at every rank [B, K, P]; drawn in training if Gaussian."""
        width, values = 1 + self.positions, relevance[..., : 1 + self.positions]
        if self.config.gaussian and self.training:
            spread = (relevance[..., width:].clamp(-10, 10) / 2).exp()
            values = values + spread * batch.pad(torch.randn(len(batch.packed), width).to(values))
        free = self.config.observation == "free"
        return (values[..., 0], values[..., 1:]) if free else super().parts(values, batch)

    def probability(self, h: Tensor) -> Tensor:
        """o at every rank; h itself where it is free."""
        return h if self.config.observation == "free" else super().probability(h)

    def floored(self, own: Tensor, batch: ClickBatch) -> Tensor:
        """log o', where 1 may be drawn for single results."""
        if self.config.dropping == "expected":
            return super().floored(own, batch)
        if not self.config.drop or not self.training:
            return own
        drawn = batch.pad(torch.rand(len(batch.packed)).to(own))  # padding draws none
        return torch.where(drawn < self.config.drop, 0.0, own)

    def roughness(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The Lipschitz penalty of the documents shown."""
        if self.config.penalty == "mean":
            return super().roughness(relevance, batch)
        h = relevance[..., 1 : 1 + self.positions].flatten(0, 1)[batch.packed]
        return published_penalty(self.probability(h), batch.documents)

    def log_seen(self, values: Values) -> Tensor:
        """log o' where h = 0."""
        if self.config.observation == "free":
            return torch.zeros(())
        return super().log_seen(values)


class ReleasedConfig(DecoupledConfig):
    """What these forms may be told."""

    module = ReleasedMethod
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
        if self.observation == "free" and (self.factors or self.page_size):
            raise ValueError('factors add to the level of each rank, which observation = "probability" has')
        return self


class LBDReleased(ReleasedConfig):
    """Observation of rank and document, decoupled from relevance as the released code does it."""

    name: Literal["lbd_released"] = "lbd_released"
