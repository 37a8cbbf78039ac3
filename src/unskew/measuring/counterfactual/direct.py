"""Clicks as they are: on random slots, where every order is as likely, on whole shuffled pages, and on others.

    value = sum over pages and slots of worth(place) x click / pages

On slots that were filled at random a result has the same chance of every such slot of its page, so its click says
what it is worth at an average rank. On other slots the ranks that people look at got the clicks: raw clicks favour
the order shown, so a gain by raw clicks is a gain in spite of that, and a loss says nothing.

Where expected clicks are asked for, a slot of a wholly shuffled page counts where the ranking puts its result
there, m times, m being the slots of the page.

Whole shuffled pages have the pseudo-inverse estimator of slates too: Swaminathan, Krishnamurthy, Agarwal, Dudik,
Langford, Jose, Zitouni, "Off-policy Evaluation for Slate Recommendation", NIPS 2017.

    value = mean over pages of  clicks of the page x q' Gamma^+ x       Gamma = E[x x']
    x, q: which result stands where, 0 or 1, as shown and as the ranking has it
    all orders of m results equally likely:   q' Gamma^+ x = (m - 1) matches - (m - 2)

x less its mean 1/m lies in the (m - 1)^2 dimensions of matrices whose rows and columns sum to 0, alike in all of
them, with variance 1 / (m - 1); the mean direction has eigenvalue 1. `matches` are results that stand where the
ranking puts them; an order at random has one on average, and weight 1. Differences from the paper: wholly shuffled
pages only, where Gamma is known.
"""

from __future__ import annotations

import numpy as np

from unskew.measuring.counterfactual.contract import (
    Estimator,
    PlacedPages,
    Reading,
    column,
    effective_size,
    ratios,
    too_few,
)
from unskew.measuring.counterfactual.evidence import GainEstimate, Grounds
from unskew.types import Array

NEW, OTHER, CLICKS, SLOTS, PAGES, WEIGHT, SQUARES = range(7)


class Direct(Estimator):
    """Means over random slots."""

    name, lacking = "direct", "no page is marked as shuffled"
    grounds: Grounds = "random"

    @property
    def assumes(self) -> str:
        """What must be true."""
        if self.asked.metric == "dcg":
            return "Slots marked as random were filled at random; nothing else."
        return "Pages marked as random were shuffled, and a click depends on its own document and rank only."

    @property
    def unit(self) -> str:
        """What a value counts."""
        return self.asked.unit

    def counted(self, part: PlacedPages) -> Array:
        """The slots that count, [N] bool."""
        random = part.pages.shuffled
        if self.asked.metric == "dcg":
            return random
        whole: Array = (part.pages.per_page(~random) == 0)[part.pages.page]
        return whole

    def gains(self, part: PlacedPages) -> tuple[Array, Array]:
        """What a click counts for, [N] each."""
        if self.asked.metric == "dcg":
            return part.gains
        slots, index = part.pages.sizes[part.pages.page], part.pages.index
        new, other = (np.where(place == 0, 1.0, (place == index) * slots) for place in (part.new, part.other))
        return new, other

    def add(self, part: PlacedPages) -> Array:
        """Values of both, clicks, slots and pages."""
        counted = self.counted(part)
        click = np.where(counted, part.pages.click, 0.0)
        pages = part.by_page(part.pages.per_page(counted) > 0)
        new, other = (part.by_cluster(click * gain) for gain in self.gains(part))
        return np.stack([new, other, part.by_cluster(click), part.by_cluster(counted), pages], axis=1)

    def readings(self, totals: Array) -> list[Reading]:
        """The mean over pages."""
        about = GainEstimate(
            self.name,
            self.assumes,
            self.grounds,
            self.unit,
            effective=float(totals[SLOTS]),
            overlap=1.0,
            pages=int(totals[PAGES]),
            reason=too_few(totals[CLICKS], " on such slots") if totals[PAGES] else self.lacking,
        )
        return [Reading(about, ratios(NEW, OTHER, PAGES), column(PAGES))]


class RawClicks(Direct):
    """Means over the slots that were not random."""

    name, lacking = "clicks", "all pages are shuffled"
    grounds: Grounds = "shown"

    @property
    def assumes(self) -> str:
        """What must be true."""
        return "Nothing, but the order shown is favoured: a gain counts, a loss does not."

    @property
    def unit(self) -> str:
        """What a value counts."""
        return f"DCG@{self.asked.at} by clicks"

    def counted(self, part: PlacedPages) -> Array:
        """Slots that were not filled at random."""
        return ~part.pages.shuffled

    def gains(self, part: PlacedPages) -> tuple[Array, Array]:
        """Discounts, whatever is asked: clicks as they are know no other place than their own."""
        return part.discounts


class Slates(Estimator):
    """Clicks of whole shuffled pages."""

    def add(self, part: PlacedPages) -> Array:
        """Values, clicks, slots, pages and weights."""
        pages = part.pages
        whole = pages.per_page(~pages.shuffled) == 0
        clicks = np.where(whole, pages.per_page(pages.click), 0.0)
        new, other = (np.where(whole, slate_weights(part, place), 0.0) for place in (part.new, part.other))
        columns = [new * clicks, other * clicks, clicks, whole * pages.sizes, whole, new, new**2]
        return np.stack([part.by_page(each) for each in columns], axis=1)

    def readings(self, totals: Array) -> list[Reading]:
        """The pseudo-inverse estimate."""
        about = GainEstimate(
            "pseudo-inverse",
            "Pages were shuffled, and their clicks are a sum over documents at ranks.",
            "random",
            "clicks a page",
            effective=effective_size(totals[WEIGHT], totals[SQUARES]),
            overlap=1.0,
            pages=int(totals[PAGES]),
            reason=too_few(totals[CLICKS], " on such pages") if totals[PAGES] else "no page is wholly shuffled",
        )
        return [Reading(about, ratios(NEW, OTHER, PAGES), column(PAGES))]


def slate_weights(part: PlacedPages, place: Array) -> Array:
    """(m - 1) matches - (m - 2) of every page, [P]; 1 where the place is at random."""
    pages = part.pages
    matches = pages.per_page(place == pages.index)
    weight = (pages.sizes - 1) * matches - (pages.sizes - 2)
    random = pages.per_page(place == 0) > 0
    return np.where(random, 1.0, weight)
