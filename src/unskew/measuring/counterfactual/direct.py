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

from dataclasses import replace

import numpy as np

from unskew.measuring.counterfactual.contract import (
    Estimator,
    PlacedPages,
    Reading,
    effective_size,
    ratios,
    too_few,
)
from unskew.measuring.counterfactual.evidence import GainEstimate
from unskew.types import Array

NEW, OTHER, CLICKS, SLOTS, PAGES, WEIGHT, SQUARES = range(7)


class Direct(Estimator):
    """Means over random slots."""

    def add(self, part: PlacedPages) -> Array:
        """Values of both, clicks, slots and pages."""
        pages = part.pages
        if self.asked.metric == "dcg":
            return slot_sums(part, pages.shuffled, part.gains)
        slots = pages.sizes[pages.page]
        new, other = (
            np.where(place == 0, 1.0, (place == pages.index) * slots) for place in (part.new, part.other)
        )
        return slot_sums(part, whole_pages(part)[pages.page], (new, other))

    def readings(self, totals: Array) -> list[Reading]:
        """The mean over pages."""
        assumes = "Slots marked as random were filled at random; nothing else."
        if self.asked.metric == "clicks":
            assumes = (
                "Pages marked as random were shuffled, and a click depends on its own document and rank only."
            )
        about = GainEstimate("direct", assumes, "random", self.asked.unit, effective=float(totals[SLOTS]))
        return [page_mean(about, totals, " on such slots", "no page is marked as shuffled")]


class RawClicks(Estimator):
    """Means over the slots that were not random."""

    def add(self, part: PlacedPages) -> Array:
        """As of random slots, by discounts whatever is asked: clicks know no other place than their own."""
        return slot_sums(part, ~part.pages.shuffled, part.discounts)

    def readings(self, totals: Array) -> list[Reading]:
        """The mean over pages."""
        assumes = "Nothing, but the order shown is favoured: a gain counts, a loss does not."
        unit = f"DCG@{self.asked.at} by clicks"
        about = GainEstimate("clicks", assumes, "shown", unit, effective=float(totals[SLOTS]))
        return [page_mean(about, totals, " on such slots", "all pages are shuffled")]


class Slates(Estimator):
    """Clicks of whole shuffled pages."""

    def add(self, part: PlacedPages) -> Array:
        """Values, clicks, slots, pages and weights."""
        pages, whole = part.pages, whole_pages(part)
        clicks = np.where(whole, pages.per_page(pages.click), 0.0)
        new, other = (np.where(whole, slate_weights(part, place), 0.0) for place in (part.new, part.other))
        columns = [new * clicks, other * clicks, clicks, whole * pages.sizes, whole, new, new**2]
        return np.stack([part.by_page(each) for each in columns], axis=1)

    def readings(self, totals: Array) -> list[Reading]:
        """The pseudo-inverse estimate."""
        assumes = "Pages were shuffled, and their clicks are a sum over documents at ranks."
        effective = effective_size(totals[WEIGHT], totals[SQUARES])
        about = GainEstimate("pseudo-inverse", assumes, "random", "clicks a page", effective=effective)
        return [page_mean(about, totals, " on such pages", "no page is wholly shuffled")]


def whole_pages(part: PlacedPages) -> Array:
    """Pages all of whose slots were filled at random, [P] bool."""
    whole: Array = part.pages.per_page(~part.pages.shuffled) == 0
    return whole


def slot_sums(part: PlacedPages, counted: Array, gains: tuple[Array, Array]) -> Array:
    """Values of both by what a click counts for, clicks, slots and pages, of slots that count; [c, 5]."""
    click = np.where(counted, part.pages.click, 0.0)
    pages = part.by_page(part.pages.per_page(counted) > 0)
    new, other = (part.by_cluster(click * gain) for gain in gains)
    return np.stack([new, other, part.by_cluster(click), part.by_cluster(counted), pages], axis=1)


def page_mean(about: GainEstimate, totals: Array, where: str, lacking: str) -> Reading:
    """A mean over pages, with the reason where these have no number."""
    reason = too_few(totals[CLICKS], where) if totals[PAGES] else lacking
    about = replace(about, overlap=1.0, pages=int(totals[PAGES]), reason=reason)
    return Reading(about, ratios(NEW, OTHER, PAGES), PAGES)


def slate_weights(part: PlacedPages, place: Array) -> Array:
    """(m - 1) matches - (m - 2) of every page, [P]; 1 where the place is at random."""
    pages = part.pages
    matches = pages.per_page(place == pages.index)
    weight = (pages.sizes - 1) * matches - (pages.sizes - 2)
    return np.where(pages.per_page(place == 0) > 0, 1.0, weight)
