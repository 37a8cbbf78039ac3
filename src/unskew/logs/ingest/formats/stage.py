"""Where a format reader puts its rows: batches of bounded size, written as Parquet part files of one schema.

A reader calls `impression`, `click`, `reject` and `ignore`; it says `read` once per record (a line, or an element
of a JSON array). A record is taken, ignored or rejected as a whole, so taken + ignored + rejected = rows read.
Positions handed over are ranks from 1, whatever the file counts from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unskew.logs.ingest.formats.values import Broken

BATCH = 50_000
"""Rows in a part file."""
HEAVIEST = 64 * 2**20
"""Characters of text in a part file; a batch that reaches it is written early."""
RAW = 1_000
"""Characters of a rejected record that are kept."""

TYPES: Mapping[str, Any] = {
    "page_id": pa.string(),
    "visit_id": pa.string(),
    "user_id": pa.string(),
    "query_id": pa.string(),
    "doc_id": pa.string(),
    "position": pa.int32(),
    "click": pa.int8(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "time_offset": pa.int64(),
    "display_time": pa.float64(),
    "dwell_time": pa.float64(),
    "randomized": pa.bool_(),
    "propensity": pa.float64(),
    "policy_id": pa.string(),
    "logging_score": pa.float64(),
    "query_text": pa.string(),
    "title": pa.string(),
    "abstract": pa.string(),
    "label": pa.int32(),
    "serp_media_type": pa.string(),
}
"""Column types, the same in every part file; a serp_* column that is not named here holds floats."""
SIDES: Mapping[str, Mapping[str, Any]] = {
    "labels": {
        "query_id": pa.string(),
        "doc_id": pa.string(),
        "visit_id": pa.string(),
        "label": pa.int32(),
        "query_text": pa.string(),
        "title": pa.string(),
        "abstract": pa.string(),
        "bucket": pa.int32(),
        "group": pa.string(),
    },
    "item_fields": {
        "doc_id": pa.string(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "name": pa.string(),
        "number": pa.float64(),
        "text": pa.string(),
        "place": pa.int32(),
    },
}
"""Columns of the tables beside the log."""
REJECTED = {"file": pa.string(), "row": pa.int64(), "reason": pa.string(), "detail": pa.string()}
"""Columns of what was put aside."""


class Stage:
    """Takes rows from a reader and writes them to part files; memory stays bounded whatever the input.

    >>> import tempfile
    >>> stage = Stage(Path(tempfile.mkdtemp()))
    >>> stage.read()
    >>> stage.impression(page_id="s", query_id="q", doc_id="d", position=1)
    >>> staged = stage.close()
    >>> staged.impression_rows, staged.rows_read, staged.clicks
    (1, 1, None)
    """

    impressions: Path | None = None
    """Folder of part files, once closed, where there was such a row; so are the next ones."""
    clicks: Path | None = None
    rejected: Path | None = None

    def __init__(self, folder: Path | str, *, batch: int = BATCH) -> None:
        self.folder = Path(folder)
        self.rows_read = 0
        """Records seen: taken, ignored and rejected ones."""
        self.records_taken = 0
        """Records that gave at least one row."""
        self.ignored: Counter[str] = Counter()
        """Records that are well-formed but say nothing about clicks, by kind."""
        self.notes: list[str] = []
        """What the reader found out about the log, for the summary."""
        self.sides: dict[str, Path | None] = {}
        """Folders of the tables beside the log, by name, once closed."""
        self._impressions = PartFiles(self.folder / "impressions", TYPES, batch)
        self._clicks = PartFiles(self.folder / "clicks", TYPES, batch)
        self._rejected = PartFiles(self.folder / "rejected", REJECTED, batch)
        self._sides: dict[str, PartFiles] = {}
        self._batch = batch
        self._fresh = False

    def read(self) -> None:
        """One more record was read."""
        self.rows_read += 1
        self._fresh = True

    def impression(self, **columns: Any) -> None:
        """A result that was shown; `click` may be left out where clicks are events of their own."""
        self._take()
        self._impressions.add(columns)

    def click(self, **columns: Any) -> None:
        """A click: page_id, and doc_id or position or both; timestamp and dwell_time where known."""
        self._take()
        self._clicks.add(columns)

    def _take(self) -> None:
        """The record under way has given a row."""
        self.records_taken += self._fresh
        self._fresh = False

    def attempt(
        self, path: Path, row: int, raw: bytes | str, take: Callable[[], None], *, too_long: bool = False
    ) -> bool:
        """Read a record: take it, or reject it where it is broken; whether it was taken."""
        self.read()
        try:
            if too_long:
                raise Broken("line_too_long")
            take()
        except Broken as reason:
            self.reject(path, row, str(reason), raw)
            return False
        return True

    def reject(self, path: Path | str, row: int, reason: str, raw: bytes | str) -> None:
        """A record that cannot be used: file, line or element from 1, reason, and the head of its text."""
        text = raw[: 4 * RAW].decode("utf-8", "replace") if isinstance(raw, bytes) else raw
        text = text[:RAW].encode("utf-8", "replace").decode()  # half of a surrogate pair cannot be written
        name = str(path).encode("utf-8", "replace").decode()
        self._rejected.add({"file": name, "row": row, "reason": reason, "detail": text})

    def ignore(self, kind: str) -> None:
        """A record that is well-formed and of no use here; `kind` is a word of ours, never one from the file."""
        self.ignored[kind] += 1

    def side(self, table: str, **columns: Any) -> None:
        """A row of a table beside the log: `labels` (grades of documents) or `item_fields`."""
        self._take()
        if table not in self._sides:
            self._sides[table] = PartFiles(self.folder / table, SIDES[table], self._batch)
        self._sides[table].add(columns)

    def shift_clicks(self, by: int | None) -> None:
        """Add to the position of every click once its base is known; None empties it where it cannot be known."""
        self._clicks.shift = by

    @property
    def impression_rows(self) -> int:
        """Rows of results."""
        return self._impressions.rows

    @property
    def click_rows(self) -> int:
        """Rows of clicks."""
        return self._clicks.rows

    @property
    def rejected_rows(self) -> int:
        """Records that could not be used."""
        return self._rejected.rows

    def close(self) -> Stage:
        """Write what is left and give every part of a kind the same columns."""
        self.impressions, self.clicks = self._impressions.close(), self._clicks.close()
        self.rejected = self._rejected.close()
        self.sides = {name: self._sides[name].close() for name in sorted(self._sides)}
        return self


class PartFiles:
    """Rows of one kind, and the folder of part files that they go to."""

    def __init__(self, folder: Path, types: Mapping[str, Any], batch: int) -> None:
        self.folder, self.types, self.batch = folder, types, batch
        self.rows = 0
        self.shift: int | None = 0
        self._held: list[Mapping[str, Any]] = []
        self._weight = 0
        self._parts: list[Path] = []
        self._schemas: list[Any] = []

    def add(self, row: Mapping[str, Any]) -> None:
        """Hold the row, and write the batch when it is full."""
        self._held.append(row)
        for value in row.values():
            if type(value) is str:
                self._weight += len(value)
        if len(self._held) >= self.batch or self._weight >= HEAVIEST:
            self._write()

    def close(self) -> Path | None:
        """Write the last batch; parts that lack a column of another part are written again with it empty."""
        self._write()
        names = {name for schema in self._schemas for name in schema.names}
        schema = pa.schema([(name, self._type(name)) for name in self._order(names)])
        for path, present in zip(self._parts, self._schemas, strict=True):
            if present.names != schema.names or (self.shift != 0 and "position" in names):
                self._rewrite(path, schema)
        return self.folder if self._parts else None

    def _write(self) -> None:
        if not self._held:
            return
        names = self._order({name for row in self._held for name, value in row.items() if value is not None})
        columns = {name: pa.array([row.get(name) for row in self._held], self._type(name)) for name in names}
        table = pa.table(columns)
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"part-{len(self._parts):05d}.parquet"
        pq.write_table(table, path, compression="zstd")
        self._parts.append(path)
        self._schemas.append(table.schema)
        self.rows += len(table)
        self._held, self._weight = [], 0

    def _rewrite(self, path: Path, schema: Any) -> None:
        table = pq.read_table(path, partitioning=None)
        columns = {}
        for name, kind in zip(schema.names, schema.types, strict=True):
            present = name in table.column_names
            columns[name] = table[name] if present else pa.nulls(len(table), kind)
        if self.shift != 0 and "position" in columns:
            columns["position"] = pc.add(columns["position"], pa.scalar(self.shift, pa.int32()))
        pq.write_table(pa.table(columns, schema), path, compression="zstd")

    def _type(self, name: str) -> Any:
        return self.types.get(name, pa.float64())

    def _order(self, names: set[str]) -> list[str]:
        """Known columns as listed, then the serp columns by name."""
        return [name for name in self.types if name in names] + sorted(names - self.types.keys())
