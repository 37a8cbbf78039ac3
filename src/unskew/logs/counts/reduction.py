"""The exact reduction of a log: pages that showed the same ranking become one row of counts.

Most losses are linear in the clicks, so summing clicks first and taking the gradient after gives the same
gradient as the other way round. Three forms, each holding what a class of losses needs:

    pages  one row per page: nothing is lost, nothing is gained
    counts    one row per distinct (query, ranking, presentation): impressions and clicks of every slot
    pairs     counts, and for slots i, j the number of pages with a click on i and none on j

Legend: S pages, N impressions, R rows after the reduction, K results of the longest page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from unskew.errors import DataError
from unskew.logs.presentation import Presentation, pick_columns
from unskew.types import Array, Lists, Log

Reduction = Literal["pages", "counts", "pairs"]

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0x9E3779B97F4A7C15))


@dataclass(frozen=True)
class Counts:
    """Distinct rankings, padded to K results, with how often each slot was shown and clicked."""

    lists: Lists
    query: Array  # [R] int64 index into `lists`
    row: Array  # [R, K] int64 row of `lists.features`, -1 where padded
    position: Array  # [R, K] int64 rank shown, 0 where padded
    clicks: Array  # [R, K] float32
    impressions: Array  # [R, K] float32, 0 where padded
    pairs: Array | None = None
    """[R, K, K] float32 pages with a click on i and none on j; None unless reduced to pairs."""
    serp: Mapping[str, Array] = field(default_factory=dict)
    """[R, K] each; 0, or the empty string, where padded."""
    shown_at: Array | None = None
    """[R, S, P] float32 pages that showed each of the first S documents at each rank; None unless by query."""
    stands_for: Array | None = None
    """[R, K] float32 documents that each stands for; None: for itself."""

    def __len__(self) -> int:
        return len(self.query)

    @property
    def where(self) -> Array:
        """[R, K] bool, true where there is a result."""
        return self.row >= 0

    @property
    def positions(self) -> int:
        """The last rank that was shown."""
        return int(self.position.max(initial=0))


@dataclass(frozen=True)
class Facts:
    """A log in numbers."""

    pages: int
    impressions: int
    clicks: int
    queries: int
    clickless: int
    by_rank: Array  # [2, P] impressions and clicks at each rank
    weighted: str | None = None
    """The column of weights that stands in the place of clicks; None where feedback is clicks."""

    @property
    def click_rate(self) -> float:
        """Clicks per impression."""
        return self.clicks / max(self.impressions, 1)

    @classmethod
    def of(cls, log: Log) -> Facts:
        """Counted from a log in memory."""
        clicked = np.unique(np.repeat(np.arange(len(log)), log.sizes)[log.click > 0])
        return cls(
            pages=len(log),
            impressions=len(log.row),
            clicks=round(float(log.click.sum(dtype=np.float64))),
            queries=len(np.unique(log.query)),
            clickless=len(log) - len(clicked),
            by_rank=rank_counts(log.position, np.ones(len(log.row)), log.click),
            weighted=log.feedback if log.weighted else None,
        )


def rank_counts(position: Array, impressions: Array, clicks: Array) -> Array:
    """Impressions and clicks at each rank, [2, P]; rank 0 is padding.

    >>> rank_counts(np.array([1, 2, 1, 0]), np.ones(4), np.array([1, 0, 1, 0])).tolist()
    [[2.0, 1.0], [2.0, 0.0]]
    """
    flat = position.reshape(-1).astype(np.int64)
    return np.stack([np.bincount(flat, weights=values.reshape(-1))[1:] for values in (impressions, clicks)])


def reduce_log(
    log: Log,
    reduction: Reduction = "counts",
    *,
    serp: Sequence[str] = (),
    presentation: Presentation | None = None,
    averages: Sequence[str] = (),
) -> Counts:
    """Reduce a log to the rows that a loss needs; `serp` names presentation columns to keep apart and carry.

    A `presentation` names them itself, and they are kept apart and carried as it encodes them. `averages` are
    columns of numbers, where the log has them, whose mean over the pages of a row is carried. Rows come out in an
    order that does not depend on the order of the pages (except for `pages`).
    """
    if len(log) == 0 or len(log.row) == 0:
        what = "no pages" if len(log) == 0 else "no impressions: every page is empty"
        raise DataError(f"the log has {what}", path=log.lists.name, hint="check filters and splits")
    if log.weighted and reduction == "pairs":
        raise DataError(f"pairs are counted from clicks, and {log.feedback} has weights", path=log.lists.name)
    numbers = {name: log.columns[name] for name in averages if name in log.columns}
    carried = pick_columns(log.columns, serp) if presentation is None else presentation.encode(log.columns)
    log = replace(log, columns=carried)
    page = np.repeat(np.arange(len(log)), log.sizes)
    slot = np.arange(len(log.row)) - log.offsets[page]
    first, group = (np.arange(len(log)),) * 2 if reduction == "pages" else same_page(log, page, slot)
    counts = lay_out(log, first, group[page], slot, (log.click, np.ones(len(page))))
    cell = group[page] * counts.row.shape[1] + slot
    means = {}
    for name, values in numbers.items():
        total = np.bincount(cell, np.asarray(values, float), minlength=counts.row.size).reshape(counts.row.shape)
        means[name] = (total / np.maximum(counts.impressions, 1)).astype(np.float32)
    counts = replace(counts, serp={**counts.serp, **means})
    return counts if reduction != "pairs" else with_pairs(counts, _clicked_both(log, group, slot, counts))


def lay_out(pages: Log, first: Array, row: Array, slot: Array, shown: tuple[Array, Array]) -> Counts:
    """Counts [R, K] of impressions [N] in these rows and slots; `shown` are the clicks and impressions of each.

    `first` [R] is a page with the ranking of each row; its columns are carried.
    """
    shape = len(first), int(pages.sizes.max())
    cell = row * shape[1] + slot  # [N] where each impression lands in the flattened [R, K]
    clicks, impressions = (
        np.bincount(cell, each, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float32) for each in shown
    )
    cells = pages.offsets[first, None] + np.arange(shape[1])  # [R, K] impressions of each row's first page
    where = np.arange(shape[1]) < pages.sizes[first, None]
    cells = np.where(where, cells, 0)
    return Counts(
        lists=pages.lists,
        query=pages.query[first],
        row=np.where(where, pages.row[cells], -1),
        position=np.where(where, pages.position[cells], 0).astype(np.int64),
        clicks=clicks,
        impressions=impressions,
        serp={
            name: np.where(where, column[cells], np.zeros((), column.dtype))
            for name, column in pages.columns.items()
        },
    )


def with_pairs(counts: Counts, both: Array) -> Counts:
    """Pages with a click on i and none on j: clicks on i less pages with `both` clicked, [R, K, K]."""
    where = counts.where[:, :, None] & counts.where[:, None, :]
    return replace(counts, pairs=np.where(where, counts.clicks[:, :, None] - both, 0).astype(np.float32))


def label_table(log: Log, *, every: bool = False) -> Counts:
    """Grades in the place of clicks: one row per query of the log, its most shown page or `every` document."""
    lists = log.lists
    if every:
        query = np.unique(log.query)
        slots = np.arange(lists.sizes[query].max())
        row = np.where(slots < lists.sizes[query, None], lists.offsets[query, None] + slots, -1)
        position = np.where(row >= 0, slots + 1, 0)
    else:
        pages = reduce_log(log)
        order = np.lexsort((-pages.impressions.max(1), pages.query))
        query, first = np.unique(pages.query[order], return_index=True)
        row, position = pages.row[order[first]], pages.position[order[first]]
    where = row >= 0
    labels = np.where(where, lists.labels[row], 0).astype(np.float32)
    return Counts(lists, query, row, position.astype(np.int64), labels, where.astype(np.float32))


def same_page(log: Log, page: Array, slot: Array) -> tuple[Array, Array]:
    """First page of each distinct page, and the page of each page, by a 64-bit hash that is then checked."""
    keys = [_codes(key) for key in (log.row, log.position, *log.columns.values())]
    filled = log.sizes > 0  # reduceat does not know empty pages
    for salt in range(1, 9):
        hashes = np.zeros(len(log), np.uint64)
        hashes[filled] = np.add.reduceat(_hash(keys, slot, salt), log.offsets[:-1][filled])
        _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
        same = log.sizes[first][group] == log.sizes
        if same.all():
            twin = log.offsets[first][group][page] + slot  # the same slot of the page's first page
            if all(np.array_equal(key, key[twin]) for key in keys):
                return first, group
    raise DataError("could not tell the rankings apart: eight different hashes collided")


def _codes(key: Array) -> Array:
    """The column as whole numbers, equal where its values are equal; missing values (NaN) equal each other."""
    return key if key.dtype.kind in "iub" else np.unique(key, return_inverse=True)[1]


def _hash(keys: Sequence[Array], slot: Array, salt: int) -> Array:
    with np.errstate(over="ignore"):
        value = slot.astype(np.uint64) + np.uint64(salt) * _MIX[2]
        for key in keys:
            value = value * _MIX[0] + key.astype(np.uint64)
            value ^= value >> np.uint64(29)
            value *= _MIX[1]
            value ^= value >> np.uint64(32)
    return value


def _clicked_both(log: Log, group: Array, slot: Array, counts: Counts) -> Array:
    """For each ranking and pair of slots, pages with a click on both, [R, K, K]."""
    rows, width = counts.clicks.shape
    clicked = np.flatnonzero(log.click)
    page = np.searchsorted(log.offsets, clicked, side="right") - 1
    in_page = np.bincount(page, minlength=len(log))  # clicks per page
    start = np.concatenate([[0], np.cumsum(in_page)])
    repeat = in_page[page]
    left = np.repeat(np.arange(len(clicked)), repeat)  # every click meets every click of its page
    right = np.arange(len(left)) - np.repeat(np.cumsum(repeat) - repeat, repeat) + start[page[left]]
    cell = (group[page[left]] * width + slot[clicked[left]]) * width + slot[clicked[right]]
    return np.bincount(cell, minlength=rows * width * width).reshape(rows, width, width)


# ---- by query ----


def by_query(counts: Counts, unseen: int) -> Counts:
    """One row per query: documents that were shown first, then at most `unseen` of those that never were.

    `impressions` are the pages of the query, for every candidate; `shown_at` says how many of them showed it at
    which rank, `position` the best of its ranks, 0 for none. Where more documents were never shown than fit, some
    of them are drawn, always the same ones, and `stands_for` is how many each stands for.
    """
    where, offsets = counts.where, counts.lists.offsets
    document, cell = np.unique(counts.row[where], return_inverse=True)  # ascending, so query after query
    query, of = np.unique(np.searchsorted(offsets, document, side="right") - 1, return_inverse=True)
    pages = np.bincount(np.searchsorted(query, counts.query), counts.impressions.max(1), minlength=len(query))
    further, others, stands_for = _unseen(counts, query, document, unseen)
    slot, free = _slots(of, len(query)), np.bincount(of, minlength=len(query))
    width = int((free + np.bincount(others, minlength=len(query))).max())
    row = np.full((len(query), width), -1)
    row[of, slot] = document
    place = others, free[others] + _slots(others, len(query))
    row[place] = further
    ranks, rank = counts.positions, counts.position[where] - 1
    shape = len(query), int(free.max()), ranks
    at = (of[cell] * shape[1] + slot[cell]) * ranks + rank
    shown_at = np.bincount(at, counts.impressions[where], minlength=int(np.prod(shape))).reshape(shape)
    clicks, position = np.zeros(row.shape, np.float32), np.zeros(row.shape, np.int64)
    clicks[of, slot] = np.bincount(cell, counts.clicks[where], minlength=len(document))
    position[of, slot] = (shown_at[of, slot] > 0).argmax(-1) + 1
    copies = (row >= 0).astype(np.float32)
    copies[place] = stands_for
    return Counts(
        lists=counts.lists,
        query=query,
        row=row,
        position=position,
        clicks=clicks,
        impressions=np.where(row >= 0, pages[:, None], 0).astype(np.float32),
        shown_at=shown_at.astype(np.float32),
        stands_for=copies,
    )


def _unseen(counts: Counts, query: Array, document: Array, most: int) -> tuple[Array, Array, Array]:
    """Documents of these queries that are not among `document`, which query each is of, and what it stands for."""
    lists = counts.lists
    sizes = lists.sizes[query]
    starts = np.repeat(lists.offsets[query] - np.cumsum(sizes) + sizes, sizes)
    every, of = np.arange(sizes.sum()) + starts, np.repeat(np.arange(len(query)), sizes)
    apart = ~np.isin(every, document, assume_unique=True)
    every, of = every[apart], of[apart]
    order = np.lexsort((np.random.default_rng(0).random(len(every)), of))
    kept = np.sort(order[_slots(of, len(query)) < most])  # `of` is ascending, so it is the same in this order
    there, left = (np.bincount(each, minlength=len(query)) for each in (of, of[kept]))
    return every[kept], of[kept], (there / np.maximum(left, 1))[of[kept]]


def _slots(group: Array, groups: int) -> Array:
    """The place of each in its group, from 0; groups are ascending.

    >>> _slots(np.array([0, 0, 2]), 3).tolist()
    [0, 1, 0]
    """
    sizes = np.bincount(group, minlength=groups)
    places: Array = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return places
