"""How far the rank is a function of the features: where it is, two towers can put relevance into the rank.

A method that explains clicks by features and by rank, each by itself, can tell them apart only where documents
with the same features were shown at different ranks (M. Chen et al., "Identifiability matters", ICML 2024). A
ridge regression and boosted trees from features to log rank, fitted on half of the queries and tried on the
others, say how much of the rank features tell: R² and the rank correlation within pages, both out of sample, of
whichever of the two does better.

Numbers are taken relative to their mean in the page and in units of their deviation; trees get them as they are
too. What a larger model would find beyond that is not seen: R² is a lower bound.

Legend: N results, D features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.errors import DataError
from unskew.logs.log import featured
from unskew.names import Names
from unskew.results import Result
from unskew.tables.features.encoding import fit_encoding
from unskew.tables.features.features import lists_for, pairs_of
from unskew.tables.joins import encode, find_rows
from unskew.types import Array, Lists, Log

if TYPE_CHECKING:
    from unskew.diagnosis.evidence.tables import LogTables


MOST_PAGES = 5000
"""Pages that are looked at, drawn at random."""


@dataclass(frozen=True)
class FeaturedRows:
    """Results of pages of two results or more, page after page, each with the features of its document."""

    page: Array
    """[N] int."""
    query: Array
    """[N] int."""
    position: Array
    """[N] int, from 1."""
    features: Array
    """[N, D] float, without gaps."""


def rows_of_log(log: Log, *, seed: int = 0) -> FeaturedRows:
    """Some pages of a log in memory."""
    several = np.flatnonzero(log.sizes > 1)
    some = log.take(np.sort(np.random.default_rng(seed).permutation(several)[:MOST_PAGES]))
    page = np.repeat(np.arange(len(some)), some.sizes)
    return FeaturedRows(page, some.query[page], some.position, filled(some.lists, some.row))


def rows_of_tables(tables: LogTables, lists: Lists) -> FeaturedRows:
    """Some pages of a log on an engine; results without features are left out, and warned of."""
    several: Any = tables.pages.filter(tables.pages.results > 1)
    drawn = several.order_by([several.page_id.cast("string").hexdigest("md5"), "query_id"]).limit(MOST_PAGES)
    some = drawn.select("page_id", "query_id")
    shown: Any = tables.impressions.select("page_id", "query_id", "doc_id", "position")
    shown = shown.join(some, ["page_id", "query_id"]).order_by(["page_id", "query_id", "position", "doc_id"])
    table = tables.engine.to_arrow(shown)
    if (find_rows(table, lists)[1] < 0).all():
        hint = "query_id and doc_id must be those of the features"
        raise DataError("no impression has features", path=tables.place, hint=hint)
    table = featured(table, lists, tables.place)
    query, row = find_rows(table, lists)
    page = encode(table["page_id"])[0].astype(np.int64) * (len(lists) + 1) + query
    order = np.argsort(page, kind="stable")
    size = np.unique(page, return_counts=True)[1]
    kept = order[np.repeat(size > 1, size)]
    position = table["position"].to_numpy().astype(np.int64)
    return FeaturedRows(page[kept], query[kept], position[kept], filled(lists, row[kept]))


def lists_of(tables: LogTables, features: Any, names: Names) -> Lists:
    """The documents that a log shows, with features from tables or LETOR files."""
    pairs = tables.cells.select("query_id", "doc_id").distinct().order_by(["query_id", "doc_id"])
    return lists_for(features, names, [pairs_of(tables.engine.to_arrow(pairs))])


def filled(lists: Lists, rows: Array) -> Array:
    """Features of some documents as numbers without gaps, [N, D]."""
    encoded = fit_encoding(lists).apply(lists)
    return np.asarray(encoded.features[rows], float)


LEAST_QUERIES = 20
"""Queries below which nothing is said."""
LEAST_AT_RANK = 20
"""Results at a rank below which it is not drawn."""
RIDGE = 1.0
"""Penalty on coefficients, beside sums of squares over results."""
TREES: dict[str, Any] = {"max_iter": 80, "max_leaf_nodes": 15, "min_samples_leaf": 20, "learning_rate": 0.1}
MUCH, LITTLE = 0.8, 0.2
"""Rank correlation from which on the rank counts as a function of the features, and below which it does not."""


@dataclass(frozen=True)
class RankByFeatures(Result):
    """How well features tell the rank."""

    r2: float | None
    """Share of the variance of log rank within pages, out of sample; 0 or below is nothing."""
    correlation: float | None
    """Mean rank correlation of predicted and shown rank within pages, out of sample."""
    pages: int
    reason: str | None = None
    """Why nothing is said."""
    by: str = ""
    """What told it best: "a line" or "trees"."""
    predicted: tuple[float | None, ...] = ()
    """Mean place in the page by features, for what was shown at ranks 1, 2, ...; the rank if they tell it."""
    spread: tuple[tuple[float, float] | None, ...] = ()
    """Where the middle half of these places lies."""
    linked: tuple[tuple[int, ...], ...] = ()
    """Ranks that documents of equal features were shown at, so that two towers can tell them apart."""


def rank_by_features(source: Log | FeaturedRows, *, seed: int = 0) -> RankByFeatures:
    """How well the features of documents tell the ranks that they were shown at."""
    rows = rows_of_log(source, seed=seed) if isinstance(source, Log) else source
    queries, pages = np.unique(rows.query), len(np.unique(rows.page))
    if len(queries) < LEAST_QUERIES:
        why = f"{len(queries)} queries have pages of two results or more; {LEAST_QUERIES} are needed"
        return RankByFeatures(None, None, pages, why)
    near = _within(rows.features, rows.page)
    scale = near.std(0)
    if not (scale > 0).any():
        return RankByFeatures(None, None, pages, "no feature differs within a page")
    near = near[:, scale > 0] / scale[scale > 0]
    target = _within(np.log(rows.position.astype(float))[:, None], rows.page)[:, 0]
    fitted = np.isin(rows.query, np.random.default_rng(seed).permutation(queries)[::2])
    held, page = target[~fitted], rows.page[~fitted]
    whole = np.hstack([near, rows.features])
    told = {
        "a line": near[~fitted] @ _line(near[fitted], target[fitted]),
        "trees": _trees(whole[fitted], target[fitted], whole[~fitted], seed),
    }
    r2 = {name: _explained(each, held) for name, each in told.items()}
    best = max(r2, key=lambda name: r2[name])
    found = RankByFeatures(r2[best], _correlation(told[best], held, page), pages, by=best)
    predicted, spread = _places(told[best], held, page)
    return replace(found, predicted=predicted, spread=spread)


def _explained(told: Array, held: Array) -> float:
    """R²."""
    return 1 - float(((held - told) ** 2).sum() / max(float((held**2).sum()), 1e-300))


def _line(x: Array, y: Array) -> Array:
    """Coefficients of a ridge regression, [D]."""
    weights: Array = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y)
    return weights


def _trees(x: Array, y: Array, held: Array, seed: int) -> Array:
    """What boosted trees tell of other rows."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    grown = HistGradientBoostingRegressor(**TREES, early_stopping=False, random_state=seed).fit(x, y)
    told: Array = np.asarray(grown.predict(held))
    return told


def _within(values: Array, page: Array) -> Array:
    """Values relative to their mean in the page, [N, D]."""
    _, start, size = np.unique(page, return_index=True, return_counts=True)
    centred: Array = values - np.repeat(np.add.reduceat(values, start, axis=0) / size[:, None], size, axis=0)
    return centred


def _correlation(told: Array, held: Array, page: Array) -> float:
    """Mean over pages of the correlation of ranks."""
    _, place = np.unique(page, return_inverse=True)
    ranks = [_within(_ranked(values, place)[:, None], place)[:, 0] for values in (told, held)]
    products, one, other = (np.bincount(place, a * b) for a, b in (ranks, (ranks[0],) * 2, (ranks[1],) * 2))
    return float(np.mean(products / np.sqrt(np.maximum(one * other, 1e-300))))


def _places(told: Array, held: Array, page: Array) -> tuple[tuple[float | None, ...], tuple[Any, ...]]:
    """Mean place by features for each place shown, and where the middle half lies."""
    _, number = np.unique(page, return_inverse=True)
    guess, shown = (_ranked(values, number).astype(int) + 1 for values in (told, held))
    mean: list[float | None] = []
    spread: list[tuple[float, float] | None] = []
    for rank in range(1, int(shown.max(initial=0)) + 1):
        some = guess[shown == rank]
        enough = len(some) >= LEAST_AT_RANK
        mean.append(float(some.mean()) if enough else None)
        low, high = np.quantile(some, [0.25, 0.75]).tolist() if enough else (0.0, 0.0)
        spread.append((low, high) if enough else None)
    return tuple(mean), tuple(spread)


def _ranked(values: Array, page: Array) -> Array:
    """Rank of every value in its page, from 0."""
    order = np.lexsort((values, page))
    place = np.empty(len(values))
    place[order] = np.arange(len(values)) - np.searchsorted(page[order], page[order])
    return place
