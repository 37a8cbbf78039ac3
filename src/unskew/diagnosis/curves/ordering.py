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

from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.diagnosis.evidence.tables import LogTables
from unskew.logs.log import featured
from unskew.names import Names
from unskew.results import Result
from unskew.tables.features.encoding import fit_encoding
from unskew.tables.features.features import lists_for
from unskew.tables.joins import encode, find_rows
from unskew.types import Array, Lists

MOST_PAGES = 5000
"""Pages that are looked at, drawn by a hash of their names."""
LEAST_QUERIES = 20
"""Queries below which nothing is said."""
LEAST_AT_RANK = 20
"""Fewest results at a rank for which the rank is drawn."""
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

    @property
    def tells_rank(self) -> str | None:
        """That features tell the rank, in words; None where they do not."""
        if self.correlation is None or self.correlation < MUCH:
            return None
        return f"features tell the rank (correlation {self.correlation:.2f} within pages)"


def lists_of(tables: LogTables, features: Any, names: Names) -> Lists:
    """The documents that a log shows, with features from tables or LETOR files."""
    pairs = tables.cells.select("query_id", "doc_id").distinct().order_by(["query_id", "doc_id"])
    return lists_for(features, names, [tables.engine.to_arrow(pairs)])


def rank_by_features(tables: LogTables, lists: Lists, *, seed: int = 0) -> RankByFeatures:
    """How well the features of documents tell the ranks that they were shown at."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import Ridge

    page, query, position, features = _rows(tables, lists)
    queries, pages = np.unique(query), len(np.unique(page))
    if len(queries) < LEAST_QUERIES:
        why = f"{len(queries)} queries have pages of two results or more; {LEAST_QUERIES} are needed"
        return RankByFeatures(None, None, pages, why)
    near = _within(features, page)
    scale = near.std(0)
    if not (scale > 0).any():
        return RankByFeatures(None, None, pages, "no feature differs within a page")
    near = near[:, scale > 0] / scale[scale > 0]
    target = _within(np.log(position.astype(float))[:, None], page)[:, 0]
    held = ~np.isin(query, np.random.default_rng(seed).permutation(queries)[::2])
    grown = HistGradientBoostingRegressor(**TREES, early_stopping=False, random_state=seed)
    models = {"a line": (Ridge(RIDGE, fit_intercept=False), near), "trees": (grown, np.hstack([near, features]))}
    told = {name: model.fit(x[~held], target[~held]).predict(x[held]) for name, (model, x) in models.items()}
    shown = target[held]
    left = {name: float(((shown - each) ** 2).sum()) for name, each in told.items()}
    best = min(left, key=lambda name: left[name])
    _, number = np.unique(page[held], return_inverse=True)
    places = [_ranked(values, number) for values in (told[best], shown)]
    one, other = (_within(each[:, None], number)[:, 0] for each in places)
    products, squares, others = (np.bincount(number, a * b) for a, b in ((one, other), (one, one), (other, other)))
    correlation = float(np.mean(products / np.sqrt(np.maximum(squares * others, 1e-300))))
    r2 = 1 - left[best] / max(float((shown**2).sum()), 1e-300)
    return RankByFeatures(r2, correlation, pages, None, best, *_by_place(*places))


def _rows(tables: LogTables, lists: Lists) -> tuple[Array, Array, Array, Array]:
    """Results of some pages of two or more, page after page: page, query and rank, [N] each, features [N, D].

    Results without features are left out, and warned of.
    """
    several: Any = tables.pages.filter(tables.pages.results > 1)
    drawn = several.order_by([several.page_id.cast("string").hexdigest("md5"), "query_id"]).limit(MOST_PAGES)
    some = drawn.select("page_id", "query_id")
    shown: Any = tables.impressions.select("page_id", "query_id", "doc_id", "position")
    shown = shown.join(some, ["page_id", "query_id"]).order_by(["page_id", "query_id", "position", "doc_id"])
    table = tables.engine.to_arrow(shown)
    table = featured(table, lists, tables.place)
    query, row = find_rows(table, lists)
    page = encode(table["page_id"])[0].astype(np.int64) * (len(lists) + 1) + query
    order = np.argsort(page, kind="stable")
    size = np.unique(page, return_counts=True)[1]
    kept = order[np.repeat(size > 1, size)]
    features = fit_encoding(lists).apply(lists).features  # numbers without gaps
    position = table["position"].to_numpy().astype(np.int64)
    return page[kept], query[kept], position[kept], np.asarray(features[row[kept]], float)


def _within(values: Array, page: Array) -> Array:
    """Values relative to their mean in the page, [N, D]."""
    _, start, size = np.unique(page, return_index=True, return_counts=True)
    return np.asarray(values - np.repeat(np.add.reduceat(values, start, axis=0) / size[:, None], size, axis=0))


def _ranked(values: Array, page: Array) -> Array:
    """Rank of every value in its page, from 0."""
    order = np.lexsort((values, page))
    place = np.empty(len(values))
    place[order] = np.arange(len(values)) - np.searchsorted(page[order], page[order])
    return place


def _by_place(told: Array, shown: Array) -> tuple[tuple[float | None, ...], tuple[Any, ...]]:
    """Mean place by features for each place shown, and where the middle half lies; places [N] are from 0."""
    parts = [1 + told[shown == rank] for rank in range(int(shown.max(initial=-1)) + 1)]
    enough = [len(part) >= LEAST_AT_RANK for part in parts]
    mean = tuple(float(part.mean()) if many else None for part, many in zip(parts, enough, strict=True))
    spread = [np.quantile(part, [0.25, 0.75]) if many else None for part, many in zip(parts, enough, strict=True)]
    return mean, tuple(None if each is None else tuple(each.tolist()) for each in spread)
