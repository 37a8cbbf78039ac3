"""Clicks weighted by how seldom their rank is looked at: inverse propensity scores, clipped, self-normalised.

Reference: Joachims, Swaminathan, Schnabel, "Unbiased Learning-to-Rank with Biased Feedback", WSDM 2017;
self-normalisation: Swaminathan, Joachims, "The Self-Normalized Estimator for Counterfactual Learning", NIPS 2015.

    click_ik ~ theta_k rel_i
    ips        sum worth(place) click / theta_k / pages
    clipped    the same with min(1 / theta_k, clip)
    snips      sum worth(place) click / theta_k  /  sum click / theta_k       worth of a corrected click

Where no examination is given it is measured here: clicks at rank k of shuffled pages over clicks at rank 1 of
those that reach rank k, ranks with few clicks put together. Draws of clusters draw it again, so that intervals
know of its chance too; one that is given brings draws of its own, or counts as known.

Sums by rank, [RANKS] each: both values, clicks, shuffled clicks, and such clicks at the top.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from unskew.measuring.counterfactual.contract import (
    RANKS,
    Estimator,
    PlacedPages,
    Reading,
    effective_size,
    too_few,
)
from unskew.measuring.counterfactual.evidence import GainEstimate
from unskew.types import Array

FEWEST = 10
"""Shuffled clicks at a rank, or at several put together, below which examination is not told."""
NEW, OTHER, CLICKS, SHUFFLED, TOP = (slice(k * RANKS, (k + 1) * RANKS) for k in range(5))
PAGES = 5 * RANKS


class Weighted(Estimator):
    """Clicks weighted by examination."""

    def add(self, part: PlacedPages) -> Array:
        """Sums by rank, and pages."""
        click = part.pages.click
        new, other = (part.by_rank(click * gain) for gain in part.gains)
        random, top = _against_the_top(part)
        tables = [new, other, part.by_rank(click), part.by_rank(random), part.by_rank(top)]
        pages = part.by_page(np.ones(len(part.pages)))
        return np.concatenate([*tables, pages[:, None]], axis=1)

    def readings(self, totals: Array) -> list[Reading]:
        """Plain, clipped, self-normalised."""
        groups, clip = rank_groups(totals[SHUFFLED]), self.asked.clip
        kind = "shuffled pages" if self.asked.examination is None else self.asked.examination.found_by
        weights = self._weights(totals, groups)
        plain = GainEstimate(
            "ips",
            f"A click is examination by rank (from {kind}) times relevance.",
            "examination",
            self.asked.unit,
            effective=_effective(totals, weights),
            overlap=1.0,
            pages=int(totals[PAGES]),
            reason=self._lacks(totals, groups),
        )
        clipped = replace(
            plain,
            name="clipped",
            assumes=f"As ips; no click counts more than {clip:g} times, which favours the order shown.",
            effective=_effective(totals, np.minimum(weights, clip)),
            overlap=_kept(totals, weights, clip),
        )
        normalised = replace(
            plain,
            name="snips",
            assumes="As ips; counts what a click is worth, so the level of examination does not matter.",
            unit=f"{self.asked.unit}, per corrected click",
        )
        values = partial(self._values, groups)
        readings = (
            (plain, values),
            (clipped, partial(values, clip=clip)),
            (normalised, partial(values, per_click=True)),
        )
        return [Reading(about, read, lambda sums: sums[..., CLICKS].sum(axis=-1)) for about, read in readings]

    def _values(
        self, groups: Array | None, sums: Array, *, clip: float = np.inf, per_click: bool = False
    ) -> tuple[Array, Array]:
        """Weighted clicks at the places of both rankings, by page, or by weighted click."""
        weights = np.minimum(self._weights(sums, groups), clip)
        size = (sums[..., CLICKS] * weights).sum(axis=-1) if per_click else sums[..., PAGES]
        size = np.where(size > 0, size, np.nan)
        new, other = ((sums[..., part] * weights).sum(axis=-1) / size for part in (NEW, OTHER))
        return new, other

    def _weights(self, totals: Array, groups: Array | None) -> Array:
        """1 / theta, [..., RANKS]: as given, with its draws for draws, or from shuffled clicks."""
        given = self.asked.examination
        if given is None:
            return inverse_examination(totals, groups)
        rank = np.minimum(np.arange(RANKS), len(given.theta) - 1)
        if totals.ndim == 1 or given.draws is None:
            return np.broadcast_to(1 / given.values[rank], (*totals.shape[:-1], RANKS))
        drawn: Array = 1 / given.draws[np.arange(len(totals)) % len(given.draws)][:, rank]
        return drawn

    def _lacks(self, totals: Array, groups: Array | None) -> str:
        if self.asked.examination is None and self.asked.metric == "clicks":
            return "expected clicks at other ranks need examination: give it, or ask for dcg"
        if self.asked.examination is None and groups is None:
            return "examination is not known: give it, or mark shuffled pages"
        return too_few(totals[CLICKS].sum())


def rank_groups(clicks: Array) -> Array | None:
    """Ranks [RANKS] put together until each group has enough shuffled clicks: their group from 0, None without.

    A rest joins the last group, and ranks that no shuffled page reaches too.

    >>> rank_groups(np.array([30.0, 12, 4, 7, 2])).tolist()
    [0, 1, 2, 2, 2]
    """
    if clicks[0] < FEWEST:
        return None
    group, number, held = np.zeros(len(clicks), np.int64), 0, float(FEWEST)
    for rank in range(1, len(clicks)):
        if held >= FEWEST and clicks[rank:].sum() >= FEWEST:
            number, held = number + 1, 0.0
        group[rank] = number
        held += float(clicks[rank])
    return group if number else None


def inverse_examination(totals: Array, groups: Array | None) -> Array:
    """1 / theta from shuffled clicks, NaN where a draw has none."""
    if groups is None:
        return np.full((*totals.shape[:-1], RANKS), np.nan)
    member = (groups[:, None] == np.arange(groups.max() + 1)).astype(np.float64)  # [RANKS, groups]
    clicks, top = totals[..., SHUFFLED] @ member, totals[..., TOP] @ member
    clicks[..., 0], top[..., 0] = 1.0, 1.0
    inverse: Array = (top / np.where(clicks > 0, clicks, np.nan))[..., groups]
    return inverse


def _against_the_top(part: PlacedPages) -> tuple[Array, Array]:
    """Clicks of random slots [N] on pages whose first slot is random too, and the click at the top beside each."""
    pages = part.pages
    first = pages.shuffled & (pages.position == 1)
    has, top = (pages.per_page(each)[pages.page] for each in (first, first * pages.click))
    used = pages.shuffled & (has > 0)
    return used * pages.click, used * top


def _effective(totals: Array, weights: Array) -> float | None:
    return effective_size((totals[CLICKS] * weights).sum(), (totals[CLICKS] * weights**2).sum())


def _kept(totals: Array, weights: Array, clip: float) -> float | None:
    """Share of the corrected clicks that clipping leaves."""
    total = (totals[CLICKS] * weights).sum()
    return float((totals[CLICKS] * np.minimum(weights, clip)).sum() / total) if total > 0 else None
