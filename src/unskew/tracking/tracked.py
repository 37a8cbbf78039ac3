"""What was clicked before, as features of documents: the dense vector of a tracking store, window by window.

A document has the features that `clicks.tracking.features` names, `<window>_<feature>` for each window (day, week
and month): the vector that `feature_vector` makes of a `Lookup` when serving. One never shown has zeros. Learn
from clicks of a later time than the windows: a feature that has counted the click to be predicted predicts it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from unskew.errors import DataError, Option
from unskew.tables.engine.engine import connect
from unskew.tables.joining import find_rows
from unskew.tables.schema import to_array
from unskew.tracking.features import FEATURES, click_features
from unskew.tracking.store import open_tracking
from unskew.types import Lists


def with_tracked(lists: Lists, store: Path | str) -> Lists:
    """The lists with FEATURES of each document as further features, the last ones; zeros for those never shown."""
    opened = open_tracking(store)
    if not opened.manifest.windows:
        raise DataError("no window was written yet", path=store, hint=("track with ", Option("refresh", "all")))
    features = np.zeros((len(lists.features), len(FEATURES)), np.float32)
    with connect("duckdb") as engine:
        found = engine.to_arrow(click_features(engine, opened))
    _, row = find_rows(found, lists)
    known = row >= 0
    features[row[known]] = np.column_stack([to_array(found[name])[known] for name in FEATURES])
    columns = None if lists.columns is None else lists.columns.plus(*FEATURES)
    both = np.concatenate([lists.features, features], axis=1)
    return replace(lists, features=both, present=None, columns=columns)


def tracked_until(store: Path | str) -> int:
    """The hour, counted from 1970, up to which the windows of a store have counted."""
    return max((window.until for window in open_tracking(store).manifest.windows.values()), default=0)
