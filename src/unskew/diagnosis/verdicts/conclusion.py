"""What follows from the verdicts: can relevance be recovered, whose assumptions hold, what to do next.

Relevance can be recovered where clicks do not depend on the rank, or where every rank is linked to rank 1. It
cannot where no two ranks are: then the curve and the relevance of what stands at each rank explain clicks equally
well, whatever the method. (Methods that use features may still learn, if features do not tell the rank; clicks
alone do not say so.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from unskew.diagnosis.curves.ordering import RankByFeatures
from unskew.diagnosis.evidence.evidence import Evidence
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
from unskew.diagnosis.verdicts.verdict import Verdict
from unskew.results import Result
from unskew.settings import listed

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
