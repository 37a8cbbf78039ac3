"""LambdaMART of LightGBM and XGBoost on clicks: what one would otherwise reach for.

Reference: Burges, "From RankNet to LambdaRank to LambdaMART: An Overview", MSR-TR-2010-82; as in
Ke et al., NeurIPS 2017 (LightGBM), and Chen and Guestrin, KDD 2016 (XGBoost, corrected as in Hu et al., WWW 2019).

    lightgbm            lambdarank, clicks as labels
    lightgbm_position   the same with LightGBM's `position` field, which learns a bias factor per rank
    xgboost             rank:ndcg, clicks as labels
    xgboost_unbiased    the same with `lambdarank_unbiased`, ratios for clicked and unclicked ranks

They are no losses for our rankers: a package grows its own trees on its own loss (`fitting/packages.py`). So
there is no ranker to choose, and features are not scaled unless asked for. The number of trees is the best by
nDCG@10 on validation lists; without them all are kept.

Differences from the paper: LambdaMART is written for grades. Here clicks stand in for them, every page a group.
"""

from typing import ClassVar, Literal

from pydantic import Field

from unskew.errors import ConfigError, Key
from unskew.learning.boosters import Package
from unskew.learning.methods.contract import Choice, Learner
from unskew.learning.rankers.trees import Growing


class PackageConfig(Learner, Growing):
    """Base of the configs whose package trains by itself."""

    fitted_by: ClassVar[Literal["ranker", "package"]] = "package"
    usual_scaling: ClassVar[str] = "none"
    click_metric: ClassVar[str] = "nDCG of clicks"
    package: ClassVar[Package]
    """Which package it is."""
    corrects: ClassVar[bool] = False
    """Whether the package's own correction of bias is on."""
    trains_with: ClassVar[frozenset[str]] = frozenset({"seed", "threads", "validate_on"})
    """The training settings that a package takes."""

    pages: int = Field(100_000, ge=1)
    """Most pages to learn from."""
    patience: int | None = Field(None, ge=1)
    """Stop after so many rounds without a better validation; none grows every tree and keeps the best round."""
    threads: int | None = Field(None, ge=1)
    """Processor threads; none leaves it to the training, and then to the package."""

    def usual_choice(self, *, labels: bool, clicks: bool = False) -> Choice:
        """Validation lists, or a log that was given; else every tree is kept.

        There is no click model, and nDCG on biased clicks would take a correction for a fault.
        """
        return "labels" if labels else "clicks" if clicks else "nothing"

    def refused(self, *, ranker: bool, training: frozenset[str]) -> ConfigError | None:
        """A ranker, and all training settings but those few."""
        unheeded = sorted(training - self.trains_with)
        wrong = "ranker" if ranker else f"training.{unheeded[0]}" if unheeded else None
        theirs = "remove it, and give the method settings of theirs, such as rounds and leaves"
        return ConfigError(f"{self.name} grows its own trees; {theirs}", argument=Key(wrong)) if wrong else None


class LightGBM(PackageConfig):
    """LightGBM's LambdaMART, clicks as labels."""

    name: Literal["lightgbm"] = "lightgbm"
    package: ClassVar[Package] = "lightgbm"


class LightGBMPosition(PackageConfig):
    """LightGBM's LambdaMART with a bias factor per rank."""

    name: Literal["lightgbm_position"] = "lightgbm_position"
    package: ClassVar[Package] = "lightgbm"
    corrects: ClassVar[bool] = True


class XGBoost(PackageConfig):
    """XGBoost's LambdaMART, clicks as labels."""

    name: Literal["xgboost"] = "xgboost"
    package: ClassVar[Package] = "xgboost"


class XGBoostUnbiased(PackageConfig):
    """XGBoost's LambdaMART with ratios for clicked and unclicked ranks."""

    name: Literal["xgboost_unbiased"] = "xgboost_unbiased"
    package: ClassVar[Package] = "xgboost"
    corrects: ClassVar[bool] = True
