"""The exact reduction of a log: sessions that showed the same ranking become one row of counts.

Most losses are linear in the clicks, so summing clicks first and taking the gradient after gives the same
gradient as the other way round. Three forms, each holding what a class of losses needs:

    sessions  one row per session: nothing is lost, nothing is gained
    counts    one row per distinct (query, ranking, presentation): impressions and clicks of every slot
    pairs     counts, and for slots i, j the number of sessions with a click on i and none on j

Legend: S sessions, N impressions, R rows after the reduction, K results of the longest page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from unskew.errors import DataError
from unskew.types import Array, Lists, Log

Reduction = Literal["sessions", "counts", "pairs"]

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB), np.uint64(0x9E3779B97F4A7C15))


@dataclass(frozen=True)
class Counts:
    """Distinct rankings, padded to K results, with how often each slot was shown and clicked."""

    lists: Lists
    query: Array
    """[R] int64 index into `lists`."""
    row: Array
    """[R, K] int64 row of `lists.features`, -1 where padded."""
    position: Array
    """[R, K] int64 rank shown, 0 where padded."""
    clicks: Array
    """[R, K] float32."""
    impressions: Array
    """[R, K] float32, 0 where padded."""
    pairs: Array | None = None
    """[R, K, K] float32 sessions with a click on i and none on j; None unless reduced to pairs."""
    serp: Mapping[str, Array] = field(default_factory=dict)
    """[R, K] each, 0 where padded."""

    def __len__(self) -> int:
        return len(self.query)

    @property
    def where(self) -> Array:
        """[R, K] bool, true where there is a result."""
        where: Array = self.row >= 0
        return where

    @property
    def positions(self) -> int:
        """The last rank that was shown."""
        return int(self.position.max(initial=0))


def reduce_log(log: Log, reduction: Reduction = "counts", *, serp: Sequence[str] = ()) -> Counts:
    """Reduce a log to the rows that a loss needs; `serp` names presentation columns to keep apart and carry.

    Rows come out in an order that does not depend on the order of the sessions (except for `sessions`).
    """
    if len(log) == 0:
        raise DataError("the log has no sessions", path=log.lists.name, hint="check filters and splits")
    missing = [name for name in serp if name not in log.columns]
    if missing:
        raise DataError(f"the log has no column {', '.join(missing)}; it has {', '.join(log.columns) or 'none'}")
    sizes = log.sizes
    session = np.repeat(np.arange(len(log)), sizes)
    slot = np.arange(len(log.row)) - np.repeat(log.offsets[:-1], sizes)
    first, group = (np.arange(len(log)),) * 2 if reduction == "sessions" else _same_page(log, session, slot, serp)
    rows, width = len(first), int(sizes.max())

    shape = (rows, width)
    cell = group[session] * width + slot  # [N] where each impression lands in the flattened [R, K]
    clicks = np.bincount(cell, weights=log.click, minlength=rows * width).reshape(shape).astype(np.float32)
    impressions = np.bincount(cell, minlength=rows * width).reshape(shape).astype(np.float32)
    page = log.offsets[first, None] + np.arange(width)  # [R, K] impressions of each row's first session
    where = np.arange(width) < sizes[first, None]
    page = np.where(where, page, 0)
    return Counts(
        lists=log.lists,
        query=log.query[first],
        row=np.where(where, log.row[page], -1),
        position=np.where(where, log.position[page], 0).astype(np.int64),
        clicks=clicks,
        impressions=impressions,
        pairs=_pair_counts(log, group, slot, clicks, where) if reduction == "pairs" else None,
        serp={name: np.where(where, log.columns[name][page], 0) for name in serp},
    )


def _same_page(log: Log, session: Array, slot: Array, serp: Sequence[str]) -> tuple[Array, Array]:
    """First session of each distinct page, and the page of each session, by a 64-bit hash that is then checked."""
    keys = [log.row, log.position, *(log.columns[name] for name in serp)]
    for salt in range(1, 9):
        hashes = np.add.reduceat(_hash(keys, slot, salt), log.offsets[:-1])
        hashes[log.sizes == 0] = 0
        _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
        same = log.sizes[first][group] == log.sizes
        if same.all():
            twin = log.offsets[first][group][session] + slot  # the same slot of the page's first session
            if all(np.array_equal(key, key[twin]) for key in keys):
                return first, group
    raise DataError("could not tell the rankings apart: eight different hashes collided")


def _hash(keys: Sequence[Array], slot: Array, salt: int) -> Array:
    """A well mixed 64-bit number per impression, [N]."""
    with np.errstate(over="ignore"):
        value = slot.astype(np.uint64) + np.uint64(salt) * _MIX[2]
        for key in keys:
            bits = key if key.dtype.kind in "iub" else np.unique(key, return_inverse=True)[1]
            value = value * _MIX[0] + bits.astype(np.uint64)
            value ^= value >> np.uint64(29)
            value *= _MIX[1]
            value ^= value >> np.uint64(32)
    return value


def _pair_counts(log: Log, group: Array, slot: Array, clicks: Array, where: Array) -> Array:
    """[R, K, K] sessions with a click on i and none on j: clicks on i less sessions with both clicked."""
    rows, width = clicks.shape
    clicked = np.flatnonzero(log.click)
    session = np.searchsorted(log.offsets, clicked, side="right") - 1
    in_session = np.bincount(session, minlength=len(log))  # clicks per session
    start = np.concatenate([[0], np.cumsum(in_session)])
    repeat = in_session[session]
    left = np.repeat(np.arange(len(clicked)), repeat)  # every click meets every click of its session
    right = np.arange(len(left)) - np.repeat(np.cumsum(repeat) - repeat, repeat) + start[session[left]]
    cell = (group[session[left]] * width + slot[clicked[left]]) * width + slot[clicked[right]]
    both = np.bincount(cell, minlength=rows * width * width).reshape(rows, width, width)
    pairs: Array = np.where(where[:, :, None] & where[:, None, :], clicks[:, :, None] - both, 0).astype(np.float32)
    return pairs
