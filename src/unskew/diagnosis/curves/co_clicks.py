"""Do clicks of one page hang together, given what was shown where? Several kinds of people, or reading on.

With m the click rate of a query and document at its rank, and r = c - m,

    τ_kj = Σ_pages r_k r_j / √(Σ r_k² Σ r_j²)

is 0 for every two ranks where each result is clicked by itself. People of several kinds make it positive between
ranks that one kind favours, most plainly in the lower half of the page, where each kind has its own rate; people
who stop once they are satisfied make it negative between the top and what is below. People who read on from click
to click make it positive too, as who came far clicks far down: τ alone does not tell them from several kinds.

Only results that were seen at least twice at one rank count. Errors leave out a part of the queries at a time.

Legend: S pages, K ranks, those that the log has, at most ten.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.diagnosis.evidence.likelihood import dealt, jackknife
from unskew.diagnosis.evidence.pairs import FEW_QUERIES
from unskew.diagnosis.evidence.tables import TURNS, LogTables
from unskew.results import Result
from unskew.tables.joins import encode
from unskew.types import Array

RANKS = 10
"""Ranks that are looked at, from the top."""
MOST_IMPRESSIONS = 300_000
"""Impressions fetched, about; of a larger log only those of some queries are."""
LEAST_PAGES = 200
"""Pages with results that were seen before, below which nothing is said."""


@dataclass(frozen=True)
class CoClicks(Result):
    """How clicks of one page hang together."""

    pages: int
    """Pages with two results or more that can be judged."""
    matrix: tuple[tuple[float, ...], ...] = ()
    """τ, [K, K]; 1 on the diagonal."""
    lower: float | None = None
    """Mean τ of two ranks in the lower half of the page."""
    lower_error: float | None = None
    all: float | None = None
    """Mean τ of any two ranks."""
    all_error: float | None = None
    reason: str | None = None
    """Why nothing is said."""


def co_clicks(tables: LogTables) -> CoClicks:
    """How clicks of one page hang together."""
    shown: Any = tables.impressions.filter(tables.impressions.position <= RANKS)
    shown = shown.select("page_id", "query_id", "doc_id", "position", "click")
    rows = tables.engine.count(shown)
    if rows > MOST_IMPRESSIONS:
        queries: Any = tables.queries
        some = queries.filter(queries.turn < max(1, TURNS * MOST_IMPRESSIONS // rows))
        shown = shown.semi_join(tables.pages.semi_join(some, "query_id"), "page_id")
    table = tables.engine.to_arrow(shown.order_by(["query_id", "page_id", "position"]))
    rank = table["position"].to_numpy().astype(np.int64) - 1
    page, query, document = (encode(table[name])[0].astype(np.int64) for name in ("page_id", "query_id", "doc_id"))
    key = (query * (int(document.max(initial=0)) + 1) + document) * RANKS + rank
    _, cell = np.unique(key, return_inverse=True)
    click = table["click"].to_numpy().astype(float)
    times, clicks = np.bincount(cell), np.bincount(cell, click)
    pages = int(page.max(initial=-1)) + 1
    left = np.zeros((pages, int(rank.max(initial=0)) + 1))
    known = times[cell] > 1
    left[page[known], rank[known]] = (click - clicks[cell] / times[cell])[known]
    owner = np.zeros(pages, np.int64)
    owner[page] = query
    usable = (left != 0).sum(1) > 1
    many = int(usable.sum())
    if many < LEAST_PAGES:
        why = f"{many} pages show results seen before at their ranks; {LEAST_PAGES} are needed"
        return CoClicks(many, reason=why)
    return _summed(left[usable], np.arange(many) if len(np.unique(owner)) < FEW_QUERIES else owner[usable])


def _summed(left: Array, owner: Array) -> CoClicks:
    """Mean τ over the lower half of the page and over all ranks, with jackknife errors."""
    group = dealt(owner)
    parts = np.stack([left[group == one].T @ left[group == one] for one in np.unique(group)])
    total = parts.sum(0)
    ranks = left.shape[1]
    half = np.arange(ranks) >= ranks // 2
    told: list[float | None] = []
    for some in (np.triu(np.outer(half, half), 1), np.triu(np.ones((ranks, ranks), bool), 1)):
        mean, without = mean_tau(total, some), [mean_tau(total - part, some) for part in parts]
        seen = mean is not None and None not in without
        told += [mean, float(jackknife(np.array(without, float))) if seen else None]
    root = np.sqrt(np.maximum(np.diag(total), 1e-300))
    lower, lower_error, every, error = told
    matrix = tuple(map(tuple, (total / np.outer(root, root)).tolist()))
    return CoClicks(len(left), matrix, lower, lower_error, every, error)


def mean_tau(products: Array, some: Array) -> float | None:
    """Mean of τ over some pairs of ranks; those with more clicks weigh more.

    >>> mean_tau(np.array([[4.0, 1.0], [1.0, 1.0]]), np.array([[False, True], [False, False]]))
    0.5
    """
    root = np.sqrt(np.diag(products))
    scale = float(np.outer(root, root)[some].sum())
    return float(products[some].sum()) / scale if scale > 0 else None
