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

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.diagnosis.curves.trust import GROUPS, jackknife
from unskew.diagnosis.evidence.pairs import FEW_QUERIES
from unskew.diagnosis.evidence.tables import TURNS
from unskew.results import Result
from unskew.tables.joins import encode
from unskew.types import Array

if TYPE_CHECKING:
    from unskew.diagnosis.evidence.tables import LogTables

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
    matrix: tuple[tuple[float, ...], ...]
    """τ, [K, K]; 1 on the diagonal."""
    lower: float | None
    """Mean τ of two ranks in the lower half of the page."""
    lower_error: float | None
    all: float | None
    """Mean τ of any two ranks."""
    all_error: float | None
    reason: str | None = None
    """Why nothing is said."""


def co_clicks(tables: LogTables) -> CoClicks:
    """How clicks of one page hang together."""
    table = _fetched(tables)
    rank = table["position"].to_numpy().astype(np.int64) - 1
    page, query, document = (encode(table[name])[0].astype(np.int64) for name in ("page_id", "query_id", "doc_id"))
    key = (query * (int(document.max(initial=0)) + 1) + document) * RANKS + rank
    _, cell = np.unique(key, return_inverse=True)
    click = table["click"].to_numpy().astype(float)
    shown, clicks = np.bincount(cell), np.bincount(cell, click)
    pages = int(page.max(initial=-1)) + 1
    left = np.zeros((pages, int(rank.max(initial=0)) + 1))
    known = shown[cell] > 1
    left[page[known], rank[known]] = (click - clicks[cell] / shown[cell])[known]
    owner = np.zeros(pages, np.int64)
    owner[page] = query
    usable = (left != 0).sum(1) > 1
    if usable.sum() < LEAST_PAGES:
        why = f"{int(usable.sum())} pages show results seen before at their ranks; {LEAST_PAGES} are needed"
        return CoClicks(int(usable.sum()), (), None, None, None, None, why)
    few = len(np.unique(owner)) < FEW_QUERIES
    return _summed(left[usable], np.arange(int(usable.sum())) if few else owner[usable])


def _fetched(tables: LogTables) -> Any:
    """Impressions of the top ranks, as Arrow; of some queries only where there are many."""
    shown: Any = tables.impressions.filter(tables.impressions.position <= RANKS)
    shown = shown.select("page_id", "query_id", "doc_id", "position", "click")
    rows = tables.engine.count(shown)
    if rows > MOST_IMPRESSIONS:
        queries: Any = tables.queries
        some = queries.filter(queries.turn < max(1, TURNS * MOST_IMPRESSIONS // rows))
        shown = shown.semi_join(tables.pages.semi_join(some, "query_id"), "page_id")
    return tables.engine.to_arrow(shown.order_by(["query_id", "page_id", "position"]))


def _summed(left: Array, owner: Array) -> CoClicks:
    """τ with jackknife errors."""
    group = np.random.default_rng(0).permutation(int(owner.max()) + 1)[owner] % GROUPS
    parts = np.stack([left[group == one].T @ left[group == one] for one in np.unique(group)])
    total = parts.sum(0)
    ranks = left.shape[1]
    half = np.arange(ranks) >= ranks // 2
    where = {"lower": np.triu(np.outer(half, half), 1), "all": np.triu(np.ones((ranks, ranks), bool), 1)}
    means, errors = {}, {}
    for name, some in where.items():
        means[name] = mean_tau(total, some)
        without = [mean_tau(total - part, some) for part in parts]
        seen = means[name] is not None and None not in without
        errors[name] = float(jackknife(np.array(means[name]), np.array(without, float))) if seen else None
    root = np.sqrt(np.maximum(np.diag(total), 1e-300))
    matrix = tuple(tuple(float(value) for value in row) for row in total / np.outer(root, root))
    return CoClicks(len(left), matrix, means["lower"], errors["lower"], means["all"], errors["all"])


def mean_tau(products: Array, some: Array) -> float | None:
    """Mean of τ over some pairs of ranks; those with more clicks weigh more.

    >>> mean_tau(np.array([[4.0, 1.0], [1.0, 1.0]]), np.array([[False, True], [False, False]]))
    0.5
    """
    root = np.sqrt(np.diag(products))
    scale = float(np.outer(root, root)[some].sum())
    return float(products[some].sum()) / scale if scale > 0 else None
