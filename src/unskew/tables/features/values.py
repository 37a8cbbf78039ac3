"""Columns of Arrow as features: which kinds there are, and their values as 32-bit floats.

| kind       | of type                          | a value becomes                                   |
|------------|----------------------------------|---------------------------------------------------|
| `number`   | whole, real, decimal, bool       | itself; true is 1                                 |
| `time`     | date, timestamp                  | days since 1970-01-01 UTC                         |
| `vector`   | a list of numbers                | as many numbers, `name[0]`, `name[1]`, ...        |
| `category` | text, dictionary                 | the index of its value                            |

A missing value is NaN; infinite ones, and those past 32-bit floats, are refused. Legend: n rows, w numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.errors import DataError
from unskew.tables.engine.parquet import undone
from unskew.tables.schema import is_number, is_text, to_array
from unskew.types import Array

ValueKind = Literal["number", "time", "vector", "category"]
DAY = 86_400 * 1_000_000
"""Microseconds."""


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
    elif pa.types.is_null(column.type):
        return np.full(len(column), np.nan, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        values: Array = to_array(column).astype(np.float32)
    return values


def vector_width(column: Any) -> int:
    """How many numbers the first list of a column has."""
    lengths = pc.list_value_length(column).drop_null()
    return int(lengths[0].as_py()) if len(lengths) else 0


def text_values(column: Any) -> set[str]:
    """The distinct values of a column of text."""
    return {value for value in pc.unique(as_text(column)).to_pylist() if value is not None}
