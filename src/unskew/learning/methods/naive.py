"""Clicks as they are, which every debiasing method has to beat, and true labels, the most that one can hope for.

Reference: the "Click Data", "Naive" and "Labeled Data" rows of Chen et al., "Scalar is Not Enough:
Vectorization-based Unbiased Learning to Rank", KDD 2022; naive also in every paper since Joachims et al.,
"Unbiased Learning-to-Rank with Biased Feedback", WSDM 2017.

    minimise  - sum_q sum_k y_qk log softmax_k(s_q)  /  sum_q sum_k y_qk    y = clicks, or grades 0..4 as they are

Differences from the paper: padding is masked; the pointwise, pairwise and LambdaRank losses are offered too. The
published code learns from the grades of the ten documents shown; `documents = "all"` takes every candidate of the
query. Each query counts once there, however often it was shown.
"""

from typing import ClassVar, Literal

from torch import Tensor, nn

from unskew.learning.methods.bases import ClickLogits, LossConfig
from unskew.learning.methods.contract import Context
from unskew.logs.counts.reduction import Counts, Reduction, label_table
from unskew.logs.presentation import NO_COLUMNS, Presentation
from unskew.types import ClickBatch, Log


class NaiveMethod(ClickLogits):
    """A ranking loss on the score itself; under the pointwise one a level keeps click rates out of the score."""

    def __init__(self, config: LossConfig, context: Context) -> None:
        super().__init__(config, context)
        self.level = nn.Parameter(context.click_rates().mean().logit()) if self.fits_levels else None

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The score, and the level where there is one."""
        score = relevance[..., 0].where(batch.where, 0.0)
        return score if self.level is None else score + self.level


class Naive(LossConfig):
    """Learn from clicks as if they were labels: a ranking loss on the score itself."""

    module = NaiveMethod
    name: Literal["naive"] = "naive"


class Labeled(LossConfig):
    """Learn from grades; the only method that reads them."""

    target: ClassVar[Literal["clicks", "labels"]] = "labels"
    reduction: ClassVar[Reduction] = "pages"  # grades come one row per query, and are not counts
    module = NaiveMethod

    name: Literal["labeled"] = "labeled"
    loss: Literal["softmax", "softmax_list", "pairwise", "lambda"] = "softmax"
    """Which ranking loss to use; cross-entropy would need probabilities, which grades are not."""
    documents: Literal["shown", "all"] = "shown"
    """Grades of the documents that were shown, as published, or of every candidate."""

    def table(self, log: Log, presentation: Presentation = NO_COLUMNS) -> Counts:
        """Grades in the place of clicks, one row per query."""
        return label_table(log, every=self.documents == "all")
