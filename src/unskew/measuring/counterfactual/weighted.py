"""Clicks weighted by how seldom their rank is looked at: inverse propensity scores, clipped, self-normalised.

Reference: Joachims, Swaminathan, Schnabel, "Unbiased Learning-to-Rank with Biased Feedback", WSDM 2017;
self-normalisation: Swaminathan, Joachims, "The Self-Normalized Estimator for Counterfactual Learning", NIPS 2015.

    click_ik ~ theta_k rel_i
    ips        sum worth(place) click / theta_k / pages
    clipped    the same with min(1 / theta_k, clip)
    snips      sum worth(place) click / theta_k  /  sum click / theta_k       worth of a corrected click

Draws of examination go with draws of clusters, so that intervals know of its chance too; without them it counts as
known. Sums by rank, [RANKS] each: both values, and clicks.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from unskew.measuring.counterfactual.contract import (
    CLIP,
    RANKS,
    Estimator,
    PlacedPages,
    Reading,
    effective_size,
    too_few,
)
from unskew.measuring.counterfactual.evidence import GainEstimate
from unskew.types import Array

NEW, OTHER, CLICKS = (slice(k * RANKS, (k + 1) * RANKS) for k in range(3))
PAGES, ALL_CLICKS = 3 * RANKS, 3 * RANKS + 1


class Weighted(Estimator):
    """Clicks weighted by examination."""

    def add(self, part: PlacedPages) -> Array:
        """Sums by rank, pages, and clicks."""
        click = part.pages.click
        ranks = [part.by_rank(click * weight) for weight in (*part.gains, np.ones(len(click)))]
        pages = part.by_page(np.ones(len(part.pages)))
        return np.column_stack([*ranks, pages, part.by_cluster(click)])

    def readings(self, totals: Array) -> list[Reading]:
        """Plain, clipped, self-normalised."""
        weights, given = self._weights(totals), self.asked.examination
        source = "" if given is None else f" (from {given.found_by})"
        reason = too_few(totals[ALL_CLICKS])
        if given is None:
            dcg = self.asked.metric == "dcg"
            unknown = "examination is not known: give it, or mark shuffled pages"
            reason = unknown if dcg else "expected clicks at other ranks need examination: give it, or ask for dcg"
        kept, total = ((totals[CLICKS] * np.minimum(weights, most)).sum() for most in (CLIP, np.inf))
        plain = GainEstimate(
            "ips",
            f"A click is examination by rank{source} times relevance.",
            "examination",
            self.asked.unit,
            effective=effective_size(total, (totals[CLICKS] * weights**2).sum()),
            overlap=1.0,
            pages=int(totals[PAGES]),
            reason=reason,
        )
        clipped = replace(
            plain,
            name="clipped",
            assumes=f"As ips; no click counts more than {CLIP:g} times, which favours the order shown.",
            effective=effective_size(kept, (totals[CLICKS] * np.minimum(weights, CLIP) ** 2).sum()),
            overlap=float(kept / total) if total > 0 else None,
        )
        normalised = replace(
            plain,
            name="snips",
            assumes="As ips; counts what a click is worth, so the level of examination does not matter.",
            unit=f"{self.asked.unit}, per corrected click",
        )
        return [
            Reading(plain, self._values, ALL_CLICKS),
            Reading(clipped, partial(self._values, clip=CLIP), ALL_CLICKS),
            Reading(normalised, partial(self._values, per_click=True), ALL_CLICKS),
        ]

    def _values(self, sums: Array, *, clip: float = np.inf, per_click: bool = False) -> tuple[Array, Array]:
        """Weighted clicks at the places of both rankings, by page, or by weighted click."""
        weights = np.minimum(self._weights(sums), clip)
        size = (sums[..., CLICKS] * weights).sum(axis=-1) if per_click else sums[..., PAGES]
        size = np.where(size > 0, size, np.nan)
        new, other = ((sums[..., part] * weights).sum(axis=-1) / size for part in (NEW, OTHER))
        return new, other

    def _weights(self, totals: Array) -> Array:
        """1 / theta, [..., RANKS], of its draws for draws; NaN where examination is not known."""
        given = self.asked.examination
        if given is None:
            return np.full((*totals.shape[:-1], RANKS), np.nan)
        rank = np.minimum(np.arange(RANKS), len(given.theta) - 1)
        if totals.ndim != 2 or given.draws is None:
            return np.broadcast_to(1 / given.values[rank], (*totals.shape[:-1], RANKS))
        drawn: Array = 1 / given.draws[np.arange(len(totals)) % len(given.draws)][:, rank]
        return drawn
