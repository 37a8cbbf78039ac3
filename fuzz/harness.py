"""What the fuzz targets share: bytes to a reader, and what must hold afterwards.

Part files of the format readers are kept in memory, which makes a run some ten times faster; all else is what
`unskew ingest` does.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(
    include=["unskew.logs.ingest.formats", "unskew.logs.ingest.formats.stage", "unskew.logs.ingest"]
):
    from unskew.logs.ingest.columns import ROW
    from unskew.logs.ingest.formats import READERS as NAMED
    from unskew.logs.ingest.formats import stage
    from unskew.logs.ingest.text import TextStream
    from unskew.tables.reading.options import IngestOptions
from unskew.errors import UnskewError
from unskew_reproductions.formats import READERS as BESIDE

READERS = {**NAMED, **BESIDE}

OPTIONS = IngestOptions(reader={"item_fields": True, "longest_line": 4_000})
WRITTEN: dict[str, Any] = {}


def _write(table: Any, path: Path, **_: Any) -> None:
    table.validate(full=True)
    WRITTEN[str(path)] = table


stage.pq.write_table = _write
stage.pq.read_table = lambda path, **_: WRITTEN[str(path)]


def run_text(kind: str) -> None:
    """Fuzz CSV, TSV or JSON lines on their way to batches of text."""
    folder = Path(tempfile.mkdtemp())
    path, options = folder / "log", IngestOptions()

    def one_input(data: bytes) -> None:
        WRITTEN.clear()
        path.write_bytes(data)
        shutil.rmtree(folder / "staged", ignore_errors=True)
        try:
            stream = TextStream({path: kind}, options, folder / "staged")
            rows = [row for batch in stream.batches() for row in batch[ROW].to_pylist()]
        except UnskewError:
            return
        assert len(set(rows)) == len(rows), "two rows have one number"
        assert len(rows) + stream.close()[1] <= len(data) + 1, "more rows than bytes"

    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


def run(reader: str) -> None:
    """Fuzz one reader until libFuzzer's limits are reached."""
    folder = Path(tempfile.mkdtemp())

    def one_input(data: bytes) -> None:
        WRITTEN.clear()
        path = folder / "log"
        path.write_bytes(data)
        target = stage.Stage(folder / "staged", batch=7)
        try:
            READERS[reader](target, OPTIONS).read([path])
        except UnskewError:
            return
        staged = target
        staged.close()
        known = staged.records_taken + sum(staged.ignored.values()) + staged.rows("rejected")
        assert known == staged.rows_read, f"{known} of {staged.rows_read} records are accounted for"

    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
