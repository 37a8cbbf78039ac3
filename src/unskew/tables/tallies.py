"""How often a column has each value, part after part of a log: what encoders of its columns are fitted to.

Tallies of parts merge in any order, into the same tally as that of the whole. Numbers with more than 65,536
different values are rounded to four digits. Legend: N rows, U different values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.errors import DataError
from unskew.tables.joining import encode
from unskew.tables.lists.scaling import round_digits
from unskew.types import Array

EXACT = 2**16
"""Different values that a tally may have: more numbers are rounded, more texts refused."""
DIGITS = 4
"""What is left of numbers that are rounded."""
COARSEN = "such a column describes how a result looks, not which one it is: coarsen it, or leave it out"


@dataclass(frozen=True, eq=False)
class Tally:
    """How often a column has each value."""

    values: Array
    """[U] ascending: float64, or texts as objects."""
    counts: Array
    """[U] float64."""
    missing: int = 0
    rounded: bool = False

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers."""
        return self.values.dtype.kind == "f"


def tally_columns(
    columns: Mapping[str, Array], names: Sequence[str], *, weights: Array | None = None
) -> dict[str, Tally]:
    """A tally of each named column [N]; `weights` [N] say how often each row was shown."""
    return {name: _tally(name, column, weights) for name, column in pick_columns(columns, names).items()}


def merge_tallies(*parts: Mapping[str, Tally]) -> dict[str, Tally]:
    """The tallies of all parts in one."""
    return {name: merge(name, [part[name] for part in parts]) for name in parts[0]}


def merge(name: str, parts: Sequence[Tally]) -> Tally:
    """One tally of a column from those of its parts."""
    filled = [part for part in parts if len(part.values)] or parts[:1]
    if len({part.numeric for part in filled}) > 1:
        raise DataError(f"{name} holds text in one part of the log and numbers in another")
    values, place = np.unique(np.concatenate([part.values for part in filled]), return_inverse=True)
    rounded = any(part.rounded for part in parts) or len(values) > EXACT
    if rounded and values.dtype.kind != "f":
        raise DataError(f"{name} has more than {EXACT:,} different values", hint=COARSEN)
    if rounded:
        values, again = np.unique(round_digits(values, DIGITS), return_inverse=True)
        place = again[place]
    counts = np.bincount(place, np.concatenate([part.counts for part in filled]), minlength=len(values))
    return Tally(values, counts, sum(part.missing for part in parts), rounded)


def pick_columns(columns: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """The named columns, which must be there."""
    missing = [name for name in names if name not in columns]
    if missing:
        raise DataError(f"the log has no column {', '.join(missing)}; it has {', '.join(columns) or 'none'}")
    return {name: columns[name] for name in names}


def as_arrow(name: str, column: Array) -> Any:
    """A column as Arrow text or float64, nulls for what is missing; booleans become text."""
    try:
        values = pa.array(column.astype(object) if column.dtype.kind == "U" else column, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise DataError(f"{name} holds values of several types: {error}", hint="make them text") from None
    kind = values.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return as_numbers(values)
    if pa.types.is_boolean(kind) or pa.types.is_string(kind) or pa.types.is_null(kind):
        return values.cast(pa.string())
    raise DataError(f"{name} is of type {kind}", hint="a presentation column holds text, booleans or numbers")


def as_numbers(column: Any) -> Any:
    """An Arrow column as float64 without negative zeros, null where float32 cannot hold the number."""
    values: Array = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        return pa.array(values + 0.0, mask=~np.isfinite(values.astype(np.float32)))


def _tally(name: str, column: Array, weights: Array | None) -> Tally:
    values = as_arrow(name, column)
    there = ~values.is_null().to_numpy(zero_copy_only=False)
    shown = np.ones(len(there)) if weights is None else np.asarray(weights, np.float64)
    codes, distinct = encode(values.drop_null())
    counts = np.bincount(codes, shown[there], minlength=len(distinct))
    return merge(name, [Tally(distinct, counts, int(shown[~there].sum()))])
