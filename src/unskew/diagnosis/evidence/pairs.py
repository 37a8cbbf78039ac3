"""Query-document pairs seen under several ranks, as counts, and what differs between ranks within a pair.

With g_p what a pair is worth, free for every pair, and contexts x (ranks, or ranks by the value of a column),

    E[clicks of p under x] = n_px g_p exp(z_x . b)

Given the clicks of a pair in all, T_p, the share of x is n_px exp(z_x . b) over its sum (π_px), so g_p drops out
and which documents are shown where does not matter: the conditional likelihood of `likelihood`, for any design and
document by document. Its information over contexts,

    L = diag(Σ_p T_p π_p) - Σ_p T_p π_p π_p'

is the Laplacian of a graph whose edges are pairs seen under both ends: parts without an edge between them cannot
be compared. Clicks are 0 or 1 and not Poisson, so errors are taken from the scores, added up by query.

Legend: P pairs, K ranks, X contexts, D coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.special import chdtrc

from unskew.diagnosis.evidence.equality import merged
from unskew.diagnosis.evidence.likelihood import maximum
from unskew.tables.joins import encode
from unskew.types import Array

if TYPE_CHECKING:
    from unskew.diagnosis.evidence.tables import LogTables

RANKS = 20
"""Ranks that are looked at, from the top."""
MOST_CELLS = 80_000
"""Cells that are looked at; of a larger log those of some queries are, and the share is said."""
FEW_QUERIES = 20
"""Queries below which errors are added up by pair and not by query."""


@dataclass(frozen=True)
class SwapPairs:
    """Displays and clicks of pairs that were seen under two contexts or more."""

    shown: Array
    """[P, X]."""
    clicks: Array
    """[P, X]."""
    cluster: Array
    """[P] int, what is independent of each other: the query, or the pair where queries are few."""
    queries: int
    """How many queries these are of."""
    share: float = 1.0
    """Share of the log's queries that was looked at, by a hash of the query."""

    def __len__(self) -> int:
        return len(self.shown)

    @property
    def totals(self) -> Array:
        """Clicks of every pair, [P]."""
        totals: Array = self.clicks.sum(1)
        return totals

    def take(self, pairs: Array) -> SwapPairs:
        """Some of the pairs."""
        return replace(self, shown=self.shown[pairs], clicks=self.clicks[pairs], cluster=self.cluster[pairs])

    def halves(self, seed: int = 0) -> tuple[SwapPairs, SwapPairs]:
        """The displays of every cell dealt out at random to two halves, clicks with them."""
        rng = np.random.default_rng(seed)
        shown, clicks = self.shown.astype(np.int64), self.clicks.astype(np.int64)
        first = (shown + rng.integers(0, 2, shown.shape)) // 2
        part = rng.hypergeometric(clicks, shown - clicks, first).astype(float)
        one = replace(self, shown=first.astype(float), clicks=part)
        return one, replace(self, shown=self.shown - first, clicks=self.clicks - part)


@dataclass(frozen=True)
class WithinFit:
    """Coefficients of contexts, and how sure they are."""

    b: Array
    """[D]."""
    covariance: Array
    """[D, D], from scores added up by cluster."""
    information: Array
    """[X, X], the Laplacian of the graph over contexts."""

    def wald(self, which: Array) -> tuple[float, float]:
        """Chi-square of some coefficients being 0 all together, and its p."""
        b, covariance = self.b[which], self.covariance[np.ix_(which, which)]
        value = float(b @ np.linalg.pinv(covariance, hermitian=True) @ b)
        return value, float(chdtrc(max(int(np.linalg.matrix_rank(covariance, hermitian=True)), 1), value))

    def error(self, which: int) -> float:
        """Standard error of a coefficient."""
        return float(np.sqrt(max(self.covariance[which, which], 0.0)))


def read_pairs(
    tables: LogTables,
    by: str | None = None,
    values: tuple[str, ...] = (),
    *,
    shuffled: bool = False,
    equal: pa.Table | None = None,
) -> SwapPairs:
    """Pairs of a log that were seen at several ranks, or under several values of the column `by`.

    Contexts are ranks 1 to K, or with `by` value after value the ranks 1 to K of each; a value that is not named
    is left out. `shuffled` takes random slots only. `equal` documents count as one.
    """
    asked = by, values, shuffled, MOST_CELLS
    if equal is None and asked in tables.fetched:
        known: SwapPairs = tables.fetched[asked]
        return known
    table, share = fetch_cells(tables, by, shuffled=shuffled, equal=equal)
    rank = table["position"].to_numpy().astype(np.int64) - 1
    ranks = int(rank.max(initial=0)) + 1
    context, kept = rank, np.ones(len(rank), bool)
    if by is not None:
        place = {value: number for number, value in enumerate(values)}
        value = np.array([place.get(one, -1) for one in table[by].to_pylist()], np.int64)
        context, kept = value * ranks + rank, value >= 0
    query, document = (encode(table[name])[0].astype(np.int64) for name in ("query_id", "doc_id"))
    key = (query * (int(document.max(initial=0)) + 1) + document)[kept]
    distinct, first, pair = np.unique(key, return_index=True, return_inverse=True)
    size = (len(distinct), ranks * max(len(values), 1))
    cell = pair * size[1] + context[kept]
    shown, clicks = (
        np.bincount(cell, table[name].to_numpy()[kept].astype(float), minlength=size[0] * size[1]).reshape(size)
        for name in ("impressions", "clicks")
    )
    owner = query[kept][first]
    queries = len(np.unique(owner))
    cluster = np.unique(owner, return_inverse=True)[1] if queries >= FEW_QUERIES else np.arange(len(distinct))
    pairs = SwapPairs(shown, clicks, cluster, queries, share).take((shown > 0).sum(1) > 1)
    if equal is None:
        tables.fetched[asked] = pairs
    return pairs


def fetch_cells(
    tables: LogTables, by: str | None = None, *, shuffled: bool = False, equal: pa.Table | None = None
) -> tuple[Any, float]:
    """Cells of pairs that have more than one, as Arrow in a fixed order, and the share of queries."""
    cells, share = tables.sample(MOST_CELLS)
    cells = cells.filter(cells.position <= RANKS)
    if shuffled:
        cells = cells.filter(cells.shuffled)
    if equal is not None:
        cells = merged(tables.engine, cells, equal)
    keys = ["query_id", "doc_id", "position", *([by] if by else [])]
    cells = cells.group_by(keys).agg(impressions=cells.impressions.sum(), clicks=cells.clicks.sum())
    several = cells.group_by(["query_id", "doc_id"]).agg(seen=cells.count())
    several = several.filter(several.seen > 1).drop("seen")
    return tables.engine.to_arrow(cells.semi_join(several, ["query_id", "doc_id"]).order_by(keys)), share


def fit_within(pairs: SwapPairs, design: Array, rounds: int = 50) -> WithinFit:
    """Coefficients of a design over contexts, [X, D], within pairs."""

    def slopes(b: Array) -> tuple[Array, Array]:
        share, information = _shares(pairs, design @ b[0])
        score = design.T @ (pairs.clicks - pairs.totals[:, None] * share).sum(0)
        return score[None], (design.T @ information @ design)[None]

    b = maximum(slopes, np.zeros((1, design.shape[1])), rounds)[0]
    share, information = _shares(pairs, design @ b)
    bread = np.linalg.pinv(design.T @ information @ design, hermitian=True)
    scores = (pairs.clicks - pairs.totals[:, None] * share) @ design  # [P, D]
    added = np.zeros((int(pairs.cluster.max(initial=0)) + 1, design.shape[1]))
    np.add.at(added, pairs.cluster, scores)
    clusters = len(np.unique(pairs.cluster))
    meat = added.T @ added * (clusters / max(clusters - 1, 1))
    return WithinFit(b, bread @ meat @ bread, information)


def _shares(pairs: SwapPairs, level: Array) -> tuple[Array, Array]:
    """π, [P, X], and the information over contexts, [X, X]."""
    weight = pairs.shown * np.exp(np.clip(level, -30, 30))
    share = weight / np.maximum(weight.sum(1, keepdims=True), 1e-300)
    scaled = share * pairs.totals[:, None]
    return share, np.diag(scaled.sum(0)) - scaled.T @ share


def rank_design(contexts: int, kept: Array) -> Array:
    """A column for each context of `kept` but the first, which is the reference, [X, D].

    >>> rank_design(3, np.array([0, 2])).tolist()
    [[0.0], [0.0], [1.0]]
    """
    design = np.zeros((contexts, max(len(kept) - 1, 0)))
    design[kept[1:], np.arange(len(kept) - 1)] = 1.0
    return design
