"""Trees of a saved run by their own package: their outputs, and what each feature adds to them; no torch.

Legend: n documents, D features, O outputs: one booster for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import optional
from unskew.learning.boosters import TREE_FORMATS, Package
from unskew.types import Array


@dataclass(frozen=True)
class Boosted:
    """Boosters side by side, on all columns."""

    package: Package
    boosters: Sequence[Any]
    kept: Sequence[int]
    """Trees in use of each booster."""
    start: Array
    """[O] outputs before the first tree."""
    threads: int = 1

    @classmethod
    def read(
        cls,
        folder: Path,
        package: Package,
        numbers: Mapping[str, Array],
        *,
        features: int,
        known: bool,
        threads: int,
    ) -> Boosted:
        """The trees in a folder; `numbers` say where outputs start and which trees are in use."""
        kept = [int(count) for count in numbers["kept"].tolist()]
        boosters = TREE_FORMATS[package].read(folder, kept, features, known=known)
        return cls(package, boosters, kept, numbers["start"], threads)

    @property
    def outputs(self) -> int:
        """O."""
        return len(self.start)

    @property
    def exact(self) -> bool:
        """Whether reasons add up to what it says, but for a constant: Shapley values do."""
        return True

    def run(self, rows: Array) -> Array:
        """Outputs [n, O] of all rows [n, D]."""
        return TREE_FORMATS[self.package].outputs(self.boosters, self.kept, self.start, rows, self.threads)

    def reasons(self, rows: Array, towards: Array) -> Array:
        """What each feature adds to outputs . towards, [n, D], without the constant: Shapley values."""
        found = np.zeros(rows.shape, np.float64)
        for output, (booster, kept) in enumerate(zip(self.boosters, self.kept, strict=False)):
            if kept and towards[:, output].any():
                found += towards[:, output, None] * self._shapley(booster, kept, rows)
        return found

    def _shapley(self, booster: Any, kept: int, rows: Array) -> Array:
        """[n, D] of one booster."""
        if self.package == "xgboost":
            data = optional("xgboost", "trees").DMatrix(rows, nthread=max(self.threads, 1))
            each = booster.predict(data, pred_contribs=True, iteration_range=(0, kept))
        else:
            each = booster.predict(rows, num_iteration=kept, pred_contrib=True, num_threads=self.threads)
        found: Array = np.asarray(each)[:, :-1]
        return found
