"""A whole diagnosis of a log: every part of it, the verdicts and what to do next; a log alone is enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from unskew import __version__
from unskew.clicks.naming import Columns
from unskew.diagnosis.curves import Curves, curves
from unskew.diagnosis.factors import factors
from unskew.diagnosis.identify import identify
from unskew.diagnosis.interventions import Interventions, interventions
from unskew.diagnosis.matrix import click_matrix
from unskew.diagnosis.models import fit_and_compare, read_pages
from unskew.diagnosis.propensities import RankPropensities, propensities
from unskew.diagnosis.tables import LogTables, open_tables
from unskew.diagnosis.together import together
from unskew.diagnosis.trust import trust
from unskew.types import Log


class DiagnosisPart(Protocol):
    """What one part of a diagnosis found."""

    def to_dict(self) -> dict[str, Any]:
        """Every number, for JSON."""
        ...


PARTS: Mapping[str, Callable[[LogTables], DiagnosisPart]] = {
    "curves": curves,
    "interventions": interventions,
    "matrix": click_matrix,
    "trust": trust,
    "factors": factors,
    "together": together,
    "identifiability": identify,
}
"""The parts, by their keys in the JSON."""


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a log."""

    log: Mapping[str, Any]
    """The log in numbers."""
    parts: Mapping[str, DiagnosisPart]
    """What each of `PARTS` found."""
    models: Mapping[str, Any] | None = None
    """Click models compared, where they were asked for."""
    verdicts: Sequence[DiagnosisPart] = field(default=())
    """Which biases there are."""
    advice: Sequence[str] = ()
    """What to do next."""

    def to_dict(self) -> dict[str, Any]:
        """Every number of the page, for JSON."""
        return {
            "log": dict(self.log),
            **{name: part.to_dict() for name, part in self.parts.items()},
            "models": self.models,
            "verdicts": [each.to_dict() for each in self.verdicts],
            "advice": list(self.advice),
            "version": __version__,
        }

    def propensities(self) -> RankPropensities:
        """Examination by rank for `ipw`, `doubly_robust` and other learners; an error where the log tells none."""
        found, rates = self.parts["interventions"], self.parts["curves"]
        assert isinstance(found, Interventions)
        assert isinstance(rates, Curves)
        return propensities(found, rates.rates.clicks)


def diagnose(
    source: Log | Path | str | Any,
    *,
    segments: Sequence[str] = (),
    models: bool = False,
    columns: Columns | None = None,
    engine: str = "duckdb",
    seed: int = 0,
    **options: Any,
) -> Diagnosis:
    """Say which biases a log has, how strong, and whether they can be removed; no features, no labels needed.

    The log is Parquet files, a table in memory or a `Log`. `segments` are columns to tell results by, such as the
    device. `models` fits click models too. `columns` says theirs for ours; `options` go to the engine.
    """
    with open_tables(source, columns=columns, segments=tuple(segments), engine=engine, **options) as tables:
        parts = {name: part(tables) for name, part in PARTS.items()}
        log = {"name": tables.place, **tables.facts, "segments": list(tables.segments)}
    fitted = _models(source, columns, engine, seed, options) if models else None
    return Diagnosis(log, parts, fitted)


def _models(
    source: Any, columns: Columns | None, engine: str, seed: int, options: Mapping[str, Any]
) -> dict[str, Any]:
    """All click models of the log, compared."""
    pages = read_pages(source, columns=columns, engine=engine, **options)
    return fit_and_compare(pages, seed=seed).to_dict()
