"""May a ranking replace another? A lower bound on its gain, and who is seen more and who less.

    gain       as a share of what it is held against, so that estimates in different units can be compared
    bound      bootstrap: the lowest end of the intervals of the estimates that the verdict rests on, each with a
               chance of `risk` to lie above the truth; bernstein: of random slots alone, whatever the distribution

What is estimated, and when there is a verdict, is in `counterfactual`; docs/how_to/ship.md says when to ship.

    exposure of a group    sum over its results of 1 / log2(1 + place), as a share of that of all
    familiarity            how often a query showed a document: the head has the first third of all impressions by
                           that, the middle the second, the tail the rest; new is what was shown once or twice

Only results that pages showed are placed, so a group can gain from or lose to what stood on its pages.

Legend: N impressions, C clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from unskew.errors import CANNOT_TELL, NO
from unskew.measuring.counterfactual.contract import PlacedPages, Question
from unskew.measuring.counterfactual.evidence import ClickEvidence
from unskew.measuring.counterfactual.pages import LARGE, LoggedPages, discounts, worth
from unskew.measuring.counterfactual.sums import ClusterSums
from unskew.results import Result
from unskew.types import Array

Decision = Literal["ship", "do not ship", "cannot tell"]
Bound = Literal["auto", "bernstein", "bootstrap"]
BOUNDS = ("auto", "bernstein", "bootstrap")
STATUS: Mapping[Decision, int] = {"ship": 0, "do not ship": NO, "cannot tell": CANNOT_TELL}
"""What the command ends with."""
BINS = 64
"""Powers of two that tell how often a document was shown."""
NEW = 2
"""Times shown at most of what counts as new."""
FAMILIARITY = ("head", "middle", "tail", "new")
FALLS = -0.01
"""Change of exposure from which a group is named."""


@dataclass(frozen=True)
class GroupExposure(Result):
    """What share of all that is seen a group of documents has, in two rankings."""

    group: str
    impressions: int
    new: float
    other: float
    clicks: float = 0.0
    """Its share of all clicks."""
    told = ("change",)

    @property
    def change(self) -> float:
        """By which share of itself it grows."""
        return self.new / self.other - 1 if self.other else 0.0


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
    # intervals of the estimates that the verdict rests on, as shares of what they are held against
    spoken = [found[name] for name in found.decided_by]
    if found.decided_by and found.heavy is not None and found.heavy.rest is not None:
        spoken += [found.heavy.rest[name] for name in found.heavy.rest.decided_by]
    ends = [one.relative_interval for one in spoken if one.relative_interval is not None]
    lower, by = min((low for low, _ in ends), default=None), "bootstrap" if ends else "none"
    bernstein = watched.gains.lower(risk)
    carries = bernstein is not None and bernstein > at_least
    borne_out = found.heavy is None or found.heavy.holds
    if bound == "bernstein" or (bound == "auto" and carries):
        lower, by = bernstein, "none" if bernstein is None else "bernstein"
    decision: Decision = "cannot tell"
    what = "what was shown" if against == "shown" else against
    wanted = f"{at_least:+.1%}" if at_least else "nothing"
    said = f"Cannot tell: {found.sentence}"
    if found.verdict != "worse" and borne_out and lower is not None and lower > at_least:
        decision = "ship"
        said = f"Ship: it gains at least {lower:+.1%} over {what}, {by} bound at a risk of {risk:.0%}."
    elif found.verdict == "worse" or (ends and max(high for _, high in ends) < at_least):
        decision = "do not ship"
        less = f"it gains over {what}, but less than {wanted}."
        said = f"Do not ship: {found.sentence if found.verdict == 'worse' else less}"
    elif lower is not None and found.verdict == "better":
        known = f"it gains over {what}, at least {lower:+.1%} by the {by} bound"
        said = f"Cannot tell: {known}, and more than {wanted} is asked for."
    groups, familiarity = watched.exposure.groups(), watched.exposure.familiarity()
    fall = min(groups or familiarity, key=lambda each: each.change, default=None)
    if fall is not None and fall.change < FALLS:
        said += f" {fall.group} documents are seen {-fall.change:.0%} less than before."
    for one in groups:
        if one.clicks >= max(LARGE, 2 * one.other):
            said += (
                f" {one.group} documents have {one.clicks:.0%} of the clicks, and {one.other:.0%} of what is seen."
            )
    told = (tuple(familiarity), tuple(groups))
    return Shipping(name, against, decision, said, risk, at_least, lower, by, bernstein, found, *told)


# ---- a lower bound that assumes nothing of how gains are distributed


def bernstein_bound(values: Array, spread: float, risk: float) -> float:
    """Lower bound of the mean of values [C] that lie in a range of this width; -inf with fewer than two.

    Maurer, Pontil, "Empirical Bernstein Bounds and Sample Variance Penalization", COLT 2009, theorem 4; Thomas,
    Theocharous, Ghavamzadeh, "High-Confidence Off-Policy Evaluation", AAAI 2015. With mean X and variance V,

        mean X - sqrt(2 V log(2 / risk) / C) - 7 R log(2 / risk) / (3 (C - 1))

    lies above the mean with a chance of `risk` at most. It assumes nothing of how values in [-R/2, R/2] are
    distributed, so it is wide; intervals by drawing clusters again are narrower, and hold where these are many.

    >>> round(bernstein_bound(np.array([0.0, 1.0] * 200), 1.0, 0.05), 4)  # 0.5 - 0.0680 - 0.0216
    0.4104
    """
    count = len(values)
    if count < 2:
        return float("-inf")
    log = float(np.log(2 / risk))
    noise = np.sqrt(2 * values.var(ddof=1) * log / count)
    return float(values.mean() - noise - 7 * spread * log / (3 * (count - 1)))


class RandomGains:
    """Gains of clicks on random slots by cluster, added part after part; memory grows with the clusters alone.

    On a page the gain of clicks that move from some places to others is at most the sum of what they gain, and a
    cluster is at most as many pages as the largest: so the range of gains is known.
    """

    def __init__(self, at: int = 10) -> None:
        self.asked, self.most, self.held = Question(at=at), 0.0, ClusterSums()

    def add(self, pages: LoggedPages, new: Array, other: Array) -> None:
        """Pages of a part with the places that two rankings give their results, [N] each."""
        part = PlacedPages(pages, new, other, self.asked).take(pages.per_page(pages.shuffled) > 0)
        pages, (gain_new, gain_other) = part.pages, part.gains
        change = np.where(pages.shuffled, gain_new - gain_other, 0.0)
        sums = [part.by_cluster(each * pages.click) for each in (change, pages.shuffled * gain_other)]
        self.held.add(part.clusters[0], np.stack([*sums, part.by_page(np.ones(len(pages)))], axis=1))
        # clicks on all that rises and on nothing else, or the other way round
        ends = [pages.per_page(np.maximum(sign * change, 0.0)).max(initial=0.0) for sign in (1, -1)]
        self.most = max(self.most, float(max(ends) * pages.click.max(initial=1.0)))

    def lower(self, risk: float) -> float | None:
        """Lower bound of the gain as a share of what it is held against; None where no slot is random."""
        if not len(self.held.ids) or not self.held.sums[:, 1].sum():
            return None
        gain, base, pages = self.held.sums.T
        return bernstein_bound(gain, 2 * self.most * pages.max(), risk) / float(base.mean())


# ---- exposure


class ExposureSums:
    """Exposure by familiarity and by group, added part after part; a part holds whole queries."""

    def __init__(self) -> None:
        self._bins = np.zeros((BINS, 4))  # impressions, exposure in the new and in the other ranking, clicks
        self._groups: dict[str, Array] = {}

    def add(self, pages: LoggedPages, new: Array, other: Array, group: Array | None = None) -> None:
        """Places [N] that two rankings give the results of pages, and the group of each."""
        longest = int(pages.sizes.max(initial=1))
        ladder = discounts(longest, longest)
        seen = np.stack([np.ones(len(new)), *(worth(place, pages, ladder) for place in (new, other)), pages.click])
        often = np.bincount(pages.document, minlength=1)[pages.document]
        # 1 and 2 are bin 0, so that new is one bin; above, each power of two is one
        bins = np.where(often <= NEW, 0, np.floor(np.log2(np.maximum(often, 1))).astype(np.int64))
        self._bins += np.stack([np.bincount(bins, row, minlength=BINS) for row in seen], axis=1)
        if group is not None:
            names, place = np.unique(np.asarray(group, str), return_inverse=True)
            sums = np.stack([np.bincount(place, row, minlength=len(names)) for row in seen], axis=1)
            for name, row in zip(names.tolist(), sums, strict=True):
                self._groups[name] = self._groups.get(name, np.zeros(4)) + row

    def familiarity(self) -> list[GroupExposure]:
        """By how often documents were shown."""
        labels = familiarity_of(self._bins[:, 0])
        sums = {name: self._bins[labels == number].sum(axis=0) for number, name in enumerate(FAMILIARITY)}
        return _exposures({name: row for name, row in sums.items() if row[0]})

    def groups(self) -> list[GroupExposure]:
        """By group, the largest fall first."""
        return sorted(_exposures(self._groups), key=lambda each: each.change)


def familiarity_of(impressions: Array) -> Array:
    """Head 0, middle 1, tail 2 or new 3 of each bin, from its impressions; bin 0 is what is new.

    >>> familiarity_of(np.array([5.0, 10, 10, 10])).tolist()
    [3, 2, 1, 0]
    """
    known = np.where(np.arange(len(impressions)) > 0, impressions, 0.0)
    above = np.cumsum(known[::-1])[::-1] - known  # impressions of what was shown more often
    label: Array = np.minimum(3 * above / max(known.sum(), 1e-12), 2).astype(np.int64)
    label[0] = 3
    return label


def _exposures(sums: dict[str, Array]) -> list[GroupExposure]:
    totals = np.sum(list(sums.values()), axis=0) if sums else np.ones(4)
    totals = np.maximum(totals, 1e-12)
    return [GroupExposure(name, int(row[0]), *map(float, row[1:] / totals[1:])) for name, row in sums.items()]
