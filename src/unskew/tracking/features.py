"""Tracked clicks as features of a query and document: the dense vector x of the last day, week and month.

L. Zou et al. (CIKM 2022, Section 6.1.2) name a vector of click features and do not say which. Ours, for every
window:

    log_*    log(1 + n) of displays, clicks and long dwell times
    *_rate   shares such as clicks / (displays + 1), so that nothing shown is 0 and little shown is little

The table is made on the engine, for training; the vector of one pair from a `Lookup`, for serving; both are the
same. A pair never shown has zeros. Learn from clicks of a later time than the windows: a feature that has counted
the click to be predicted predicts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import DataError, Option
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.joins import find_rows
from unskew.tables.schema import to_array
from unskew.tracking.delivery import MILLI, SUMS
from unskew.tracking.store import TrackingStore, open_tracking
from unskew.tracking.windows import WINDOWS, read_window
from unskew.types import Array, Lists

LOGS = {"log_displays": "displays", "log_clicks": "clicks", "log_long_dwells": "long_dwells"}
"""Feature, and the sum that it is the logarithm of."""
RATES = {
    "click_rate": ("clicks", "displays", 1),
    "first_rate": ("first_clicks", "displays", 1),
    "last_rate": ("last_clicks", "displays", 1),
    "only_rate": ("only_clicks", "displays", 1),
    "skip_rate": ("skips", "displays", 1),
    "long_rate": ("long_dwells", "clicks", 1),
    "dwell_seconds": ("dwell_ms", "dwelt", MILLI),
    "display_seconds": ("display_ms", "timed", MILLI),
    "examined_rate": ("examined", "estimated", MILLI),
    "clicks_per_examined": ("clicks", "examined", 1 / MILLI),
    "mean_rank": ("ranks", "displays", 1),
}
"""Feature, and the sums that it is the share of, with the unit: see `_share`."""
FEATURES = tuple(f"{window}_{name}" for window in WINDOWS for name in (*LOGS, *RATES))
"""Names of the vector, in order."""


def click_features(engine: Engine, store: TrackingStore) -> Table:
    """query_id, doc_id and FEATURES of every pair that a window has; 0 for a window that has no pages."""
    tables = {window: read_window(engine, store, window) for window in WINDOWS}
    parts = [_of_window(table, window) for window, table in tables.items() if table is not None]
    if not parts:
        hint = ("track with ", Option("refresh", "all"))
        raise DataError("no window was written yet", path=store.path, hint=hint)
    together = reduce(lambda left, right: left.union(right), parts)  # each window fills its own columns
    return together.group_by("query_id", "doc_id").agg(**{name: together[name].sum() for name in FEATURES})


def _of_window(table: Table, window: str) -> Table:
    sums = {name: table[name].sum().cast("float64") for name in SUMS}
    ranks = (table.position.cast("int64") * table.displays).sum().cast("float64")
    pairs = table.group_by("query_id", "doc_id").agg(**sums, ranks=ranks)
    made: dict[str, Any] = {f"{window}_{name}": (pairs[of] + 1).log() for name, of in LOGS.items()}
    for name, (top, bottom, unit) in RATES.items():
        made[f"{window}_{name}"] = _share(pairs[top], pairs[bottom], unit)
    others = {name: ibis.literal(0.0, "float64") for name in FEATURES if name not in made}
    return pairs.select("query_id", "doc_id", **made, **others).select("query_id", "doc_id", *FEATURES)


def _share(top: Any, bottom: Any, unit: float) -> Any:
    """A sum per display or click, of which there is one more than there were; in whole units."""
    return top / (bottom * unit + max(unit, 1))


def feature_vector(sums: Mapping[str, Mapping[str, int]]) -> Array:
    """FEATURES of one pair, [F] float64, from what `Lookup` says of it."""
    values: list[float] = []
    for window in WINDOWS:
        found = sums.get(window) or dict.fromkeys((*SUMS, "ranks"), 0)
        values += [float(np.log(found[of] + 1)) for of in LOGS.values()]
        values += [float(_share(found[top], found[bottom], unit)) for top, bottom, unit in RATES.values()]
    return np.array(values)


def with_tracked(lists: Lists, store: Path | str) -> Lists:
    """The lists with FEATURES of each document as further features, the last ones; zeros for those never shown."""
    opened = open_tracking(store)
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
