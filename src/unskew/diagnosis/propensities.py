"""Examination by rank in files that `ipw`, `doubly_robust` and other learners read: propensities.json and .csv.

Methods want a number for every rank, from 1 on. So a file ends before the first rank that the log cannot tell, and
says so; ranks beyond take the last number, as methods do. The interval is 95 %.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unskew.diagnosis.evidence.estimates import METHODS, ExaminationCurve, FittedCurve, Interventions, measure
from unskew.diagnosis.evidence.tables import LogTables
from unskew.errors import DataError
from unskew.files import complete_file
from unskew.types import Array

NAME = "propensities"


@dataclass(frozen=True)
class RankPropensities:
    """Examination relative to rank 1 for the first ranks of a log, with intervals."""

    examination: tuple[float, ...]
    interval: tuple[tuple[float, float], ...]
    method: str
    note: str | None
    """What is missing further down, and why."""
    effective_clicks: float | None = None
    """Clicks of equal weight that tell as much as those of the log weighted by 1 / examination."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON, and as a file for the method `ipw`."""
        return {
            "examination": list(self.examination),
            "interval": [list(span) for span in self.interval],
            "method": self.method,
            "found_by": METHODS[self.method][0],
            "note": self.note,
            "effective_clicks": self.effective_clicks,
        }

    def csv_text(self) -> str:
        """As CSV: position, examination, low, high."""
        rows = zip(self.examination, self.interval, strict=True)
        lines = [f"{k},{seen:.6g},{low:.6g},{high:.6g}" for k, (seen, (low, high)) in enumerate(rows, start=1)]
        return "\n".join(["position,examination,low,high", *lines, ""])

    def write(self, folder: Path | str) -> list[Path]:
        """Write propensities.json and propensities.csv into a folder; where they are."""
        text = json.dumps(self.to_dict(), indent=1) + "\n"
        written = []
        for suffix, content in ((".json", text), (".csv", self.csv_text())):
            written.append(Path(folder) / f"{NAME}{suffix}")
            with complete_file(written[-1]) as ready:
                ready.write_text(content, encoding="utf-8")
        return written


def propensities(found: Interventions, clicks: tuple[int, ...] = ()) -> RankPropensities:
    """The chosen curve of a log as far down as it is told without a gap; `clicks` of the log at each rank."""
    if found.chosen is None:
        raise _untold(found.reason)
    return of_curve(found.chosen, clicks)


def measured_propensities(tables: LogTables, by: str | None = None) -> RankPropensities:
    """The same numbers without the rest of a diagnosis; `by` is shuffled, all_pairs, or the first that tells."""
    reasons = []
    for method in ("shuffled", "all_pairs") if by is None else (by,):
        found = measure(tables, method)
        if found is not None and found.curve.known > 1:
            return of_curve(found.curve)
        reasons.append(_reason(found))
    raise _untold("; ".join(dict.fromkeys(reasons)))


def _reason(found: FittedCurve | None) -> str:
    """Why there is no curve."""
    if found is None:
        return "it has no randomized pages"
    return next((why for why in found.curve.reason if why), "the log shows one position only")


def _untold(reason: str | None) -> DataError:
    hint = "shuffle some pages and mark them in a column `randomized`, or learn with a method such as dla"
    return DataError(f"the log tells no examination: {reason}", hint=hint)


def best_guess(found: FittedCurve | None) -> Array:
    """Examination of all ranks that hang together, for methods, which need numbers; with a warning if unsure."""
    if found is None or found.clicks[0] == 0 or not found.clicks[1:].any() or np.isnan(found.best[1:2]).any():
        raise _untold(_reason(found))
    end = int(np.isnan(found.best).argmax()) if np.isnan(found.best).any() else len(found.best)
    unsure = [rank + 1 for rank in range(end) if found.curve.reason[rank] is not None]
    if unsure:
        why = found.curve.reason[unsure[0] - 1]
        warnings.warn(
            f"examination from rank {unsure[0]} on is a guess: {why}; randomize more pages", stacklevel=3
        )
    return found.best[:end]


def of_curve(curve: ExaminationCurve, clicks: tuple[int, ...] = ()) -> RankPropensities:
    """A curve up to its first gap."""
    told = list(curve.examination)
    end = told.index(None) if None in told else len(told)
    lost = len(told) - end
    note = f"ranks {end + 1} to {len(told)} are left out. Rank {end + 1}: {curve.reason[end]}" if lost else None
    seen = tuple(value for value in told[:end] if value is not None)
    spans = tuple(span for span in curve.interval[:end] if span is not None)
    return RankPropensities(seen, spans, curve.method, note, effective_clicks(seen, clicks))


def effective_clicks(examination: tuple[float, ...], clicks: tuple[int, ...]) -> float | None:
    """(sum c w)^2 / sum c w^2 with w = 1 / examination, over the ranks that have both; None without clicks.

    >>> effective_clicks((1.0, 0.5), (100, 50))
    133.33333333333334
    """
    pairs = [(c, 1 / seen) for c, seen in zip(clicks, examination, strict=False)]
    squares = sum(c * w * w for c, w in pairs)
    return sum(c * w for c, w in pairs) ** 2 / squares if squares else None
