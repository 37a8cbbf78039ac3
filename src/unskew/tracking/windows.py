"""The last day, week and month of a store: merged from hours, published sorted, looked up by query and document.

A window is written anew when it is due: the day after every hour, the week after every day, the month after every
week, as in L. Zou et al. (CIKM 2022, Section 6.1.2). So the cost of an hourly run does not grow with the history,
and every window is exact as of the hour that it says. `window_sums` computes one as of any hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from unskew.settings import known
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table
from unskew.tables.engine.parquet import parquet_files
from unskew.tracking.delivery import KEY, SUMS, merged
from unskew.tracking.store import Manifest, Published, TrackingStore, open_tracking
from unskew.types import Array


class Span(NamedTuple):
    """How long a window is, and how often it is written anew, in hours."""

    hours: int
    every: int


WINDOWS: Mapping[str, Span] = {"day": Span(24, 1), "week": Span(7 * 24, 24), "month": Span(28 * 24, 7 * 24)}
"""Windows by name."""
LONGEST = max(span.hours for span in WINDOWS.values())
"""Hours after which a page is in no window any more."""
KEPT = 64
"""Row groups that a reader keeps in memory."""


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
    engine.write_parquet(table.order_by(*KEY), store.path / "windows" / folder, partitions=1)
    return Published(folder=folder, since=since, until=clock)


def read_window(engine: Engine, store: TrackingStore | Path | str, name: str = "month") -> Table | None:
    """A published window as a table: query_id, doc_id, position and SUMS; None where it was never written."""
    opened = store if isinstance(store, TrackingStore) else open_tracking(store)
    known("window", name, WINDOWS)
    published = opened.manifest.windows.get(name)
    return None if published is None else engine.read_parquet(opened.window(name))


class Lookup:
    """Tracked sums by query and document, from the sorted files of the windows, without an engine.

    A query's rows lie side by side, so that the statistics in the files' footers say which row group to read. A
    process keeps what it opened; open a new one to see what later runs published.
    """

    def __init__(self, store: Path | str) -> None:
        opened = open_tracking(store)
        self.until = {name: window.until for name, window in opened.manifest.windows.items()}
        """The hour up to which each window counts."""
        self._files = {
            name: [_SortedFile(Path(file)) for file in parquet_files(opened.window(name))]
            for name, window in opened.manifest.windows.items()
        }

    def positions(self, query_id: Any, doc_id: Any, window: str = "month") -> list[dict[str, int]]:
        """Position and SUMS of a query and document, one row per position; none where it was not shown."""
        files = self._files.get(known("window", window, WINDOWS), ())
        return [row for file in files for row in file.rows(query_id, doc_id)]

    def __call__(self, query_id: Any, doc_id: Any) -> dict[str, dict[str, int]]:
        """SUMS of a query and document in every window, over all positions; `ranks` is Σ position × displays."""
        found = {}
        for name in self._files:
            rows = self.positions(query_id, doc_id, name)
            found[name] = {each: sum(row[each] for row in rows) for each in SUMS}
            found[name]["ranks"] = sum(row["position"] * row["displays"] for row in rows)
        return found


class _SortedFile:
    """A file of a window, sorted by query and document."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetFile(path, memory_map=True)
        self._columns = ["query_id", "doc_id", "position", *SUMS]
        index = self._file.schema_arrow.names.index("query_id")
        groups = (self._file.metadata.row_group(g).column(index) for g in range(self._file.num_row_groups))
        self._ends = [
            (each.statistics.min, each.statistics.max)
            if each.statistics is not None and each.statistics.has_min_max
            else None
            for each in groups
        ]
        self._group = lru_cache(maxsize=KEPT)(self._read)

    def _read(self, group: int) -> tuple[Array, Array, Any]:
        table = self._file.read_row_group(group, columns=self._columns)
        return (*(table[name].to_numpy() for name in ("query_id", "doc_id")), table)

    def rows(self, query_id: Any, doc_id: Any) -> list[dict[str, int]]:
        """Position and SUMS of this query and document."""
        found: list[dict[str, int]] = []
        for group, ends in enumerate(self._ends):
            if ends is None or ends[0] <= query_id <= ends[1]:
                queries, documents, table = self._group(group)
                at = np.flatnonzero((queries == query_id) & (documents == doc_id))
                found += table.take(at).drop_columns(["query_id", "doc_id"]).to_pylist() if len(at) else []
        return found
