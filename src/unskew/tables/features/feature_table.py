"""Which files are tables of features, and the rows of a Parquet file block after block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import DataError
from unskew.files import PathLike
from unskew.tables.engine.parquet import parquet_files
from unskew.tables.reading.files import kind_of

READ_AT_ONCE = 2**22
"""Values of a block; it has up to 65,536 rows."""


def is_table(path: PathLike) -> bool:
    """Whether a path is a feature table rather than LETOR text: by its ending, or for being a folder."""
    return kind_of(Path(path)) in ("parquet", "csv", "tsv") or Path(path).is_dir()


def table_files(paths: PathLike | Sequence[PathLike]) -> list[Path]:
    """The files of a Parquet table: those given, and those in the folders given; hidden ones are left out."""
    return [Path(file) for file in parquet_files(paths)]


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """What Arrow and the system say about a file becomes an error of ours."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise DataError(f"not a readable Parquet file ({str(error)[:200]})", path=path) from error


def count_values(about: Any) -> int:
    """Values in all columns, from the metadata of a Parquet file; lists count each of theirs."""
    groups = [about.row_group(index) for index in range(about.num_row_groups)]
    return int(sum(group.column(index).num_values for group in groups for index in range(group.num_columns)))


def blocks(path: Path, columns: list[str] | None = None) -> Iterator[Any]:
    """The rows of a Parquet file, block after block."""
    with damage_named(path), pq.ParquetFile(path, buffer_size=2**20) as file:
        rows = READ_AT_ONCE * file.metadata.num_rows // max(count_values(file.metadata), 1)
        size = min(max(rows, 16), 65_536)
        for group in range(file.num_row_groups):  # asked for all of them, Arrow reads ahead without bound
            for batch in file.iter_batches(batch_size=size, row_groups=[group], columns=columns):
                if len(batch):
                    yield batch
