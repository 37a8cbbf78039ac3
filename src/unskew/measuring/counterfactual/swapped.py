"""Pairs of results that two rankings order differently and that the log shows in both orders.

Reference: Agarwal, Zaitsev, Wang, Li, Najork, Joachims, "Estimating Position Bias without Intrusive
Interventions", WSDM 2019, for swaps at the same two ranks.

    documents i, j of a query at ranks a < b: n_1 pages with i at a and j at b, n_2 pages with them swapped
    a click counts     n_2 / (n_1 + n_2) on pages of the first order, n_1 / (n_1 + n_2) on those of the second
    net preference     (clicks on i) - (clicks on j), so counted         ~ r_ia + r_ib - r_ja - r_jb

Both orders weigh the same, so both documents had both ranks equally often, and no curve of examination is needed.
A pair counts as much as its order matters: (disc(i) - disc(j)) of the ranking less the same of the other, averaged
over the pages of the pair. The values are shares of the clicks, so counted: on results that the ranking prefers,
and on those that the other prefers.

Pages that show the same ranking have the same weights, so these are found once per distinct ranking.

Legend: P pages, N impressions, R distinct rankings, L pairs of results of these.
"""

import numpy as np

from unskew.measuring.counterfactual.contract import (
    Estimator,
    PlacedPages,
    Reading,
    dense,
    effective_size,
    too_few,
)
from unskew.measuring.counterfactual.evidence import GainEstimate
from unskew.types import Array

NEW, OTHER, COVERED, MOVED, CLICKS, WEIGHT, SQUARES, PAGES = range(8)
_MIX = tuple(
    np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
)


class Swapped(Estimator):
    """Clicks on pairs that the log shows in both orders."""

    costly = True

    def add(self, part: PlacedPages) -> Array:
        """Clicks on preferred results of both, what is covered, clicks and weights."""
        of_page, first, times = distinct_rankings(part)
        some = part.take(first)
        new, other, covered, moved = pair_weights(some, times)
        row = some.pages.offsets[of_page][part.pages.page] + part.pages.index - 1
        click, both = part.pages.click, (new + other)[row]
        values = [click * new[row], click * other[row], covered[row], moved[row], click * (both > 0)]
        values += [click * both, click * both**2]
        pages = part.by_page(part.pages.per_page(both) > 0)
        return np.stack([*(part.by_cluster(value) for value in values), pages], axis=1)

    def readings(self, totals: Array) -> list[Reading]:
        """Shares of the clicks on such pairs."""
        reason = too_few(totals[CLICKS], " on swapped pairs")
        if not totals[COVERED]:
            reason = "no pair that the rankings order differently is shown in both orders"
        about = GainEstimate(
            "swaps",
            "A click depends on its own document and rank only, and pairs were swapped by chance.",
            "display",
            "share of clicks on swapped pairs",
            effective=effective_size(totals[WEIGHT], totals[SQUARES]),
            overlap=float(totals[COVERED] / totals[MOVED]) if totals[MOVED] > 0 else 1.0,
            pages=int(totals[PAGES]),
            reason=reason,
        )
        return [Reading(about, _shares, CLICKS)]


def distinct_rankings(part: PlacedPages) -> tuple[Array, Array, Array]:
    """Which distinct ranking each page has [P], a page of each [R], and how many pages have it [R]."""
    pages = part.pages
    x = np.zeros(len(pages.page), np.uint64)
    for values, odd in zip((pages.document, pages.index, part.new, part.other), _MIX, strict=True):
        x = (x ^ values.astype(np.int64).view(np.uint64)) * odd
        x ^= x >> np.uint64(29)
    total = np.add.reduceat(x, pages.offsets[:-1]) if len(pages) else x
    _, first, of_page, times = np.unique(total, return_index=True, return_inverse=True, return_counts=True)
    return of_page, first, times


def pair_weights(part: PlacedPages, times: Array) -> tuple[Array, Array, Array, Array]:
    """What a click on each result counts for both, and what moves by pairs, covered and all, [N] each."""
    left, right = pairs_of(part)
    disc_new, disc_other = part.discounts
    gap_new, gap_other = disc_new[left] - disc_new[right], disc_other[left] - disc_other[right]
    matters = np.where(gap_new * gap_other <= 0, gap_new - gap_other, 0.0)  # of the upper one; ordered differently
    document, index = dense(part.pages.document), part.pages.index
    low = document[left] < document[right]
    key = np.minimum(document[left], document[right]), np.maximum(document[left], document[right])
    group = _groups(*key, index[left], index[right])
    count = times[part.pages.page[left]].astype(np.float64)
    size = int(group.max(initial=-1)) + 1
    straight, turned = (np.bincount(group, weights=count * some, minlength=size) for some in (low, ~low))
    all_of = straight + turned
    net = np.bincount(group, weights=count * np.where(low, matters, -matters), minlength=size) / all_of
    share = np.where(low, turned[group], straight[group]) / all_of[group]  # of the pages of the other order
    weight = share * np.abs(net[group])
    likes_left = np.where(low, net[group] > 0, net[group] < 0)
    covered = np.abs(matters) * (share > 0) * (straight[group] * turned[group] > 0)
    preferred, lesser = np.where(likes_left, left, right), np.where(likes_left, right, left)
    total = len(index)
    return (
        np.bincount(preferred, weights=weight, minlength=total),
        np.bincount(lesser, weights=weight, minlength=total),
        np.bincount(left, weights=covered, minlength=total),
        np.bincount(left, weights=np.abs(matters), minlength=total),
    )


def pairs_of(part: PlacedPages) -> tuple[Array, Array]:
    """Rows of the upper and of the lower result of every two on a page, [L] each."""
    pages, left, right = part.pages, [], []
    rest = pages.sizes[pages.page] - part.pages.index  # results below
    for lag in range(1, int(pages.sizes.max(initial=1))):
        upper = np.flatnonzero(rest >= lag)
        left.append(upper)
        right.append(upper + lag)
    nothing = np.zeros(0, np.int64)
    return np.concatenate([nothing, *left]), np.concatenate([nothing, *right])


def _groups(*columns: Array) -> Array:
    """A number from 0 for every distinct row of the columns, [L]."""
    key = columns[0].astype(np.int64)
    for each in columns[1:]:
        key = key * (int(each.max(initial=0)) + 1) + each
        if len(key) and key.max() > 2**40:
            key = np.unique(key, return_inverse=True)[1]
    return np.unique(key, return_inverse=True)[1]


def _shares(totals: Array) -> tuple[Array, Array]:
    both = totals[..., NEW] + totals[..., OTHER]
    both = np.where(both > 0, both, np.nan)
    return totals[..., NEW] / both, totals[..., OTHER] / both
