"""Tables of features as their owner has them: of items, of queries and of pairs, each one or several files.

A table with doc_id alone is one of items, with query_id alone of queries, with both of pairs. Files or frames of
one kind with the same columns are one table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import DataError, Option, printable
from unskew.names import KEYS, guess_columns
from unskew.tables.features.table_parts import (
    FeatureTable,
    Notes,
    TableKind,
    TablePart,
    Taken,
    damage_named,
    surveyed,
)
from unskew.tables.features.values import kind_of_type
from unskew.tables.frames import TEXT_FILES, arrow_table, ids_of, is_frame, read_csv, renamed
from unskew.tables.lists.svmlight import MOST_FEATURES
from unskew.tables.reading.csv_text import csv_columns
from unskew.tables.reading.files import all_files, kind_of
from unskew.tables.reading.options import Texts
from unskew.tables.reading.recognizing import SHOWN

Source = Any
"""A path, or a table in memory."""


def feature_files(source: Source) -> dict[Path, str]:
    """The files of Parquet, CSV or TSV that a source means, and what each holds."""
    found = {path: kind_of(path) for path in all_files([source])}
    files = {path: kind for path, kind in found.items() if kind in (*TEXT_FILES, "parquet")}
    if not files:
        what = "the folder has no files of Parquet or CSV" if Path(source).is_dir() else "not a table of features"
        raise DataError(what, path=source, hint="features are read from .parquet, .csv or .tsv, also compressed")
    return files


def open_tables(
    sources: Sequence[Source],
    columns: Mapping[str, str] | None,
    notes: Notes,
    keys: Sequence[str] = (),
    taken: Taken | None = None,
) -> list[FeatureTable]:
    """The tables of these sources, with their features surveyed; `columns` are our names to theirs.

    `keys` are columns that candidates have, so that the tables need not. `taken` are the features that a model
    takes, which are what they were in training, whatever they look like here; others are passed over.
    """
    parts = [part for source in sources for part in _parts(source, columns or {})]
    for part in parts:
        if {*SHOWN} <= {*part.theirs}:
            what = f"this is a log, not a table of features: it has {', '.join(SHOWN)}"
            raise DataError(what, path=part.path, hint="name the table of features")
    there = {*keys, *(name for part in parts for name in part.theirs)}
    unknown = [theirs for ours, theirs in (columns or {}).items() if ours not in there and theirs not in there]
    if unknown:
        listed = ", ".join(dict.fromkeys(name for part in parts for name in part.theirs.values()))[:500]
        raise DataError(f"there is no column {unknown[0]}; there are {listed}", path=parts[0].path)
    tables: dict[tuple[TableKind, frozenset[str]], list[TablePart]] = {}
    for part in parts:
        tables.setdefault((_kind(part), frozenset(part.schema.names)), []).append(part)
    found = [FeatureTable(kind, tuple(several)) for (kind, _), several in tables.items()]
    found = [surveyed(table, notes, taken) for table in found]
    _refuse_shared(found)
    names = [name for table in found for name in table.names]
    if not names:
        hint = "give columns of numbers, dates or categories besides the ids"
        raise DataError("has no features", path=found[0].path, hint=hint)
    if len(names) > MOST_FEATURES:
        raise DataError(
            f"{len(names):,} features are too many", path=found[0].path, hint=f"up to {MOST_FEATURES:,}"
        )
    return found


def table_columns(source: Source, columns: Mapping[str, str] | None = None) -> set[str]:
    """The columns of a table on disk under our names, without reading its rows."""
    path, kind = next(iter(feature_files(source).items()))
    if kind in TEXT_FILES:
        names = csv_columns(path, kind, Texts())
    else:
        with damage_named(path):
            names = pq.read_schema(path).names
    theirs = {name: ours for ours, name in _own(columns or {}, names).items()}
    return {theirs.get(name, name) for name in names}


def _parts(source: Source, columns: Mapping[str, str]) -> Iterator[TablePart]:
    if is_frame(source):
        yield _in_memory(arrow_table(source), type(source).__name__, columns)
        return
    for path, kind in feature_files(source).items():
        if kind in TEXT_FILES:
            yield _in_memory(read_csv(path, kind, ids_of(columns)), path, columns)
            continue
        with damage_named(path):
            schema = pq.read_schema(path)
        empty = renamed(schema.empty_table(), _own(columns, schema.names), path)
        yield TablePart(path, empty.schema, dict(zip(empty.schema.names, schema.names, strict=True)))


def _in_memory(table: Any, path: Path | str, columns: Mapping[str, str]) -> TablePart:
    theirs = table.column_names
    table = renamed(table, _own(columns, theirs), path)
    return TablePart(path, table.schema, dict(zip(table.column_names, theirs, strict=True)), table)


def _own(columns: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """The renamings that concern a table with these columns."""
    return {ours: theirs for ours, theirs in columns.items() if theirs in names}


def _kind(part: TablePart) -> TableKind:
    there = [key for key in KEYS if key in part.schema.names]
    if not there:
        listed = ", ".join(part.theirs.values())[:500]
        guess = guess_columns(list(part.theirs.values()))
        meant = {key: guess[key] for key in KEYS if key in guess} or {"doc_id": "THEIRS"}
        raise DataError(
            f"has neither query_id nor doc_id; there are {listed}",
            path=part.path,
            hint=("name them with ", Option("columns", meant)),
        )
    for key in there:
        kind = part.schema.field(key).type
        if not (pa.types.is_integer(kind) or kind_of_type(key, kind, part.path) == "category"):
            raise DataError(f"{part.theirs[key]} is of type {kind}", path=part.path, hint="make it text or whole")
    return "pair" if len(there) == 2 else "item" if there == ["doc_id"] else "query"


def _refuse_shared(tables: Sequence[FeatureTable]) -> None:
    """A feature is in one table alone."""
    owner: dict[str, FeatureTable] = {}
    for table in tables:
        for feature in table.features:
            other = owner.setdefault(feature.name, table)
            if other is table:
                continue
            one, two = printable(other.path), printable(table.path)
            if other.kind == table.kind:
                raise DataError("has other columns than the first file", path=two, hint=f"compare it with {one}")
            hint = f"rename or remove the one in {two}"
            raise DataError(f"{feature.name} is a feature here and in {two}", path=one, hint=hint)
