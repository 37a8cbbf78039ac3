"""Which files and columns a table of features has, and its rows block after block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.checking import require_columns
from unskew.clicks.engine.parquet import parquet_files
from unskew.clicks.lists.svmlight import MOST_FEATURES
from unskew.disk import PathLike
from unskew.errors import DataError

KEYS = ("query_id", "doc_id")
NOT_FEATURES = ("query_id", "doc_id", "label", "query_text", "title", "abstract")
READ_AT_ONCE = 2**22
"""Values of a block; it has up to 65,536 rows."""


def is_table(path: PathLike) -> bool:
    """Whether a path is a feature table rather than LETOR text: by its ending, or for being a folder."""
    return Path(path).suffix == ".parquet" or Path(path).is_dir()


def table_files(paths: PathLike | Sequence[PathLike]) -> list[Path]:
    """The files of a Parquet table: those given, and those in the folders given; hidden ones are left out."""
    return [Path(file) for file in parquet_files(paths)]


@dataclass(frozen=True)
class Layout:
    """Which columns of a table are features."""

    columns: tuple[str, ...]
    single: bool
    """One column with a list of numbers, rather than one column for each number."""
    labelled: bool


def layout_of(files: Sequence[Path]) -> Layout:
    """The layout that every file of a table has."""
    layouts = []
    for path in files:
        with damage_named(path):
            layouts.append(_layout(pq.read_schema(path), path))
        if (layouts[-1].columns, layouts[-1].labelled) != (layouts[0].columns, layouts[0].labelled):
            raise DataError("has other columns than the first file", path=path, hint=f"compare it with {files[0]}")
    return layouts[0]


def _layout(schema: Any, path: Path) -> Layout:
    require_columns(KEYS, schema.names, path=path, hint="a feature table has query_id, doc_id and features")
    for key in KEYS:
        kind = schema.field(key).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise DataError(f"{key} is of type {kind}", path=path, hint="make it a string or an int")
    features = [field for field in schema if field.name not in NOT_FEATURES]
    lists = [field for field in features if hasattr(field.type, "value_type") and is_number(field.type.value_type)]
    other = [field for field in features if not is_number(field.type) and field not in lists]
    if other:
        raise DataError(
            f"{other[0].name} is of type {other[0].type}, neither a number nor a list of numbers",
            path=path,
            hint="remove the column, or make it a number",
        )
    if not features or (lists and len(features) > 1):
        what = "no features" if not features else f"a list column {lists[0].name} and other features"
        raise DataError(f"has {what}", path=path, hint="give one number per column, or one column of lists")
    if len(features) > MOST_FEATURES:
        raise DataError(f"{len(features):,} features are too many", path=path, hint=f"up to {MOST_FEATURES:,}")
    return Layout(tuple(field.name for field in features), bool(lists), "label" in schema.names)


def is_number(kind: Any) -> bool:
    """Whether a column of this Arrow type can be a feature."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


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
