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

NEW, OTHER, CLICKS = (slice(k * RANKS, (k + 1) * RANKS) for k in range(3))
PAGES = 3 * RANKS


class Weighted(Estimator):
    """Clicks weighted by examination."""

    def add(self, part: PlacedPages) -> Array:
        """Sums by rank, and pages."""
        click = part.pages.click
        new, other = (part.by_rank(click * gain) for gain in part.gains)
        pages = part.by_page(np.ones(len(part.pages)))
        return np.concatenate([new, other, part.by_rank(click), pages[:, None]], axis=1)

    def readings(self, totals: Array) -> list[Reading]:
        """Plain, clipped, self-normalised."""
        clip, weights, given = self.asked.clip, self._weights(totals), self.asked.examination
        source = "" if given is None else f" (from {given.found_by})"
        plain = GainEstimate(
            "ips",
            f"A click is examination by rank{source} times relevance.",
            "examination",
            self.asked.unit,
            effective=_effective(totals, weights),
            overlap=1.0,
            pages=int(totals[PAGES]),
            reason=self._lacks(totals),
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
        readings = (
            (plain, self._values),
            (clipped, partial(self._values, clip=clip)),
            (normalised, partial(self._values, per_click=True)),
        )
        return [Reading(about, read, lambda sums: sums[..., CLICKS].sum(axis=-1)) for about, read in readings]

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
        if totals.ndim == 1 or given.draws is None:
            return np.broadcast_to(1 / given.values[rank], (*totals.shape[:-1], RANKS))
        drawn: Array = 1 / given.draws[np.arange(len(totals)) % len(given.draws)][:, rank]
        return drawn

    def _lacks(self, totals: Array) -> str:
        if self.asked.examination is None and self.asked.metric == "clicks":
            return "expected clicks at other ranks need examination: give it, or ask for dcg"
        if self.asked.examination is None:
            return "examination is not known: give it, or mark shuffled pages"
        return too_few(totals[CLICKS].sum())


def _effective(totals: Array, weights: Array) -> float | None:
    return effective_size((totals[CLICKS] * weights).sum(), (totals[CLICKS] * weights**2).sum())


def _kept(totals: Array, weights: Array, clip: float) -> float | None:
    """Share of the corrected clicks that clipping leaves."""
    total = (totals[CLICKS] * weights).sum()
    return float((totals[CLICKS] * np.minimum(weights, clip)).sum() / total) if total > 0 else None
