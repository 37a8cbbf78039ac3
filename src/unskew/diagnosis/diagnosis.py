"""A whole diagnosis of a log: every part of it, the verdicts and what to do next; a log alone is enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter

from unskew import __version__
from unskew.diagnosis.click_models import ClickModelComparison, fit_and_compare, read_pages
from unskew.diagnosis.curves.co_clicks import CoClicks, co_clicks
from unskew.diagnosis.curves.factors import FactorEffects, factors
from unskew.diagnosis.curves.matrix import RateMatrix, click_matrix, read_labels
from unskew.diagnosis.curves.ordering import RankByFeatures, lists_of, rank_by_features
from unskew.diagnosis.curves.rates import Curves, curves
from unskew.diagnosis.curves.trust import TrustFit, trust
from unskew.diagnosis.evidence.evidence import Evidence, evidence
from unskew.diagnosis.evidence.links import linked_by_features
from unskew.diagnosis.evidence.tables import LogTables, open_tables
from unskew.diagnosis.verdicts.advice import Place
from unskew.diagnosis.verdicts.conclusion import Conclusion, conclude
from unskew.diagnosis.verdicts.verdict import Verdict, verdicts
from unskew.errors import ConfigError
from unskew.examination import Examination
from unskew.names import REQUIRED, Names
from unskew.results import Result
from unskew.tables.engine.engine import Engine
from unskew.types import Log

TAKEN = (*REQUIRED, "shuffled", "impressions", "clicks", "results", "bucket", "first_position")
TAKEN += ("last_click", "clicked_positions", "turn")
"""Names that the tables of a log have themselves."""


@dataclass(frozen=True)
class Diagnosis(Result):
    """What is wrong with a log; its page and its JSON say the same."""

    log: Mapping[str, Any]
    """The log in numbers."""
    curves: Curves
    evidence: Evidence
    """What swaps and shuffled slots tell of examination."""
    matrix: RateMatrix
    trust: TrustFit
    factors: FactorEffects
    co_clicks: CoClicks
    verdicts: tuple[Verdict, ...]
    """Which biases there are."""
    conclusion: Conclusion
    """Whether relevance can be recovered, whose assumptions hold, what to do next."""
    models: ClickModelComparison | None = None
    """Click models compared, where they were asked for."""
    ordering: RankByFeatures | None = None
    """How far features tell the rank, of a log that has features."""
    judged: RateMatrix | None = None
    """Click rates by label and rank, of a log that has labels."""
    version: str = __version__
    told: ClassVar = ("swap_plan",)

    @property
    def swap_plan(self) -> list[dict[str, Any]]:
        """Swaps that would link all ranks, as `unskew serve --swap-plan` carries them out."""
        return self.evidence.graph.swap_plan

    def propensities(self) -> Examination:
        """Examination by rank for `ipw`, `doubly_robust` and other learners; an error where the log tells none."""
        return self.evidence.usable(self.curves.rates.clicks)

    @classmethod
    def from_dict(cls, told: Any) -> Diagnosis:
        """What `to_dict` told, as a file of `unskew diagnose --json` has it."""
        return TypeAdapter(cls).validate_python(told)


def diagnose(
    source: Log | Path | str | Any,
    *,
    segments: Sequence[str] = (),
    serp: bool = True,
    features: Any = None,
    labels: Any = None,
    models: bool = False,
    columns: Mapping[str, str] | None = None,
    feature_columns: Mapping[str, str] | None = None,
    engine: Engine | str = "duckdb",
    seed: int = 0,
    **options: Any,
) -> Diagnosis:
    """Say which biases a log has, how strong, and whether they can be removed; no features, no labels needed.

    The log is Parquet files, a table in memory or a `Log`. Results are told apart by its serp_* columns, unless
    `serp` is off, and by the columns that `segments` names, such as the device. With `features`, as `learn` takes
    them, or of a `Log`, which has some, it is told how far they tell the rank. `labels` are a table or file of
    query_id, doc_id and label; those in the log are found. `models` fits click models too. `columns` says theirs
    for ours, `feature_columns` the same in `features` where it differs. `engine` is duckdb, spark, or one that is
    open; `options` go to it.
    """
    for name in segments:
        if name in TAKEN:
            what = "it says what was shown, or is a name of ours; name a column of few kinds, such as the device"
            raise ConfigError(what, argument="segments", value=[name])
    if features is not None and isinstance(source, Log):
        raise ConfigError("a Log has its own; leave them out", argument="features")
    place, fitted, lists, ordering = Place.of(source, features, columns), None, None, None
    named = tuple(dict.fromkeys(segments))
    with open_tables(source, columns=columns, segments=named, serp=serp, engine=engine, **options) as tables:
        if isinstance(source, Log):
            lists = source.lists
        elif features is not None:
            lists = lists_of(tables, features, Names.of(feature_columns or columns))
        judged = read_labels(tables, labels, Names.of(columns))
        if lists is not None:
            ordering = rank_by_features(tables, lists, seed=seed)
            ordering = replace(ordering, linked=linked_by_features(tables, lists))
        found = _parts(tables, ordering, place, seed)
        by_label = None if judged is None else click_matrix(tables, labels=judged, seed=seed)
    if models:
        name = engine if isinstance(engine, str) else engine.name
        pages = read_pages(source, columns=columns, engine=name, **options)
        fitted = fit_and_compare(pages, seed=seed)
    return Diagnosis(**found, models=fitted, ordering=ordering, judged=by_label)


def _parts(tables: LogTables, ordering: RankByFeatures | None, place: Place, seed: int) -> dict[str, Any]:
    """Every part that tables tell, and what follows from all."""
    found = evidence(tables)
    matrix, trusted, effects = click_matrix(tables, seed=seed), trust(tables), factors(tables)
    hanging = co_clicks(tables)
    judged = verdicts(found, matrix, trusted, effects, hanging, ordering, place)
    told = {"segments": list(tables.segments), "left_out": dict(tables.left_out)}
    return {
        "log": {"name": tables.place, **tables.facts, **told},
        "curves": curves(tables),
        "evidence": found,
        "matrix": matrix,
        "trust": trusted,
        "factors": effects,
        "co_clicks": hanging,
        "verdicts": judged,
        "conclusion": conclude(judged, found, ordering, place),
    }
