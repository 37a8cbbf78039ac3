"""Click data as they are: what every debiasing method has to beat.

Reference: the "Click Data" and "Naive" rows of Chen et al., "Scalar is Not Enough: Vectorization-based Unbiased
Learning to Rank", KDD 2022, and of every paper since Joachims et al., "Unbiased Learning-to-Rank with Biased
Feedback", WSDM 2017.

    minimise  - sum_q sum_k c_qk log softmax_k(s_q)  /  sum_q sum_k c_qk

Differences from the paper: padding is masked; the pointwise, pairwise and LambdaRank losses are offered too.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from unskew.learning.methods.contract import Context
from unskew.learning.methods.skeletons import ClickLogits, LossConfig
from unskew.types import ClickBatch


class NaiveMethod(ClickLogits):
    """A ranking loss on the score itself; under the pointwise one a level keeps click rates out of the score."""

    def __init__(self, config: LossConfig, context: Context) -> None:
        super().__init__(config, context)
        self.level = nn.Parameter(context.click_rates().mean().logit()) if self.fits_levels else None

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The score, and the level where there is one."""
        score = self.score(relevance, batch.where)
        return score if self.level is None else score + self.level


class Naive(LossConfig):
    """Learn from clicks as if they were labels: a ranking loss on the score itself."""

    module = NaiveMethod
    name: Literal["naive"] = "naive"
