"""May a ranking replace another? A lower bound on its gain, and who is seen more and who less.

    gain       as a share of what it is held against, so that estimates in different units can be compared
    bound      bootstrap: the lowest end of the intervals of the estimates that the verdict rests on, each with a
               chance of `risk` to lie above the truth; bernstein: of random slots alone, whatever the distribution
    ship       the bound is above `at_least`
    do not     the verdict is worse, or the upper ends of all deciding intervals are below `at_least`
    cannot     anything else

What is estimated, and when there is a verdict, is in `counterfactual`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from unskew.errors import CANNOT_TELL, NO
from unskew.measuring.counterfactual.bounds import RandomGains
from unskew.measuring.counterfactual.evidence import ClickEvidence
from unskew.measuring.counterfactual.pages import LoggedPages
from unskew.measuring.exposure import ExposureSums, GroupExposure, largest_fall
from unskew.results import Result
from unskew.types import Array

Decision = Literal["ship", "do not ship", "cannot tell"]
Bound = Literal["auto", "bernstein", "bootstrap"]
BOUNDS = ("auto", "bernstein", "bootstrap")
STATUS: Mapping[Decision, int] = {"ship": 0, "do not ship": NO, "cannot tell": CANNOT_TELL}
"""What the command ends with."""


@dataclass(frozen=True)
class Shipping(Result):
    """Whether a ranking may ship, and why."""

    name: str
    against: str
    decision: Decision
    sentence: str
    risk: float
    at_least: float
    bound: float | None
    """Lower bound of the gain, as a share; None where there is none."""
    by: str
    """How the bound was made: bernstein, bootstrap or none."""
    bernstein: float | None
    """The bound that assumes nothing but random slots; None without them."""
    evidence: ClickEvidence
    familiarity: tuple[GroupExposure, ...]
    """Exposure by how often documents were shown."""
    groups: tuple[GroupExposure, ...]
    """Exposure by the groups that were asked for, the largest fall first."""
    told = ("status",)

    @property
    def status(self) -> int:
        """What the command ends with."""
        return STATUS[self.decision]


class Watched:
    """What is added up beside the evidence, part after part."""

    def __init__(self, at: int) -> None:
        self.gains, self.exposure = RandomGains(at), ExposureSums()

    def __call__(self, pages: LoggedPages, new: Array, other: Array, group: Array | None) -> None:
        """Pages of a part, the places that both rankings give their results, and their groups."""
        self.gains.add(pages, new, other)
        self.exposure.add(pages, new, other, group)


def decided(
    found: ClickEvidence, watched: Watched, name: str, against: str, *, risk: float, at_least: float, bound: Bound
) -> Shipping:
    """The decision on evidence at level 1 - 2 risk."""
    ends = relative_ends(found)
    bernstein = watched.gains.lower(risk)
    lower, by = chosen_bound(found, ends, bernstein, bound, at_least)
    decision: Decision = "cannot tell"
    if found.verdict != "worse" and lower is not None and lower > at_least:
        decision = "ship"
    elif found.verdict == "worse" or (ends and max(high for _, high in ends) < at_least):
        decision = "do not ship"
    groups, familiarity = watched.exposure.groups(), watched.exposure.familiarity()
    said = sentence(decision, found, lower, by, against, risk=risk, at_least=at_least)
    fall = largest_fall(groups or familiarity)
    if fall is not None:
        said += f" {fall.group} documents are seen {-fall.change:.0%} less than before."
    return Shipping(
        name,
        against,
        decision,
        said,
        risk,
        at_least,
        lower,
        by,
        bernstein,
        found,
        tuple(familiarity),
        tuple(groups),
    )


def relative_ends(found: ClickEvidence) -> list[tuple[float, float]]:
    """Intervals of the estimates that the verdict rests on, as shares of what they are held against."""
    deciding = [found[name] for name in found.decided_by]
    return [
        (one.interval[0] / abs(one.other), one.interval[1] / abs(one.other))
        for one in deciding
        if one.interval is not None and one.other
    ]


def chosen_bound(
    found: ClickEvidence, ends: list[tuple[float, float]], bernstein: float | None, bound: Bound, at_least: float
) -> tuple[float | None, str]:
    """The lower bound to go by, and its name: Bernstein's where it says enough, or where it was asked for."""
    carries = bernstein is not None and bernstein > at_least
    if bound == "bernstein" or (bound == "auto" and carries):
        return bernstein, "none" if bernstein is None else "bernstein"
    if not ends:
        return None, "none"
    return min(low for low, _ in ends), "bootstrap"


def sentence(
    decision: Decision,
    found: ClickEvidence,
    lower: float | None,
    by: str,
    against: str,
    *,
    risk: float,
    at_least: float,
) -> str:
    """The decision with its numbers."""
    what = "what was shown" if against == "shown" else against
    wanted = f"{at_least:+.1%}" if at_least else "nothing"
    if decision == "ship" and lower is not None:
        return f"Ship: it gains at least {lower:+.1%} over {what}, {by} bound at a risk of {risk:.0%}."
    if decision == "do not ship":
        return (
            f"Do not ship: {found.sentence}"
            if found.verdict == "worse"
            else (f"Do not ship: it gains over {what}, but less than {wanted}.")
        )
    if lower is not None and found.verdict == "better":
        known = f"it gains over {what}, at least {lower:+.1%} by the {by} bound"
        return f"Cannot tell: {known}, and more than {wanted} is asked for."
    return f"Cannot tell: {found.sentence}"
