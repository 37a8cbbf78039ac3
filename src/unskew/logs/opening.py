"""The files of a log as one Arrow table under our names, with the columns that it must have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import DataError
from unskew.tables.engine.parquet import impressions_in, parquet_files
from unskew.tables.naming import Columns, their_columns
from unskew.tables.reading.recognizing import refuse_other, require_log
from unskew.tables.schema import TEXT, required
from unskew.tables.unifying import alike, read_unified, unified

SHARED = ("query_id", "doc_id", "label", *TEXT)
"""Columns that features may have as well."""


def open_table(
    path: Path,
    keep: Sequence[str] | None,
    feedback: str | None = None,
    *,
    columns: Columns | None = None,
    texts: bool = False,
) -> Any:
    """The wanted columns of the files, never `label`, after a check that the required ones are there.

    `keep` names further columns, None all of them; `columns` says theirs for ours; `feedback` is the column that
    stands in the place of `click`. Texts are read where asked for or named.
    """
    needed = required(feedback)
    present = columns_of(path)
    path = impressions_in(path)
    files = parquet_files(path)
    several = len(alike(files)) > 1
    named = their_columns(columns, present, path)
    ours = {theirs: name for name, theirs in named.items()}
    # their own column of one of our names is not the one that is meant
    read = {name: ours.get(name, name) for name in present if name in ours or name not in named}
    require_log([*needed, *(keep or ())], list(read.values()), path, columns)
    usual = [name for name in read.values() if texts or name not in TEXT]
    wanted = usual if keep is None else [*needed, "randomized", *keep]
    taken = [theirs for theirs, name in read.items() if name in wanted and name != "label"]
    table = read_unified(files, taken) if several else pq.read_table(path, columns=taken)
    return table.rename_columns([read[theirs] for theirs in taken])


def columns_of(path: Path) -> list[str]:
    """The names of all columns of a log; what is no log is refused."""
    refuse_other(path)
    path = impressions_in(path)
    files = parquet_files(path)
    try:
        names = unified(files).names if len(alike(files)) > 1 else pq.ParquetDataset(path).schema.names
    except (pa.ArrowInvalid, OSError, IndexError) as error:
        raise DataError(f"not a Parquet file ({error})", path=path, hint="a log is read from Parquet") from error
    return list(names)


def check_log(path: Path, columns: Columns | None = None, feedback: str | None = None) -> dict[str, str]:
    """Refuse what is no log before anything else is read; those of `columns` that it has.

    Where several logs and features are read with one set of names, some have ours and some theirs; a column that a
    log has under neither is an error, unless features may have it.
    """
    present = columns_of(path)
    lost = {ours: name for ours, name in (columns or {}).items() if ours not in (*SHARED, *present)}
    their_columns(lost, present, path)
    named = {ours: theirs for ours, theirs in (columns or {}).items() if theirs in present}
    theirs = {name: ours for ours, name in named.items()}
    require_log(required(feedback), [theirs.get(name, name) for name in present], path, named)
    return named
