"""Counts by query: one row for every query, with the documents that were never shown beside those that were.

For losses that ask how relevant every candidate of a query is, seen or not. How many pages showed a document at
each rank is kept, so the reduction is exact for whatever depends on ranks one by one.

Legend: Q queries, K candidates of a row, S documents shown at most, P ranks, G rankings.
"""

from __future__ import annotations

import numpy as np

from unskew.logs.counts.reduction import Counts
from unskew.types import Array


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
