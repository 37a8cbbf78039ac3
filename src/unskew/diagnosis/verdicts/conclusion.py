"""What follows from the verdicts: can relevance be recovered, whose assumptions hold, what to do next.

Relevance can be recovered where clicks do not depend on the rank, or where every rank is linked to rank 1 by
documents that one query saw at both. It cannot where no two ranks are linked: then the curve and the relevance of
what stands at each rank explain clicks equally well, whatever the method. (Methods that use features may still
learn, if features do not tell the rank; clicks alone do not say so.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from unskew.diagnosis.curves.ordering import MUCH, RankByFeatures
from unskew.diagnosis.evidence.links import LEAST_CLICKS, Identifiability
from unskew.diagnosis.verdicts.advice import swaps_of
from unskew.diagnosis.verdicts.verdict import State, Verdict
from unskew.settings import listed

HOLDS: Mapping[bool | None, str] = {True: "", False: "do not", None: "are not told"}
"""What is said of methods whose assumptions hold, do not, or are not told."""
Answer = Literal["yes", "no", "cannot tell"]
CURVE = "clicks are examination times relevance, and the curve of examination is known"
TOWERS = "dla"
"""One of the methods that explain clicks by features and by rank."""
TWO_TOWERS = "clicks are examination by rank times relevance, and features do not tell the rank"


@dataclass(frozen=True)
class Fitness:
    """A group of methods, and whether what they assume holds here."""

    methods: tuple[str, ...]
    holds: bool | None
    """None where the log cannot tell."""
    why: str
    """What they assume."""
    but_page: bool = False
    """Whether it holds but for other factors of the page, which are not told."""


@dataclass(frozen=True)
class Conclusion:
    """What follows from all verdicts."""

    recoverable: Answer
    """Whether relevance can be recovered from the clicks."""
    why: str
    methods: tuple[Fitness, ...]
    next: tuple[str, ...]
    """What to do, most useful first."""

    def to_dict(self) -> dict[str, Any]:
        """Every field, for JSON."""
        return asdict(self)


def conclude(found: tuple[Verdict, ...], identifiability: Identifiability) -> Conclusion:
    """Whether relevance can be recovered, whose assumptions hold, and what to do next."""
    state = {one.key: one.state for one in found}
    recoverable, why = _recoverable(state, identifiability)
    methods = _methods(state, identifiability)
    steps = (*_next(found, state, identifiability), methods_said(methods))
    return Conclusion(recoverable, why, methods, tuple(step for step in steps if step))


def methods_said(methods: tuple[Fitness, ...]) -> str:
    """Whose assumptions hold here, in words; nothing where that is told of none.

    >>> methods_said((Fitness(("ipw",), True, ""), Fitness(("dla", "pal"), None, "")))
    'methods whose assumptions hold here: ipw; those of dla and pal are not told'
    """
    likely = [name for one in methods if one.but_page for name in one.methods]
    names = {holds: [name for one in methods if one.holds is holds for name in one.methods] for holds in HOLDS}
    names[None] = [name for name in names[None] if name not in likely]
    here = "methods whose assumptions hold here"
    said = [f"{here}: {listed(names[True])}"] if names[True] else []
    said += [f"{here} but for other factors of the page, which are not told: {listed(likely)}"] if likely else []
    rest = [f"those of {listed(names[holds])} {how}" for holds, how in HOLDS.items() if how and names[holds]]
    if not said:
        return f"no method's assumptions are known to hold here; {rest[0]}" if names[False] else ""
    return "; ".join([*said, *([", ".join(rest)] if rest else [])])


def _recoverable(state: dict[str, State], graph: Identifiability) -> tuple[Answer, str]:
    if state["position"] == "absent":
        return "yes", "clicks do not depend on the rank: click rates are relevance but for chance"
    if graph.flat is None:
        why = graph.reason or "no two ranks can be compared"
        if graph.pairs and graph.clicks < LEAST_CLICKS:
            return "cannot tell", f"{why} before the rank can be told from relevance"
        return "no", f"{why}: what is due to the rank and what to relevance cannot be told apart by clicks"
    if not graph.connected:
        return "cannot tell", f"{linked(graph.components)}: relevance is told among linked ranks only"
    if state["position"] == "cannot tell":
        return "cannot tell", "swaps are too few to tell the curve of examination"
    return "yes", "every rank is linked to rank 1 by documents that one query saw at both"


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
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][-1] == rank - 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = [word for run in runs for word in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    return f"rank{'s' if len(ranks) > 1 else ''} {listed(words)}"


def _methods(state: dict[str, State], graph: Identifiability) -> tuple[Fitness, ...]:
    def assuming(methods: tuple[str, ...], names: tuple[str, ...], why: str) -> Fitness:
        """Methods for logs in which these biases are absent."""
        found = {state[name] for name in names}
        untold = {name for name in names if state[name] == "cannot tell"}
        holds = False if "present" in found else None if untold else True
        likely = holds is None and untold == {"page"} and state["position"] != "cannot tell"
        return Fitness(methods, holds, why, likely)

    simple = ("trust", "documents", "page")
    weighted = assuming(("ipw",), simple, CURVE)
    if not graph.connected or graph.flat is None:
        weighted = replace(weighted, holds=False, but_page=False)
    people = None if state["people"] == "cannot tell" else state["people"] == "present"
    return (
        assuming(("naive",), ("position", *simple), "nothing but relevance decides over clicks"),
        weighted,
        assuming(("dla", "regression_em", "pair_debias", "additive", "pal"), simple, TWO_TOWERS),
        assuming(("affine", "tal"), ("documents", "page"), "a slope and an offset by rank, for all documents"),
        assuming(("vectorization", "lbd"), ("page",), "several curves, or a curve by document"),
        Fitness(("mixem",), people, "people of several kinds"),
    )


def _next(found: tuple[Verdict, ...], state: dict[str, State], graph: Identifiability) -> tuple[str, ...]:
    """What to do, most useful first, each once."""
    steps = [one.advice for one in found if one.state == "present"]
    if state["position"] == "absent" and not steps:
        steps = ["do not debias: learn from the clicks as they are"]
    elif not graph.connected or graph.flat is None:
        steps = [swaps_of(graph), *steps]
    steps += [one.advice for one in found if one.state == "cannot tell"]
    return tuple(dict.fromkeys(steps))


def with_features(conclusion: Conclusion, ordering: RankByFeatures) -> Conclusion:
    """The conclusion of a log whose features tell the rank: two towers would put relevance into the rank."""
    if ordering.correlation is None or ordering.correlation < MUCH:
        return conclusion
    connected = len(ordering.linked) == 1
    told = f"features tell the rank (correlation {ordering.correlation:.2f} within pages)"
    harm = "two towers would put relevance into the rank"
    apart = f"{told}: {harm}; give ipw the propensities that swaps tell"
    step = apart if connected else f"{told}, and no swap tells them apart: {harm}; shuffle some pages"
    methods = tuple(
        _doubted(each, told, None if connected else False) if TOWERS in each.methods else each
        for each in conclusion.methods
    )
    steps = [each for each in conclusion.next if each != methods_said(conclusion.methods)]
    steps = [each for each in (*steps, step, methods_said(methods)) if each]
    return replace(conclusion, methods=methods, next=tuple(steps))


def _doubted(fitness: Fitness, told: str, holds: bool | None) -> Fitness:
    return replace(fitness, holds=fitness.holds and holds, but_page=False, why=f"{fitness.why}; here {told}")
