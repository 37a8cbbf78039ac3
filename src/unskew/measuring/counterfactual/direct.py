"""Clicks as they are: on random slots, where every order is equally likely, and on all others.

    value = sum over pages and slots of worth(place) x click / pages

On slots that were filled at random a result has the same chance of every such slot of its page, so its click says
what it is worth at an average rank. On other slots the ranks that people look at got the clicks: raw clicks favour
the order shown, so a gain by raw clicks is a gain in spite of that, and a loss says nothing.

Where expected clicks are asked for, a slot of a wholly shuffled page counts where the ranking puts its result
there, m times, m being the slots of the page.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unskew.measuring.counterfactual.contract import Estimator, PlacedPages, Reading, per_page
from unskew.measuring.counterfactual.evidence import Grounds
from unskew.types import Array

LEAST = 20
"""Clicks below which they say nothing."""


class Direct(Estimator):
    """Means over random slots."""

    name, grounds = "direct", "random"
    lacking = "no page is marked as shuffled"

    @property
    def assumes(self) -> str:
        """What must be true."""
        if self.asked.metric == "dcg":
            return "Slots marked as random were filled at random; nothing else."
        return "Pages marked as random were shuffled, and a click depends on its own document and rank only."

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
        slots = part.pages.sizes[part.pages.page]
        new, other = (np.where(place == 0, 1.0, (place == part.index) * slots) for place in (part.new, part.other))
        return new, other

    def add(self, part: PlacedPages) -> Array:
        """Values of both, clicks, slots and pages."""
        counted = self.counted(part)
        click = np.where(counted, part.pages.click, 0.0)
        pages = part.by_page(part.pages.per_page(counted) > 0)
        new, other = (part.by_cluster(click * gain) for gain in self.gains(part))
        return np.stack([new, other, part.by_cluster(click), part.by_cluster(counted), pages], axis=1)

    def readings(self, totals: Array) -> list[Reading]:
        """One."""
        grounds: Grounds = "random" if self.grounds == "random" else "shown"
        return [
            Reading(
                name=self.name,
                assumes=self.assumes,
                grounds=grounds,
                unit=self.asked.unit,
                values=lambda some: per_page(some, 0, 1, 4),
                count=lambda sums: sums[..., 4],
                effective=lambda total: float(total[3]),
                overlap=lambda total: 1.0,
                pages=lambda total: float(total[4]),
                lacks=self._lacks,
            )
        ]

    def _lacks(self, totals: Array) -> str:
        if not totals[4]:
            return self.lacking
        return "" if totals[2] >= LEAST else f"{totals[2]:.0f} clicks on such slots are too few"


class RawClicks(Direct):
    """Means over the slots that were not random."""

    name, grounds = "clicks", "shown"
    lacking = "all pages are shuffled"

    @property
    def assumes(self) -> str:
        """What must be true."""
        return "Nothing, but the order shown is favoured: a gain counts, a loss does not."

    def counted(self, part: PlacedPages) -> Array:
        """Slots that were not filled at random."""
        return ~part.pages.shuffled

    def gains(self, part: PlacedPages) -> tuple[Array, Array]:
        """Discounts, whatever is asked: clicks as they are know no other place than their own."""
        return part.discounts

    def readings(self, totals: Array) -> list[Reading]:
        """One."""
        (found,) = super().readings(totals)
        return [replace(found, unit=f"DCG@{self.asked.at} by clicks")]
