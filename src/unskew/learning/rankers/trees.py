"""Boosted trees as a ranker: LightGBM models behind the interface of a network.

One booster per relevance output, but for those that a network beside the trees gives. `fitting/boosting` says how
they are grown, `boosters` how they are kept on disk.

Legend: n documents, D features, O outputs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from unskew.learning.boosters import Forest, package
from unskew.learning.rankers.networks import RankerConfig
from unskew.settings import Config


class Growing(Config):
    """How trees are grown: ours, and those of the packages that they are compared with.

    The defaults were not chosen over worlds: docs/records/defaults.md.
    """

    rounds: int = Field(200, ge=1)
    """Boosting rounds: ours grow one tree per round and relevance output. `training.steps` plays no part."""
    leaves: int = Field(15, ge=2)
    """Most leaves of a tree."""
    learning_rate: float = Field(0.1, gt=0)
    """Shrinkage of each tree; `training.learning_rate` is the step size of networks beside the trees."""
    min_data_in_leaf: int = Field(20, ge=1)
    """Fewest documents of a leaf; impressions, where a package learns from pages (LightGBM)."""
    feature_fraction: float = Field(0.8, gt=0, le=1)
    """Share of the features that each tree may split on."""
    l2: float = Field(1.0, ge=0)
    """L2 penalty on leaf values; for ours in units of an average document's curvature, roughly."""

    def lightgbm(self, threads: int | None) -> dict[str, Any]:
        """What LightGBM is told; with these the same seed gives the same trees on any number of threads."""
        return {
            "num_leaves": self.leaves,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": self.min_data_in_leaf,
            "feature_fraction": self.feature_fraction,
            "lambda_l2": self.l2,
            "num_threads": threads or 0,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }


class Trees(Growing, RankerConfig):
    """Boosted regression trees (LightGBM), grown on the gradient of any method's loss."""

    name: Literal["trees"] = "trees"
    fitted_by: ClassVar[Literal["rounds"]] = "rounds"
    bias_steps: int = Field(5, ge=0)
    """Optimiser steps of the method's own parameters in every round."""
    rows: int = Field(200_000, ge=1)
    """Most rows (distinct rankings, or pages) behind a round's gradient; of more, each round draws its own."""
    beside: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] = (16,)
    """Hidden units of the network beside the trees that gives the observation of `lbd`."""

    def build(self, features: int, outputs: int, at_zero: slice = slice(0, 0)) -> TreeRanker:
        """The ranker without a tree; where outputs start is drawn from torch's current random state."""
        package("lightgbm")
        return TreeRanker(features, outputs)

    def parameters(self, *, threads: int | None) -> dict[str, Any]:
        """What LightGBM is told of trees that are ours; each round has a seed of its own for its features."""
        own = {"objective": "none", "min_sum_hessian_in_leaf": 1e-3, "feature_fraction_seed": 0}
        return self.lightgbm(threads) | own | {"feature_pre_filter": False}


class TreeRanker(nn.Module):
    """Boosters side by side, [n, D] -> [n, O]; no gradient passes through."""

    kept: Tensor

    def __init__(self, features: int, outputs: int) -> None:
        """No trees yet. Several outputs start apart, since methods that multiply them cannot leave equal ones."""
        super().__init__()
        self.features, self.threads = features, 0
        start = 0.1 * torch.randn(outputs) if outputs > 1 else torch.zeros(outputs)
        self.start = nn.Parameter(start, requires_grad=False)
        self.register_buffer("kept", torch.zeros(outputs, dtype=torch.int64))  # trees in use of each booster
        self.boosters: list[Any] = []

    def forward(self, documents: Tensor) -> Tensor:
        """Relevance outputs of each document."""
        values = self.forest().run(documents.detach().cpu().numpy())
        return torch.from_numpy(values).to(self.start.device)

    def forest(self, weights: Tensor | None = None) -> Forest:
        """The trees without torch; `weights` [O] where the score is outputs . weights."""
        start, own = self.start.detach().cpu().numpy(), None if weights is None else weights.detach().cpu().numpy()
        return Forest("lightgbm", self.boosters, self.kept.tolist(), start, own, self.threads)

    def read(self, folder: Path, *, known: bool = False) -> None:
        """Read the trees that a folder keeps, `known` to be as they were written or not."""
        numbers = {"kept": self.kept.numpy(), "start": self.start.numpy()}
        self.boosters = [*Forest.read(folder, "lightgbm", numbers, features=self.features, known=known).boosters]


def tree_rankers(ranker: nn.Module) -> list[TreeRanker]:
    """The boosted part of a ranker, if it has one."""
    return [module for module in ranker.modules() if isinstance(module, TreeRanker)]
