"""A whole diagnosis of a log: every part of it, the verdicts and what to do next; a log alone is enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unskew import __version__
from unskew.clicks.naming import Columns
from unskew.clicks.schema import REQUIRED
from unskew.diagnosis.conclusion import Conclusion, conclude
from unskew.diagnosis.curves import Curves, curves
from unskew.diagnosis.factors import FactorEffects, factors
from unskew.diagnosis.identify import Identifiability, identify
from unskew.diagnosis.interventions import Interventions, interventions
from unskew.diagnosis.matrix import RateMatrix, click_matrix
from unskew.diagnosis.models import fit_and_compare, read_pages
from unskew.diagnosis.ordering import RankByFeatures, rank_by_features
from unskew.diagnosis.propensities import RankPropensities, propensities
from unskew.diagnosis.tables import LogTables, open_tables
from unskew.diagnosis.together import CoClicks, together
from unskew.diagnosis.trust import TrustFit, trust
from unskew.diagnosis.verdict import Verdict, verdicts
from unskew.errors import ConfigError
from unskew.types import Log

TAKEN = (*REQUIRED, "shuffled", "impressions", "clicks", "results", "bucket", "first_position", "first_click")
TAKEN += ("last_click", "clicked_positions")
"""Names that the tables of a log have themselves."""


@dataclass(frozen=True)
class Diagnosis:
    """What is wrong with a log."""

    log: Mapping[str, Any]
    """The log in numbers."""
    curves: Curves
    interventions: Interventions
    matrix: RateMatrix
    trust: TrustFit
    factors: FactorEffects
    together: CoClicks
    identifiability: Identifiability
    verdicts: tuple[Verdict, ...]
    """Which biases there are."""
    conclusion: Conclusion
    """Whether relevance can be recovered, whose assumptions hold, what to do next."""
    models: Mapping[str, Any] | None = None
    """Click models compared, where they were asked for."""
    ordering: RankByFeatures | None = None
    """How far features tell the rank, of a log that has features."""

    def to_dict(self) -> dict[str, Any]:
        """Every number of the page, for JSON."""
        return {
            "log": dict(self.log),
            "curves": self.curves.to_dict(),
            "interventions": self.interventions.to_dict(),
            "matrix": self.matrix.to_dict(),
            "trust": self.trust.to_dict(),
            "factors": self.factors.to_dict(),
            "together": self.together.to_dict(),
            "identifiability": self.identifiability.to_dict(),
            "ordering": None if self.ordering is None else self.ordering.to_dict(),
            "models": self.models,
            "verdicts": [each.to_dict() for each in self.verdicts],
            "conclusion": self.conclusion.to_dict(),
            "advice": list(self.conclusion.next),
            "version": __version__,
        }

    def propensities(self) -> RankPropensities:
        """Examination by rank for `ipw`, `doubly_robust` and other learners; an error where the log tells none."""
        return propensities(self.interventions, self.curves.rates.clicks)


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
    device. `models` fits click models too. Of a `Log`, which has features, it is told how far they tell the rank.
    `columns` says theirs for ours; `options` go to the engine.
    """
    fitted = None
    named = _segments(segments)
    with open_tables(source, columns=columns, segments=named, engine=engine, **options) as tables:
        found = _parts(tables, seed)
    if models:
        pages = read_pages(source, columns=columns, engine=engine, **options)
        fitted = fit_and_compare(pages, seed=seed).to_dict()
    ordering = rank_by_features(source, seed=seed) if isinstance(source, Log) else None
    return Diagnosis(**found, models=fitted, ordering=ordering)


def _segments(names: Sequence[str]) -> tuple[str, ...]:
    """Columns to tell results by, each once; not those that say what was shown."""
    for name in names:
        if name in TAKEN:
            raise ConfigError(f"segments: {name} cannot be one; name a column of few kinds, such as the device")
    return tuple(dict.fromkeys(names))


def _parts(tables: LogTables, seed: int) -> dict[str, Any]:
    """Every part that tables tell, and what follows from all."""
    matrix, trusted, effects = click_matrix(tables, seed=seed), trust(tables), factors(tables)
    hanging, graph = together(tables), identify(tables)
    judged = verdicts(graph, matrix, trusted, effects, hanging)
    return {
        "log": {"name": tables.place, **tables.facts, "segments": list(tables.segments)},
        "curves": curves(tables),
        "interventions": interventions(tables),
        "matrix": matrix,
        "trust": trusted,
        "factors": effects,
        "together": hanging,
        "identifiability": graph,
        "verdicts": judged,
        "conclusion": conclude(judged, graph),
    }
