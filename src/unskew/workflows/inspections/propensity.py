"""`unskew propensity`: examination by rank, as a run learned it or a log shows it, with weights for any learner.

The weight of a click at rank k is 1 / examination, relative to rank 1: what LightGBM and others take as the weight
of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from unskew.diagnosis.evidence.evidence import measured
from unskew.diagnosis.evidence.tables import LogTables, open_tables
from unskew.errors import ConfigError, DataError, Option
from unskew.examination import Examination
from unskew.learning.scoring.model import load
from unskew.learning.scoring.scorer import Scorer
from unskew.logs.reader import StoredLog
from unskew.names import REQUIRED, Names
from unskew.settings import known
from unskew.tables.frames import is_frame
from unskew.tables.schema import read_feedback
from unskew.types import Log
from unskew.workflows.runs.run import Run

By = Literal["shuffled", "swaps"]
"""How examination is measured on a log."""
KEPT = (*(name for name in REQUIRED if name != "click"), "randomized")


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
    given, by what tells more ranks. `max_weight` clips the weights, as it does for the method `ipw`. `columns`
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
        with log_tables(source, feedback, columns) as tables:
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


def log_tables(source: Any, feedback: str | None, columns: Mapping[str, str] | None) -> LogTables:
    """A log on an engine; with `feedback`, a result with any of it counts as clicked."""
    if isinstance(source, Log) or (feedback is None and not is_frame(source)):
        return open_tables(source, columns=columns)
    with Names.of(columns).told():
        if is_frame(source):
            from unskew.logs.ingest.ingest import ingest_table

            more = [] if feedback is None else [feedback]
            table, path = ingest_table(source, columns=columns, keep=more)[0], "the table"
        else:
            table, path = StoredLog.open(source, columns, feedback).table([]), str(source)
        if feedback is None:
            return open_tables(table)
        click = pa.array((read_feedback(table, feedback, path) > 0).astype(np.int8))
        kept = table.select([name for name in KEPT if name in table.column_names])
        return open_tables(kept.append_column("click", click))
