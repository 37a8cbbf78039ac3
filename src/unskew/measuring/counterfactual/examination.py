"""Examination by rank from the pages themselves, with what chance may have made of it.

    shuffled   theta_k = clicks at rank k of shuffled pages / clicks at rank 1 of those that reach rank k
    swaps      from documents at several ranks: `harvesting.all_pairs`, by buckets of queries

Where there are enough shuffled clicks these are taken, else swaps; else there is none. Draws are of clusters,
and of buckets of queries.

Legend: N impressions, U documents of queries, P ranks, B buckets.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unskew.diagnosis.evidence.likelihood import FEWEST_BUCKETS, all_pairs, draw_buckets
from unskew.measuring.counterfactual.contract import RANKS, PlacedPages, Question, dense
from unskew.measuring.counterfactual.evidence import RankExamination
from unskew.measuring.counterfactual.pages import LoggedPages
from unskew.measuring.counterfactual.sums import ClusterSums, bucket_of
from unskew.measuring.counterfactual.weighted import SHUFFLED, TOP, Weighted, inverse_examination, rank_groups
from unskew.types import Array

DRAWS = 200
BUCKETS = 64
LEAST = 100
"""Clicks of shuffled pages, or on documents at several ranks, below which examination is not told."""


def examination_of(pages: LoggedPages, seed: int = 0) -> RankExamination | None:
    """From shuffled pages, else from documents shown at several ranks, else None."""
    return from_shuffled(pages, seed) or from_swaps(pages, seed)


def from_shuffled(pages: LoggedPages, seed: int = 0) -> RankExamination | None:
    """From shuffled pages; None where they have too few clicks."""
    if pages.click[pages.shuffled].sum() < LEAST:
        return None
    place = np.ones(len(pages.position), np.int64)
    sums = ClusterSums()
    part = PlacedPages(replace(pages, cluster=sums.number(pages.cluster)), place, place, Question())
    sums.add(part.clusters[0], Weighted(part.asked).add(part))
    groups = rank_groups(sums.totals[SHUFFLED])
    if groups is None:
        return None
    ranks = int(np.flatnonzero(sums.totals[TOP])[-1]) + 1
    theta = 1 / inverse_examination(sums.totals, groups)[:ranks]
    with np.errstate(divide="ignore"):  # a draw without clicks at a rank
        drawn = 1 / inverse_examination(sums.draw(seed, DRAWS), groups)[:, :ranks]
    return RankExamination(theta, "shuffled", _filled(drawn, theta))


def from_swaps(pages: LoggedPages, seed: int = 0) -> RankExamination | None:
    """From documents that the log shows at several ranks; None where these have too few clicks or queries."""
    up = swap_counts(pages)
    told = up.sum(axis=(1, 2)) > 0
    if up.sum() < LEAST or told.sum() < FEWEST_BUCKETS:
        return None
    up = up[told]
    found = all_pairs(up.sum(axis=0, keepdims=True))[0]
    ranks = len(found) if np.isfinite(found).all() else int(np.argmin(np.isfinite(found)))
    if ranks < 2:
        return None
    up = up[:, :ranks, :ranks]
    theta = np.exp(found[:ranks])
    taken = draw_buckets(len(up), DRAWS, seed)
    drawn = np.exp(all_pairs(np.einsum("rb,bjk->rjk", taken, up)))
    return RankExamination(theta, "swaps", _filled(drawn, theta))


def swap_counts(pages: LoggedPages) -> Array:
    """up_jk by bucket of queries, [B, P, P]: clicks at j, by how much rank k tells of their documents."""
    document, rank = dense(pages.document), np.minimum(pages.position, RANKS) - 1
    width = int(rank.max(initial=0)) + 1
    cell = document * width + rank
    size = (int(document.max(initial=0)) + 1) * width
    shown, clicks = (
        np.bincount(cell, weights=each, minlength=size).reshape(-1, width) for each in (None, pages.click)
    )
    moved = ((shown > 0).sum(axis=1) > 1) & (clicks.sum(axis=1) > 0)
    bucket = np.zeros(len(shown), np.int64)
    bucket[document] = (bucket_of(pages.query.astype(np.uint64)) % np.uint64(BUCKETS)).astype(np.int64)[pages.page]
    shown, clicks, bucket = shown[moved], clicks[moved], bucket[moved]
    up = np.zeros((BUCKETS, width, width))
    for j in range(width):
        for k in range(width):
            both = (shown[:, j] > 0) & (shown[:, k] > 0)
            if j != k and both.any():
                value = clicks[both, j] * shown[both, k] / (shown[both, j] + shown[both, k])
                up[:, j, k] = np.bincount(bucket[both], weights=value, minlength=BUCKETS)
    return up


def _filled(drawn: Array, theta: Array) -> Array:
    """Draws that came to nothing, as found."""
    fine = np.isfinite(drawn) & (drawn > 0)
    return np.where(fine, drawn, theta)
