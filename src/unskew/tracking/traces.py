"""What the clicks of a page say of each of its results: behaviour features for the examination model.

Legend: n distinct traces, P positions.

Every feature here follows from four whole numbers, the *trace* of an impression:

    position    rank shown
    mask        bit k is set where rank k of the page was clicked
    length      last rank of the page
    dwell       time on this result after a click, in steps

A log of any size has few distinct traces. So an engine finds the distinct ones by one group-by of pages and one
join, features are computed of those, and what a model says of them is joined back: nothing runs row by row, and no
code of ours runs inside the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unskew.tables.engine.expressions import Column, Table, ibis
from unskew.tables.engine.functions import bit_or
from unskew.types import Array

TRACE = ("position", "mask", "length", "dwell")
"""What the features of an impression follow from."""
DEEP = 40
"""Ranks from here on count as this one, so that a mask, and a sum of bits over the rows of a page, fit 63 bits."""
DWELLS = (0.0, 10.0, 30.0, 120.0)
"""Seconds at which the next step of `dwell` begins; step 0 is no dwell time."""
FEATURES = (
    "position",
    "length",
    "clicks_above",
    "clicks_below",
    "to_previous",
    "to_next",
    "clicked",
    "last_click",
    "dwell",
)
"""Behaviour features. Distances to clicks are in ranks, 0 where there is no such click."""
OWN = ("clicked", "last_click", "dwell")
"""Features that tell what happened to the result itself."""


def rank_bit(position: Any) -> Column:
    """The bit of a rank, int64."""
    # a power and no shift: engines take the 1 of a shift for one of 32 bits
    bit: Column = ibis.literal(2.0) ** ibis.greatest(ibis.least(position, DEEP), 0)
    return bit.cast("int64")


def with_traces(rows: Table) -> Table:
    """The rows with their traces, as columns trace_position, trace_mask, trace_length, trace_dwell."""
    clicked = ibis.ifelse(rows.click == 1, rank_bit(rows.position), ibis.literal(0, "int64"))
    length = ibis.least(rows.position.max(), DEEP).cast("int32")
    pages = rows.group_by(trace_page="page_id").agg(trace_mask=bit_or(clicked), trace_length=length)
    joined = rows.left_join(pages, rows.page_id == pages.trace_page).drop("trace_page")
    dwell: Any = ibis.literal(0, "int32")
    if "dwell_time" in rows.columns:
        seconds = joined.dwell_time.cast("float64")
        steps = [(seconds >= low, index) for index, low in reversed(list(enumerate(DWELLS, start=1)))]
        known = seconds.notnull() & (joined.click == 1)
        dwell = ibis.ifelse(known, ibis.cases(*steps, else_=0), 0).fill_null(0).cast("int32")
    return joined.mutate(trace_position=ibis.least(joined.position, DEEP).cast("int32"), trace_dwell=dwell)


def behaviour_features(traces: Mapping[str, Array], *, own_click: bool = True) -> Array:
    """Features of traces [n] each, [n, F] float32; without `own_click` a result's own click is not looked at.

    Rank 2 of a page of 4 whose ranks 1, 2 and 4 were clicked:

    >>> trace = {"position": 2, "mask": 2 + 4 + 16, "length": 4, "dwell": 0}
    >>> dict(zip(FEATURES, behaviour_features({k: np.array([v]) for k, v in trace.items()})[0].tolist()))
    {'position': 2.0, 'length': 4.0, 'clicks_above': 1.0, 'clicks_below': 1.0, 'to_previous': 1.0, 'to_next': 2.0,
    'clicked': 1.0, 'last_click': 0.0, 'dwell': 0.0}
    """
    position = np.asarray(traces["position"], np.int64)
    ranks = np.arange(DEEP + 1)
    clicks = (np.asarray(traces["mask"], np.int64)[:, None] >> ranks & 1).astype(bool)  # [n, P]
    above, below = clicks & (ranks < position[:, None]), clicks & (ranks > position[:, None])
    clicked = clicks[np.arange(len(position)), np.minimum(position, DEEP)]
    nearest_above = np.where(above, ranks, -1).max(axis=1)
    nearest_below = np.where(below, ranks, DEEP + 1).min(axis=1)
    columns = {
        "position": position,
        "length": traces["length"],
        "clicks_above": above.sum(axis=1),
        "clicks_below": below.sum(axis=1),
        "to_previous": np.where(nearest_above >= 0, position - nearest_above, 0),
        "to_next": np.where(nearest_below <= DEEP, nearest_below - position, 0),
        "clicked": clicked,
        "last_click": clicked & ~below.any(axis=1),
        "dwell": traces["dwell"],
    }
    return np.stack([columns[name] for name in used_features(own_click)], axis=1).astype(np.float32)


def used_features(own_click: bool) -> list[str]:
    """The features that are looked at."""
    return [name for name in FEATURES if own_click or name not in OWN]
