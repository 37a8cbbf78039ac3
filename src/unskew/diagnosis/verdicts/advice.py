"""What to do where a log cannot tell: which swaps or how many pages it takes, and for what precision."""

from __future__ import annotations

from math import ceil

from unskew.diagnosis.curves.trust import LEAST_CLICKS, ONE_ONLY, TrustFit
from unskew.diagnosis.evidence.links import Identifiability

LOOKS = "log what pages look like in columns named serp_..., or name columns that tell: a device, a kind of query"
ONE_RANK = "log every result of a page with its rank: one rank alone has nothing to compare"


def swaps_of(found: Identifiability) -> str:
    """Which swaps, or how many pages would tell, and how well."""
    if found.ranks < 2:
        return ONE_RANK
    if found.plan is None or not found.plan.swaps:
        return "collect more pages of repeated queries, some of them shuffled"
    shuffled = found.plan.shuffled_pages
    several = f", or shuffle {shuffled:,} pages" if shuffled else ""
    aim = f"examination of neighbouring ranks is then known within {found.plan.precision:.0%}, one standard error"
    return f"swap neighbouring results on {found.plan.pages:,} pages as the plan says{several}: {aim}"


def shuffle_some(found: TrustFit) -> str:
    """How many shuffled pages are the least that would tell of trust and documents."""
    if found.reason == found.documents_reason == ONE_ONLY:
        return ONE_RANK
    if not found.least_pages:
        return "collect clicks on repeated queries, some of them on shuffled pages"
    return f"shuffle {about(found.least_pages)} pages or more: random slots need {LEAST_CLICKS} clicks"


def shuffle_more(shuffled: int, error: float, wanted: float, what: str) -> str:
    """How many pages would bring an error down; it falls with the root of their number."""
    times = (error / wanted) ** 2
    if times <= 1:
        return "collect more pages, some of them shuffled: this is near the line"
    aim = f"for a standard error of {wanted:g} of {what} (now {error:.2g})"
    if not shuffled:
        return f"collect {times:.{0 if times >= 10 else 1}f} times as many pages, or shuffle some, {aim}"
    return f"shuffle about {about((times - 1) * shuffled)} more pages {aim}"


def about(number: float) -> str:
    """A number of pages, rounded up to two digits that count.

    >>> about(12_345.6), about(6.2)
    ('13,000', '7')
    """
    unit = 10 ** max(len(str(ceil(number))) - 2, 0)
    return f"{ceil(number / unit) * unit:,}"
