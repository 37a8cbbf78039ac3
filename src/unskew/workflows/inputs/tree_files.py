"""A LightGBM model in a text file, from anywhere, that scores documents by the names of their features.

Names are those of the text, or those of FILE.features.json beside it, which `unskew export` writes with the code
of each value of a category. Missing values stay missing: LightGBM knows where they go.

Legend: n documents, D features of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import DataError
from unskew.files import read_json
from unskew.files.trees import read_trees
from unskew.learning.boosters import TREE_FORMATS
from unskew.learning.scoring.raw_trees import text_names
from unskew.types import Array, Lists

_CHUNK = 262_144  # documents scored at once
HEAD = "tree\n"
"""How LightGBM's text begins."""


@dataclass(frozen=True)
class TreeFile:
    """Trees on features as they are."""

    booster: Any
    path: Path
    names: tuple[str, ...]
    """[D] features in the order of the model."""
    codes: Mapping[str, Mapping[str, int]]
    """The code of each value of a category, by the name of the feature."""

    @classmethod
    def read(cls, path: Path) -> TreeFile:
        """Read a file after a check of all of it; another process reads it first."""
        text = read_trees(path)
        if not text.startswith(HEAD):
            hint = "Booster.save_model writes one; a table of scores ends in .parquet or .csv"
            raise DataError("not a LightGBM model", path=path, hint=hint)
        # what LightGBM writes after a data frame without categories
        text = text.replace("pandas_categorical:[]", "pandas_categorical:null")
        booster = TREE_FORMATS["lightgbm"].opened(text, path, known=False)
        names, codes = _beside(path) or (tuple(booster.feature_name()), {})
        if len(names) != booster.num_feature():
            what = f"names {len(names)} features, and the trees take {booster.num_feature()}"
            raise DataError(what, path=f"{path}.features.json")
        return cls(booster, path, names, codes)

    @property
    def features(self) -> int:
        """Number of features of a document."""
        return len(self.names)

    @property
    def reads(self) -> bool:
        """Trees read no text."""
        return False

    @property
    def taken(self) -> dict[str, bool] | None:
        """The features that it takes, and whether each is a category; None where they have no names."""
        return None if self._unnamed else {name: name in self.codes for name in self.names}

    @property
    def _unnamed(self) -> bool:
        return all(name == f"Column_{at}" for at, name in enumerate(self.names))

    def score(self, lists: Lists) -> Array:
        """Raw scores of every document, [n]."""
        columns = self._columns(lists)
        found = np.zeros(len(lists.features))
        for start in range(0, len(found), _CHUNK):
            part = slice(start, start + _CHUNK)
            rows = np.asarray(lists.features[part], np.float64)[:, columns]
            for at, name in enumerate(self.names):
                if name in self.codes and lists.columns is not None:  # indices of the lists' values, as codes
                    codes = self.codes[name]
                    known = [codes.get(value, len(codes)) for value in lists.columns.categories[name]]
                    index = np.where(np.isnan(rows[:, at]), -1, rows[:, at]).astype(np.int64)
                    rows[:, at] = np.where(index < 0, np.nan, np.asarray([*known, np.nan])[index])
            found[part] = self.booster.predict(rows, raw_score=True)
        return found

    def _columns(self, lists: Lists) -> list[int]:
        """Where the features of the model stand in the lists: by name, or by place where one has no names."""
        if lists.columns is None or self._unnamed:
            if lists.dim != self.features:
                what = f"its trees take {self.features} features, these documents have {lists.dim}"
                raise DataError(what, path=self.path, hint="give the features that it was trained on")
            return list(range(self.features))
        there = lists.columns.names
        place = {name: at for names in (text_names(there), there) for at, name in enumerate(names)}
        if lost := [name for name in self.names if name not in place]:
            what = f"its trees take {', '.join(lost[:5])}, which these documents do not have"
            raise DataError(what, path=self.path, hint=f"they have {', '.join(there[:20])}")
        for name in self.names:
            if name in lists.columns.categories and name not in self.codes:
                hint = "give scores as a table, or export the trees of a run, which writes their codes"
                raise DataError(f"{name} is a category whose codes are not known", path=self.path, hint=hint)
        return [place[name] for name in self.names]


def _beside(path: Path) -> tuple[tuple[str, ...], dict[str, Mapping[str, int]]] | None:
    """Names and codes that were exported with the trees; None where there are none."""
    place = path.with_name(f"{path.name}.features.json")
    if not place.is_file():
        return None
    try:
        told: Sequence[Mapping[str, Any]] = read_json(place)["features"]
        names = tuple(str(each["name"]) for each in told)
        return names, {str(each["name"]): dict(each["codes"]) for each in told if "codes" in each}
    except (KeyError, TypeError, ValueError) as error:
        raise DataError("no features of exported trees", path=place, hint="export the run again") from error
