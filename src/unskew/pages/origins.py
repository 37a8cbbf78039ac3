"""Where the numbers of a page come from: what was simulated and what was real, in a sentence."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from unskew.logs.log import simulated_by
from unskew.settings import listed
from unskew.simulation import BEHAVIOURS, Behaviour

GENERATED = "generated lists"
BIASES = {name: f"{name} bias" for name in ("position", "trust", "individual")} | {"page": "whole-page bias"}
"""Behaviours that have another name among people."""
NOBODY = "no real user was involved"


def simulated_on(people: Iterable[Behaviour], lists: Sequence[str]) -> str:
    """Clicks that were simulated, of these behaviours on these lists.

    >>> simulated_on([BEHAVIOURS["cascade"]()], [GENERATED, real("MQ2008")])
    'Clicks simulated (cascade) on generated lists and on the real lists of MQ2008; no real user was involved.'
    """
    said = behaviour_words(*people)
    return f"Clicks simulated ({said}) on {listed(list(dict.fromkeys(lists)), ' and on ')}; {NOBODY}."


def real(name: str) -> str:
    """Lists of a public data set."""
    return f"the real lists of {name}"


def behaviour_words(*people: Behaviour) -> str:
    """The kinds of behaviours, whatever labels they have, with the least and the most severe bias of each.

    >>> behaviour_words(*(BEHAVIOURS["position"](severity=severity) for severity in (1.0, 0.5, 2.0)))
    'position bias, severity 0.5 to 2'
    """
    kinds: dict[str, set[float]] = {}
    for behaviour in people:
        severity = getattr(behaviour, "severity", None)
        kinds.setdefault(_kind(behaviour), set()).update([] if severity is None else [float(severity)])
    ends = {kind: sorted({min(found), max(found)}) if found else [] for kind, found in kinds.items()}
    return "; ".join(
        kind + (f", severity {' to '.join(f'{end:g}' for end in found)}" if found else "")
        for kind, found in ends.items()
    )


def _kind(behaviour: Behaviour) -> str:
    name = next((name for name, kind in BEHAVIOURS.items() if type(behaviour) is kind), type(behaviour).__name__)
    return BIASES.get(name, name.replace("_", " "))


def log_origin(path: Path | str, more: str = "") -> str:
    """Whether a log in a file was simulated, as far as the file tells, and `more` that lies beside it."""
    how, beside = simulated_by(path), f", {more}" if more else ""
    if how is None:
        return f"A log as it was given, {path}{beside}: nothing in its files says that it was simulated."
    return f"A simulated log, {path} ({how}){beside}; {NOBODY}."
