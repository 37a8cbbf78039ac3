"""Result pages as click models take them: which (query, document) pairs, at which ranks, which of them clicked.

Legend: S pages, K results of the longest page, N impressions, P pairs that were shown.

A log in memory stays page by page. A log on disk, or an Arrow table, is reduced on the engine first: pages of
one query that showed the same ranking and got the same clicks become one row with a weight. Nothing a click
model can see is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, Unpack

import numpy as np
import pyarrow as pa

from unskew.diagnosis.click_models.em import Shape
from unskew.diagnosis.evidence.evidence import chosen_curve
from unskew.diagnosis.evidence.tables import open_tables
from unskew.engine_prior import CAUTIOUS, Expectation, leaning, mean_ranks, spread_worth
from unskew.errors import ConfigError, DataError
from unskew.examination import Examination
from unskew.logs.counts.rankings import count_rankings
from unskew.logs.log import page_starts
from unskew.logs.reader import open_log
from unskew.names import REQUIRED, Names
from unskew.options.base import EngineConnection
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.engine.expressions import Table
from unskew.tables.joins import encodable, encode, match
from unskew.types import Array, Lists, Log

PATTERN = "clicked"
"""What the reduction calls the click that it keeps apart."""


@dataclass(frozen=True)
class ShownPairs:
    """The (query, document) pairs of a log, by number."""

    query_id: Any
    """Arrow array [P]."""
    doc_id: Any
    """Arrow array [P]."""
    query: Array
    """[P] int64, a number for each pair's query."""

    def __len__(self) -> int:
        return len(self.query)

    def find(self, others: ShownPairs) -> Array:
        """The number here of each of the others, [P']; len(self) where there is none. 7 and "7" are one id."""
        (q, queries), (d, documents) = (encode(ids) for ids in (self.query_id, self.doc_id))
        other_q, other_d = match(others.query_id, queries), match(others.doc_id, documents)
        wanted = np.where((other_q >= 0) & (other_d >= 0), other_q * len(documents) + other_d, -1)
        found = match(pa.array(wanted), q.astype(np.int64) * len(documents) + d)
        return np.where(found < 0, len(self), found)


AnyLog: TypeAlias = "Log | ClickPages | pa.Table | Path | str"
"""A log in memory, an Arrow table of impressions, or where the Parquet files are."""


@dataclass(frozen=True)
class ClickPages:
    """Pages padded to K results, in the order of their ranks; each stands for `weight` pages."""

    pairs: ShownPairs
    pair: Array
    """[S, K] int64 number of the pair, len(pairs) for one that is not among them, -1 where padded."""
    rank: Array
    """[S, K] int64 rank shown, from 1; 0 where padded."""
    click: Array
    """[S, K] bool."""
    weight: Array
    """[S] float64."""
    query: Array
    """[S] int64, a number for each page's query."""
    examination: Examination | None = None
    """What the log tells of it; None with a reason, or where nobody asked."""
    reason: str | None = None

    def __len__(self) -> int:
        return len(self.pair)

    @cached_property
    def where(self) -> Array:
        """[S, K] bool, true where there is a result."""
        return self.pair >= 0

    @cached_property
    def after(self) -> Array:
        """[S, K] bool, true where another result follows."""
        return np.concatenate([self.where[:, 1:], np.zeros((len(self), 1), bool)], axis=1)

    @property
    def total(self) -> float:
        """How many pages these stand for."""
        return float(self.weight.sum())

    @property
    def bound(self) -> int:
        """One more than the highest number of a pair: a parameter of pairs has as many entries."""
        return len(self.pairs) + 1

    def take(self, pages: Array) -> ClickPages:
        """Some of the pages: a mask, or their numbers."""
        parts = {name: getattr(self, name)[pages] for name in ("pair", "rank", "click", "weight", "query")}
        return replace(self, **parts)

    @cached_property
    def by_rank(self) -> Shape:
        """Relevance expected of pairs by their mean rank and their queries' levels.

        Examination is what swaps and shuffled slots tell, so what a rank gets is not explained twice.
        """
        last, (numbers, query) = int(self.rank.max()), np.unique(self.pairs.query, return_inverse=True)
        pages = np.bincount(np.searchsorted(numbers, self.query), self.weight, len(numbers) + 1)
        query = np.append(query, len(numbers))
        seen = np.append(0.0, self.examined)
        ranks = mean_ranks(self.sums(self.rank), self.simple["impressions"], pages[query], last)
        told = (self.simple["clicks"], self.sums(seen[self.rank]), ranks, query)
        mean = Expectation.fit(*told).of(*told)
        strength = spread_worth(told[0], told[1], self.sums(seen[self.rank] ** 2), mean)
        return Shape(mean, strength if self.examination is not None else min(strength, CAUTIOUS))

    @cached_property
    def examined(self) -> Array:
        """Examination of every rank from 1, leaning on click rates where the log tells little of it."""
        every, clicked = self._of_ranks
        return leaning(every[1:], clicked[1:], self.examination)

    @cached_property
    def simple(self) -> dict[str, Array]:
        """What anybody counts of pairs, [P + 1]; COEC is clicks over those that the ranks get on average."""
        every, clicked = self._of_ranks
        shown, clicks = (added(self.pair, some, self.weight, self.bound) for some in (self.where, self.click))
        due, ranks = self.sums((clicked / np.maximum(every, 1))[self.rank]), self.sums(self.rank)
        parts = {"click_rate": (clicks, shown), "coec": (clicks, due), "mean_rank": (ranks, shown)}
        rates = {name: over / np.where(under > 0, under, 1.0) for name, (over, under) in parts.items()}
        return {"impressions": shown, "clicks": clicks, **rates}

    @cached_property
    def _of_ranks(self) -> tuple[Array, Array]:
        """Impressions and clicks of every rank from 0."""
        size = int(self.rank.max()) + 1
        shown, clicks = (added(self.rank, some, self.weight, size) for some in (self.where, self.click))
        return shown, clicks

    def sums(self, values: Array) -> Array:
        """Values [S, K] added up by pair, [P + 1]."""
        weighed = values * self.weight[:, None]
        return np.bincount(self.pair[self.where], weighed[self.where], self.bound)

    def known_to(self, pairs: ShownPairs) -> ClickPages:
        """The same pages, with pairs numbered as there; their queries keep their numbers here."""
        if pairs is self.pairs:
            return self
        number = np.append(pairs.find(self.pairs), [len(pairs), -1])  # a stranger, and padding
        return replace(self, pairs=pairs, pair=number[self.pair])

    def halves(self, share: float, seed: int) -> tuple[ClickPages, ClickPages]:
        """A random share of the pages held out: what is left, and that share."""
        if not 0 < share < 1:
            raise ConfigError(
                "give a share of the pages between 0 and 1, or a log", argument="held_out", value=share
            )
        rng = np.random.default_rng(seed)
        out = rng.binomial(self.weight.astype(np.int64), share).astype(np.float64)
        rest = self.weight - out
        if not out.any() or not rest.any():
            raise DataError(
                f"{self.total:.0f} pages are too few to hold out {share:g} of them", hint="give more pages"
            )
        left, held = (replace(self, weight=part).take(part > 0) for part in (rest, out))
        return left, held


def read_pages(
    log: AnyLog,
    *,
    columns: Mapping[str, str] | None = None,
    examination: bool = True,
    engine: str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> ClickPages:
    """A log as pages: in memory, an Arrow table, or Parquet files of any size; `connection` goes to `connect`.

    `columns` says theirs for ours, {"position": "rank"}, where files have other names. What swaps and shuffled
    slots tell of `examination` is found too, which models that are fitted to these pages take as given.
    """
    if isinstance(log, ClickPages):
        return log
    with connect(engine, **connection) as running:
        if isinstance(log, Log):
            pages = pages_of_log(log)
        else:
            with open_log(running, log, Names.of(columns)) as shown:
                pages = reduced_pages(running, shown)
        if not examination:
            return pages
        with open_tables(log, names=Names.of(columns), engine=running) as tables:
            curve, reason = chosen_curve(tables)
    return replace(pages, examination=None if curve is None else curve.usable(), reason=reason)


def reduced_pages(engine: Engine, impressions: Table) -> ClickPages:
    """Distinct (ranking, clicks) of a log, counted on the engine."""
    table = impressions.select(*REQUIRED, **{PATTERN: impressions.click})
    slots = engine.to_arrow(count_rankings(engine, table, serp=[PATTERN]).slots)
    page, _ = encode(slots["ranking_id"])
    rank = slots["position"].to_numpy().astype(np.int64)
    order = np.lexsort((rank, page))
    query, document = (encode(slots[name]) for name in ("query_id", "doc_id"))
    distinct, pair = grouped(query[0].astype(np.int64) * len(document[1]) + document[0])
    q, d = np.divmod(distinct, len(document[1]))
    pairs = ShownPairs(encodable(query[1][q]), encodable(document[1][d]), q)
    starts = page_starts(page[order])
    columns = {"pair": pair, "rank": rank, "click": slots["clicks"].to_numpy() > 0}
    weight = slots["impressions"].to_numpy()[order][starts].astype(np.float64)
    offsets = np.append(starts, len(order))
    return _padded(pairs, offsets, {name: column[order] for name, column in columns.items()}, weight)


def pages_of_log(log: Log) -> ClickPages:
    """The pages of a log in memory that show something, each by itself."""
    if log.weighted:
        raise DataError(f"click models take clicks, and {log.feedback} has weights", hint="read the column click")
    if not len(log.row):
        raise DataError("the log has no impressions", path=log.lists.name, hint="check filters and splits")
    rows, pair = grouped(log.row, len(log.lists.features))
    offsets = log.offsets[np.append(True, log.sizes > 0)]
    columns = {"pair": pair, "rank": log.position.astype(np.int64), "click": log.click > 0}
    return _padded(pairs_of(log.lists, rows), offsets, columns, np.ones(len(offsets) - 1))


def pairs_of(lists: Lists, rows: Array) -> ShownPairs:
    """Documents of lists, by their rows, as pairs."""
    query = np.searchsorted(lists.offsets, rows, side="right") - 1
    return ShownPairs(encodable(lists.query_ids[query]), encodable(lists.document_ids()[rows]), query)


def _padded(pairs: ShownPairs, offsets: Array, columns: dict[str, Array], weight: Array) -> ClickPages:
    """Pages from impressions [N], page after page, by rank."""
    sizes = np.diff(offsets)
    where = np.arange(sizes.max()) < sizes[:, None]
    laid: dict[str, Any] = {}
    for name, column in columns.items():
        laid[name] = np.full(where.shape, -1 if name == "pair" else 0, column.dtype)
        laid[name][where] = column
    return ClickPages(pairs, **laid, weight=weight, query=pairs.query[laid["pair"][:, 0]])


def added(index: Array, some: Array, weight: Array, size: int) -> Array:
    """Weights [S] of the results [S, K] where `some` is true, added up by their index, [size]."""
    chosen = index.ravel() if some.all() else index[some]
    if (weight == 1).all():  # twice as fast, and the case of a log in memory
        return np.bincount(chosen, minlength=size).astype(np.float64)
    each = np.broadcast_to(weight[:, None], some.shape)
    return np.bincount(chosen, each[some], minlength=size)


def grouped(codes: Array, size: int | None = None) -> tuple[Array, Array]:
    """The distinct codes, sorted, and the number of each code among them, [N]; codes are from 0, below `size`.

    >>> [part.tolist() for part in grouped(np.array([7, 3, 7]), 8)]
    [[3, 7], [1, 0, 1]]
    """
    size = int(codes.max(initial=0)) + 1 if size is None else size
    if size > 4 * len(codes) + 1_000_000:
        distinct, number = np.unique(codes, return_inverse=True)
        return distinct, number
    there = np.zeros(size, bool)
    there[codes] = True
    distinct = np.flatnonzero(there)
    table = np.zeros(size, np.int64)
    table[distinct] = np.arange(len(distinct))
    return distinct, table[codes]


def same_rows(pages: ClickPages) -> tuple[Array, Array]:
    """First page of each distinct ranking, [R], and the ranking of each page, [S]; by a hash that is checked."""
    rows = np.concatenate([pages.pair, pages.rank], axis=1)
    salt = np.random.default_rng(0).integers(1, 2**63, rows.shape[1], np.uint64) | np.uint64(1)
    with np.errstate(over="ignore"):
        mixed = (rows + 2).astype(np.uint64) * salt
        mixed ^= mixed >> np.uint64(31)
        hashes = (mixed * salt[::-1]).sum(1)
    _, first, number = np.unique(hashes, return_index=True, return_inverse=True)
    if not np.array_equal(rows, rows[first[number]]):  # two rankings of one hash, which hardly ever are
        _, first, number = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first, number
