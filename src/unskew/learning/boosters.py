"""Trees of LightGBM and XGBoost: predicted, explained, kept on disk in the package's own text; no torch here.

Legend: n documents, D features, O outputs: one booster for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unskew.errors import DataError, first_line, optional
from unskew.files.trees import check_lightgbm, check_xgboost, read_trees, tried_apart
from unskew.types import Array

Package = Literal["lightgbm", "xgboost"]


def package(name: Package) -> Any:
    """The package, or an error that says how to get it."""
    return optional(name, "trees")


class LightGBMFormat:
    """How LightGBM predicts, explains and writes its boosters."""

    ending = "txt"
    """How its files end."""

    def grown(self, booster: Any, rows: Array, first: int, count: int, threads: int = 0) -> Array:
        """The sum of `count` trees from number `first` on, [n]."""
        return np.asarray(
            booster.predict(rows, start_iteration=first, num_iteration=count, raw_score=True, num_threads=threads)
        )

    def shapley(self, booster: Any, rows: Array, count: int, threads: int = 0) -> Array:
        """What each feature adds to the first trees, [n, D], and their mean, [n, D + 1] in all: by TreeSHAP."""
        return np.asarray(booster.predict(rows, num_iteration=count, pred_contrib=True, num_threads=threads))

    def gains(self, booster: Any, count: int, width: int) -> Array:
        """What splits by each feature gained in the first trees, [D]."""
        return np.asarray(booster.feature_importance("gain", iteration=count), np.float64)

    def text(self, booster: Any, count: int) -> str:
        """LightGBM's own text of the first trees."""
        return str(booster.model_to_string(num_iteration=count))

    def opened(self, text: str, path: Path | None = None, *, known: bool = True) -> Any:
        """The booster of a text, after a check of it; another process reads a file first that is not `known`."""
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


class XGBoostFormat:
    """How XGBoost predicts, explains and writes its boosters."""

    ending = "json"

    def grown(self, booster: Any, rows: Array, first: int, count: int, threads: int = 0) -> Array:
        """The sum of `count` trees from number `first` on, [n]."""
        data = package("xgboost").DMatrix(rows, nthread=threads or -1)
        return np.asarray(booster.predict(data, iteration_range=(first, first + count)))

    def shapley(self, booster: Any, rows: Array, count: int, threads: int = 0) -> Array:
        """What each feature adds to the first trees, and their mean, as that of LightGBM."""
        data = package("xgboost").DMatrix(rows, nthread=max(threads, 1))
        return np.asarray(booster.predict(data, pred_contribs=True, iteration_range=(0, count)))

    def gains(self, booster: Any, count: int, width: int) -> Array:
        """Total gain by feature."""
        found = booster[:count].get_score(importance_type="total_gain")
        return np.array([found.get(f"f{at}", 0.0) for at in range(width)])

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
            raise DataError(f"not an XGBoost model: {first_line(error)}", path=path) from error
        return booster

    def size(self, booster: Any) -> tuple[int, int]:
        """Trees and features of a booster."""
        return booster.num_boosted_rounds(), booster.num_features()


TreeFormat = LightGBMFormat | XGBoostFormat
TREE_FORMATS: dict[Package, TreeFormat] = {"lightgbm": LightGBMFormat(), "xgboost": XGBoostFormat()}
"""How each package keeps its trees."""


@dataclass(frozen=True)
class Forest:
    """Boosters of one package side by side, [n, D] -> [n, O]."""

    package: Package
    boosters: Sequence[Any]
    kept: Sequence[int]
    """Trees in use of each booster."""
    start: Array  # [O] outputs before the first tree
    weights: Array | None = None
    """w [O] where the score is outputs . w; None where it is not."""
    threads: int = 0
    """Processor threads to predict with; 0 leaves it to the package."""
    exact = True
    """Reasons add up to what it says, but for a constant: Shapley values do."""

    @classmethod
    def read(
        cls,
        folder: Path,
        package: Package,
        numbers: Mapping[str, Array],
        *,
        features: int,
        known: bool = False,
        threads: int = 0,
        weights: Array | None = None,
    ) -> Forest:
        """What `write` wrote, `known` to be that or not; `numbers` are its start and kept.

        There are no boosters where none is.
        """
        form, boosters = TREE_FORMATS[package], []
        kept = [int(count) for count in numbers["kept"].tolist()]
        for output, count in enumerate(kept if any(kept) else ()):
            path = folder / f"trees_{output}.{form.ending}"
            booster = form.opened(read_trees(path), path, known=known)
            trees, width = form.size(booster)
            if width != features or trees < count:
                raise DataError(
                    f"{trees} trees on {width} features, where the model says {count} on {features}", path=path
                )
            boosters.append(booster)
        return cls(package, boosters, kept, numbers["start"], weights, threads)

    @property
    def format(self) -> TreeFormat:
        """How the package keeps its trees."""
        return TREE_FORMATS[self.package]

    def run(self, rows: Array) -> Array:
        """start + the trees in use, [n, O]."""
        outputs = np.repeat(np.asarray(self.start, np.float32)[None], len(rows), axis=0)
        for output, (booster, count) in enumerate(zip(self.boosters, self.kept, strict=False)):
            if count and len(rows):
                outputs[:, output] += self.format.grown(booster, rows, 0, count, self.threads).astype(np.float32)
        return outputs

    def reasons(self, rows: Array, towards: Array) -> Array:
        """What each feature adds to outputs . towards, [n, D], without the constant: Shapley values."""
        found = np.zeros(rows.shape, np.float64)
        for output, (booster, count) in enumerate(zip(self.boosters, self.kept, strict=False)):
            if count and towards[:, output].any():
                each = self.format.shapley(booster, rows, count, self.threads)
                found += towards[:, output, None] * each[:, :-1]
        return found

    def gains(self, width: int) -> Array:
        """What the splits by each of so many features gained, [D].

        Those of several outputs are added, each times the square of its weight in the score.
        """
        total = np.zeros(width)
        weights = np.ones(len(self.start)) if self.weights is None else self.weights
        for booster, count, weight in zip(self.boosters, self.kept, weights, strict=False):
            if count:
                total += float(weight) ** 2 * self.format.gains(booster, count, width)
        return total

    def texts(self) -> list[str]:
        """The text of each booster up to the last tree in use; one tree is the least that can be written."""
        both = zip(self.boosters, self.kept, strict=False)
        return [self.format.text(booster, max(count, 1)) for booster, count in both]

    def compact(self) -> Forest:
        """The same with the trees in use alone; others, and the training data, are let go."""
        return replace(self, boosters=[self.format.opened(text) for text in self.texts()])

    def write(self, folder: Path) -> None:
        """Write trees_0.txt, trees_1.txt, ... and nothing else of that name."""
        for stale in folder.glob("trees_*.*"):
            stale.unlink()
        for output, text in enumerate(self.texts()):
            (folder / f"trees_{output}.{self.format.ending}").write_text(text, encoding="utf-8")
