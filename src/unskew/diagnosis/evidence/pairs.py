"""Query-document pairs seen under several ranks, as counts, and what differs between ranks within a pair.

With g_p what a pair is worth, free for every pair, and contexts x (ranks, or ranks by the value of a column),

    E[clicks of p under x] = n_px g_p exp(z_x . b)

Given the clicks of a pair in all, T_p, the share of x is n_px exp(z_x . b) over its sum (π_px), so g_p drops out
and which documents are shown where does not matter: the conditional likelihood of `likelihood`, for any design and
document by document. Its information over contexts,

    L = diag(Σ_p T_p π_p) - Σ_p T_p π_p π_p'

is the Laplacian of a graph whose edges are pairs seen under both ends: parts without an edge between them cannot
be compared. Clicks are 0 or 1 and not Poisson, so errors are taken from the scores, added up by query.

Documents of equal features may count as one, whatever the query: what they get at two ranks differs by the ranks
alone (M. Chen et al., "Identifiability matters", ICML 2024: a method that sees features only cannot tell them
apart).

Legend: P pairs, K ranks, X contexts, D coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import chdtrc

from unskew.diagnosis.evidence.likelihood import maximum
from unskew.diagnosis.evidence.sums import document_cells
from unskew.diagnosis.evidence.tables import LogTables
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import ibis
from unskew.tables.joins import encode, match
from unskew.types import Array, Lists

RANKS = 20
"""Ranks that are looked at, from the top."""
MOST_CELLS = 80_000
"""Cells that are looked at; of a larger log those of some queries are, and the share is said."""
FEW_QUERIES = 20
"""Queries below which errors are added up by pair and not by query."""


@dataclass(frozen=True)
class SwapPairs:
    """Displays and clicks of pairs that were seen under two contexts or more."""

    shown: Array  # [P, X]
    clicks: Array  # [P, X]
    cluster: Array  # [P] int, what is independent of each other: the query, or the pair where queries are few
    queries: int
    """How many queries these are of."""
    share: float = 1.0
    """Share of the log's queries that was looked at, by a hash of the query."""

    def __len__(self) -> int:
        return len(self.shown)

    @property
    def totals(self) -> Array:
        """Clicks of every pair, [P]."""
        return np.asarray(self.clicks.sum(1))

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

    b: Array  # [D]
    covariance: Array  # [D, D], from scores added up by cluster
    information: Array  # [X, X], the Laplacian of the graph over contexts

    def wald(self, which: Array) -> float:
        """p of some coefficients being 0 all together."""
        b, covariance = self.b[which], self.covariance[np.ix_(which, which)]
        value = float(b @ np.linalg.pinv(covariance, hermitian=True) @ b)
        return float(chdtrc(max(int(np.linalg.matrix_rank(covariance, hermitian=True)), 1), value))

    def span(self, which: int) -> tuple[float, float, float]:
        """A coefficient and the ends of its 95 % interval."""
        b, wide = float(self.b[which]), 1.96 * float(np.sqrt(max(self.covariance[which, which], 0.0)))
        return b, b - wide, b + wide


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
    is left out. `shuffled` takes random slots only. `equal` documents count as one (`equal_documents`).
    """
    if equal is None:
        asked = by, values, shuffled, MOST_CELLS
        return tables.once(asked, lambda: _read(tables, by, values, shuffled, None))
    return _read(tables, by, values, shuffled, equal)


def _read(
    tables: LogTables, by: str | None, values: tuple[str, ...], shuffled: bool, equal: pa.Table | None
) -> SwapPairs:
    cells, share = tables.sample(MOST_CELLS)
    cells = cells.filter(cells.shuffled) if shuffled else cells
    table = tables.read_cells(cells if equal is None else merged(tables.engine, cells, equal), RANKS, by)
    _, pair, times = np.unique(document_cells(table).document, return_inverse=True, return_counts=True)
    keys = [(name, "ascending") for name in ("query_id", "doc_id", "position", *([by] if by else []))]
    table = table.filter(pa.array(times[pair] > 1)).sort_by(keys)
    every = document_cells(table)
    ranks, context = int(every.rank.max(initial=0)) + 1, every.rank
    if by is not None:
        context = context + ranks * match(table[by], np.array(values, object))
    kept = context >= 0
    every, context = every.take(kept), context[kept]
    distinct, first, pair = np.unique(every.document, return_index=True, return_inverse=True)
    size = (len(distinct), ranks * max(len(values), 1))
    shown, clicks = (
        np.bincount(pair * size[1] + context, each, minlength=size[0] * size[1]).reshape(size)
        for each in (every.shown, every.clicks)
    )
    owner = np.unique(encode(table["query_id"])[0][kept][first], return_inverse=True)[1]
    queries = int(owner.max(initial=-1)) + 1
    cluster = owner if queries >= FEW_QUERIES else np.arange(len(distinct))
    return SwapPairs(shown, clicks, cluster, queries, share).take((shown > 0).sum(1) > 1)


def fit_within(pairs: SwapPairs, design: Array) -> WithinFit:
    """Coefficients of a design over contexts, [X, D], within pairs."""

    def slopes(b: Array) -> tuple[Array, Array]:
        share, information = _shares(pairs, design @ b[0])
        score = design.T @ (pairs.clicks - pairs.totals[:, None] * share).sum(0)
        return score[None], (design.T @ information @ design)[None]

    b = maximum(slopes, np.zeros((1, design.shape[1])))[0]
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


# ---- equal documents ----


def equal_documents(lists: Lists) -> pa.Table:
    """Which documents are equal: query_id, doc_id and `equal`, a number that equal ones share; NaN equals NaN."""
    rows = np.ascontiguousarray(np.where(np.isnan(lists.features), np.nan, lists.features) + 0.0)  # and no -0
    whole = np.dtype((np.void, max(rows.dtype.itemsize * rows.shape[1], 1)))
    codes = np.unique(rows.view(whole).ravel(), return_inverse=True)[1] if rows.size else np.zeros(len(rows))
    query = lists.query_ids.repeat(np.diff(lists.offsets))
    ids = {"query_id": query, "doc_id": lists.document_ids()}
    named = {name: pa.array([str(one) for one in values], pa.string()) for name, values in ids.items()}
    return pa.table({**named, "equal": pa.array(codes.astype(np.int64))})


def merged(engine: Engine, cells: Any, equal: pa.Table) -> Any:
    """Cells in which equal documents have one name; documents without features keep theirs.

    Equal ones of several queries are a query of their own: nothing but their features tells of them.
    """
    named: Any = cells.mutate(query_id=cells.query_id.cast("string"), doc_id=cells.doc_id.cast("string"))
    joined: Any = named.left_join(engine.from_arrow(equal), ["query_id", "doc_id"])
    known, name = joined["equal"].notnull(), ibis.literal("equal ") + joined["equal"].cast("string")
    renamed = {
        "doc_id": ibis.ifelse(known, name, ibis.literal("document ") + joined.doc_id),
        "query_id": ibis.ifelse(known, name, ibis.literal("query ") + joined.query_id),
    }
    return joined.mutate(**renamed).select(*cells.columns)
