"""Logged pages as flat arrays, the places that a ranking gives their results, and the places that they had.

A page shows K results; a ranking orders the same results anew, `place` 1 to K. Place 0 stands for "at random": a
shuffled page whose usual order is not known. Only results that were shown are ever placed.

Legend: P pages, N impressions, page after page; results of page p are rows offsets[p] to offsets[p + 1].
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from unskew.errors import DataError
from unskew.names import CLUSTERS
from unskew.types import Array, Log

Clusters = Literal["user", "visit", "query", "page"]
"""What is drawn again for intervals."""
LARGE = 0.1
"""Share of all clicks from which who holds it is named."""
FEW_QUERIES = 20
"""Queries below which pages are drawn again in their place."""


@dataclass(frozen=True)
class LoggedPages:
    """Pages as they were shown and clicked; a part of a log holds whole queries."""

    offsets: Array
    """[P + 1]."""
    position: Array
    """[N], the rank shown at, from 1, ascending within a page."""
    click: Array
    """[N], 0 or 1, or a weight from 0."""
    shuffled: Array
    """[N] bool, true where the slot was filled at random."""
    query: Array
    """[P] int, the same in pages of one query, wherever the log lies: `stable_codes` of its id."""
    document: Array
    """[N] int, one number for each (query, document)."""
    cluster: Array
    """[P] int, what is drawn again together; the same number in every part of a log."""
    propensity: Array | None = None
    """[N], the logged chance that this slot showed this result."""

    @classmethod
    def from_log(cls, log: Log, *, cluster: Clusters | None = None) -> LoggedPages:
        """Pages of a log, or of a part of it that holds whole queries.

        Without `cluster` users are drawn again where the log names them, else visits, else queries, else pages
        where there are few queries. Parts of one log need to be told, since each has few queries of its own.
        """
        shuffled = np.zeros(len(log.row), bool) if log.randomized is None else np.asarray(log.randomized, bool)
        chances = log.columns.get("propensity")
        if chances is not None and not ((chances > 0) & (chances <= 1)).all():
            raise DataError(
                "column propensity must be the chance that the slot showed its result, above 0 and at most 1",
                hint="leave the column out, or give every impression its chance",
            )
        return cls(
            offsets=log.offsets,
            position=log.position.astype(np.int64),
            click=log.click.astype(np.float64),
            shuffled=shuffled,
            query=stable_codes(np.asarray(log.lists.query_ids))[log.query],
            document=log.row,
            cluster=clusters_of(log, cluster or usual_cluster(log)),
            propensity=None if chances is None else chances.astype(np.float64),
        )

    def __len__(self) -> int:
        return len(self.query)

    @cached_property
    def sizes(self) -> Array:
        """Results per page, [P]."""
        sizes: Array = np.diff(self.offsets)
        return sizes

    @cached_property
    def page(self) -> Array:
        """The page of each impression, [N]."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def index(self) -> Array:
        """Where a result stood among those of its page, [N] from 1."""
        stood: Array = np.arange(len(self.page)) - self.offsets[self.page] + 1
        return stood

    def per_page(self, values: Array) -> Array:
        """Values [N] added up by page, [P]."""
        return np.bincount(self.page, weights=values, minlength=len(self))

    def rows(self, pages: Array) -> tuple[Array, Array]:
        """Impressions of some pages, one page after another, and where each page starts among them."""
        sizes = self.sizes[pages]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return np.repeat(self.offsets[:-1][pages] - offsets[:-1], sizes) + np.arange(offsets[-1]), offsets

    def take(self, pages: Array) -> LoggedPages:
        """Some pages (numbers, in that order, or a mask)."""
        rows, offsets = self.rows(pages)
        return LoggedPages(
            offsets,
            self.position[rows],
            self.click[rows],
            self.shuffled[rows],
            self.query[pages],
            self.document[rows],
            self.cluster[pages],
            None if self.propensity is None else self.propensity[rows],
        )


def places(scores: Array, pages: LoggedPages) -> Array:
    """Places [N] from 1 by descending score within each page; ties go by document, never by the rank shown.

    >>> page = LoggedPages(np.array([0, 3]), np.arange(1, 4), np.zeros(3), np.zeros(3, bool),
    ...                    np.array([0]), np.array([5, 9, 7]), np.array([0]))
    >>> places(np.array([0.1, 0.4, 0.4]), page).tolist()
    [3, 2, 1]
    """
    scores = np.asarray(scores, np.float64)
    if scores.shape != pages.position.shape:
        raise DataError(f"{scores.shape} scores for {len(pages.position)} results")
    if np.isnan(scores).any():
        raise DataError("a score is missing", hint="score every result of the pages")
    return _ranked(-scores, pages)


def shown_places(pages: LoggedPages) -> Array:
    """The order that people usually see, [N]: as logged, and on pages with random slots that of the other pages.

    Results of such a page stand as they do on the query's other pages, on average; where one is shown nowhere
    else, the whole page is at random, 0.

    >>> page = LoggedPages(np.array([0, 2, 4]), np.array([1, 2, 1, 2]), np.zeros(4), np.arange(4) > 1,
    ...                    np.array([0, 0]), np.array([5, 9, 9, 5]), np.array([0, 1]))
    >>> shown_places(page).tolist()
    [1, 2, 2, 1]
    """
    random, as_logged = (pages.per_page(pages.shuffled) > 0)[pages.page], pages.index
    if not random.any():
        return as_logged
    total, shown = (
        np.bincount(pages.document, weights=each, minlength=1)[pages.document]
        for each in (np.where(random, 0, pages.position), ~random)
    )
    unknown = (pages.per_page(shown == 0) > 0)[pages.page]
    usual = _ranked(total / np.maximum(shown, 1), pages)
    return np.where(random, np.where(unknown, 0, usual), as_logged)


def discounts(longest: int, at: int) -> Array:
    """1 / log2(1 + place) of places 1 to `longest`, and 0 below place `at`.

    >>> discounts(3, at=2).round(4).tolist()
    [1.0, 0.6309, 0.0]
    """
    place = np.arange(1, longest + 1)
    return np.where(place <= at, 1 / np.log2(1.0 + place), 0.0)


def worth(place: Array, pages: LoggedPages, ladder: Array) -> Array:
    """What places [N] are worth, [N], by what those from 1 on are; at random (place 0) the mean over the page."""
    of_place: Array = ladder[np.maximum(place, 1) - 1]
    if (place == 0).any():
        mean = np.cumsum(ladder) / np.arange(1, len(ladder) + 1)
        of_place = np.where(place > 0, of_place, mean[pages.sizes - 1][pages.page])
    return of_place


def usual_cluster(log: Log) -> Clusters:
    """What to draw again, by what the log has."""
    people: Any = (name.removesuffix("_id") for name in CLUSTERS if name in log.columns)
    return next(people, "query" if len(np.unique(log.query)) >= FEW_QUERIES else "page")


def clusters_of(log: Log, kind: Clusters) -> Array:
    """The cluster of every page, [P] int64; a name has the same number in every part of a log."""
    if kind == "query":
        return stable_codes(np.asarray(log.lists.query_ids)[log.query])
    if kind == "page" and "page_id" not in log.columns:
        return np.arange(len(log), dtype=np.int64)
    if f"{kind}_id" not in log.columns:
        hint = "`unskew split` finds visits, or draw queries again"
        raise DataError(f"the log names no {kind}s", hint=hint)
    named = log.columns[f"{kind}_id"][log.offsets[:-1]]
    nameless = (named == None) | (named != named)  # noqa: E711  cell by cell
    codes = stable_codes(np.where(nameless, 0, named) if nameless.any() else named)
    return np.where(nameless, -1 - np.arange(len(log)), codes)  # a page that tells none is one by itself


def stable_codes(names: Array) -> Array:
    """Ids as numbers that depend on nothing else: whole numbers as they are, others by a checksum.

    >>> stable_codes(np.array([7, 3])).tolist(), stable_codes(np.array(["b", "a", "b"])).tolist()
    ([7, 3], [1908338681, 3904355907, 1908338681])
    """
    if names.dtype.kind in "iu":
        return names.astype(np.int64)
    values, inverse = np.unique(names.astype(str), return_inverse=True)
    codes: Array = np.array([zlib.crc32(value.encode()) for value in values], np.int64)[inverse]
    return codes


def _ranked(keys: Array, pages: LoggedPages) -> Array:
    """Places [N] by ascending key within each page, ties by document."""
    width = int(pages.sizes.max(initial=0))
    if width * len(pages) > 4 * len(keys) + 1000:  # padding would cost more than it saves
        place = np.empty(len(keys), np.int64)
        place[np.lexsort((pages.document, keys, pages.page))] = pages.index
        return place
    inside = np.arange(width) < pages.sizes[:, None]  # [P, K]
    padded, document = np.full(inside.shape, np.inf), np.full(inside.shape, np.iinfo(np.int64).max)
    padded[inside], document[inside] = np.minimum(keys, np.finfo(float).max), pages.document
    order = np.argsort(padded, axis=1, kind="stable")
    ordered = np.take_along_axis(padded, order, axis=1)
    tied = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if len(tied):  # only rows with ties are sorted by document
        by_document = np.argsort(document[tied], axis=1, kind="stable")
        again = np.argsort(np.take_along_axis(padded[tied], by_document, axis=1), axis=1, kind="stable")
        order[tied] = np.take_along_axis(by_document, again, axis=1)
    table = np.empty(inside.shape, np.int64)
    np.put_along_axis(table, order, np.broadcast_to(np.arange(1, width + 1), order.shape), axis=1)
    return table[inside]
