"""Where the numbers of a page come from: what was simulated and what was real, in a sentence."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from unskew.logs.log import simulated_by
from unskew.settings import listed
from unskew.simulation import Behaviour

GENERATED = "generated lists"
NOBODY = "no real user was involved"


def simulated_on(people: Iterable[Behaviour], lists: Sequence[str]) -> str:
    """Clicks that were simulated, of these behaviours on these lists.

    >>> from unskew.simulation import Cascade
    >>> simulated_on([Cascade()], [GENERATED, "the lists of a.txt"])
    'Clicks simulated (cascade) on generated lists and on the lists of a.txt; no real user was involved.'
    """
    said = behaviour_words(*people)
    return f"Clicks simulated ({said}) on {listed(list(dict.fromkeys(lists)), ' and on ')}; {NOBODY}."


def behaviour_words(*people: Behaviour) -> str:
    """The kinds of behaviours, whatever labels they have, with the least and the most severe bias of each.

    >>> from unskew.simulation import PositionBias
    >>> behaviour_words(*(PositionBias(severity=severity) for severity in (1.0, 0.5, 2.0)))
    'position bias, severity 0.5 to 2'
    """
    kinds: dict[str, set[float]] = {}
    for behaviour in people:
        severity = getattr(behaviour, "severity", None)
        kinds.setdefault(behaviour.called or type(behaviour).__name__, set()).update(
            [] if severity is None else [float(severity)]
        )
    ends = {kind: sorted({min(found), max(found)}) if found else [] for kind, found in kinds.items()}
    return "; ".join(
        kind + (f", severity {' to '.join(f'{end:g}' for end in found)}" if found else "")
        for kind, found in ends.items()
    )


def log_origin(path: Path | str, more: str = "") -> str:
    """Whether a log in a file was simulated, as far as the file tells, and `more` that lies beside it."""
    how, beside = simulated_by(path), f", {more}" if more else ""
    if how is None:
        return f"A log as it was given, {path}{beside}: nothing in its files says that it was simulated."
    return f"A simulated log, {path} ({how}){beside}; {NOBODY}."
