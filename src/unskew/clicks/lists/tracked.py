"""What was clicked before, as features of documents: the sums of a tracking store, window by window.

A document has a feature `<window>_<sum>` for each window (day, week, month) and each tracked sum over positions:
what `Lookup` gives for it when serving. One that was never shown has zeros. Learn from clicks of a later time than
the windows: a feature that has counted the click to be predicted predicts it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from unskew.clicks.engine.engine import connect
from unskew.clicks.joining import find_rows
from unskew.clicks.schema import to_array
from unskew.clicks.tracking.store import open_tracking
from unskew.clicks.tracking.sums import SUMS
from unskew.clicks.tracking.windows import WINDOWS, read_window
from unskew.errors import DataError
from unskew.types import Lists

TRACKED = (*SUMS, "ranks")
"""Sums of a document; `ranks` is that of the positions it was shown at."""
CLICK_FEATURES = tuple(f"{window}_{name}" for window in WINDOWS for name in TRACKED)
"""Names of the features that `with_tracked` adds, in their order."""


def with_tracked(lists: Lists, store: Path | str) -> Lists:
    """The lists with the tracked sums of each document as further features, zeros for those never shown."""
    opened = open_tracking(store)
    if not opened.manifest.windows:
        raise DataError("no window was written yet", path=store, hint='track with refresh="all"')
    features = np.zeros((len(lists.features), len(WINDOWS), len(TRACKED)), np.float32)
    with connect("duckdb") as engine:
        for place, window in enumerate(WINDOWS):
            table = read_window(engine, opened, window)
            if table is None:
                continue
            sums = {name: table[name].sum().cast("int64") for name in SUMS}
            ranks = (table.position * table.displays).sum().cast("int64")
            totals = engine.to_arrow(table.group_by("query_id", "doc_id").agg(**sums, ranks=ranks))
            _, row = find_rows(totals, lists)
            known = row >= 0
            features[row[known], place] = np.column_stack([to_array(totals[name])[known] for name in TRACKED])
    flat = features.reshape(len(features), -1)
    return replace(lists, features=np.concatenate([lists.features, flat], axis=1), present=None)


def tracked_until(store: Path | str) -> int:
    """The hour, counted from 1970, up to which the windows of a store have counted."""
    return max((window.until for window in open_tracking(store).manifest.windows.values()), default=0)
