"""LambdaMART of LightGBM and XGBoost on clicks: what one would otherwise reach for.

Reference: Burges, "From RankNet to LambdaRank to LambdaMART: An Overview", MSR-TR-2010-82; as in
Ke et al., NeurIPS 2017 (LightGBM), and Chen and Guestrin, KDD 2016 (XGBoost, corrected as in Hu et al., WWW 2019).

    lightgbm            lambdarank, clicks as labels
    lightgbm_position   the same with LightGBM's `position` field, which learns a bias factor per rank
    xgboost             rank:ndcg, clicks as labels
    xgboost_unbiased    the same with `lambdarank_unbiased`, ratios for clicked and unclicked ranks

They are no losses for our rankers: a package grows its own trees on its own loss (`learning/baselines.py`). So
there is no ranker to choose, and features are not scaled unless asked for. Of the training settings they take
`seed`, `threads` and `validate_on`. The number of trees is the best by nDCG@10 on validation lists; without them
all are kept. With `validate_on = "clicks"` held-out clicks choose; those are biased, and like the first trees of a
corrected ranker best, which are not corrected yet.

Differences from the paper: LambdaMART is written for grades. Here clicks stand in for them, every page a group.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from torch import Tensor

from unskew.errors import ConfigError
from unskew.learning.fitting.packages import BaselineOptions, XGBoostRanker, xgboost
from unskew.learning.methods.contract import Context, MethodConfig, MethodModule
from unskew.learning.rankers.trees import TreeRanker, lightgbm
from unskew.types import ClickBatch


class PackageConfig(MethodConfig, BaselineOptions):
    """Base of the configs whose package trains by itself."""

    trains_with: ClassVar[frozenset[str]] = frozenset({"seed", "threads", "validate_on"})
    """The training settings that a package takes."""

    def build(self, context: Context) -> PackageMethod:
        """What scores: the trees' output as it is."""
        return PackageMethod()

    def trees(self, features: int) -> TreeRanker:
        """The package's ranker without a tree."""
        raise TypeError(f"{type(self).__name__} names no package")

    def options(self, threads: int | None) -> dict[str, Any]:
        """Options of `fit_baseline`; threads of the training, where the method has none."""
        given = self.model_dump(include=set(BaselineOptions.model_fields))
        return given | {"threads": self.threads or threads}


class LightGBM(PackageConfig):
    """LightGBM's LambdaMART, clicks as labels."""

    name: Literal["lightgbm"] = "lightgbm"

    def trees(self, features: int) -> TreeRanker:
        """LightGBM's ranker without a tree."""
        lightgbm()
        return TreeRanker(features, 1)


class LightGBMPosition(LightGBM):
    """LightGBM's LambdaMART with a bias factor per rank."""

    name: Literal["lightgbm_position"] = "lightgbm_position"  # type: ignore[assignment]


class XGBoost(PackageConfig):
    """XGBoost's LambdaMART, clicks as labels."""

    name: Literal["xgboost"] = "xgboost"

    def trees(self, features: int) -> TreeRanker:
        """XGBoost's ranker without a tree."""
        xgboost()
        return XGBoostRanker(features, 1)


class XGBoostUnbiased(XGBoost):
    """XGBoost's LambdaMART with ratios for clicked and unclicked ranks."""

    name: Literal["xgboost_unbiased"] = "xgboost_unbiased"  # type: ignore[assignment]


class PackageMethod(MethodModule):
    """The score of the trees; the loss is the package's own."""

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """There is no loss to give to a ranker of ours."""
        raise ConfigError("a package trains its own trees and gives no loss; use unskew.learn")
