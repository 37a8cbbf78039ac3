"""Where a format reader puts its rows: batches of bounded size, written as Parquet part files of one schema.

A reader calls `add`, `reject` and `ignore`; it says `read` once per record (a line, or an element
of a JSON array). A record is taken, ignored or rejected as a whole, so taken + ignored + rejected = rows read.
Positions handed over are ranks from 1, whatever the file counts from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.logs.ingest.formats.values import Broken

BATCH = 50_000
"""Rows in a part file."""
HEAVIEST = 64 * 2**20
"""Characters of text in a part file; a batch that reaches it is written early."""
RAW = 1_000
"""Characters of a rejected record that are kept."""

TEXTS = ("query_text", "title", "abstract")
ROWS: Mapping[str, Any] = {
    **dict.fromkeys(("page_id", "visit_id", "user_id", "query_id", "doc_id"), pa.string()),
    "position": pa.int32(),
    "ordinal": pa.int32(),
    "click": pa.int8(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "time_offset": pa.int64(),
    "display_time": pa.float64(),
    "dwell_time": pa.float64(),
    "randomized": pa.bool_(),
    "propensity": pa.float64(),
    "policy_id": pa.string(),
    "logging_score": pa.float64(),
    **dict.fromkeys(TEXTS, pa.string()),
    "label": pa.int32(),
    "serp_media_type": pa.string(),
}
"""Columns of results and of clicks; a serp_* column that is not named here holds floats."""
SIDES: Mapping[str, Mapping[str, Any]] = {
    "labels": {
        **{name: ROWS[name] for name in ("query_id", "doc_id", "visit_id", "label", *TEXTS)},
        "bucket": pa.int32(),
        "group": pa.string(),
    },
    "item_fields": {
        **{name: ROWS[name] for name in ("doc_id", "timestamp")},
        "name": pa.string(),
        "number": pa.float64(),
        "text": pa.string(),
        "place": pa.int32(),
    },
}
"""Columns of the tables beside the log: grades of documents, and the fields of items."""
REJECTED = {"file": pa.string(), "row": pa.int64(), "reason": pa.string(), "detail": pa.string()}
"""Columns of what was put aside."""
TABLES: Mapping[str, Mapping[str, Any]] = {"impressions": ROWS, "clicks": ROWS, "rejected": REJECTED, **SIDES}
"""Types of the columns of every table that is staged, the same in all of its part files."""


class Stage:
    """Takes rows from a reader and writes them to part files; memory stays bounded whatever the input.

    >>> import tempfile
    >>> stage = Stage(Path(tempfile.mkdtemp()))
    >>> stage.read()
    >>> stage.add("impressions", page_id="s", query_id="q", doc_id="d", position=1)
    >>> [folder.name for folder in stage.close().values()], stage.rows("impressions"), stage.rows_read
    (['impressions'], 1, 1)
    """

    def __init__(self, folder: Path | str, *, batch: int = BATCH) -> None:
        self.folder, self.batch = Path(folder), batch
        self.rows_read = 0
        """Records seen: taken, ignored and rejected ones."""
        self.records_taken = 0
        """Records that gave at least one row."""
        self.ignored: Counter[str] = Counter()
        """Records that are well-formed but say nothing about clicks, by kind: a word of ours, not of the file."""
        self.notes: list[str] = []
        """What the reader found out about the log, for the summary."""
        self.folders: dict[str, Path] = {}
        """Where the tables that have rows are, by name, once closed."""
        self._tables: dict[str, PartFiles] = {}
        self._fresh = False

    def read(self) -> None:
        """Count one more record that was read."""
        self.rows_read += 1
        self._fresh = True

    def add(self, table: str, **columns: Any) -> None:
        """Add a row to a table; it is written with others once a part is full.

        Of `impressions`, `click` may be left out where clicks are events of their own. `clicks` have a page_id,
        and a doc_id, a position or both.
        """
        self.records_taken += self._fresh
        self._fresh = False
        self._put(table, columns)

    def _put(self, table: str, row: Mapping[str, Any]) -> None:
        if table not in self._tables:
            self._tables[table] = PartFiles(self.folder / table, TABLES[table], self.batch)
        self._tables[table].add(row)

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
        self._put("rejected", {"file": name, "row": row, "reason": reason, "detail": text})

    def rows(self, table: str) -> int:
        """Rows of a table, once closed."""
        return self._tables[table].rows if table in self._tables else 0

    def close(self) -> dict[str, Path]:
        """Write what is left; the folders of the tables that have rows, all files of one with the same columns."""
        self.folders = {name: self._tables[name].close() for name in TABLES if name in self._tables}
        return self.folders


class PartFiles:
    """Rows of one table, and the folder of part files that they go to."""

    def __init__(self, folder: Path, types: Mapping[str, Any], batch: int) -> None:
        self.folder, self.types, self.batch = folder, types, batch
        self.rows = 0
        self._held: list[Mapping[str, Any]] = []
        self._weight = 0
        self._parts: dict[Path, list[str]] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Hold the row, and write the batch when it is full."""
        self._held.append(row)
        for value in row.values():
            if type(value) is str:
                self._weight += len(value)
        if len(self._held) >= self.batch or self._weight >= HEAVIEST:
            self._write()

    def close(self) -> Path:
        """Write the last batch; parts that lack a column of another part are written again with it empty."""
        self._write()
        schema = self._schema({name for names in self._parts.values() for name in names})
        for path, present in self._parts.items():
            if present != schema.names:
                table = pq.read_table(path, partitioning=None)
                empty = {each.name: pa.nulls(len(table), each.type) for each in schema}
                filled = {name: table[name] for name in present}
                pq.write_table(pa.table(empty | filled, schema), path, compression="zstd")
        return self.folder

    def _write(self) -> None:
        if not self._held:
            return
        schema = self._schema({name for row in self._held for name, value in row.items() if value is not None})
        table = pa.table(
            {each.name: pa.array([row.get(each.name) for row in self._held], each.type) for each in schema}
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"part-{len(self._parts):05d}.parquet"
        pq.write_table(table, path, compression="zstd")
        self._parts[path] = schema.names
        self.rows += len(table)
        self._held, self._weight = [], 0

    def _schema(self, names: set[str]) -> pa.Schema:
        ordered = [name for name in self.types if name in names] + sorted(names - self.types.keys())
        return pa.schema([(name, self.types.get(name, pa.float64())) for name in ordered])
