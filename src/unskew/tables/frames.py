"""Tables as people have them, as Arrow: pandas, polars, Arrow itself, a dict of arrays, or CSV and Parquet files.

A data frame is anything with `__arrow_c_stream__`, the Arrow PyCapsule interface, so neither pandas nor polars is
imported here. Text of CSV files becomes numbers, booleans or times column by column, where all of its values are
that; else it stays text.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unskew.errors import DataError, printable
from unskew.names import NO_NAMES, Names
from unskew.settings import did_you_mean
from unskew.tables.engine.parquet import damage_named, plain_type
from unskew.tables.reading.files import MARK, find_files
from unskew.tables.reading.options import Texts
from unskew.tables.reading.text import open_text
from unskew.tables.schema import is_text

TEXT_FILES = ("csv", "tsv")
MISSING = ("", "NA", "N/A", "na", "n/a", "NaN", "nan", "null", "NULL", "None", "none", "\\N")
"""What stands for a missing value among numbers."""
IDS = ("page_id", "query_id", "doc_id", "visit_id", "user_id")
INDEX = "__index_level_"
"""How pandas calls an index without a name."""


def is_frame(source: object) -> bool:
    """Whether this is a table in memory: a data frame, an Arrow table, or a dict of arrays.

    >>> is_frame({"price": [1.0]}), is_frame(pa.table({"price": [1.0]})), is_frame("items.csv")
    (True, True, False)
    """
    return isinstance(source, Mapping) or hasattr(source, "__arrow_c_stream__")


def arrow_table(source: object, names: Names = NO_NAMES) -> Any:
    """Any table as one of Arrow, under our names.

    >>> arrow_table({"sku": ["a", "b"], "price": [1.5, 2.0]}, Names({"doc_id": "sku"})).column_names
    ['doc_id', 'price']
    """
    if isinstance(source, str | Path):
        return renamed(read_table(Path(source), names), names, source)
    place = type(source).__name__
    try:
        if isinstance(source, Mapping):
            matrices = {name for name, each in source.items() if isinstance(each, np.ndarray) and each.ndim == 2}
            columns = {name: list(each) if name in matrices else each for name, each in source.items()}
            table = pa.table({str(name): pa.array(each) for name, each in columns.items()})
        elif hasattr(source, "__arrow_c_stream__"):
            table = pa.table(source)
        else:
            hint = (
                "give a data frame of pandas or polars, an Arrow table, a dict of columns, or the path of a file"
            )
            raise DataError(f"cannot take a table from {place}", hint=hint)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError, TypeError) as error:
        hint = "give each column one type and one length"
        raise DataError(f"cannot be read as a table ({str(error)[:200]})", path=place, hint=hint) from None
    keep = [name for name in table.column_names if not name.startswith(INDEX)]
    if twice := sorted({name for name in keep if keep.count(name) > 1}):
        raise DataError(f"two columns are called {twice[0]}", path=place)
    return renamed(table.select(keep), names, place)


def renamed(table: Any, names: Names, path: Path | str | None = None) -> Any:
    """The table with our names in the place of theirs."""
    named = {name: name for name in table.column_names}
    for ours, theirs in names.items():
        if theirs not in named:
            raise DataError(f"there is no column {theirs}. {did_you_mean(theirs, named)}", path=path)
        if ours != theirs and ours in named and ours not in names.values():
            hint = f"rename or remove the column {ours}"
            raise DataError(f"both {ours} and {theirs} would be {ours}", path=path, hint=hint)
        named[theirs] = ours
    return table.rename_columns(list(named.values()))


def storable(table: Any) -> Any:
    """The table with plain text in the place of views, categories and large text, which not every reader takes."""
    for at, field in enumerate(table.schema):
        kind = pa.string() if is_text(field.type) else plain_type(field.type)
        if kind != field.type:
            table = table.set_column(at, field.name, table.column(at).cast(kind))
    return table


# ---- files ----


def read_table(path: Path, names: Names = NO_NAMES) -> Any:
    """A CSV, TSV or Parquet file, or a folder of them, as one table under its own names."""
    parts = []
    for file, kind in find_files([path]).items():
        if kind not in (*TEXT_FILES, "parquet"):
            raise DataError(f"{kind} is not read here", path=file, hint="write it as CSV or Parquet")
        if kind in TEXT_FILES:
            parts.append(read_csv(file, kind, names))
        else:
            with damage_named(file):
                parts.append(pq.read_table(file))
        if set(parts[-1].column_names) != set(parts[0].column_names):
            raise DataError("has other columns than the first file", path=file, hint="write all parts alike")
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        hint = "write all parts alike"
        raise DataError(f"a column has two types ({str(error)[:200]})", path=path, hint=hint) from error


def read_csv(path: Path, kind: str = "csv", names: Names = NO_NAMES) -> Any:
    """A CSV or TSV file, plain or compressed, with columns of the type that all of their values have."""
    broken: list[tuple[int, str, str]] = []
    with open_text(path, kind, Texts()) as opened:
        present = opened.columns()
        schema, batches = pa.schema([(name, pa.string()) for name in present]), []
        for batch, _ in opened.batches(present, lambda *told: broken.append(told)):
            batches.append(batch.select(present).cast(schema))
            if broken:
                break
    if broken:
        row, reason, text = broken[0]
        what = f"{reason.replace('_', ' ')}: {printable(text)[:200]}"
        raise DataError(what, path=path, line=row, hint="repair or remove the row")
    table = pa.Table.from_batches(batches, schema)
    for name in present:
        if pc.any(pc.match_substring(table[name], MARK)).as_py():
            raise DataError(f"{name} has bytes that are no UTF-8", path=path, hint="write the file as UTF-8")
    ids = {*IDS, *map(names.theirs, IDS)}
    return pa.table({name: typed(table[name], of_id=name in ids) for name in present})


def typed(column: Any, *, of_id: bool = False) -> Any:
    """A column of text as whole numbers, numbers, booleans or times, where all of its values are such; else as is.

    Ids are whole numbers or text: one of twenty digits is no measured number, and one may be called NA.

    >>> typed(pa.chunked_array([["1", "2.5", "NA"]])).to_pylist()
    [1.0, 2.5, None]
    >>> typed(pa.chunked_array([["007", "8"]])).to_pylist()  # an id
    ['007', '8']
    """
    if of_id:
        try:
            plain = not pc.any(pc.match_substring_regex(column, r"^[+-]|^0\d|\s")).as_py()
            return column.cast(pa.int64()) if plain else column
        except pa.ArrowInvalid:
            return column
    filled = pc.if_else(pc.is_in(column, pa.array(MISSING)), pa.scalar(None, pa.string()), column)
    if filled.null_count == len(filled):
        return filled
    padded = pc.any(pc.match_substring_regex(filled, r"^[+-]?0\d")).as_py()
    for kind in (pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us")):
        try:
            return column if padded and kind != pa.timestamp("us") else filled.cast(kind)
        except pa.ArrowInvalid:
            continue
    return column
