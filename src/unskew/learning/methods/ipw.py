"""Inverse propensity weighting: a click at a rank that few people look at counts for more.

Reference: Joachims, Swaminathan, Schnabel, "Unbiased Learning-to-Rank with Biased Feedback", WSDM 2017; Wang et
al., "Learning to Rank with Selection Bias in Personal Search", SIGIR 2016.

    w_k = theta_1 / theta_k
    minimise  - sum_q sum_k c_qk w_k log softmax_k(s_q)  /  sum_q sum_k c_qk w_k        (self-normalised)

Propensities are given, read from a file, estimated from shuffled pages of the log, or the simulator's own.

Differences from the paper: weights can be clipped, which trades a little bias for much variance; with
`self_normalized = false` the softmax loss is divided by the number of pages (the plain estimator). The
pointwise loss takes the unbiased form -(w c) log sig(z) - (1 - w c) log(1 - sig(z)), not a weighted cross-entropy,
with z = s + l, where the level l starts from the click rates over the propensities.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from unskew.errors import DataError
from unskew.learning.bias import MEASURES, Measured, at_rank, checked_propensities, read_propensities
from unskew.learning.losses import LOSSES, softmax_loss
from unskew.learning.methods.contract import Context, MethodConfig, MethodModule
from unskew.learning.methods.naive import NaiveMethod
from unskew.learning.methods.skeletons import LossConfig
from unskew.types import ClickBatch

FILES = (".json", ".csv")


def inverse_propensity(theta: Tensor, max_weight: float | None) -> Tensor:
    """w_k = theta_1 / theta_k, clipped from above.

    >>> [round(w, 4) for w in inverse_propensity(torch.tensor([0.68, 0.61, 0.06]), 10.0).tolist()]
    [1.0, 1.1148, 10.0]
    """
    weights = theta[0] / theta
    return weights if max_weight is None else weights.clamp(max=max_weight)


class Propensities(MethodConfig):
    """Base of the configs that need to know examination before they train."""

    propensity: Annotated[tuple[float, ...], Field(strict=False)] | str = "randomized"
    """`randomized`: from the shuffled pages of the log; `swaps`: from documents that it shows at several ranks;
    `oracle`: the simulator's; a .json or .csv file; or one number per rank."""

    @field_validator("propensity")
    @classmethod
    def _known(cls, given: tuple[float, ...] | str) -> tuple[float, ...] | str:
        if isinstance(given, str) and given not in MEASURES and Path(given).suffix not in FILES:
            raise ValueError(f"give {', '.join(MEASURES)}, a .json or .csv file, or numbers, not {given!r}")
        return given

    @property
    def measured(self) -> Measured | None:
        """How they are to be measured on the log; None where they are given."""
        return self.propensity if self.propensity in MEASURES else None

    def located(self, folder: Path) -> Self:
        """The same with the file taken from this folder."""
        if self.measured is not None or not isinstance(self.propensity, str):
            return self
        return self.model_copy(update={"propensity": str(folder / self.propensity)})

    def theta(self, context: Context) -> Tensor:
        """Examination relative to rank 1, one number per rank of the log; ranks past the last known take its."""
        if context.facts is None:
            theta = np.ones(context.positions)  # to be loaded
        elif self.measured is not None:
            if context.propensities is None:
                raise DataError(f"there are no {self.measured} propensities", hint="give a file of them")
            theta = context.propensities
        elif isinstance(self.propensity, str):
            theta = read_propensities(Path(self.propensity))
        else:
            theta = checked_propensities(np.asarray(self.propensity, np.float64))
        known = theta[np.minimum(np.arange(context.positions), len(theta) - 1)]
        return torch.as_tensor(known / known[0], dtype=torch.float32)


class KnownPropensity(MethodModule):
    """A method that knows examination before it trains."""

    theta: Tensor

    def __init__(self, config: Propensities, context: Context) -> None:
        super().__init__(config, context)
        self.register_buffer("theta", config.theta(context))

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Relevance times propensity, in log space."""
        return relevance[..., 0] + at_rank(self.theta.log(), batch.position)

    def propensity(self) -> Tensor:
        """The propensities used, relative to rank 1."""
        return self.theta


class IPWMethod(NaiveMethod, KnownPropensity):
    """A ranking loss with a weight per rank."""

    config: IPW

    def __init__(self, config: IPW, context: Context) -> None:
        super().__init__(config, context)
        if self.level is not None:
            rate = (context.click_rates() / self.theta).mean().clamp(1e-4, 0.9)
            self.level = nn.Parameter(rate.logit())

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The weighted loss of scores against clicks."""
        scores = self.logits(self.from_mean(relevance, batch), batch)
        weights = at_rank(inverse_propensity(self.theta, self.config.max_weight), batch.position)
        if self.config.loss == "softmax" and not self.config.self_normalized:
            n = batch.impressions
            return softmax_loss(
                scores, batch.clicks, where=batch.where, weights=weights, impressions=n, normalize="pages"
            )
        return LOSSES[self.config.loss].function(scores, batch, weights)

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Relevance times propensity, in log space."""
        return super().click_scores(relevance, batch) + at_rank(self.theta.log(), batch.position)

    def click_probability(self, relevance: Tensor, batch: ClickBatch) -> Tensor | None:
        """None: propensities are relative."""
        return None


class IPW(Propensities, LossConfig):
    """Weight each click by the inverse of its rank's propensity."""

    module = IPWMethod
    name: Literal["ipw"] = "ipw"
    max_weight: Annotated[float, Field(ge=1)] | None = None
    """Clip weights at this value; none clips nothing."""
    self_normalized: bool = True
    """Divide the softmax loss by the sum of weights, not by the number of pages."""
