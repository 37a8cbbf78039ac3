"""What estimates say together: better, worse or cannot tell, by a rule of a few lines.

1. Random slots decide alone: where the interval of `direct` leaves 0 out with a fifth of the risk (99 % where 95 %
   is asked for), its side is the verdict. With few random pages most of what stands out by less is chance.
2. Else two estimates are needed that rest on different grounds (random slots; examination by rank; documents shown
   at several ranks; raw clicks), both with intervals on the same side of 0, and none on the other; nor may random
   slots, where they have a number, lie on the other side of 0.
3. Raw clicks favour the order shown. Their gain counts as one of the two, their loss does not count.
4. Else nobody can tell, and the sentence says how many shuffled pages would.

A run's own examination can never decide alone: it is one ground, however many estimates use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from unskew.measuring.counterfactual.evidence import Answer, ClickEvidence, GainEstimate
from unskew.measuring.counterfactual.sums import interval_of, standard_error
from unskew.settings import listed
from unskew.types import Array

SIDES: dict[int, Answer] = {1: "better", -1: "worse", 0: "cannot tell"}
ALONE = 0.2
"""Share of the risk with which random slots decide alone."""
DIFFERENT = 0.01
"""p below which two estimates do not agree, shared among all pairs that are compared."""
POWER = 2.8
"""Standard errors that a difference must be from 0 to be found four times in five at 95 %: 1.96 + 0.84."""


@dataclass(frozen=True)
class Outlook:
    """What a shuffled page would tell, by the click rates of all pages."""

    variance: float
    """Of the difference on one page."""
    level: float
    """The value of the other ranking."""


def conclude(
    estimates: Sequence[GainEstimate],
    drawn: Mapping[str, Array],
    *,
    pages: int,
    changed: int,
    outlook: Outlook,
    level: float = 0.95,
    missing: float | None = None,
) -> ClickEvidence:
    """The verdict on estimates, with their differences in every draw [R] each."""
    side, names = decide(estimates, drawn, level)
    needed = None if side or not changed else pages_needed(estimates, drawn, outlook)
    verdict = SIDES[side]
    return ClickEvidence(
        estimates=tuple(estimates),
        verdict=verdict,
        sentence=sentence(verdict, names, estimates, pages=pages, changed=changed, needed=needed),
        agreement=agreement(estimates, drawn),
        decided_by=names,
        pages_needed=needed,
        missing_overlap=missing,
        pages=pages,
        level=level,
    )


def decide(
    estimates: Sequence[GainEstimate], drawn: Mapping[str, Array], level: float
) -> tuple[int, tuple[str, ...]]:
    """1, -1 or 0, and the estimates that say so."""
    for one in estimates:
        if one.name == "direct" and one.sign and one.difference is not None:
            strict = interval_of(one.difference, drawn["direct"], one.clusters, 1 - ALONE * (1 - level))
            if strict is not None and (strict[0] > 0 or strict[1] < 0):
                return one.sign, (one.name,)
    voices = [one for one in estimates if one.sign and not (one.grounds == "shown" and one.sign < 0)]
    if len({one.sign for one in voices}) != 1 or len({one.grounds for one in voices}) < 2:
        return 0, ()
    against = [one for one in estimates if one.name == "direct" and (one.difference or 0) * voices[0].sign < 0]
    if against:
        return 0, ()
    return voices[0].sign, tuple(one.name for one in voices)


def agreement(estimates: Sequence[GainEstimate], drawn: Mapping[str, Array]) -> str:
    """Whether estimates on different grounds say the same, by relative gains in the same unit."""
    told = [one for one in estimates if one.interval is not None and one.grounds != "shown"]
    pairs = [
        (first, second)
        for number, first in enumerate(told)
        for second in told[number + 1 :]
        if first.grounds != second.grounds
    ]
    if not pairs:
        return "There are no two estimates that assume different things."
    for first, second in pairs:
        if first.sign * second.sign < 0 or _apart(first, second, drawn) < DIFFERENT / len(pairs):
            return (
                f"They do not agree: {_gain(first)} and {_gain(second)} differ by more than chance, so what "
                "one of them assumes does not hold."
            )
    return f"{listed([one.name for one in told])} agree within chance."


def pages_needed(estimates: Sequence[GainEstimate], drawn: Mapping[str, Array], outlook: Outlook) -> int | None:
    """Shuffled pages at which `direct` would leave 0 out, four times in five, at a difference of this size.

    By the variance that shuffled pages have shown, else by what click rates make of one.
    """
    known = {one.name: one for one in estimates if one.difference is not None}
    direct = known.get("direct")
    if direct is not None and direct.interval is not None:
        variance = direct.pages * standard_error(drawn["direct"], direct.clusters) ** 2
        size = direct.difference
    else:
        best = next((known[name] for name in ("ips", "dr", "item-position", "clicks") if name in known), None)
        variance = outlook.variance
        size = None if best is None or best.relative is None else best.relative * outlook.level
    if not size or not variance:
        return None
    needed = float(np.ceil(variance * (POWER / size) ** 2))
    return int(needed) if needed < 1e9 else None


def _apart(first: GainEstimate, second: GainEstimate, drawn: Mapping[str, Array]) -> float:
    """p that two relative gains in the same unit differ by chance only; 1 where they cannot be compared."""
    if first.unit != second.unit or not first.other or not second.other:
        return 1.0
    draws = drawn[first.name] / abs(first.other) - drawn[second.name] / abs(second.other)
    error = standard_error(draws, min(first.clusters, second.clusters))
    gap = (first.relative or 0.0) - (second.relative or 0.0)
    return float(2 * ndtr(-abs(gap) / error)) if error > 0 else 1.0


def sentence(
    verdict: Answer,
    names: tuple[str, ...],
    estimates: Sequence[GainEstimate],
    *,
    pages: int,
    changed: int,
    needed: int | None,
) -> str:
    """The verdict with its numbers."""
    if not changed:
        return f"Both order the results of all {pages:,} pages alike."
    if verdict != "cannot tell":
        said = [_told(one) for one in estimates if one.name in names][:3]
        return f"It ranks {verdict} than what it is held against: {'; '.join(said)} ({pages:,} pages)."
    more = f"; about {needed:,} shuffled pages would decide a difference of this size" if needed else ""
    return f"These {pages:,} pages cannot tell which ranks better: {_why(estimates)}{more}."


def _why(estimates: Sequence[GainEstimate]) -> str:
    """Why there is no verdict."""
    told = [one for one in estimates if one.sign]
    fair = [one for one in told if one.grounds != "shown" or one.sign > 0]
    if len({one.sign for one in fair}) > 1:
        return "what estimates say contradicts itself"
    direct = [one for one in estimates if one.name == "direct" and one.difference]
    if fair and direct and (direct[0].difference or 0) * fair[0].sign < 0:
        return f"{SIDES[fair[0].sign]} by {listed([one.name for one in fair])}, which random slots do not bear out"
    if fair:
        names = listed([one.name for one in fair])
        return f"{SIDES[fair[0].sign]} by {names}, and nothing that assumes other things says so too"
    if told:
        return "only raw clicks are against it, and they favour the order shown"
    return "no difference stands out from chance"


def _told(one: GainEstimate) -> str:
    if one.interval is None or one.difference is None:
        return one.name
    low, high = one.interval
    return f"{_gain(one)}, {one.difference:+.4f} in {one.unit}, interval {low:+.4f} to {high:+.4f}"


def _gain(one: GainEstimate) -> str:
    return one.name if one.relative is None else f"{one.name} ({one.relative:+.1%})"
