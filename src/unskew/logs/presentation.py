"""Presentation columns (`serp_*`) of any kind as bias factors: fitted on training data and saved with the model.

| kind          | found where             | a value becomes                                                       |
|---------------|-------------------------|-----------------------------------------------------------------------|
| `categorical` | text, booleans          | its place among the values of training, sorted as text                |
| `ordinal`     | up to 100 whole numbers | its place among the values of training, ascending                     |
| `continuous`  | other numbers           | (v - mean) / deviation, 0 where missing; with `bins` the bin it is in |

With n values or bins, code n stands for a value that training did not have and n + 1 for none (also a number that
float32 cannot hold). A column of whole numbers 0, 1, 2, ... thus keeps its numbers. Legend: N impressions.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, TypeAdapter, ValidationError

from unskew.errors import DataError
from unskew.settings import Config
from unskew.tables.joins import encode
from unskew.tables.lists.scaling import round_digits
from unskew.types import Array

EXACT = 2**16
"""Different values that a tally may have: more numbers are rounded, more texts refused."""
DIGITS = 4
"""What is left of numbers that are rounded."""
COARSEN = "such a column describes how a result looks, not which one it is: coarsen it, or leave it out"
Kind = Literal["categorical", "ordinal", "continuous"]

FEW = 100
"""Whole numbers with more different values than this are continuous."""
MOST = 10_000
"""Different values that a column of codes may have."""
FAR = 1e30
"""As many deviations from the mean as a number may lie."""


class Coded(Config):
    """Values as codes."""

    kind: Kind
    values: tuple[str, ...] | tuple[float, ...]
    missing: int = 0
    """Impressions of the training data without a value."""

    @property
    def size(self) -> int:
        """Number of codes."""
        return len(self.values) + 2

    def texts(self) -> tuple[str, ...]:
        """The range of each bin in words."""
        return tuple(v if isinstance(v, str) else f"{v:g}" for v in self.values)

    def encode(self, column: Any) -> Array:
        """Codes [N] int64 of an Arrow column: the place among the n values; n for others, n + 1 for none."""
        column = as_numbers(column) if self.kind == "ordinal" else column.cast(pa.string())
        found = pc.index_in(column, value_set=pa.array(self.values, column.type)).fill_null(len(self.values))
        missing = column.is_null().to_numpy(zero_copy_only=False)
        codes = np.where(missing, len(self.values) + 1, found.to_numpy(zero_copy_only=False))
        return codes.astype(np.int64)


class Categories(Coded):
    """Text and booleans as codes; a number counts as its text."""

    kind: Literal["categorical"] = "categorical"
    values: tuple[str, ...]


class Ordinals(Coded):
    """Ordered numbers as codes."""

    kind: Literal["ordinal"] = "ordinal"
    values: tuple[float, ...]


class Continuous(Config):
    """Numbers, standardised or cut into bins."""

    kind: Literal["continuous"] = "continuous"
    missing: int = 0
    mean: float
    deviation: float
    edges: tuple[float, ...] | None = None
    """Where each bin but the first begins; None: not cut."""

    @property
    def size(self) -> int | None:
        """Number of codes; None where the numbers are not cut into bins."""
        return None if self.edges is None else len(self.edges) + 3

    def texts(self) -> tuple[str, ...]:
        """What each bin holds."""
        if not self.edges:
            return () if self.edges is None else ("all",)
        inner = (f"{low:g} to {high:g}" for low, high in itertools.pairwise(self.edges))
        return f"below {self.edges[0]:g}", *inner, f"from {self.edges[-1]:g}"

    def encode(self, column: Any) -> Array:
        """[N] float32 around 0, or codes of bins int64, of an Arrow column."""
        values: Array = as_numbers(column).to_numpy(zero_copy_only=False)  # NaN where missing
        if self.edges is None:
            with np.errstate(over="ignore"):
                scaled = np.nan_to_num((values - self.mean) / self.deviation)
            return scaled.clip(-FAR, FAR).astype(np.float32)
        codes = np.searchsorted(np.array(self.edges), values, side="right")
        return np.where(np.isnan(values), len(self.edges) + 2, codes)


Encoder = Categories | Ordinals | Continuous
_ENCODERS: TypeAdapter[dict[str, Encoder]] = TypeAdapter(
    dict[str, Annotated[Encoder, Field(discriminator="kind")]]
)


@dataclass(frozen=True)
class Presentation:
    """An encoder for each presentation column; make one with `fit_presentation`."""

    encoders: Mapping[str, Encoder]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are encoded."""
        return tuple(self.encoders)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of codes of each column that becomes codes."""
        return {name: encoder.size for name, encoder in self.encoders.items() if encoder.size is not None}

    def encode(self, columns: Mapping[str, Array]) -> dict[str, Array]:
        """The columns [N] as codes (int64), or as numbers around 0 (float32)."""
        made = {}
        for name, column in pick_columns(columns, self.names).items():
            try:
                made[name] = self.encoders[name].encode(as_arrow(name, column))
            except pa.ArrowInvalid as error:
                raise DataError(f"{name} held numbers when the model was trained: {error}") from None
        return made

    def shown(self, name: str) -> tuple[list[int], tuple[str, ...]]:
        """The codes that training data had of a column, and what each stands for."""
        encoder, known = self.encoders[name], self.encoders[name].texts()
        texts = dict(enumerate(known)) | ({len(known) + 1: "none"} if encoder.missing else {})
        return list(texts), tuple(texts.values())

    def to_dict(self) -> dict[str, Any]:
        """Everything about it, for JSON."""
        return {name: encoder.model_dump(mode="json") for name, encoder in self.encoders.items()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Presentation:
        """The presentation that `to_dict` was called on."""
        try:
            return cls(_ENCODERS.validate_json(json.dumps(content)))
        except ValidationError as error:
            what = error.errors()[0]
            raise DataError(f"presentation: {'.'.join(map(str, what['loc']))}: {what['msg']}") from None


NO_COLUMNS = Presentation({})
"""Where no column is a bias factor."""


def fit_presentation(columns: Mapping[str, Array], names: Sequence[str], *, bins: int = 0) -> Presentation:
    """Encoders fitted to the named columns of training data.

    Continuous columns are cut into so many bins, as full as each other, unless `bins` is 0.

    >>> columns = {"serp_kind": np.array(["text", "image", "text"]), "serp_rows": np.array([3, 1, 1])}
    >>> fitted = fit_presentation(columns, ["serp_kind", "serp_rows"])
    >>> new = {"serp_kind": np.array(["video", None, "text"], object), "serp_rows": np.array([1, 2, 3])}
    >>> {name: codes.tolist() for name, codes in fitted.encode(new).items()}
    {'serp_kind': [2, 3, 1], 'serp_rows': [0, 2, 1]}
    """
    return fit_tallies(tally_columns(columns, names), bins=bins)


def fit_tallies(tallies: Mapping[str, Tally], *, bins: int = 0) -> Presentation:
    """Encoders from the tallies of all training data, as `merge_tallies` gives them from those of its parts."""
    return Presentation({name: _fit(name, tally, bins) for name, tally in tallies.items()})


def kind_of(tally: Tally) -> Kind:
    """What a column is, by its values."""
    if not tally.numeric:
        return "categorical"
    few = len(tally.values) <= FEW and not tally.rounded
    return "ordinal" if few and np.array_equal(tally.values, np.rint(tally.values)) else "continuous"


def _fit(name: str, tally: Tally, bins: int) -> Encoder:
    kind, values = kind_of(tally), tally.values
    if kind == "continuous":
        shown = tally.counts.sum() or 1.0
        mean = math.fsum(values * tally.counts) / shown
        deviation = math.sqrt(math.fsum((values - mean) ** 2 * tally.counts) / shown)
        deviation = deviation if len(values) > 1 and deviation > 0 else 1.0
        edges = _quantiles(tally, bins) if bins else None
        return Continuous(mean=mean, deviation=deviation, edges=edges, missing=tally.missing)
    if len(values) > MOST:
        raise DataError(f"{name} has more than {MOST:,} different values", hint=COARSEN)
    coded = Ordinals if kind == "ordinal" else Categories
    return coded(values=tuple(values.tolist()), missing=tally.missing)


def _quantiles(tally: Tally, bins: int) -> tuple[float, ...]:
    """Where bins begin: at the values nearest to the quantiles, fewer where values repeat."""
    below = np.cumsum(tally.counts)
    if bins < 2 or len(below) < 2:
        return ()
    points = np.arange(1, bins) / bins * below[-1]
    nearest = np.abs(below[:-1, None] - points).argmin(0)
    return tuple(tally.values[np.unique(nearest) + 1].tolist())


# ---- how often a column has each value ----


@dataclass(frozen=True, eq=False)
class Tally:
    """How often a column has each value."""

    values: Array  # [U] ascending: float64, or texts as objects
    counts: Array  # [U] float64
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
    made = {}
    for name, column in pick_columns(columns, names).items():
        values = as_arrow(name, column)
        there = ~values.is_null().to_numpy(zero_copy_only=False)
        shown = np.ones(len(there)) if weights is None else np.asarray(weights, np.float64)
        codes, distinct = encode(values.drop_null())
        counts = np.bincount(codes, shown[there], minlength=len(distinct))
        made[name] = merge(name, [Tally(distinct, counts, int(shown[~there].sum()))])
    return made


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
