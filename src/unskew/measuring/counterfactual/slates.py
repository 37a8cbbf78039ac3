"""Whole shuffled pages: the pseudo-inverse estimator of slates.

Reference: Swaminathan, Krishnamurthy, Agarwal, Dudik, Langford, Jose, Zitouni, "Off-policy Evaluation for Slate
Recommendation", NIPS 2017.

    value = mean over pages of  clicks of the page x q' Gamma^+ x       Gamma = E[x x']
    x, q: which result stands where, 0 or 1, as shown and as the ranking has it
    all orders of m results equally likely:   q' Gamma^+ x = (m - 1) matches - (m - 2)

x less its mean 1/m lies in the (m - 1)^2 dimensions of matrices whose rows and columns sum to 0, alike in all of
them, with variance 1 / (m - 1); the mean direction has eigenvalue 1. `matches` are results that stand where the
ranking puts them; an order at random has one on average, and weight 1.

Differences from the paper: wholly shuffled pages only, where Gamma is known.
"""

from __future__ import annotations

import numpy as np

from unskew.measuring.counterfactual.contract import Estimator, PlacedPages, Reading, effective_size, per_page
from unskew.types import Array

LEAST = 20
"""Clicks below which they say nothing."""
NEW, OTHER, PAGES, WEIGHT, SQUARES, CLICKS = range(6)


class Slates(Estimator):
    """Clicks of whole shuffled pages."""

    def add(self, part: PlacedPages) -> Array:
        """Values, pages, weights and clicks."""
        pages = part.pages
        whole = pages.per_page(~pages.shuffled) == 0
        clicks = np.where(whole, pages.per_page(pages.click), 0.0)
        new, other = (np.where(whole, slate_weights(part, place), 0.0) for place in (part.new, part.other))
        columns = [new * clicks, other * clicks, whole, new, new**2, clicks]
        return np.stack([part.by_page(column) for column in columns], axis=1)

    def readings(self, totals: Array) -> list[Reading]:
        """One."""
        return [
            Reading(
                name="pseudo-inverse",
                assumes="Pages were shuffled, and their clicks are a sum over documents at ranks.",
                grounds="random",
                unit="clicks a page",
                values=lambda some: per_page(some, NEW, OTHER, PAGES),
                count=lambda some: some[..., PAGES],
                effective=lambda total: effective_size(total[WEIGHT], total[SQUARES]),
                overlap=lambda total: 1.0,
                lacks=_lacks,
                pages=lambda total: float(total[PAGES]),
            )
        ]


def slate_weights(part: PlacedPages, place: Array) -> Array:
    """(m - 1) matches - (m - 2) of every page, [P]; 1 where the place is at random."""
    pages = part.pages
    matches = pages.per_page(place == part.index)
    weight = (pages.sizes - 1) * matches - (pages.sizes - 2)
    random = pages.per_page(place == 0) > 0
    return np.where(random, 1.0, weight)


def _lacks(totals: Array) -> str:
    if not totals[PAGES]:
        return "no page is wholly shuffled"
    return "" if totals[CLICKS] >= LEAST else f"{totals[CLICKS]:.0f} clicks on such pages are too few"
