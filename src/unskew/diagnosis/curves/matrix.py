"""The matrix of click rates by relevance level and rank, its singular values, and whether rank 1 explains it.

Figure 1 of M. Chen et al., "Scalar is not enough: vectorization-based unbiased learning to rank", KDD 2022, for
any log. Under the examination hypothesis P(c) = θ_k g the matrix has rank 1: levels differ by a factor. Where a
log has labels, in its column `label` or a file of them, levels are labels and rates are plain; nothing is learned
from them. Without, the displays of every query-document pair are dealt
out to two halves; clicks of the first half over what ranks let expect put the pair into a level, clicks of the
second half are counted. Rates of a level are then relative to what its pairs would get at rank 1, fitted within
pairs, so that it does not matter which documents are shown where.

The test: residuals R of every level and rank after the best fit of rank 1, with I their information, give

    X = Σ_levels R' I⁻¹ R

which is compared with X of clicks drawn from that fit (parametric bootstrap). `advice` for d, the width of vectors
in vectorization, counts singular values that stand out of those of drawn matrices.

With T_p the clicks of a pair, n_pk its displays and θ the curve of all, a pair is worth T_p / Σ_k n_pk θ_k, and at
rank k n_pk θ_k times that is expected of it. Pairs stand level after level (`LevelSums`), so that sums of levels
are products of slices, and a draw of all clicks takes a few passes over the table.

Legend: P pairs, K ranks, L levels, C cells with displays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.diagnosis.evidence.pairs import SwapPairs, fit_within, rank_design, read_pairs
from unskew.diagnosis.evidence.tables import LogTables, in_order
from unskew.errors import DataError
from unskew.names import NO_NAMES, Names
from unskew.results import Result
from unskew.settings import require_columns
from unskew.tables.engine.expressions import Table
from unskew.tables.features.tables import is_table
from unskew.tables.frames import arrow_table
from unskew.tables.joins import encodable
from unskew.tables.lists.letor import read_letor
from unskew.types import Array, Lists


@dataclass(frozen=True)
class LevelSums:
    """Pairs by ascending level."""

    shown: Array  # [P, K]
    bounds: Array  # [L + 1] where the pairs of each level begin
    cells: Array  # [C] where displays are, in the table laid out flat
    once: Array  # [C] whether there is a single one

    @classmethod
    def of(cls, pairs: SwapPairs, level: Array) -> tuple[LevelSums, Array]:
        """The sums of some pairs, and their clicks [P, K] in the same order."""
        order = np.argsort(level, kind="stable")
        shown, clicks = pairs.shown[order], pairs.clicks[order]
        bounds = np.searchsorted(level[order], np.arange(int(level.max()) + 2))
        cells = np.flatnonzero(shown)
        return cls(shown, bounds, cells, shown.ravel()[cells] == 1), clicks

    def by_level(self, values: Array) -> Array:
        """Sums over pairs, [L, K]."""
        ones = np.ones(len(values))  # products with it take a quarter of the time of sums
        return np.stack([ones[first:last] @ values[first:last] for first, last in pairwise(self.bounds)])

    def worth(self, clicks: Array, theta: Array) -> Array:
        """Clicks of every pair over what its ranks let expect, [P]."""
        return np.asarray(_totals(clicks) / np.maximum(self.shown @ theta, 1e-300))

    def expected(self, clicks: Array, theta: Array) -> Array:
        """Clicks at each rank that the curve makes likely for pairs with so many clicks in all, [P, K]."""
        return np.asarray(self.shown * theta * self.worth(clicks, theta)[:, None])

    def refitted(self, clicks: Array, theta: Array) -> Array:
        """θ of other clicks, from a θ that is near: θ_k = clicks at k / what pairs of this worth would get."""
        got = np.ones(len(clicks)) @ clicks
        for _ in range(3):
            theta = got / np.maximum(self.worth(clicks, theta) @ self.shown, 1e-300)
            theta = np.maximum(theta, 1e-12) / max(theta[0], 1e-12)
        return theta

    def rates(self, clicks: Array, theta: Array) -> Array:
        """Rates of levels, [L, K]: worth of a level times its curve, one step from the curve of all."""
        got, due = self.by_level(clicks), self.by_level(self.expected(clicks, theta))
        mean = got.sum(1) / np.maximum(self.by_level(self.shown) @ theta, 1e-300)
        return np.asarray(mean[:, None] * theta * np.where(due > 0, got / np.maximum(due, 1e-300), 1.0))

    def excess(self, clicks: Array, theta: Array) -> float:
        """X: residuals of levels over their information."""
        expected, totals = self.expected(clicks, theta), np.maximum(_totals(clicks), 1e-300)
        left, due, total = self.by_level(clicks - expected), self.by_level(expected), 0.0
        share = expected / totals[:, None]
        for one, (first, last) in enumerate(pairwise(self.bounds)):
            information = np.diag(due[one]) - expected[first:last].T @ share[first:last]
            inverse = np.linalg.pinv(information, hermitian=True, rcond=1e-9)
            total += float(left[one] @ inverse @ left[one])
        return total

    def draw(self, chance: Array, rng: np.random.Generator) -> Array:
        """Clicks by the chance of a click on a display [C], [P, K]; for a single display a comparison will do."""
        drawn, several = rng.random(len(chance)) < chance, ~self.once
        clicks = np.zeros(self.shown.size)
        clicks[self.cells] = drawn
        shown = self.shown.ravel()[self.cells[several]].astype(np.int64)
        clicks[self.cells[several]] = rng.binomial(shown, chance[several])
        return clicks.reshape(self.shown.shape)

    def chance(self, clicks: Array, theta: Array) -> Array:
        """How often a display of each cell is clicked by the curve, [C]."""
        expected, shown = (values.ravel()[self.cells] for values in (self.expected(clicks, theta), self.shown))
        return np.asarray(np.minimum(expected / shown, 1.0))


def _totals(clicks: Array) -> Array:
    """Clicks of every pair, [P]."""
    return np.asarray(clicks @ np.ones(clicks.shape[1]))


DRAWS = 199
"""Matrices drawn from the fit of rank 1."""
LEVELS = 4
"""Levels of estimated relevance."""
LEAST_CLICKS = 200
"""Clicks of the half that is counted below which nothing is said."""
LEAST_AT_RANK = 20
"""Clicks of the half that is counted below which a rank is left out."""


@dataclass(frozen=True)
class RateMatrix(Result):
    """Click rates by level and rank."""

    levels: tuple[str, ...] = ()
    """Lowest first."""
    ranks: tuple[int, ...] = ()
    rates: tuple[tuple[float, ...], ...] = ()
    """[L, K]."""
    impressions: tuple[tuple[int, ...], ...] = ()
    """[L, K], displays that a rate is of."""
    singular_values: tuple[float, ...] = ()
    null_values: tuple[float, ...] = ()
    """95th percentiles of these, were the rank 1."""
    p: float | None = None
    """Chance of rates as far from rank 1 as these, if rank 1 were true."""
    second: float | None = None
    """Second singular value over the first."""
    flatter: float | None = None
    """How much slower rates fall in the upper half of levels than in the lower: a coefficient of log rank."""
    flatter_interval: tuple[float, float] | None = None
    """95 % interval of this."""
    d: int | None = None
    """Singular values that stand out: a width of vectors that is worth trying."""
    by: str = "swaps"
    """"labels" or "swaps": where levels come from."""
    reason: str | None = None
    """Why there is no matrix."""
    share: float = 1.0
    """Share of the log's queries that was looked at."""


def click_matrix(
    tables: LogTables, *, labels: Table | None = None, draws: int = DRAWS, seed: int = 0
) -> RateMatrix:
    """The matrix of a log; `labels` has query_id, doc_id and label of those that were judged (`read_labels`)."""
    if labels is None:
        pairs = read_pairs(tables)
        return replace(_by_swaps(pairs, draws, seed), share=pairs.share)
    cells: Any = tables.cells.join(labels, ["query_id", "doc_id"])
    names = in_order(row["label"] for row in tables.engine.rows(cells.select("label").distinct()))
    if len(names) < 2:
        return RateMatrix(by="labels", reason="labels of what was shown have fewer than two values")
    # a "pair" is a label, whose rates stand for all documents of it
    shown, clicks = tables.laid_out(cells, {"label": names, "position": range(1, 11)}, "impressions", "clicks")
    pairs = SwapPairs(shown, clicks, np.arange(len(names)), len(names))
    return _tested(pairs, np.arange(len(names)), tuple(names), "labels", draws, seed)


def _by_swaps(pairs: SwapPairs, draws: int, seed: int) -> RateMatrix:
    """Levels from one half of the displays, rates from the other."""
    if not len(pairs):
        return RateMatrix(reason="no document was shown at two ranks for one query, and there are no labels")
    first, second = pairs.halves(seed)
    if second.clicks.sum() < LEAST_CLICKS or first.clicks.sum() < LEAST_CLICKS:
        clicks = int(pairs.clicks.sum())
        need = 2 * LEAST_CLICKS
        return RateMatrix(reason=f"documents shown at several ranks have {clicks} clicks; {need} are needed")
    theta = _curve(first)
    due = first.shown @ theta
    worth = np.divide(first.totals, due, out=np.zeros(len(due)), where=due > 0)
    usable = (due > 0) & ((second.shown > 0).sum(1) > 1)
    second, worth = second.take(usable), worth[usable]
    level, count = levels_of(worth, second.shown @ theta * worth.mean(), LEVELS)
    if count < 2:
        return RateMatrix(reason="documents cannot be told apart by their clicks")
    names = ("low", "high") if count == 2 else tuple(f"level {number + 1}" for number in range(count))
    return _tested(second, level, names, "swaps", draws, seed)


def _curve(pairs: SwapPairs) -> Array:
    """θ of all ranks, within pairs, [K]."""
    ranks = pairs.shown.shape[1]
    return np.asarray(np.exp(np.append(0.0, fit_within(pairs, rank_design(ranks, np.arange(ranks))).b)))


def levels_of(worth: Array, weight: Array, count: int) -> tuple[Array, int]:
    """Levels of about equal weight by ascending worth, [P], and how many there are; equal worth, equal level.

    >>> levels_of(np.array([0.0, 0.0, 0.5, 0.9]), np.ones(4), 2)
    (array([0, 0, 1, 1]), 2)
    """
    _, place = np.unique(worth, return_inverse=True)
    mass = np.bincount(place, weight)
    middle = (np.cumsum(mass) - mass / 2) / max(mass.sum(), 1e-300)
    level = np.minimum((middle * count).astype(int), count - 1)[place]
    found, level = np.unique(level, return_inverse=True)
    return level, len(found)


def _tested(pairs: SwapPairs, level: Array, names: tuple[str, ...], by: str, draws: int, seed: int) -> RateMatrix:
    """Rates, singular values and the test."""
    kept = np.flatnonzero(pairs.clicks.sum(0) >= LEAST_AT_RANK)
    if len(kept) < 2:
        return RateMatrix(by=by, reason=f"fewer than two ranks have {LEAST_AT_RANK} clicks")
    pairs = replace(pairs, shown=pairs.shown[:, kept], clicks=pairs.clicks[:, kept])
    theta = _curve(pairs)
    cells, clicks = LevelSums.of(pairs, level)
    rates, observed = cells.rates(clicks, theta), cells.excess(clicks, theta)
    values = np.linalg.svd(rates, compute_uv=False)
    rng = np.random.default_rng(seed)
    chance = cells.chance(clicks, theta)
    drawn, spread = np.zeros(draws), np.zeros((draws, len(values)))
    for number in range(draws):
        made = cells.draw(chance, rng)
        fitted = cells.refitted(made, theta)
        drawn[number] = cells.excess(made, fitted)
        spread[number] = np.linalg.svd(cells.rates(made, fitted), compute_uv=False)
    null = np.quantile(spread, 0.95, axis=0)
    flatter, interval = _flatter(pairs, level, len(names), kept)
    width = 1 + int(np.cumprod(values[1:] > null[1:]).sum())
    by_rank, impressions = (
        tuple(map(tuple, each.tolist())) for each in (rates, cells.by_level(cells.shown).astype(int))
    )
    return RateMatrix(
        names, tuple(int(k) + 1 for k in kept), by_rank, impressions,
        tuple(values.tolist()), tuple(null.tolist()), float((1 + (drawn >= observed).sum()) / (1 + draws)),
        float(values[1] / values[0]), flatter, interval, width, by,
    )  # fmt: skip


def _flatter(
    pairs: SwapPairs, level: Array, count: int, kept: Array
) -> tuple[float | None, tuple[float, float] | None]:
    """Coefficient of (upper half of levels) x log rank, within pairs, and its interval; above 0 is flatter."""
    upper, ranks = level >= count / 2, len(kept)
    if len(np.unique(pairs.cluster)) < 10 or upper.all() or not upper.any():
        return None, None
    side = np.concatenate([pairs.shown * ~upper[:, None], pairs.shown * upper[:, None]], axis=1)
    clicks = np.concatenate([pairs.clicks * ~upper[:, None], pairs.clicks * upper[:, None]], axis=1)
    plain = np.vstack([rank_design(ranks, np.arange(ranks))] * 2)
    slope = np.append(np.zeros(ranks), np.log(kept + 1.0))[:, None]
    fit = fit_within(replace(pairs, shown=side, clicks=clicks), np.hstack([plain, slope]))
    b, low, high = fit.span(-1)
    return b, (low, high)


# ---- labels ----


LABEL = "label"
PAIR = ("query_id", "doc_id")


def read_labels(tables: LogTables, source: Any = None, names: Names = NO_NAMES) -> Table | None:
    """The label of every query and document that has one: query_id, doc_id, label as text.

    `source` is a table or file of these columns, a LETOR file, or lists; without it they are those of the log,
    or None.
    """
    shown: Any = tables.impressions
    if source is None:
        if LABEL not in shown.columns:
            return None
        given = shown.filter(shown[LABEL].notnull())
        return given.group_by(PAIR).agg(label=given[LABEL].max())
    place = str(source) if isinstance(source, str | Path) else "labels"
    table: Any = tables.engine.from_arrow(_as_table(source, names, place))
    kinds = {name: shown[name].type() for name in PAIR}
    table = table.select(**{name: table[name].try_cast(kind) for name, kind in kinds.items()}, label=table[LABEL])
    table = table.filter(table.query_id.notnull() & table.doc_id.notnull() & table[LABEL].notnull())
    found = table.group_by(PAIR).agg(label=table[LABEL].max())
    if not tables.engine.count(tables.cells.semi_join(found, PAIR)):
        hint = "query_id and doc_id must be those of the log"
        raise DataError("has no label of a document that the log shows", path=place, hint=hint)
    return tables.engine.keep(found)


def _as_table(source: Any, names: Names, place: str) -> Any:
    """Labels from wherever they are, as Arrow: query_id, doc_id, label as text, grades such as 2.0 as 2."""
    if isinstance(source, str | Path) and not is_table(source):
        source = read_letor(source)
    if isinstance(source, Lists):
        ids = encodable(source.query_ids).take(pa.array(np.repeat(np.arange(len(source)), source.sizes)))
        table = pa.table({"query_id": ids, "doc_id": encodable(source.document_ids()), LABEL: source.labels})
    else:
        table = arrow_table(source)
        table = arrow_table(table, names.within(table.column_names))
        require_columns([*PAIR, LABEL], table.column_names, path=place)
    label = table[LABEL]
    if pa.types.is_floating(label.type) and pc.all(pc.equal(label, pc.round(label))).as_py():
        label = label.cast(pa.int64())
    return pa.table({**{name: table[name] for name in PAIR}, LABEL: label.cast(pa.string())})
