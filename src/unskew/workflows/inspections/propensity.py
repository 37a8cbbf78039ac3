"""`unskew propensity`: examination by rank, as a run learned it or a log shows it, with weights for any learner.

The weight of a click at rank k is 1 / examination, relative to rank 1: what LightGBM and others take as the weight
of a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from unskew.diagnosis.evidence.tables import LogTables, open_tables
from unskew.diagnosis.propensities import RankPropensities, measured_propensities
from unskew.errors import ConfigError, DataError, Option
from unskew.files import complete_file
from unskew.learning.scoring.model import load
from unskew.learning.scoring.scorer import Scorer
from unskew.logs.opening import open_table
from unskew.names import REQUIRED, Names
from unskew.settings import known
from unskew.tables.frames import is_frame
from unskew.tables.schema import read_feedback
from unskew.types import Array, Log
from unskew.workflows.runs.run import Run

By = Literal["shuffled", "swaps"]
WAYS: Mapping[str, str] = {
    "shuffled": "shuffled pages of the log",
    "swaps": "documents that the log shows at several ranks",
}
"""How examination is measured on a log."""
KEPT = (*(name for name in REQUIRED if name != "click"), "randomized")
METHOD: Mapping[str, str] = {"shuffled": "shuffled", "swaps": "all_pairs"}
"""The estimator that does so."""


@dataclass(frozen=True)
class PropensityTable:
    """Examination by rank, and the weight of a click there."""

    examination: Array
    """[P] relative to rank 1."""
    weight: Array
    """[P] 1 / examination, clipped where asked for."""
    found_by: str
    """What they come from."""
    note: str | None = None
    """Ranks that are left out, and why."""

    @property
    def position(self) -> Array:
        """[P] ranks from 1."""
        return np.arange(1, len(self.examination) + 1)

    def to_arrow(self) -> Any:
        """A table with position, examination and weight."""
        return pa.table({"position": self.position, "examination": self.examination, "weight": self.weight})

    def to_dict(self) -> dict[str, Any]:
        """For JSON, and as a file for the method `ipw`."""
        return {"found_by": self.found_by, "note": self.note, **self.to_arrow().to_pydict()}

    def weights(self, position: Array) -> Array:
        """The weight of a click at each of these ranks; ranks past the last one take its weight."""
        weights: Array = self.weight[np.clip(np.asarray(position), 1, len(self.weight)) - 1]
        return weights

    def csv_text(self) -> str:
        """As CSV, which the method `ipw` takes too."""
        rows = zip(self.position.tolist(), self.examination.tolist(), self.weight.tolist(), strict=True)
        return "position,examination,weight\n" + "".join(f"{k},{seen:.6g},{w:.6g}\n" for k, seen, w in rows)

    def write_csv(self, path: Path | str) -> None:
        """Write `csv_text` to a file."""
        with complete_file(Path(path)) as ready:
            ready.write_text(self.csv_text(), encoding="utf-8")


def propensity(
    source: Run | Scorer | Log | Path | str | Any,
    *,
    by: By | None = None,
    max_weight: float | None = None,
    feedback: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> PropensityTable:
    """Examination by rank of a run or a log (in memory, a table, or a path), with weights of clicks.

    On a log it is measured `by` its shuffled pages where it has any, else by documents that it shows at several
    ranks (swaps). `max_weight` clips the weights, as it does for the method `ipw`. `columns` says theirs for ours.
    """
    if max_weight is not None and not max_weight >= 1:
        raise ConfigError("at least 1", argument="max_weight", value=max_weight)
    if by is not None:
        known("by", by, WAYS)
    if isinstance(source, str | Path):
        model = load(source) if (Path(source) / "model.json").exists() else None
    else:
        model = source.model if isinstance(source, Run) else source if isinstance(source, Scorer) else None
    if model is not None:
        if by is not None:
            raise ConfigError((Option("by", by), " is for logs; this is a run, which learned its own"))
        theta, found_by, note = of_run(model, source), f"method {model.card.method['name']}", None
    else:
        with log_tables(source, feedback, columns) as tables:
            told = of_log(tables, by)
        theta, note = np.asarray(told.examination), told.note
        found_by = next(WAYS[way] for way, method in METHOD.items() if method == told.method)
    weight = theta[0] / theta
    weight = weight if max_weight is None else np.minimum(weight, max_weight)
    return PropensityTable(theta, weight, found_by, note)


def of_run(model: Scorer, source: object) -> Array:
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
    return np.asarray(theta, np.float64)


def of_log(tables: LogTables, by: By | None) -> RankPropensities:
    """Examination measured on a log, as `diagnose` has it."""
    return measured_propensities(tables, None if by is None else METHOD[by])


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
            table, path = open_table(Path(source), [], feedback, columns=columns), str(source)
        if feedback is None:
            return open_tables(table)
        click = pa.array((read_feedback(table, feedback, path) > 0).astype(np.int8))
        kept = table.select([name for name in KEPT if name in table.column_names])
        return open_tables(kept.append_column("click", click))
