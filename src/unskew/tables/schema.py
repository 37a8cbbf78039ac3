"""The impressions table, one row per result shown: what its columns are, and the checks on their values.

Legend: S pages, N impressions.

A log on disk names queries and documents; in memory an impression points at a row of the feature matrix. The
column `label` may be in a file; it is never read here.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.errors import Column, ConfigError, DataError
from unskew.names import REQUIRED
from unskew.tables.engine.parquet import plain_type, undone
from unskew.types import Array

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"


def required(feedback: str | None) -> list[str]:
    """The columns that a log must have, where this one, if any, stands in the place of `click`."""
    if feedback in set(REQUIRED) - {"click"} or feedback == "label":
        what = f"{feedback} has a meaning of its own; name a column of numbers from 0"
        raise ConfigError(what, argument="feedback")
    return [feedback or name if name == "click" else name for name in REQUIRED]


def to_array(column: Any) -> Array:
    """A column as numpy: numbers and times as such, strings as objects, missing numbers as NaN."""
    column = undone(column)
    values: Array = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    return values


def refuse_missing(table: Any, name: str, path: Path | str) -> None:
    """A required column has no empty cells."""
    empty = table[name].null_count
    if empty:
        what = (f"{empty} of {len(table)} rows have no ", Column(name))
        raise DataError(what, path=path, hint="remove or repair them")


def refuse_where(wrong: Array, values: Array, name: str, how: str, path: Path | str, hint: str) -> None:
    """Refuse a column some of whose values [N] are wrong; the first of them is named."""
    if wrong.any():
        row = int(wrong.argmax())
        first = f" {how}, first row {row + 1} with {str(values[row])[:100]}"
        raise DataError((f"{np.count_nonzero(wrong):,} rows have a ", Column(name), first), path=path, hint=hint)


def whole_numbers(table: Any, name: str, path: Path | str) -> Array:
    """A required column of whole numbers, [N]; booleans, floats without a fraction and text of numbers will do."""
    refuse_missing(table, name, path)
    column, hint = table[name], f"make it {REQUIRED[name]}"
    if is_text(column.type):
        text = pc.utf8_trim_whitespace(column)
        wrong = to_array(pc.invert(pc.match_substring_regex(text, NUMBER)))
        refuse_where(wrong, to_array(column), name, "that is no number", path, hint)
        column = text.cast(pa.float64())
    values = to_array(column)
    if values.dtype.kind == "b":
        return values.astype(np.uint8)
    if values.dtype.kind == "f":
        refuse_where(values != np.rint(values), values, name, "that is not a whole number", path, "round it")
        return values.astype(np.int64)
    if values.dtype.kind not in "iu":
        raise DataError((Column(name), f" is of type {table[name].type}"), path=path, hint=hint)
    return values


def read_feedback(table: Any, name: str | None, path: Path | str) -> Array:
    """Feedback [N]: clicks, 0 or 1, unless a column of weights from 0 is named; a missing weight is 0.

    Weights are float32, or uint8 where all of them are 0 or 1.
    """
    if name is None:
        return whole_numbers(table, "click", path)
    hint = "feedback is a number from 0; clip or repair it"
    if not is_number(table[name].type):
        raise DataError((Column(name), f" is of type {table[name].type}"), path=path, hint=hint)
    values = np.nan_to_num(to_array(table[name]).astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
    refuse_where((values < 0) | np.isinf(values), values, name, "that is no weight", path, hint)
    return values.astype(np.uint8 if np.isin(values, (0, 1)).all() else np.float32)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of strings, in a dictionary or not."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(each(plain_type(kind)) for each in kinds)


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers, or of true and false, which are 1 and 0."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(each(kind) for each in kinds)


def check_values(position: Array, click: Array, path: Path | str) -> None:
    """Positions count from 1 and clicks are 0 or 1; weights were checked when they were read."""
    if click.dtype.kind != "f":
        hint = "one row is one impression; turn counts into 1, or name their column as feedback"
        refuse_where((click < 0) | (click > 1), click, "click", "that is not 0 or 1", path, hint)
    hint = "positions are ranks from 1; add 1 if they count from 0"
    outside = (position < 1) | (position > np.iinfo(np.int16).max)
    refuse_where(outside, position, "position", "below 1 or above 32767", path, hint)


def check_pages(page: Array, position: Array, query: Array, names: Array, path: Path | str) -> None:
    """A page has one query, and one document at each position; rows are sorted here."""
    twice = np.flatnonzero((page[1:] == page[:-1]) & (position[1:] == position[:-1]))
    if len(twice):
        at = twice[0]
        raise DataError(
            f"{len(twice)} positions are taken twice, first {position[at]} in page {names[page[at]]}",
            path=path,
            hint=("keep one document per position, or give each page its own ", Column("page_id")),
        )
    several = np.flatnonzero(query[1:] != query[:-1])
    several = several[page[several + 1] == page[several]]
    if len(several):
        raise DataError(
            f"{len(np.unique(page[several]))} pages have more than one query, first page "
            f"{names[page[several[0]]]}",
            path=path,
            hint=("give each result page its own ", Column("page_id")),
        )
