"""The files of a log as one Arrow table under our names, with the columns that it must have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import DataError
from unskew.names import NOT_FEATURES, TEXT, Names
from unskew.tables.engine.parquet import impressions_in, parquet_files
from unskew.tables.reading.recognizing import refuse_other, require_log
from unskew.tables.schema import required
from unskew.tables.unifying import alike, read_unified, unified


def open_table(
    path: Path,
    keep: Sequence[str] | None,
    feedback: str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
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
    read = Names.of(columns).check(present, path).renamed(present)
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


def check_log(path: Path, columns: Mapping[str, str] | None = None, feedback: str | None = None) -> Names:
    """Refuse what is no log before anything else is read; those of `columns` that it has.

    Where several logs and features are read with one set of names, some have ours and some theirs; a column that a
    log has under neither is an error, unless features may have it.
    """
    present = columns_of(path)
    names = Names.of(columns)
    names.only({*names} - {*NOT_FEATURES, *present}).check(present, path)
    named = names.within(present)
    require_log(required(feedback), [named.ours(name) for name in present], path, named)
    return named
