"""Trees of LightGBM and XGBoost: predicted, kept on disk in the package's own text, and read back, without torch.

Legend: n documents, D features, O outputs: one booster for each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unskew.errors import DataError, optional
from unskew.files.trees import check_lightgbm, check_xgboost, read_trees, tried_apart
from unskew.types import Array

Package = Literal["lightgbm", "xgboost"]


class TreeFormat(ABC):
    """How one package predicts with its boosters, and writes and reads them."""

    ending: str
    """How its files end."""

    @abstractmethod
    def grown(self, booster: Any, rows: Array, first: int, count: int, threads: int = 0) -> Array:
        """The sum of `count` trees from number `first` on, [n]."""

    @abstractmethod
    def text(self, booster: Any, count: int) -> str:
        """The package's own text of the first trees."""

    @abstractmethod
    def opened(self, text: str, path: Path | None = None, *, known: bool = True) -> Any:
        """The booster of a text, after a check of it; another process reads a file first that is not `known`."""

    @abstractmethod
    def size(self, booster: Any) -> tuple[int, int]:
        """Trees and features of a booster."""

    def outputs(
        self, boosters: Sequence[Any], kept: Sequence[int], start: Array, rows: Array, threads: int
    ) -> Array:
        """start + the first `kept` trees of each booster, [n, O]."""
        outputs = np.repeat(np.asarray(start, np.float32)[None], len(rows), axis=0)
        for output, (booster, count) in enumerate(zip(boosters, kept, strict=False)):
            if count and len(rows):
                outputs[:, output] += self.grown(booster, rows, 0, count, threads).astype(np.float32)
        return outputs

    def texts(self, boosters: Sequence[Any], kept: Sequence[int]) -> list[str]:
        """The text of each booster up to the last tree in use; one tree is the least that can be written."""
        return [self.text(booster, max(count, 1)) for booster, count in zip(boosters, kept, strict=False)]

    def write(self, folder: Path, boosters: Sequence[Any], kept: Sequence[int]) -> None:
        """Write trees_0.txt, trees_1.txt, ... and nothing else of that name."""
        for stale in folder.glob("trees_*.*"):
            stale.unlink()
        for output, text in enumerate(self.texts(boosters, kept)):
            (folder / f"trees_{output}.{self.ending}").write_text(text, encoding="utf-8")

    def read(self, folder: Path, kept: Sequence[int], features: int, *, known: bool = False) -> list[Any]:
        """Read what `write` wrote, `known` to be that or not; no boosters where no tree is in use."""
        boosters: list[Any] = []
        for output, count in enumerate(kept if any(kept) else ()):
            path = folder / f"trees_{output}.{self.ending}"
            booster = self.opened(read_trees(path), path, known=known)
            trees, width = self.size(booster)
            if width != features or trees < count:
                raise DataError(
                    f"{trees} trees on {width} features, where the model says {count} on {features}", path=path
                )
            boosters.append(booster)
        return boosters


class LightGBMFormat(TreeFormat):
    """LightGBM's text."""

    ending = "txt"

    def grown(self, booster: Any, rows: Array, first: int, count: int, threads: int = 0) -> Array:
        """The sum of `count` trees from number `first` on, [n]."""
        return np.asarray(
            booster.predict(rows, start_iteration=first, num_iteration=count, raw_score=True, num_threads=threads)
        )

    def text(self, booster: Any, count: int) -> str:
        """LightGBM's own text of the first trees."""
        return str(booster.model_to_string(num_iteration=count))

    def opened(self, text: str, path: Path | None = None, *, known: bool = True) -> Any:
        """The booster of a LightGBM model text."""
        library = package("lightgbm")
        check_lightgbm(text, path)
        if path is not None and not known:
            tried_apart("lightgbm", path)
        try:
            return library.Booster(model_str=text)
        except library.basic.LightGBMError as error:
            raise DataError(f"not a LightGBM model: {error}", path=path) from error

    def size(self, booster: Any) -> tuple[int, int]:
        """Trees and features of a booster."""
        return booster.current_iteration(), booster.num_feature()


class XGBoostFormat(TreeFormat):
    """XGBoost's JSON."""

    ending = "json"

    def grown(self, booster: Any, rows: Array, first: int, count: int, threads: int = 0) -> Array:
        """The sum of `count` trees from number `first` on, [n]."""
        data = package("xgboost").DMatrix(rows, nthread=threads or -1)
        return np.asarray(booster.predict(data, iteration_range=(first, first + count)))

    def text(self, booster: Any, count: int) -> str:
        """XGBoost's own JSON of the first trees."""
        raw: bytearray = booster[:count].save_raw("json")
        return raw.decode()

    def opened(self, text: str, path: Path | None = None, *, known: bool = True) -> Any:
        """The booster of an XGBoost model."""
        library = package("xgboost")
        check_xgboost(text, path)
        if path is not None and not known:
            tried_apart("xgboost", path)
        booster = library.Booster()
        try:
            booster.load_model(bytearray(text, "utf-8"))
        except library.core.XGBoostError as error:
            raise DataError(f"not an XGBoost model: {str(error).splitlines()[0]}", path=path) from error
        return booster

    def size(self, booster: Any) -> tuple[int, int]:
        """Trees and features of a booster."""
        return booster.num_boosted_rounds(), booster.num_features()


TREE_FORMATS: dict[Package, TreeFormat] = {"lightgbm": LightGBMFormat(), "xgboost": XGBoostFormat()}
"""How each package keeps its trees."""


def package(name: Package) -> Any:
    """The package, or an error that says how to get it."""
    return optional(name, "trees")
