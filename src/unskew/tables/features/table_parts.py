"""A table of features: its parts, files or tables in memory, under our names, read whole or in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.names import KEYS
from unskew.tables.engine.parquet import blocks, damage_named, undone
from unskew.tables.features.values import (
    Feature,
    as_text,
    numbers_of,
)
from unskew.types import Array

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
        plain = [pa.table({name: undone(table[name]) for name in wanted}) for table in tables]
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
