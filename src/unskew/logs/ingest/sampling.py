"""Rows of a source with all of its columns, as they are: the first of some files, never more than `ROWS`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import DataError
from unskew.tables.reading.csv_text import csv_batches, csv_columns
from unskew.tables.reading.json_text import json_batches, json_columns
from unskew.tables.reading.options import Texts

ROWS, FILES = 40_000, 4
"""Rows of a sample in all, and files that they come from."""


def sample(files: Mapping[Path, str], texts: Texts, but: Collection[str]) -> pa.Table | None:
    """A sample; None where all columns are among `but`, or no row can be read."""
    paths = list(files)[:: max(1, len(files) // FILES)][:FILES]
    parts = []
    for path in paths:
        try:
            names = _columns(path, files[path], texts)
            if any(name not in but for name in names):
                parts.append(_first(path, files[path], names, texts, ROWS // len(paths)))
        except (DataError, pa.ArrowException, OSError):
            continue  # what is wrong with a file is told elsewhere
    if not any(map(len, parts)):
        return None
    return _together([part for part in parts if len(part)])


def _together(parts: Sequence[pa.Table]) -> pa.Table:
    """All parts as one table; the longest alone where the types of a column do not go together."""
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException:
        return max(parts, key=len)


def _columns(path: Path, kind: str, texts: Texts) -> list[str]:
    if kind == "parquet":
        return list(pq.read_schema(path).names)
    return json_columns(path, texts) if kind == "jsonl" else csv_columns(path, kind, texts)


def _first(path: Path, kind: str, names: Sequence[str], texts: Texts, most: int) -> pa.Table:
    parts, rows = [], 0
    for batch in _batches(path, kind, list(names), texts, most):
        parts.append(pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch)
        rows += len(batch)
        if rows >= most:
            break
    return pa.concat_tables(parts).slice(0, most) if parts else pa.table({})


def _batches(path: Path, kind: str, names: list[str], texts: Texts, most: int) -> Iterator[Any]:
    if kind == "parquet":
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=most)
    elif kind == "jsonl":
        yield from (batch for batch, _ in json_batches(path, names, texts, _pass_over, set()))
    else:
        yield from (batch for batch, _ in csv_batches(path, kind, names, texts, _pass_over))


def _pass_over(*_: object) -> None:
    """Broken rows are put aside by the run itself."""
