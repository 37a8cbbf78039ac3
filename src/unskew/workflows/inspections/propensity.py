"""`unskew propensity`: examination by rank, as a run learned it or a log shows it, with weights for any learner.

The weight of a click at rank k is 1 / examination, relative to rank 1: what LightGBM and others take as the weight
of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from unskew.diagnosis.evidence.evidence import measured
from unskew.diagnosis.evidence.tables import open_tables
from unskew.errors import ConfigError, DataError, Option
from unskew.examination import Examination
from unskew.learning.scoring.model import load
from unskew.learning.scoring.scorer import Scorer
from unskew.settings import known
from unskew.types import Log
from unskew.workflows.runs.run import Run

By = Literal["shuffled", "swaps"]
"""How examination is measured on a log."""


def propensity(
    source: Run | Scorer | Log | Path | str | Any,
    *,
    by: By | None = None,
    max_weight: float | None = None,
    feedback: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Examination:
    """Examination by rank of a run or a log (in memory, a table, or a path), with weights of clicks.

    On a log it is measured `by` its shuffled pages or by documents that it shows at several ranks (swaps); unless
    given, by what tells more ranks. A table is read as it is, as `diagnose` reads it. With `feedback`, a result
    with any of it counts as clicked. `max_weight` clips the weights, as it does for the method `ipw`. `columns`
    says theirs for ours.
    """
    if max_weight is not None and not max_weight >= 1:
        raise ConfigError("at least 1", argument="max_weight", value=max_weight)
    if by is not None:
        known("by", by, get_args(By))
    if isinstance(source, str | Path):
        model = load(source) if (Path(source) / "model.json").exists() else None
    else:
        model = source.model if isinstance(source, Run) else source if isinstance(source, Scorer) else None
    if model is not None:
        if by is not None:
            raise ConfigError((Option("by", by), " is for logs; this is a run, which learned its own"))
        found = of_run(model, source)
    else:
        own = isinstance(source, Log)  # its feedback stands in the place of clicks already
        with open_tables(source, columns=columns, feedback=None if own else feedback) as tables:
            found = measured(tables, by)
    return replace(found, max_weight=max_weight)


def of_run(model: Scorer, source: object) -> Examination:
    """What a method learned."""
    theta = model.propensity()
    if theta is None:
        name = model.card.method["name"]
        place = source if isinstance(source, str | Path) else None
        raise DataError(
            f"{name} learns no examination by rank",
            path=place,
            hint="take a run of dla, ipw or regression_em, or the log itself",
        )
    return Examination.of(theta, f"method {model.card.method['name']}")
