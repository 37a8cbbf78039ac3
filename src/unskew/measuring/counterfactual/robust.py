"""A click model, corrected by clicks: what each result adds to the doubly robust value of two rankings.

Reference: Dudik, Langford, Li, "Doubly Robust Policy Evaluation and Learning", ICML 2011; Oosterhuis, "Doubly
Robust Estimation for Correcting Position Bias in Click Feedback for Unbiased Learning to Rank", TOIS 2023 (rho).

    r(d, k)      theta_k rel_d, examination by rank times relevance of (query, document)
    value        r(d, place) + w (click - r(d, k))              w: weight of the display, see `displays`
    at places that the log lacks      theta_place (rel_d + (click - theta_k rel_d) / rho_d)

rel_d is learned from all other pages and pulled towards the mean of the query; rho_d is how much the document was
examined on average, and no less than 1 / clip.

Differences from the papers: each page is left out of its own model, in place of folds.

Legend: P pages, N impressions.
"""

from __future__ import annotations

import numpy as np

from unskew.measuring.counterfactual.contract import PlacedPages, dense
from unskew.measuring.counterfactual.evidence import RankExamination
from unskew.types import Array

PRIOR = 2.0
"""Displays at rank 1 that the mean of the query counts for."""


def query_model(part: PlacedPages, theta: Array) -> Array:
    """Relevance of every result [N] on the scale of rank 1, from all other pages, given examination theta [N].

    (clicks + PRIOR m) / (theta + PRIOR) over the document's other displays; m is clicks / theta of the query's.
    """
    pages = part.pages
    document, query = dense(pages.document), dense(pages.query)
    click, seen = (
        np.bincount(document, weights=each)[document] - each for each in (pages.click, theta)
    )  # without this page
    of_query = []
    for each in (pages.click, theta):
        own = pages.per_page(each)
        of_query.append((np.bincount(query, weights=own)[query] - own)[pages.page])
    mean = of_query[0] / np.maximum(of_query[1], 1e-9)
    relevance: Array = (click + PRIOR * mean) / (seen + PRIOR)
    return relevance


def robust_values(
    part: PlacedPages,
    curve: RankExamination,
    has: tuple[Array, Array],
    weights: tuple[Array, Array],
    clip: float,
) -> list[Array]:
    """What each result adds to the values of both rankings, [N] each; `has`: whether the log has its place."""
    pages = part.pages
    start = pages.position - part.index
    theta, document = curve.at(pages.position), dense(pages.document)
    relevance = query_model(part, theta)
    rest = pages.click - relevance * theta
    examined = (np.bincount(document, weights=theta) / np.maximum(np.bincount(document), 1))[document]
    found = []
    for place, seen, weight in zip((part.new, part.other), has, weights, strict=True):
        there = curve.at(np.where(place > 0, place, part.index) + start)
        lacking = there * rest / np.maximum(examined, 1 / clip)
        found.append(relevance * there + weight * rest + np.where(seen, 0.0, lacking))
    return found
