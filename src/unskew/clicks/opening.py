"""The files of a log as one Arrow table under our names, with the columns that it must have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.checking import require_columns
from unskew.clicks.engine.parquet import impressions_in
from unskew.clicks.naming import Columns, their_columns
from unskew.clicks.schema import TEXT, required
from unskew.errors import DataError


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
    if not path.exists():
        raise DataError("there is no such log", path=path, hint="write one with write_log, or check the name")
    path = impressions_in(path)
    try:
        present = pq.read_schema(path).names if path.is_file() else pq.ParquetDataset(path).schema.names
    except (pa.ArrowInvalid, OSError, IndexError) as error:
        raise DataError(f"not a Parquet file ({error})", path=path, hint="a log is read from Parquet") from error
    named = their_columns(columns, present, path)
    ours = {theirs: name for name, theirs in named.items()}
    # their own column of one of our names is not the one that is meant
    read = {name: ours.get(name, name) for name in present if name in ours or name not in named}
    require_columns([*needed, *(keep or ())], read.values(), path=path)
    usual = [name for name in read.values() if texts or name not in TEXT]
    wanted = usual if keep is None else [*needed, "randomized", *keep]
    taken = [theirs for theirs, name in read.items() if name in wanted and name != "label"]
    return pq.read_table(path, columns=taken).rename_columns([read[theirs] for theirs in taken])
