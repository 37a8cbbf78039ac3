"""What estimates say together: better, worse or cannot tell, by a rule of a few lines.

1. Random slots decide alone: where the interval of `direct` leaves 0 out, its side is the verdict.
2. Else two estimates are needed that rest on different grounds (a curve of examination; documents shown at several
   ranks; raw clicks), both with intervals on the same side of 0, and none on the other.
3. Raw clicks favour the order shown. Their gain counts as one of the two, their loss does not count.
4. Else nobody can tell, and the sentence says how many shuffled pages would.

A run's own examination can never decide alone: it is one ground, however many estimates use it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import ndtr

from unskew.measuring.counterfactual.evidence import Answer, ClickEvidence, GainEstimate
from unskew.measuring.counterfactual.sums import standard_error
from unskew.types import Array

SIDES: dict[int, Answer] = {1: "better", -1: "worse", 0: "cannot tell"}


def conclude(
    estimates: tuple[GainEstimate, ...],
    drawn: Mapping[str, Array],
    *,
    pages: int,
    changed: int,
    level: float,
    missing: float | None,
) -> ClickEvidence:
    """The verdict on estimates, with their draws [R] each."""
    side, names = decide(estimates)
    needed = None if side or not changed else pages_needed(estimates, drawn)
    verdict = SIDES[side]
    return ClickEvidence(
        estimates=estimates,
        verdict=verdict,
        sentence=sentence(verdict, names, estimates, pages=pages, changed=changed, needed=needed),
        agreement=agreement(estimates, drawn),
        decided_by=names,
        pages_needed=needed,
        missing_overlap=missing,
        pages=pages,
        level=level,
    )


def decide(estimates: tuple[GainEstimate, ...]) -> tuple[int, tuple[str, ...]]:
    """1, -1 or 0, and the estimates that say so."""
    direct = [one for one in estimates if one.grounds == "random" and one.name == "direct"]
    if direct and direct[0].sign:
        return direct[0].sign, (direct[0].name,)
    voices = [one for one in estimates if one.sign and not (one.grounds == "shown" and one.sign < 0)]
    if len({one.sign for one in voices}) != 1 or len({one.grounds for one in voices}) < 2:
        return 0, ()
    return voices[0].sign, tuple(one.name for one in voices)


def agreement(estimates: tuple[GainEstimate, ...], drawn: Mapping[str, Array]) -> str:
    """Whether estimates on different grounds say the same, on the same draws; relative gains are compared."""
    told = [one for one in estimates if one.interval is not None and one.relative is not None]
    told = [one for one in told if one.grounds != "shown"]
    apart = [
        f"{first.name} ({first.relative:+.1%}) and {second.name} ({second.relative:+.1%})"
        for number, first in enumerate(told)
        for second in told[number + 1 :]
        if first.grounds != second.grounds and _differ(first, second, drawn)
    ]
    grounds = {one.grounds for one in told}
    if len(grounds) < 2:
        return "There are no two estimates that assume different things."
    if apart:
        return f"They do not agree: {apart[0]} differ by more than chance; one of the assumptions does not hold."
    return f"{_listed([one.name for one in told])} agree within chance."


def pages_needed(estimates: tuple[GainEstimate, ...], drawn: Mapping[str, Array]) -> int | None:
    """Shuffled pages at which `direct` would leave 0 out, four times in five, at a difference of this size."""
    direct = next((one for one in estimates if one.name == "direct"), None)
    if direct is None or not direct.difference or direct.interval is None or direct.effective is None:
        return None
    error = standard_error(drawn["direct"], direct.clusters)
    return int(np.ceil(direct.pages * (2.8 * error / direct.difference) ** 2)) if error else None


def _differ(first: GainEstimate, second: GainEstimate, drawn: Mapping[str, Array]) -> bool:
    """Whether two relative gains are apart by more than chance, p < 0.01 by the paired draws."""
    if first.relative is None or second.relative is None or not first.other or not second.other:
        return False
    gap = first.relative - second.relative
    draws = drawn[first.name] / abs(first.other) - drawn[second.name] / abs(second.other)
    error = standard_error(draws, min(first.clusters, second.clusters))
    return bool(error > 0 and 2 * ndtr(-abs(gap) / error) < 0.01)


def sentence(
    verdict: Answer,
    names: tuple[str, ...],
    estimates: tuple[GainEstimate, ...],
    *,
    pages: int,
    changed: int,
    needed: int | None,
) -> str:
    """The verdict with its numbers."""
    if not changed:
        return f"Both order the results of all {pages:,} pages alike."
    if verdict != "cannot tell":
        said = [_told(one) for one in estimates if one.name in names]
        return f"It ranks {verdict} than what it is held against: {'; '.join(said)} ({pages:,} pages)."
    told = [one for one in estimates if one.interval is not None and one.sign]
    why = (
        "no estimate leaves 0 out"
        if not told
        else f"only {_listed([one.name for one in told])} would say {SIDES[told[0].sign]}"
        if len({one.sign for one in told}) == 1
        else "estimates contradict each other"
    )
    more = f"; about {needed:,} shuffled pages would decide a difference of this size" if needed else ""
    return f"These {pages:,} pages cannot tell which ranks better: {why}{more}."


def _told(one: GainEstimate) -> str:
    if one.interval is None or one.difference is None:
        return one.name
    share = "" if one.relative is None else f" ({one.relative:+.1%})"
    return f"{one.name} {one.difference:+.4f}{share}, interval {one.interval[0]:+.4f} to {one.interval[1]:+.4f}"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
