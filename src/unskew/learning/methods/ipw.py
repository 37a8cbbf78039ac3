"""Inverse propensity weighting: a click at a rank that few people look at counts for more.

Reference: Joachims, Swaminathan, Schnabel, "Unbiased Learning-to-Rank with Biased Feedback", WSDM 2017; Wang et
al., "Learning to Rank with Selection Bias in Personal Search", SIGIR 2016.

    w_k = theta_1 / theta_k
    minimise  - sum_q sum_k c_qk w_k log softmax_k(s_q)  /  sum_q sum_k c_qk w_k        (self-normalised)

Propensities are given, read from a file, estimated from shuffled pages of the log, or the simulator's own.

Differences from the paper: weights can be clipped, which trades a little bias for much variance; the softmax loss
is divided by the sum of weights, not by the number of pages. The pointwise loss takes the unbiased form
-(w c) log sig(z) - (1 - w c) log(1 - sig(z)), not a weighted cross-entropy, with z = s + l, where the level l
starts from the click rates over the propensities.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn

from unskew.learning.factors import at_rank
from unskew.learning.losses import LOSSES
from unskew.learning.methods.bases import LossConfig
from unskew.learning.methods.contract import Context
from unskew.learning.methods.naive import NaiveMethod
from unskew.learning.methods.propensities import KnownPropensity, Propensities
from unskew.types import ClickBatch


def inverse_propensity(theta: Tensor, max_weight: float | None) -> Tensor:
    """w_k = theta_1 / theta_k, clipped from above.

    >>> import torch
    >>> [round(w, 4) for w in inverse_propensity(torch.tensor([0.68, 0.61, 0.06]), 10.0).tolist()]
    [1.0, 1.1148, 10.0]
    """
    weights = theta[0] / theta
    return weights if max_weight is None else weights.clamp(max=max_weight)


class IPWMethod(NaiveMethod, KnownPropensity):
    """A ranking loss with a weight per rank."""

    config: IPW

    def __init__(self, config: IPW, context: Context) -> None:
        super().__init__(config, context)
        if self.level is not None:
            rate = (context.click_rates() / self.theta).mean().clamp(1e-4, 0.9)
            self.level = nn.Parameter(rate.logit())

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The loss of scores against weighted clicks."""
        scores = self.logits(self.from_mean(relevance, batch), batch)
        w = at_rank(inverse_propensity(self.theta, self.config.max_weight), batch.position)
        return LOSSES[self.config.loss].function(scores, batch, w)

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
