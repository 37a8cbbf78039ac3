"""Examination by rank for a judgement by clicks, as a file, a run or the caller tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import DataError
from unskew.learning.bias import checked_propensities, read_propensities
from unskew.learning.scoring.scorer import Scorer, load_scorer
from unskew.measuring.counterfactual import RankExamination
from unskew.types import Array
from unskew.workflows.inputs.rankings import model_of

Examined = Any
"""A `RankExamination`, a file of it, a run that learned it, or numbers by rank; None: found in the log."""


def known_examination(given: Examined) -> RankExamination | None:
    """Examination as a file, a run or the caller tells it; None where the log is to tell."""
    if given is None or isinstance(given, RankExamination):
        return given
    if (model := model_of(given)) is not None:
        return _of_model(model, str(model.card.method["name"]))
    if isinstance(given, str | Path):
        if (Path(given) / "model.json").exists():
            return _of_model(load_scorer(given), str(given))
        return RankExamination(_relative(read_propensities(Path(given))), "file")
    return RankExamination(_relative(checked_propensities(np.asarray(given, np.float64))), "file")


def _of_model(model: Scorer, name: str) -> RankExamination:
    theta = model.propensity()
    if theta is None:
        hint = "take a run of dla, ipw or regression_em, a file, or leave it to the log"
        raise DataError(f"{model.card.method['name']} learns no examination by rank", path=name, hint=hint)
    return RankExamination(_relative(np.asarray(theta, np.float64)), f"run {name}")


def _relative(theta: Array) -> Array:
    relative: Array = theta / theta[0]
    return relative
