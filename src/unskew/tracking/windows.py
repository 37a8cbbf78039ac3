"""The last day, week and month of a store: merged from hours, published sorted, looked up by query and document.

A window is written anew when it is due: the day after every hour, the week after every day, the month after every
week, as in L. Zou et al. (CIKM 2022, Section 6.1.2). So the cost of an hourly run does not grow with the history,
and every window is exact as of the hour that it says. `window_sums` computes one as of any hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unskew.settings import known
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.parquet import parquet_files
from unskew.tracking.delivery import KEY, SUMS, merged
from unskew.tracking.store import Manifest, Published, TrackingStore, open_tracking

if TYPE_CHECKING:
    from ibis.expr.types import Table


class Span(NamedTuple):
    """How long a window is, and how often it is written anew, in hours."""

    hours: int
    every: int


WINDOWS: Mapping[str, Span] = {"day": Span(24, 1), "week": Span(7 * 24, 24), "month": Span(28 * 24, 7 * 24)}
"""Windows by name."""
LONGEST = max(span.hours for span in WINDOWS.values())
"""Hours after which a page is in no window any more."""
KEPT = 1024
"""Queries of a window that a reader keeps in memory."""


def window_sums(engine: Engine, store: TrackingStore, since: int, until: int) -> Table | None:
    """Sums per query, document and position over the hours from `since` to before `until`; None without pages."""
    parts = store.read(engine, "partials", since, until - 1)
    return None if parts is None else merged(parts)


def due(manifest: Manifest, clock: int, refresh: str) -> list[str]:
    """The windows to write: none, those that are due, or all."""
    if refresh != "due":
        return list(WINDOWS) if refresh == "all" else []
    before = {name: window.until for name, window in manifest.windows.items()}
    return [name for name, span in WINDOWS.items() if name not in before or clock >= before[name] + span.every]


def publish_window(engine: Engine, store: TrackingStore, name: str, clock: int, number: int) -> Published | None:
    """Write a window as of an hour, sorted by query, document and position; None where it has no pages."""
    since = clock - WINDOWS[name].hours
    table = window_sums(engine, store, since, clock)
    if table is None:
        return None
    folder = f"{name}-{number:06d}"
    place = store.folder("windows", folder)
    engine.write_parquet(table.order_by(*KEY), place, partitions=1)
    rows = sum(pq.read_metadata(file).num_rows for file in parquet_files(place))
    return Published(folder=folder, since=since, until=clock, rows=rows)


def read_window(engine: Engine, store: TrackingStore | Path | str, name: str = "month") -> Table | None:
    """A published window as a table: query_id, doc_id, position and SUMS; None where it was never written."""
    opened = store if isinstance(store, TrackingStore) else open_tracking(store)
    known("window", name, WINDOWS)
    published = opened.manifest.windows.get(name)
    return None if published is None else engine.read_parquet(opened.folder("windows", published.folder))


class Lookup:
    """Tracked sums by query and document, from the sorted files of the windows, without an engine.

    A query's rows lie side by side, so that the statistics in the files' footers say which row groups to read. A
    process keeps what it read last; open a new one to see what later runs published.
    """

    def __init__(self, store: Path | str) -> None:
        from pyarrow.dataset import dataset

        opened = open_tracking(store)
        self.until = {name: window.until for name, window in opened.manifest.windows.items()}
        """The hour up to which each window counts."""
        self._windows = {
            name: dataset([str(file) for file in parquet_files(opened.folder("windows", window.folder))])
            for name, window in opened.manifest.windows.items()
        }
        self._query = lru_cache(maxsize=KEPT)(self._read)

    def _read(self, window: str, query_id: Any) -> pa.Table:
        columns = ["doc_id", "position", *SUMS]
        return self._windows[window].to_table(columns=columns, filter=pc.field("query_id") == query_id)

    def positions(self, query_id: Any, doc_id: Any, window: str = "month") -> list[dict[str, int]]:
        """Position and SUMS of a query and document, one row per position; none where it was not shown."""
        if known("window", window, WINDOWS) not in self._windows:
            return []
        rows = self._query(window, query_id).filter(pc.field("doc_id") == doc_id)
        found: list[dict[str, int]] = rows.drop_columns(["doc_id"]).to_pylist()
        return found

    def __call__(self, query_id: Any, doc_id: Any) -> dict[str, dict[str, int]]:
        """SUMS of a query and document in every window, over all positions; `ranks` is Σ position × displays."""
        found = {}
        for name in self._windows:
            rows = self.positions(query_id, doc_id, name)
            found[name] = {each: sum(row[each] for row in rows) for each in SUMS}
            found[name]["ranks"] = sum(row["position"] * row["displays"] for row in rows)
        return found
