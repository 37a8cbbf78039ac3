"""Rows of a matrix as results of pages: which were shown together, for which query, at which rank.

Legend: n rows, Q queries, S pages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.types import Array, Lists, Log


@dataclass(frozen=True)
class ShownRows:
    """How rows [n] were shown; sorted by query, page and rank they are in `order`."""

    query: Array
    """[n] from 0."""
    page: Array
    """[n] from 0, ascending with the query."""
    position: Array
    """[n] from 1."""
    order: Array
    """[n] rows by query, page and position."""

    @classmethod
    def of(
        cls, rows: int, *, query: Array | None = None, position: Array | None = None, page: Array | None = None
    ) -> ShownRows:
        """From what was said of so many rows; without a query all are one list."""
        for name, column in (("groups", query), ("position", position), ("page", page)):
            if column is not None and (column.ndim != 1 or len(column) != rows):
                raise ValueError(f"{name} must have one entry for each of {rows} rows, not shape {column.shape}")
        codes = np.zeros(rows, np.int64) if query is None else _codes(query)
        pages = codes if page is None else _codes(page)
        pages = _codes(codes * (int(pages.max(initial=0)) + 1) + pages)
        rank = _in_turn(pages) if position is None else _checked(position)
        order = np.lexsort((rank, pages))
        twice = np.flatnonzero((np.diff(pages[order]) == 0) & (np.diff(rank[order]) == 0))
        if len(twice):
            where = order[twice[0]]
            raise ValueError(
                f"position {rank[where]} is taken twice on a page, first in row {where}; tell pages apart, page="
            )
        return cls(codes, pages, rank, order)

    @property
    def query_offsets(self) -> Array:
        """[Q + 1] where queries begin, in `order`."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.query))]).astype(np.int64)


def shown_log(lists: Lists, click: Array, shown: ShownRows) -> Log:
    """The log of rows whose documents are those of the lists, in the order of `shown`."""
    page = shown.page[shown.order]
    starts = np.flatnonzero(np.concatenate([[True], page[1:] != page[:-1]]))
    feedback = np.asarray(click, np.float64)[shown.order]
    if (feedback < 0).any():
        raise ValueError("y has values below 0; clicks are 0 or 1, weights are from 0")
    whole = np.isin(feedback, (0, 1)).all()
    return Log(
        lists,
        query=shown.query[shown.order][starts],
        offsets=np.append(starts, len(page)).astype(np.int64),
        row=np.arange(len(page)),
        position=shown.position[shown.order].astype(np.int16),
        click=feedback.astype(np.uint8 if whole else np.float32),
        feedback="click" if whole else "y",
    )


def _codes(values: Array) -> Array:
    codes: Array = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes


def _in_turn(pages: Array) -> Array:
    """The place of each row among those of its page, from 1."""
    order = np.argsort(pages, kind="stable")
    _, first = np.unique(pages[order], return_index=True)
    turn = np.empty(len(pages), np.int64)
    turn[order] = np.arange(len(pages)) - np.repeat(first, np.diff([*first, len(pages)])) + 1
    return turn


def _checked(position: Array) -> Array:
    rank = np.asarray(position, np.float64)
    most = np.iinfo(np.int16).max
    if not ((rank >= 1) & (rank <= most) & (rank % 1 == 0)).all():
        raise ValueError(f"position has values that are no ranks: whole numbers from 1 to {most}")
    return rank.astype(np.int64)
