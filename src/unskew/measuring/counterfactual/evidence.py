"""What estimates of a ranking's gain say: each by itself, and all together, by a rule of a few lines.

1. Random slots decide alone: where the interval of `direct` leaves 0 out with a fifth of the risk (99 % where 95 %
   is asked for), its side is the verdict. With few random pages most of what stands out by less is chance.
2. Else two estimates are needed that rest on different grounds (random slots; examination by rank; documents shown
   at several ranks; raw clicks), both with intervals on the same side of 0, and none on the other; nor may random
   slots, where they have a number, lie on the other side of 0.
   `dr` rests on examination and on displays: beside item-position or swaps, whose clicks are its own, it is no
   second. What stands out has to do so without the clusters that hold far more clicks than others, too.
3. Raw clicks favour the order shown, and so does clipping. Their gain counts as one of the two, their loss not.
4. Else nobody can tell, and the sentence says how many shuffled pages would.

A run's own examination can never decide alone: it is one ground, however many estimates use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import numpy as np
from scipy.special import ndtr

from unskew.measuring.counterfactual.sums import interval_of, standard_error
from unskew.results import Result
from unskew.settings import listed
from unskew.types import Array

Answer = Literal["better", "worse", "cannot tell"]
Metric = Literal["dcg", "clicks"]
Grounds = Literal["random", "shown", "examination", "display"]
"""What an estimate rests on: random slots, raw clicks, examination by rank, documents shown at several ranks."""
SIDES: dict[int, Answer] = {1: "better", -1: "worse", 0: "cannot tell"}
FOR_SHOWN = ("clicks", "clipped")
"""Estimates that favour the order shown, so that their loss says nothing."""
BORNE_OUT = 0.5
"""Share of a gain that has to be left without the clusters that hold far more clicks than others."""
ALONE = 0.2
"""Share of the risk with which random slots decide alone."""
DIFFERENT = 0.01
"""p below which two estimates do not agree, shared among all pairs that are compared."""
POWER = 2.8
"""Standard errors that a difference must be from 0 to be found four times in five at 95 %: 1.96 + 0.84."""


@dataclass(frozen=True)
class GainEstimate:
    """One estimate of what a ranking is worth, and of what it is held against, on the same clicks."""

    name: str
    assumes: str
    """What must be true for it to be right, in a sentence."""
    grounds: Grounds
    unit: str
    """What a value counts."""
    new: float | None = None
    other: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    """Of the difference."""
    effective: float | None = None
    """Effective sample size, (sum w)^2 / sum w^2 over what it weighs."""
    overlap: float | None = None
    """Share of the value that the log can speak of."""
    clusters: int = 0
    """People, visits, queries or pages that have something to say."""
    freedom: float = 0.0
    """How many of them there might as well be, were they alike: few where a few hold most of what is counted."""
    pages: int = 0
    """Pages that it looks at."""
    reason: str = ""
    """Why there is no number, or no interval."""

    @property
    def relative(self) -> float | None:
        """The difference as a share of what it is held against."""
        if self.difference is None or not self.other:
            return None
        return self.difference / abs(self.other)

    @property
    def relative_interval(self) -> tuple[float, float] | None:
        """The interval as shares of what it is held against."""
        if self.interval is None or not self.other:
            return None
        return self.interval[0] / abs(self.other), self.interval[1] / abs(self.other)

    @property
    def sign(self) -> int:
        """1 or -1 where the interval lies above or below 0, else 0."""
        if self.interval is None:
            return 0
        return int(self.interval[0] > 0) - int(self.interval[1] < 0)


@dataclass(frozen=True)
class HeavyClusters(Result):
    """The clusters that hold far more clicks than others, and what is left of the evidence without them."""

    unit: str
    """What they are: user, visit, query or page."""
    count: int
    share: float
    """Of all clicks that they hold."""
    largest: float
    """Of all clicks that one of them holds."""
    rest: ClickEvidence | None = None
    """What the other clusters say, where there was a verdict; None where these have nothing to say."""
    holds: bool | None = None
    """Whether the verdict holds without them; None where there was none."""

    @property
    def named(self) -> str:
        """How many of what they are.

        >>> HeavyClusters("query", 8, 0.4, 0.1).named, HeavyClusters("user", 1, 0.4, 0.4).named
        ('8 queries', '1 user')
        """
        many = self.unit.removesuffix("y") + "ies" if self.unit.endswith("y") else f"{self.unit}s"
        return f"{self.count:,} {self.unit if self.count == 1 else many}"


@dataclass(frozen=True)
class ClickEvidence(Result):
    """What all estimates together say of a ranking against another."""

    estimates: tuple[GainEstimate, ...]
    verdict: Answer
    sentence: str
    agreement: str
    """Whether estimates that assume different things say the same, in a sentence."""
    decided_by: tuple[str, ...]
    """The estimates that the verdict rests on."""
    pages_needed: int | None
    """Shuffled pages that would decide a difference of this size; None where nothing says how large it is."""
    missing_overlap: float | None
    """Share of the ranking's first results that the pages did not show; None where nobody counted."""
    pages: int = 0
    level: float = 0.95
    heavy: HeavyClusters | None = None
    """None where no cluster holds far more clicks than others."""
    largest_document: float = 0.0
    """Of all clicks, the share on one document of a query that has far more than others; 0 where none has."""

    def beside(self, heavy: HeavyClusters) -> ClickEvidence:
        """The same beside what the other clusters say; a verdict that these do not bear out is none.

        They do where each estimate that decided says at least half as much: with fewer clicks it may well not
        stand out from chance any more.
        """
        shares = [0.0 if heavy.rest is None else _kept(self[name], heavy.rest[name]) for name in self.decided_by]
        heavy = replace(heavy, holds=min(shares) >= BORNE_OUT)
        if heavy.holds:
            return replace(self, heavy=heavy)
        many = heavy.named if heavy.count > 1 else heavy.unit
        but = f"not without the {many} with the most clicks, {heavy.share:.0%} of all"
        by = f"{self.verdict} by {listed(self.decided_by)}, but {but}"
        said = f"These {self.pages:,} pages cannot tell which ranks better: {by}."
        return replace(self, verdict="cannot tell", sentence=said, decided_by=(), heavy=heavy)

    def __getitem__(self, name: str) -> GainEstimate:
        """The estimate of this name."""
        return {one.name: one for one in self.estimates}[name]


def conclude(
    estimates: Sequence[GainEstimate],
    drawn: Mapping[str, Array],
    *,
    pages: int,
    changed: int,
    outlook: tuple[float, float],
    level: float = 0.95,
    missing: float | None = None,
) -> ClickEvidence:
    """The verdict on estimates, with their differences in every draw [R] each.

    `outlook` is what a shuffled page would tell: the variance of the difference on one, and what the other ranking
    is worth there.
    """
    side, names, why = decide(estimates, drawn, level)
    verdict, needed = SIDES[side], None if side or not changed else pages_needed(estimates, drawn, *outlook)
    if not changed:
        said = f"Both order the results of all {pages:,} pages alike."
    elif side:
        found = "; ".join([_told(one) for one in estimates if one.name in names][:3])
        said = f"It ranks {verdict} than what it is held against: {found} ({pages:,} pages)."
    else:
        more = f"; about {needed:,} shuffled pages would decide a difference of this size" if needed else ""
        said = f"These {pages:,} pages cannot tell which ranks better: {why}{more}."
    return ClickEvidence(
        estimates=tuple(estimates),
        verdict=verdict,
        sentence=said,
        agreement=agreement(estimates, drawn),
        decided_by=names,
        pages_needed=needed,
        missing_overlap=missing,
        pages=pages,
        level=level,
    )


def decide(
    estimates: Sequence[GainEstimate], drawn: Mapping[str, Array], level: float
) -> tuple[int, tuple[str, ...], str]:
    """1, -1 or 0, the estimates that say so, and why there is no verdict."""
    direct, strictly = {one.name: one.difference for one in estimates}.get("direct"), 1 - ALONE * (1 - level)
    for one in estimates:
        if one.name == "direct" and one.sign and one.difference is not None:
            strict = interval_of(one.difference, drawn["direct"], one.clusters, one.freedom, strictly)
            if strict is not None and (strict[0] > 0 or strict[1] < 0):
                return one.sign, (one.name,), ""
    voices = [one for one in estimates if one.sign > 0 or (one.sign < 0 and one.name not in FOR_SHOWN)]
    if not voices:
        raw = any(one.sign for one in estimates)
        against = "only raw or clipped clicks are against it, and these favour the order shown"
        return 0, (), against if raw else "no difference stands out from chance"
    if len({one.sign for one in voices}) > 1:
        return 0, (), "what estimates say contradicts itself"
    side, names = voices[0].sign, tuple(one.name for one in voices)
    said = f"{SIDES[side]} by {listed(names)}"
    if (direct or 0) * side < 0:
        return 0, (), f"{said}, which random slots do not bear out"
    grounds = {one.grounds for one in voices if one.name != "dr"}
    if "dr" in names and "display" not in grounds:
        grounds.add("examination")
    if len(grounds) < 2:
        return 0, (), f"{said}, and nothing that assumes other things says so too"
    return side, names, ""


def agreement(estimates: Sequence[GainEstimate], drawn: Mapping[str, Array]) -> str:
    """Whether estimates on different grounds say the same, by relative gains in the same unit."""
    told = [one for one in estimates if one.interval is not None and one.grounds != "shown"]
    pairs = [(one, two) for one, two in combinations(told, 2) if one.grounds != two.grounds]
    if not pairs:
        return "There are no two estimates that assume different things."
    for one, two in pairs:
        if one.sign * two.sign < 0 or _apart(one, two, drawn) < DIFFERENT / len(pairs):
            return (
                f"They do not agree: {_gain(one)} and {_gain(two)} differ by more than chance, so what "
                "one of them assumes does not hold."
            )
    return f"{listed([one.name for one in told])} agree within chance."


def pages_needed(
    estimates: Sequence[GainEstimate], drawn: Mapping[str, Array], variance: float, value: float
) -> int | None:
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
        size = None if best is None or best.relative is None else best.relative * value
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


def _kept(one: GainEstimate, without: GainEstimate) -> float:
    """The share of a gain that is left."""
    return (without.relative or 0.0) / one.relative if one.relative else 0.0


def _told(one: GainEstimate) -> str:
    if one.interval is None or one.difference is None:
        return one.name
    low, high = one.interval
    return f"{_gain(one)}, {one.difference:+.4f} in {one.unit}, interval {low:+.4f} to {high:+.4f}"


def _gain(one: GainEstimate) -> str:
    return one.name if one.relative is None else f"{one.name} ({one.relative:+.1%})"
