"""A whole diagnosis of a log: every part of it, the verdicts and what to do next; a log alone is enough.

Relevance can be recovered where clicks do not depend on the rank, or where every rank is linked to rank 1. It
cannot where no two ranks are: then the curve and the relevance of what stands at each rank explain clicks equally
well, whatever the method. (Methods that use features may still learn, if features do not tell the rank; clicks
alone do not say so.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
from pydantic import TypeAdapter

from unskew import __version__
from unskew.diagnosis.click_models import ClickModelComparison, fit_and_compare, read_pages
from unskew.diagnosis.curves.co_clicks import CoClicks, co_clicks
from unskew.diagnosis.curves.factors import FactorEffects, factors
from unskew.diagnosis.curves.headroom import Headroom, headroom
from unskew.diagnosis.curves.matrix import RateMatrix, click_matrix, read_labels
from unskew.diagnosis.curves.ordering import RankByFeatures, lists_of, rank_by_features
from unskew.diagnosis.curves.rates import Curves, curves
from unskew.diagnosis.curves.trust import TrustFit, trust
from unskew.diagnosis.evidence.evidence import Evidence, evidence
from unskew.diagnosis.evidence.links import linked_by_features
from unskew.diagnosis.evidence.tables import LogTables, open_tables
from unskew.diagnosis.verdicts.advice import (
    Fitness,
    NextStep,
    Place,
    fitness,
    learning,
    likely,
    methods_said,
    names_that,
    swaps_of,
)
from unskew.diagnosis.verdicts.verdict import Verdict, verdicts
from unskew.engine_prior import EnginePrior
from unskew.errors import ConfigError
from unskew.examination import Examination
from unskew.logs.ingest.rules import FewClickers
from unskew.logs.reader import opened
from unskew.names import NO_NAMES, REQUIRED, Names
from unskew.options.base import EngineConnection
from unskew.results import Result
from unskew.settings import listed
from unskew.tables.engine.engine import Engine
from unskew.tables.frames import is_frame
from unskew.types import Log

TAKEN = (*REQUIRED, "shuffled", "impressions", "clicks", "results", "bucket", "first_position")
TAKEN += ("last_click", "clicked_positions", "turn")
"""Names that the tables of a log have themselves."""
Recoverable = Literal["yes", "no", "cannot tell"]


@dataclass(frozen=True)
class Conclusion(Result):
    """What follows from all verdicts."""

    recoverable: Recoverable
    """Whether relevance can be recovered from the clicks."""
    why: str
    methods: tuple[Fitness, ...]
    next: tuple[NextStep, ...]
    """What to do, most useful first."""


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
    few_clickers: FewClickers | None = None
    """Where many clicks come from a few people, most on results of their own."""
    headroom: Headroom | None = None
    """How near the order shown comes to the best one, and so what can be gained at most."""
    version: str = __version__
    told: ClassVar = ("swap_plan", "engine")

    @property
    def swap_plan(self) -> list[dict[str, Any]]:
        """Swaps that would link all ranks, as `unskew serve --swap-plan` carries them out."""
        return self.evidence.graph.swap_plan

    @property
    def engine(self) -> EnginePrior | None:
        """What the order shown says of relevance; None where the log tells no examination."""
        if self.evidence.chosen is None:
            return None
        seen, rates = self.evidence.examination.usable(), self.curves.rates
        shown, clicks = (np.array(each[: seen.known], float) for each in (rates.pages, rates.clicks))
        return EnginePrior.of(shown, clicks, seen)

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
    names: Names = NO_NAMES,
    feature_names: Names | None = None,
    engine: Engine | str = "duckdb",
    seed: int = 0,
    **connection: Unpack[EngineConnection],
) -> Diagnosis:
    """Say which biases a log has, how strong, and whether they can be removed; no features, no labels needed.

    The log is Parquet files, a table in memory or a `Log`. Results are told apart by its serp_* columns, unless
    `serp` is off, and by the columns that `segments` names, such as the device. With `features`, as `learn` takes
    them, or of a `Log`, which has some, it is told how far they tell the rank. `labels` are a table or file of
    query_id, doc_id and label; those in the log are found. `models` fits click models too. `names` says theirs
    for ours, `feature_names` the same in `features` where it differs. `engine` is duckdb, spark, or one that is
    open; `connection` goes to it.
    """
    for name in segments:
        if name in TAKEN:
            what = "it says what was shown, or is a name of ours; name a column of few kinds, such as the device"
            raise ConfigError(what, argument="segments", value=[name])
    if features is not None and isinstance(source, Log):
        raise ConfigError("a Log has its own; leave them out", argument="features")
    place, fitted, lists, ordering = Place.of(source, features, names), None, None, None
    source = opened(source, names) if is_frame(source) else source  # once, for click models too
    named = tuple(dict.fromkeys(segments))
    with open_tables(source, names=names, segments=named, serp=serp, engine=engine, **connection) as tables:
        if isinstance(source, Log):
            lists = source.lists
        elif features is not None:
            lists = lists_of(tables, features, feature_names or names)
        judged = read_labels(tables, labels, names)
        if lists is not None:
            ordering = rank_by_features(tables, lists, seed=seed)
            ordering = replace(ordering, linked=linked_by_features(tables, lists))
        found = _parts(tables, ordering, place, seed)
        by_label = None if judged is None else click_matrix(tables, labels=judged, seed=seed)
    if models:
        name = engine if isinstance(engine, str) else engine.name
        pages = read_pages(source, columns=names, engine=name, **connection)
        fitted = fit_and_compare(pages, seed=seed)
    return Diagnosis(**found, models=fitted, ordering=ordering, judged=by_label)


def _parts(tables: LogTables, ordering: RankByFeatures | None, place: Place, seed: int) -> dict[str, Any]:
    """Every part that tables tell, and what follows from all."""
    found = evidence(tables)
    matrix, trusted, effects = click_matrix(tables, seed=seed), trust(tables), factors(tables)
    hanging = co_clicks(tables)
    judged = verdicts(found, matrix, trusted, effects, hanging, ordering, place)
    told = {"segments": list(tables.segments), "left_out": dict(tables.left_out)}
    conclusion, few = conclude(judged, found, ordering, place), tables.few_clickers
    if few is not None:
        conclusion = replace(conclusion, next=(NextStep(str(few)), *conclusion.next))
    return {
        "log": {"name": tables.place, **tables.facts, **told},
        "curves": curves(tables),
        "evidence": found,
        "matrix": matrix,
        "trust": trusted,
        "factors": effects,
        "co_clicks": hanging,
        "headroom": headroom(tables, found, seed),
        "verdicts": judged,
        "conclusion": conclusion,
        "few_clickers": few,
    }


# ---- what follows from the verdicts ----


def conclude(
    found: tuple[Verdict, ...],
    evidence: Evidence,
    ordering: RankByFeatures | None = None,
    place: Place | None = None,
) -> Conclusion:
    """Whether relevance can be recovered, whose assumptions hold, and what to do next."""
    state, place = {one.key: one.state for one in found}, place or Place()
    columns = next(one.columns for one in found if one.key == "page")
    methods = fitness(state, evidence, columns, ordering)
    recoverable, why = _recoverable(state["position"], evidence, methods)
    steps = [one.advice for one in found if one.state == "present"]
    if state["position"] != "absent" and not evidence.linked:
        steps = [swaps_of(evidence.graph, place), *steps]
    elif state["position"] == "absent" and not steps:
        steps = [NextStep("do not debias: learn from the clicks as they are", place.learn("naive"))]
    steps += [one.advice for one in found if one.state == "cannot tell"]
    steps += _by_features(ordering, place)
    if said := methods_said(methods):
        best = [*names_that(methods, True), *likely(methods), "auto"][0]
        steps.append(NextStep(said, learning(best, methods, evidence, place)))
    return Conclusion(recoverable, why, methods, tuple({step.text: step for step in steps}.values()))


def _recoverable(position: str, evidence: Evidence, methods: Sequence[Fitness]) -> tuple[Recoverable, str]:
    if position == "absent":
        unknown, plain = "what else changes them is not known", "click rates are relevance but for chance"
        return "yes", f"clicks do not depend on the rank: {plain if methods[0].holds else unknown}"
    if evidence.chosen is None and evidence.some:
        return "cannot tell", f"{evidence.reason}, before the rank can be told from relevance"
    if evidence.chosen is None:
        untold = "what is due to the rank and what to relevance cannot be told apart by clicks"
        return "no", f"{evidence.reason}: {untold}"
    if not evidence.linked:
        return "cannot tell", f"{linked(evidence.graph.components)}: relevance is told among linked ranks only"
    if position == "cannot tell":
        return "cannot tell", "the evidence is too little to tell the curve of examination from a flat one"
    if all(each.holds is False for each in methods if each.corrects):
        return "cannot tell", "every rank is linked to rank 1, but what each method assumes does not hold"
    ranks, how = evidence.graph.ranks, "documents that one query saw at both"
    how = "shuffled pages" if evidence.chosen == "shuffled" else how
    every = "every rank" if ranks == len(evidence.examination.theta) else f"each of the first {ranks} ranks"
    return "yes", f"{every} is linked to rank 1 by {how}"


def linked(parts: tuple[tuple[int, ...], ...]) -> str:
    """Which ranks hang together, in words.

    >>> linked(((1, 2, 3), (5, 6), (4,), (7,)))
    'ranks 1 to 3 are linked with each other, ranks 5 and 6 with each other, ranks 4 and 7 with none'
    """
    together = [f"{_ranks(part)} are linked with each other" for part in parts if len(part) > 1]
    together[1:] = [part.replace("are linked ", "") for part in together[1:]]
    alone = tuple(sorted(part[0] for part in parts if len(part) == 1))
    none = "with none" if together else "is linked with none" if len(alone) == 1 else "are linked with none"
    return ", ".join([*together, *([f"{_ranks(alone)} {none}"] if alone else [])])


def _ranks(ranks: tuple[int, ...]) -> str:
    """Ranks in words, those that follow each other as one.

    >>> _ranks((1, 2, 3, 4, 7, 9, 10)), _ranks((3, 4)), _ranks((8,))
    ('ranks 1 to 4, 7, 9 and 10', 'ranks 3 and 4', 'rank 8')
    """
    words: list[str] = []
    for run in runs(ranks):
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return f"rank{'s' if len(ranks) > 1 else ''} {listed(words)}"


def runs(ranks: Sequence[int]) -> list[list[int]]:
    """Ranks dealt into those that follow each other."""
    grouped = groupby(enumerate(ranks), key=lambda each: each[1] - each[0])
    return [[rank for _, rank in group] for _, group in grouped]


def _by_features(ordering: RankByFeatures | None, place: Place) -> list[NextStep]:
    """What to do where features tell the rank."""
    told = None if ordering is None else ordering.tells_rank
    if ordering is None or told is None:
        return []
    harm = "two towers would put relevance into the rank"
    if len(ordering.linked) == 1:
        command = place.learn("ipw", "--set", "method.propensity=swaps")
        return [NextStep(f"{told}: {harm}; give ipw the propensities that swaps tell", command)]
    return [place.shuffle(f"{told}, and no swap tells them apart: {harm}; shuffle some pages")]
