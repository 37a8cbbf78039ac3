"""A table of features: its parts, files or tables in memory, under our names, read whole or in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import DataError, printable
from unskew.files import PathLike
from unskew.names import KEYS, NOT_FEATURES
from unskew.tables.engine.parquet import parquet_files
from unskew.tables.features.values import (
    Feature,
    ValueKind,
    as_text,
    kind_of_type,
    numbers_of,
    text_values,
    vector_width,
)
from unskew.tables.reading.files import kind_of
from unskew.types import Array

# ---- What the columns of a table are: numbers, days, vectors or categories, and which of them are no features


MOST_VALUES = 100_000
"""Distinct values past which text is no category."""
FEW_VALUES = 50
"""Distinct values up to which it always is."""
Notes = list[str]
Taken = Mapping[str, bool]
"""The features that a model takes, and whether each is a category."""


def surveyed(table: FeatureTable, notes: Notes, taken: Taken | None) -> FeatureTable:
    """The table with its features: what each column is, and the values of categories."""
    kinds: dict[str, ValueKind] = {}
    names = [name for name in table.parts[0].schema.names if name not in NOT_FEATURES and _is_taken(name, taken)]
    for name in names:
        found = [kind_of_type(name, part.schema.field(name).type, part.path) for part in table.parts]
        several = sorted({kind for kind in found if kind is not None})
        if taken is not None and name in taken and (taken[name] or not several):
            kinds[name] = "category" if taken[name] else "number"
        elif not several:
            notes.append(f"{printable(table.path)}: {name} has no values, and is left out")
        elif len(several) > 1 and "vector" in several:
            raise DataError(f"{name} has lists in one part alone", path=table.path, hint="write all parts alike")
        else:
            kinds[name] = several[0]  # category comes first: a part may have numbers alone
    values = _values(table, [name for name, kind in kinds.items() if kind == "category"], notes, taken or {})
    features = []
    for name, kind in kinds.items():
        if kind == "vector":
            features.append(Feature(name, kind, _width(table, name)))
        elif kind != "category" or name in values:
            features.append(Feature(name, kind, values=values.get(name, ())))
    return FeatureTable(table.kind, table.parts, tuple(features))


def _is_taken(name: str, taken: Taken | None) -> bool:
    """Whether a model takes a column, or the numbers of its lists."""
    return taken is None or name in taken or f"{name}[0]" in taken


def _width(table: FeatureTable, name: str) -> int:
    batches = (batch for part in table.parts for batch in part.blocks([name]))
    return next((width for batch in batches if (width := vector_width(batch[name]))), 0)


def _values(table: FeatureTable, names: Sequence[str], notes: Notes, taken: Taken) -> dict[str, tuple[str, ...]]:
    """The values of each category; those that are none, or have none, are noted and left out."""
    if not names:
        return {}
    found: dict[str, set[str]] = {name: set() for name in names}
    keys: set[str] = set()
    key = table.keys[-1]
    for part in table.parts:
        for batch in part.blocks([key, *names]):
            keys |= text_values([batch[key]])
            for name, seen in found.items():
                if len(seen) <= MOST_VALUES:
                    seen |= text_values([batch[name]])
    kept: dict[str, tuple[str, ...]] = {}
    for name, seen in found.items():
        if name in taken:
            kept[name] = tuple(sorted(seen))
        elif not seen:
            notes.append(f"{printable(table.path)}: {name} has no values, and is left out")
        elif len(seen) > MOST_VALUES or len(seen) > max(FEW_VALUES, len(keys) / 2):
            more = "more than " if len(seen) > MOST_VALUES else ""
            count = min(len(seen), MOST_VALUES)
            notes.append(
                f"{printable(table.path)}: {name} has {more}{count:,} values over {len(keys):,} "
                f"{'queries' if table.kind == 'query' else 'documents'}, an id or a text and no category; it is "
                "left out"
            )
        else:
            kept[name] = tuple(sorted(seen))
    return kept


# ----


# ---- Which files are tables of features, and the rows of a Parquet file block after block


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


# ----


TableKind = Literal["item", "query", "pair"]
KEYS_OF: dict[TableKind, tuple[str, ...]] = {"item": ("doc_id",), "query": ("query_id",), "pair": KEYS}


@dataclass(frozen=True)
class TablePart:
    """One file, or one table in memory, under our names."""

    path: Path | str
    schema: Any
    theirs: Mapping[str, str]
    """Our names to theirs, in a file."""
    table: Any = None
    """Where it is in memory: all text files are."""

    def blocks(self, names: Sequence[str]) -> Iterator[Any]:
        """Some columns, block after block."""
        if self.table is not None:
            yield from self.table.select(list(names)).combine_chunks().to_batches(max_chunksize=65_536)
            return
        for batch in blocks(Path(self.path), [self.theirs[name] for name in names]):
            columns = [batch[self.theirs[name]] for name in names]
            yield pa.RecordBatch.from_arrays(columns, list(names))

    def read(self, names: Sequence[str]) -> Any:
        """Some columns, whole."""
        if self.table is not None:
            return self.table.select(list(names))
        with damage_named(Path(self.path)):
            found = pq.read_table(self.path, columns=[self.theirs[name] for name in names])
        return found.select([self.theirs[name] for name in names]).rename_columns(list(names))


@dataclass(frozen=True)
class FeatureTable:
    """A table of one kind, of one or several parts with the same columns."""

    kind: TableKind
    parts: tuple[TablePart, ...]
    features: tuple[Feature, ...] = ()

    @property
    def path(self) -> Path | str:
        """Where it is, for messages."""
        return self.parts[0].path

    @property
    def keys(self) -> tuple[str, ...]:
        """What its rows go by."""
        return KEYS_OF[self.kind]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its numbers."""
        return tuple(name for feature in self.features for name in feature.names)

    @property
    def labelled(self) -> bool:
        """Whether it has grades."""
        return self.kind == "pair" and "label" in self.parts[0].schema.names

    def heads(self) -> Any:
        """Its keys, and grades where it has them."""
        wanted = [*self.keys, *(["label"] if self.labelled else [])]
        tables = [part.read(wanted) for part in self.parts]
        plain = [pa.table({name: _undone(table[name]) for name in wanted}) for table in tables]
        return alike(plain)

    def values(self) -> Iterator[Array]:
        """Its numbers, [n, w] float32, block after block in the order of `heads`."""
        wanted = [feature.name for feature in self.features]
        for part in self.parts:
            row = 0
            for batch in part.blocks(wanted):
                yield values_of(batch, self.features, part.path, row)
                row += len(batch)


def values_of(batch: Any, features: Sequence[Feature], path: Path | str, first: int = 0) -> Array:
    """The numbers of a batch, [n, w] float32."""
    return np.concatenate([numbers_of(batch[each.name], each, path, first) for each in features], axis=1)


def alike(tables: Sequence[Any]) -> Any:
    """Tables of keys under one another; keys that are numbers here and text there are text."""
    names = tables[0].column_names
    for name in KEYS:
        if name in names and len({pa.types.is_integer(table[name].type) for table in tables}) > 1:
            tables = [
                table.set_column(table.column_names.index(name), name, as_text(table[name])) for table in tables
            ]
    return pa.concat_tables([table.select(names) for table in tables], promote_options="permissive")


def _undone(column: Any) -> Any:
    """Without a dictionary."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
