"""Tables of features as their owner has them: of items, of queries and of pairs, each one or several files.

A table with doc_id alone is one of items, with query_id alone of queries, with both of pairs. Files or frames of
one kind with the same columns are one table. Its columns are features, by their Arrow types:

| kind       | of type                          | a value becomes, as a 32-bit float                |
|------------|----------------------------------|---------------------------------------------------|
| `number`   | whole, real, decimal, bool       | itself; true is 1                                 |
| `time`     | date, timestamp                  | days since 1970-01-01 UTC                         |
| `vector`   | a list of numbers                | as many numbers, `name[0]`, `name[1]`, ...        |
| `category` | text, dictionary                 | the index of its value                            |

A missing value is NaN; infinite ones, and those past 32-bit floats, are refused. Legend: n rows, w numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unskew.errors import DataError, Option, printable
from unskew.files import PathLike
from unskew.names import KEYS, NOT_FEATURES, Names, guess_columns
from unskew.tables.engine.parquet import blocks, damage_named, schema_of, undone, whole_ids
from unskew.tables.frames import TEXT_FILES, arrow_table, is_frame, read_csv, renamed
from unskew.tables.lists.svmlight import MOST_FEATURES
from unskew.tables.reading.files import all_files, kind_of
from unskew.tables.reading.options import Texts
from unskew.tables.reading.recognition import SHOWN
from unskew.tables.reading.text import text_columns
from unskew.tables.schema import is_number, is_text, to_array
from unskew.types import Array, Columns

ValueKind = Literal["number", "time", "vector", "category"]
TableKind = Literal["item", "query", "pair"]
KEYS_OF: dict[TableKind, tuple[str, ...]] = {"item": ("doc_id",), "query": ("query_id",), "pair": KEYS}
MOST_VALUES = 100_000
"""Distinct values past which text is no category."""
FEW_VALUES = 50
"""Distinct values up to which it always is."""
DAY = 86_400 * 1_000_000
"""Microseconds of a day."""
Notes = list[str]
Taken = Mapping[str, bool]
"""The features that a model takes, and whether each is a category."""
Source = Any
"""A path, or a table in memory."""


def is_table(path: PathLike) -> bool:
    """Whether a path is a feature table rather than LETOR text: by its ending, or for being a folder."""
    return kind_of(Path(path)) in ("parquet", "csv", "tsv") or Path(path).is_dir()


def feature_files(source: Source) -> dict[Path, str]:
    """The files of Parquet, CSV or TSV that a source means, and what each holds."""
    found = {path: kind_of(path) for path in all_files([source])}
    files = {path: kind for path, kind in found.items() if kind in (*TEXT_FILES, "parquet")}
    if not files:
        what = "the folder has no files of Parquet or CSV" if Path(source).is_dir() else "not a table of features"
        raise DataError(what, path=source, hint="features are read from .parquet, .csv or .tsv, also compressed")
    return files


def open_tables(
    sources: Sequence[Source], names: Names, notes: Notes, keys: Sequence[str] = (), taken: Taken | None = None
) -> list[FeatureTable]:
    """The tables of these sources, with their features surveyed.

    `keys` are columns that candidates have, so that the tables need not. `taken` are the features that a model
    takes, which are what they were in training, whatever they look like here; others are passed over.
    """
    parts = [part for source in sources for part in _parts(source, names)]
    for part in parts:
        if {*SHOWN} <= {*part.theirs}:
            what = f"this is a log, not a table of features: it has {', '.join(SHOWN)}"
            raise DataError(what, path=part.path, hint="name the table of features")
    there = {*keys, *(name for part in parts for name in part.theirs)}
    unknown = [theirs for ours, theirs in names.items() if ours not in there and theirs not in there]
    if unknown:
        listed = ", ".join(dict.fromkeys(name for part in parts for name in part.theirs.values()))[:500]
        raise DataError(f"there is no column {unknown[0]}; there are {listed}", path=parts[0].path)
    tables: dict[tuple[TableKind, frozenset[str]], list[TablePart]] = {}
    for part in parts:
        tables.setdefault((_kind(part), frozenset(part.schema.names)), []).append(part)
    found = [FeatureTable(kind, tuple(several)) for (kind, _), several in tables.items()]
    found = [surveyed(table, notes, taken) for table in found]
    _refuse_shared(found)
    features = [name for table in found for name in table.names]
    if not features:
        hint = "give columns of numbers, dates or categories besides the ids"
        raise DataError("has no features", path=found[0].path, hint=hint)
    if len(features) > MOST_FEATURES:
        raise DataError(
            f"{len(features):,} features are too many", path=found[0].path, hint=f"up to {MOST_FEATURES:,}"
        )
    return found


def table_columns(source: Source, names: Names) -> set[str]:
    """The columns of a table on disk under our names, without reading its rows."""
    path, kind = next(iter(feature_files(source).items()))
    present = text_columns(path, kind, Texts()) if kind in TEXT_FILES else schema_of(path).names
    return {names.ours(name) for name in present}


def _parts(source: Source, names: Names) -> Iterator[TablePart]:
    """The files of a source, or the table in memory; text files are read now."""
    files = {type(source).__name__: "frame"} if is_frame(source) else feature_files(source)
    for path, kind in files.items():
        if kind == "parquet":
            with damage_named(path):
                table = pq.read_schema(path).empty_table()
        else:
            table = arrow_table(source) if kind == "frame" else read_csv(Path(path), kind, names)
        ours = renamed(table, names.within(table.column_names), path)
        for key in KEYS if kind == "frame" else ():
            if key in ours.column_names:
                ours = ours.set_column(ours.column_names.index(key), key, whole_ids(ours[key], key, path))
        theirs = dict(zip(ours.column_names, table.column_names, strict=True))
        yield TablePart(path, ours.schema, theirs, None if kind == "parquet" else ours)


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


# ---- what a table is ----


@dataclass(frozen=True)
class Feature:
    """A column that is a feature, or several of them where it has lists."""

    name: str
    kind: ValueKind
    width: int = 1
    values: tuple[str, ...] = ()
    """Of a category, in alphabetical order."""

    @property
    def names(self) -> tuple[str, ...]:
        """What its numbers are called."""
        return tuple(f"{self.name}[{at}]" for at in range(self.width)) if self.kind == "vector" else (self.name,)


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
    def names(self) -> tuple[str, ...]:
        """The names of its numbers."""
        return tuple(name for feature in self.features for name in feature.names)

    def heads(self) -> Any:
        """Its keys, and the grades of a table of pairs that has them."""
        labelled = self.kind == "pair" and "label" in self.parts[0].schema.names
        wanted = [*KEYS_OF[self.kind], *(["label"] if labelled else [])]
        blocks = [self.parts[0].schema.empty_table().select(wanted)]
        blocks += [block for part in self.parts for block in part.blocks(wanted)]
        return alike([pa.table({name: undone(block[name]) for name in wanted}) for block in blocks])

    def values(self) -> Iterator[Array]:
        """Its numbers, [n, w] float32, block after block in the order of `heads`."""
        for part in self.parts:
            row = 0
            for batch in part.blocks([feature.name for feature in self.features]):
                numbers = [numbers_of(batch[each.name], each, part.path, row) for each in self.features]
                yield np.concatenate(numbers, axis=1)
                row += len(batch)

    @property
    def columns(self) -> Columns:
        """What its features are called, and the values of categories."""
        return Columns(self.names, {each.name: each.values for each in self.features if each.kind == "category"})


def alike(tables: Sequence[Any]) -> Any:
    """Tables of keys under one another; keys that are numbers here and text there are text."""
    names = tables[0].column_names
    for name in KEYS:
        if name in names and len({pa.types.is_integer(table[name].type) for table in tables}) > 1:
            tables = [
                table.set_column(table.column_names.index(name), name, as_text(table[name])) for table in tables
            ]
    return pa.concat_tables([table.select(names) for table in tables], promote_options="permissive")


# ---- what its columns are ----


def surveyed(table: FeatureTable, notes: Notes, taken: Taken | None) -> FeatureTable:
    """The table with its features: what each column is, and the values of categories."""
    kinds: dict[str, ValueKind] = {}
    for name in table.parts[0].schema.names:
        if name in NOT_FEATURES or (taken is not None and name not in taken and f"{name}[0]" not in taken):
            continue
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
    values = _values(table, [name for name, kind in kinds.items() if kind == "category"], notes, taken)
    features = []
    for name, kind in kinds.items():
        if kind == "vector":
            batches = (batch for part in table.parts for batch in part.blocks([name]))
            lengths = (each for batch in batches for each in pc.list_value_length(batch[name]).drop_null())
            features.append(Feature(name, kind, next((each.as_py() for each in lengths), 0)))
        elif kind != "category" or name in values:
            features.append(Feature(name, kind, values=values.get(name, ())))
    return FeatureTable(table.kind, table.parts, tuple(features))


def _values(
    table: FeatureTable, names: Sequence[str], notes: Notes, taken: Taken | None
) -> dict[str, tuple[str, ...]]:
    """The values of each category; those that are none, or have none, are noted and left out."""
    keys = list(KEYS_OF[table.kind][-1:]) if taken is None else []
    found: dict[str, set[str]] = {name: set() for name in (*keys, *names)}
    for part in table.parts if names else ():
        for batch in part.blocks(list(found)):
            for name, seen in found.items():
                if len(seen) <= MOST_VALUES or name in keys:
                    seen.update(pc.unique(as_text(batch[name])).drop_null().to_pylist())
    rows = len(found.pop(keys[0])) if keys else 0
    for name, seen in list(found.items()) if taken is None else ():
        if seen and len(seen) <= min(max(FEW_VALUES, rows / 2), MOST_VALUES):
            continue
        what = f"{len(seen):,}" if len(seen) <= MOST_VALUES else f"more than {MOST_VALUES:,}"
        rows_are = "queries" if table.kind == "query" else "documents"
        why = f"{what} values over {rows:,} {rows_are}, an id or a text and no category; it"
        notes.append(f"{printable(table.path)}: {name} has {why if seen else 'no values, and'} is left out")
        del found[name]
    return {name: tuple(sorted(seen)) for name, seen in found.items()}


# ---- their values ----


def kind_of_type(name: str, kind: Any, path: Path | str) -> ValueKind | None:
    """What a column of this Arrow type is as a feature, None where it is empty; else it is refused."""
    if pa.types.is_null(kind):
        return None
    if is_number(kind):
        return "number"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "time"
    if is_text(kind):
        return "category"
    if hasattr(kind, "value_type") and is_number(kind.value_type):
        return "category" if pa.types.is_dictionary(kind) else "vector"
    raise DataError(
        f"{name} is of type {kind}, neither a number, text, a date nor a list of numbers",
        path=path,
        hint="remove the column, or make it a number",
    )


def as_text(column: Any) -> Any:
    """A column as plain strings."""
    return undone(column).cast(pa.string())


def numbers_of(column: Any, feature: Feature, path: Path | str, first: int = 0) -> Array:
    """The values of a column, [n, w] float32; `first` is the number of its first row, for messages."""
    if feature.kind == "vector":
        wrong = np.flatnonzero(to_array(pc.list_value_length(column).fill_null(-1)) != feature.width)
        if len(wrong) or feature.width < 1:
            row = first + (int(wrong[0]) if len(wrong) else 0)
            what = f"row {row}: the list {feature.name} is missing, empty or of another length than the first"
            raise DataError(what, path=path, hint="make them of equal length")
        values = floats(pc.list_flatten(column)).reshape(len(column), feature.width)
    elif feature.kind == "category":
        found = pc.index_in(as_text(column), value_set=pa.array(feature.values, pa.string()))
        values = floats(found)[:, None]
    elif feature.kind == "time":
        since = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        values = (to_array(since).astype(np.float64) / DAY).astype(np.float32)[:, None]
    else:
        values = floats(column)[:, None]
    infinite = np.isinf(values)
    if infinite.any():
        row, at = np.argwhere(infinite)[0]
        what = f"row {first + row}: {feature.names[at]} is infinite, or past 32-bit floats"
        raise DataError(what, path=path, hint="remove or clip such values")
    return values


def floats(column: Any) -> Array:
    """Numbers as float32, NaN where missing."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    with np.errstate(over="ignore", invalid="ignore"):
        values: Array = to_array(column).astype(np.float32)
    return values
