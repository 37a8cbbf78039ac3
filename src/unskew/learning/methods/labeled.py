"""True labels instead of clicks: the upper bound that a debiasing method can hope for.

Reference: the "Labeled Data" rows of Chen et al., "Scalar is Not Enough: Vectorization-based Unbiased Learning to
Rank", KDD 2022.

    minimise  - sum_q sum_k y_qk log softmax_k(s_q)  /  sum_q sum_k y_qk        y = grades 0..4 as they are

Differences from the paper: the published code uses the ten documents shown; `documents = "shown"` does the same,
`documents = "all"` takes every candidate of the query. Each query counts once, however often it was shown.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from unskew.learning.methods.naive import NaiveMethod
from unskew.learning.methods.skeletons import LossConfig
from unskew.logs.counts.reduction import Counts, Reduction, label_table
from unskew.logs.presentation import NO_COLUMNS, Presentation
from unskew.types import Log


class Labeled(LossConfig):
    """Learn from grades; the only method that reads them."""

    target: ClassVar[Literal["clicks", "labels"]] = "labels"
    module = NaiveMethod

    name: Literal["labeled"] = "labeled"
    loss: Literal["softmax", "softmax_list", "pairwise", "lambda"] = "softmax"
    """Which ranking loss to use; cross-entropy would need probabilities, which grades are not."""
    documents: Literal["shown", "all"] = "shown"
    """Grades of the documents that were shown, as published, or of every candidate."""

    @property
    def reduction(self) -> Reduction:
        """None: grades come one row per query, and are not counts."""
        return "pages"

    def table(self, log: Log, presentation: Presentation = NO_COLUMNS) -> Counts:
        """Grades in the place of clicks, one row per query."""
        return label_table(log, every=self.documents == "all")
