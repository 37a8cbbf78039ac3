"""What follows from the verdicts: can relevance be recovered, whose assumptions hold, what to do next.

Relevance can be recovered where clicks do not depend on the rank, or where every rank is linked to rank 1 by
documents that one query saw at both. It cannot where no two ranks are linked: then the curve and the relevance of
what stands at each rank explain clicks equally well, whatever the method. (Methods that use features may still
learn, if features do not tell the rank; clicks alone do not say so.)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from unskew.diagnosis.identify import Identifiability
from unskew.diagnosis.verdict import State, Verdict, swaps_of

Answer = Literal["yes", "no", "cannot tell"]
CURVE = "clicks are examination times relevance, and the curve of examination is known"
TWO_TOWERS = "clicks are examination by rank times relevance, and features do not tell the rank"


@dataclass(frozen=True)
class Fitness:
    """A group of methods, and whether what they assume holds here."""

    methods: tuple[str, ...]
    holds: bool | None
    """None where the log cannot tell."""
    why: str
    """What they assume."""


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
    return Conclusion(recoverable, why, _methods(state, identifiability), _next(found, state, identifiability))


def _recoverable(state: dict[str, State], graph: Identifiability) -> tuple[Answer, str]:
    if state["position"] == "absent":
        return "yes", "clicks do not depend on the rank: click rates are relevance but for chance"
    if graph.flat is None:
        why = graph.reason or "no two ranks can be compared"
        return "no", f"{why}: what is due to the rank and what to relevance cannot be told apart by clicks"
    if not graph.connected:
        parts = " and ".join(_ranks(part) for part in graph.components)
        return "cannot tell", f"ranks {parts} are not linked: relevance is told within these only"
    if state["position"] == "cannot tell":
        return "cannot tell", "swaps are too few to tell the curve of examination"
    return "yes", "every rank is linked to rank 1 by documents that one query saw at both"


def _ranks(part: tuple[int, ...]) -> str:
    return str(part[0]) if len(part) == 1 else f"{part[0]} to {part[-1]}"


def _methods(state: dict[str, State], graph: Identifiability) -> tuple[Fitness, ...]:
    def absent(*names: str) -> bool | None:
        found = [state[name] for name in names]
        return False if "present" in found else None if "cannot tell" in found else True

    curve = graph.connected and graph.flat is not None
    simple = absent("trust", "documents", "page")
    people = None if state["people"] == "cannot tell" else state["people"] == "present"
    return (
        Fitness(("naive",), absent("position", "trust", "page"), "nothing but relevance decides over clicks"),
        Fitness(("ipw",), simple if curve else False, CURVE),
        Fitness(("dla", "regression_em", "pair_debias", "additive", "pal"), simple, TWO_TOWERS),
        Fitness(
            ("affine", "tal"), absent("documents", "page"), "a slope and an offset by rank, for all documents"
        ),
        Fitness(("vectorization", "lbd"), absent("page"), "several curves, or a curve by document"),
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
