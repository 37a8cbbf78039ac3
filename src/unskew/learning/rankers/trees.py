"""Boosted trees as a ranker: LightGBM models behind the interface of a network, kept on disk as text.

One booster per relevance output, but for those that a network beside the trees gives. `trees_fit` says how they
are grown; here they score, are saved and loaded.

Legend: n documents, D features, O outputs.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from unskew.errors import DataError, MissingExtra


class Growing(BaseModel):
    """How trees are grown: ours, and those of the packages that they are compared with."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

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


class Trees(Growing):
    """Boosted regression trees (LightGBM), grown on the gradient of any method's loss."""

    name: Literal["trees"] = "trees"
    bias_steps: int = Field(5, ge=0)
    """Optimiser steps of the method's own parameters in every round."""
    rows: int = Field(200_000, ge=1)
    """Most rows (distinct rankings, or pages) behind a round's gradient; of more, each round draws its own."""
    beside: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] = (16,)
    """Hidden units of the network beside the trees that gives the observation of `lbd` and `lbd_lips`."""

    def build(self, features: int, outputs: int) -> nn.Module:
        """The ranker without a tree; where outputs start is drawn from torch's current random state."""
        lightgbm()
        return TreeRanker(features, outputs)

    def parameters(self, *, threads: int | None) -> dict[str, Any]:
        """What LightGBM is told; with these the same seed gives the same trees on any number of threads."""
        return {
            "objective": "none",
            "num_leaves": self.leaves,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": self.min_data_in_leaf,
            "min_sum_hessian_in_leaf": 1e-3,
            "feature_fraction": self.feature_fraction,
            "lambda_l2": self.l2,
            "feature_fraction_seed": 0,  # each round has its own
            "num_threads": threads or 0,
            "deterministic": True,
            "force_row_wise": True,
            "feature_pre_filter": False,
            "verbosity": -1,
        }


class TreeRanker(nn.Module):
    """Boosters side by side, [n, D] -> [n, O]; no gradient passes through."""

    kept: Tensor
    ending = "txt"
    """How its files end."""

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
        outputs = self.start.detach().expand(len(documents), -1).clone()
        rows = documents.detach().cpu().numpy()
        for output, booster in enumerate(self.boosters):
            count = int(self.kept[output])
            if count and len(rows):
                outputs[:, output] += self.grown(booster, rows, 0, count).to(outputs)
        return outputs

    def grown(self, booster: Any, rows: np.ndarray[Any, Any], first: int, count: int) -> Tensor:
        """The sum of `count` trees from number `first` on, [n]."""
        values = booster.predict(
            rows, start_iteration=first, num_iteration=count, raw_score=True, num_threads=self.threads
        )
        return torch.from_numpy(np.asarray(values))

    def take(self, booster: Any, count: int) -> None:
        """Let the first trees of a booster be the one output."""
        self.boosters = [booster]
        self.kept.fill_(count)
        self.truncate()

    def truncate(self) -> None:
        """Drop the trees that are not in use, and the training data with them."""
        self.boosters = [self.opened(text) for text in self.texts()]

    def texts(self) -> list[str]:
        """The package's own text of each booster, up to the last tree in use."""
        counts = [max(count, 1) for count in self.kept.tolist()]  # 0 would mean all of them
        return [self.text(booster, count) for booster, count in zip(self.boosters, counts, strict=False)]

    def text(self, booster: Any, count: int) -> str:
        """LightGBM's own text of the first trees."""
        text: str = booster.model_to_string(num_iteration=count)
        return text

    def opened(self, text: str, path: Path | None = None) -> Any:
        """The booster of a text."""
        return read_booster(text, path)

    def size(self, booster: Any) -> tuple[int, int]:
        """Trees and features of a booster."""
        return booster.current_iteration(), booster.num_feature()

    def write(self, folder: Path) -> None:
        """Write trees_0.txt, trees_1.txt, ... and nothing else of that name."""
        for stale in folder.glob("trees_*.*"):
            stale.unlink()
        for output, text in enumerate(self.texts()):
            (folder / f"trees_{output}.{self.ending}").write_text(text, encoding="utf-8")

    def read(self, folder: Path) -> None:
        """Read what `write` wrote."""
        if not self.kept.any():
            return
        for output in range(len(self.kept)):
            path = folder / f"trees_{output}.{self.ending}"
            booster = self.opened(path.read_text(encoding="utf-8"), path)
            count, (trees, features) = int(self.kept[output]), self.size(booster)
            if features != self.features or trees < count:
                raise DataError(
                    f"{trees} trees on {features} features, where the model says {count} on {self.features}",
                    path=path,
                )
            self.boosters.append(booster)


def tree_rankers(ranker: nn.Module) -> list[TreeRanker]:
    """The boosted part of a ranker, if it has one."""
    return [module for module in ranker.modules() if isinstance(module, TreeRanker)]


def read_booster(text: str, path: Path | None = None) -> Any:
    """The booster of a LightGBM model text."""
    library = lightgbm()
    if "end of trees" not in text:  # LightGBM itself does not survive every damaged text
        raise DataError("not a whole LightGBM model", path=path)
    try:
        return library.Booster(model_str=text)
    except library.basic.LightGBMError as error:
        raise DataError(f"not a LightGBM model: {error}", path=path) from error


def lightgbm() -> Any:
    """The package, or an error that says how to get it."""
    try:
        return import_module("lightgbm")
    except ImportError as error:
        raise MissingExtra("trees", "lightgbm") from error
