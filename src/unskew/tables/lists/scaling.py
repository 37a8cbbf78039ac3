"""Feature scaling: fitted on training data, saved with the model, the same when serving.

| kind           | a feature value v becomes                                                                |
|----------------|------------------------------------------------------------------------------------------|
| `none`         | v                                                                                        |
| `standard`     | (v - mean) / standard deviation                                                          |
| `minmax`       | (v - min) / (max - min)                                                                  |
| `log1p`        | sign(v) log(1 + abs(v))                                                                  |
| `query_minmax` | (v - min) / (max - min) within its query                                                 |
| `ultra`        | 2 (v - min) / (max - min) - 1 to 6 digits where the file names the entry, else 0         |
| `ultra_log`    | the same with g(x) = log10(1 + x) around both differences, as used for Istella           |

Columns of 0 and 1 that an encoding made (`Columns.flags`) stay as they are under `standard` and `minmax`: divided
by its deviation, a rare one would be huge.

A feature that is constant in the data that a scaler was fitted on (for `query_minmax`: in its query) becomes 0
there. `ultra` takes min and max over all sets passed to `fit_scaler`, an absent entry counting as 0; the others
are fitted on the first set alone. Legend: N documents, Q queries, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from unskew.errors import DataError
from unskew.settings import known
from unskew.tables.lists.survey import Survey, row_blocks, survey
from unskew.types import Array, Columns, Lists

DIGITS = 6


@dataclass(frozen=True)
class Scaling:
    """One way to scale: which statistics it keeps, and what it does with a block."""

    transform: Callable[[Array, Mapping[str, Array], Array | None], Array]
    """Takes values [n, D] in float64, what was kept of the statistics, and where each query starts [q + 1]."""
    statistics: Callable[[Survey], dict[str, Array]] | None = None
    """What is kept of the statistics; None where nothing is fitted."""
    as_ultra: bool = False
    """Fitted on every set rather than on the training set alone; entries that a file does not name become 0."""
    by_query: bool = False
    """Needs to know where each query starts."""


def _linear(values: Array, statistics: Mapping[str, Array], _: Array | None) -> Array:
    return (values - statistics["shift"]) / statistics["scale"]


def _query_minmax(values: Array, _: Mapping[str, Array], offsets: Array | None) -> Array:
    assert offsets is not None
    sizes = np.diff(offsets)
    starts, sizes = offsets[:-1][sizes > 0], sizes[sizes > 0]  # reduceat does not know empty queries
    if not len(starts):
        return values
    low = np.minimum.reduceat(values, starts, axis=0)
    spread = np.maximum.reduceat(values, starts, axis=0) - low
    spread[spread == 0] = 1.0
    scaled: Array = (values - np.repeat(low, sizes, axis=0)) / np.repeat(spread, sizes, axis=0)
    return scaled


def _ultra(
    values: Array, statistics: Mapping[str, Array], _: Array | None, g: Callable[[Array], Array] = lambda x: x
) -> Array:
    """2 g(v - min) / g(max - min) - 1; g(v - min) where a feature is constant."""
    above, spread = g(values - statistics["low"]), g(statistics["high"] - statistics["low"])
    varies = spread > 0
    return round_digits(np.where(varies, 2.0 * above / np.where(varies, spread, 1.0) - 1.0, above))


def _log(values: Array) -> Array:
    return np.log10(1.0 + np.maximum(values, 0.0))  # new data may lie below the fitted minimum


def round_digits(values: Array, digits: int = DIGITS) -> Array:
    """Round to significant digits.

    >>> round_digits(np.array([0.123456789, -12345678.0, 0.0])).tolist()
    [0.123457, -12345700.0, 0.0]
    """
    sizes = np.abs(values)
    powers = np.floor(np.log10(np.where(sizes > 0, sizes, 1.0)))
    factors = 10.0 ** np.abs(digits - 1 - powers)  # a negative power of ten would not be exact
    large = powers > digits - 1
    rounded: Array = np.where(
        large, np.round(values / factors) * factors, np.round(values * np.where(large, 1.0, factors)) / factors
    )
    return rounded


def _standard_statistics(fitted: Survey) -> dict[str, Array]:
    constant = fitted.low == fitted.high  # the deviation of a constant is not exactly 0 in floating point
    shift = np.where(constant, fitted.low, fitted.mean)
    return {"shift": shift, "scale": np.where(constant | (fitted.deviation == 0), 1.0, fitted.deviation)}


def _minmax_statistics(fitted: Survey) -> dict[str, Array]:
    spread = fitted.high - fitted.low
    return {"shift": fitted.low, "scale": np.where(spread == 0, 1.0, spread)}


def _range_statistics(fitted: Survey) -> dict[str, Array]:
    return {"low": fitted.low, "high": fitted.high}


SCALINGS: Mapping[str, Scaling] = {
    "none": Scaling(lambda values, *_: values),
    "standard": Scaling(_linear, _standard_statistics),
    "minmax": Scaling(_linear, _minmax_statistics),
    "log1p": Scaling(lambda values, *_: np.sign(values) * np.log1p(np.abs(values))),
    "query_minmax": Scaling(_query_minmax, by_query=True),
    "ultra": Scaling(_ultra, _range_statistics, as_ultra=True),
    "ultra_log": Scaling(partial(_ultra, g=_log), _range_statistics, as_ultra=True),
}
"""Every kind of scaling by name."""


@dataclass(frozen=True, eq=False)
class Scaler:
    """A scaling with the statistics that it was fitted to; make one with `fit_scaler`."""

    kind: str
    width: int
    """Number of features."""
    statistics: Mapping[str, Array] = field(default_factory=dict)
    """[D] float64 each; empty where nothing is fitted."""

    def transform(
        self,
        features: Array,
        *,
        offsets: Array | None = None,
        present: Array | None = None,
        out: Array | None = None,
    ) -> Array:
        """Scale a matrix [n, D]; returns float32, in `out` where given, which may be memory-mapped.

        `offsets` [q + 1] says where each query starts; without it, all rows are one query. `present`
        [n, ceil(D / 8)] are packed bits as in `Lists`; without it, every entry is present.
        """
        if features.ndim != 2 or features.shape[1] != self.width:
            width = features.shape[1] if features.ndim == 2 else f"shape {features.shape}"
            raise DataError(
                f"the data have {width} features, but the scaler was fitted on {self.width}",
                hint="use the features that the model was trained on, or declare the width when reading",
            )
        out = np.empty(features.shape, np.float32) if out is None else out
        scaling = _scaling(self.kind)
        if scaling.by_query and offsets is None:
            offsets = np.array([0, len(features)], np.int64)
        edges = offsets if scaling.by_query else None
        for rows in row_blocks(len(features), self.width, edges):
            inside = None
            if edges is not None:
                first, last = np.searchsorted(edges, rows.start), np.searchsorted(edges, rows.stop, "right")
                inside = edges[first:last] - rows.start
            scaled = scaling.transform(np.asarray(features[rows], np.float64), self.statistics, inside)
            if scaling.as_ultra and present is not None:
                scaled = np.where(np.unpackbits(present[rows], axis=1, count=self.width), scaled, 0.0)
            out[rows] = scaled
        return out

    def apply(self, lists: Lists, *, out: Array | None = None) -> Lists:
        """The same lists with scaled features, in memory or in `out` [N, D], which may be memory-mapped."""
        if self.kind == "none" and out is None and lists.dim == self.width:
            return lists
        scaled = self.transform(lists.features, offsets=lists.offsets, present=lists.present, out=out)
        return replace(lists, features=scaled)

    def arrays(self) -> dict[str, Array]:
        """Everything but the kind, for saving."""
        return {"width": np.array([self.width], np.int64), **self.statistics}

    @classmethod
    def from_arrays(cls, kind: str, arrays: Mapping[str, Array]) -> Scaler:
        """The scaler that `arrays` was called on."""
        scaling = _scaling(kind)
        names = set(scaling.statistics(Survey(0, *np.zeros((5, 1)))) if scaling.statistics else ())
        if set(arrays) != names | {"width"}:
            raise DataError(f"a {kind} scaler has the arrays {sorted(names)} and width, not {sorted(arrays)}")
        width = int(arrays["width"][0])
        statistics = {name: np.asarray(arrays[name], np.float64) for name in sorted(names)}
        if any(values.shape != (width,) for values in statistics.values()):
            raise DataError(f"an array of a {kind} scaler is not of the shape ({width},)")
        return cls(kind, width, statistics)


def fit_scaler(kind: str, lists: Lists, *others: Lists) -> Scaler:
    """Fit a scaling to training lists; `others` (validation, test) count for the kinds `ultra` only.

    >>> from unskew.types import Lists
    >>> train = Lists(np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([0, 2]), np.array([0, 1]), np.array([7]))
    >>> fit_scaler("minmax", train).transform(np.array([[2.0, 5.0]])).tolist()
    [[0.5, 0.0]]
    """
    scaling = _scaling(kind)
    for other in others:
        if other.dim != lists.dim:
            hint = "declare the width when reading: read_letor(..., features=WIDTH)"
            raise DataError(
                f"has {other.dim} features, but {lists.name} has {lists.dim}", path=other.name, hint=hint
            )
    if scaling.statistics is None:
        return Scaler(kind, lists.dim)
    if not len(lists.features):
        raise DataError("no documents to fit a scaler on", path=lists.name)
    sets = (lists, *others) if scaling.as_ultra else (lists,)
    return fitted_scaler(kind, survey(*sets), lists.columns)


def fitted_scaler(kind: str, fitted: Survey, columns: Columns | None = None) -> Scaler:
    """A scaler from the statistics of each feature."""
    scaling = _scaling(kind)
    statistics = {} if scaling.statistics is None else scaling.statistics(fitted)
    if columns is not None and columns.flags and "shift" in statistics:
        flags = np.isin(columns.names, columns.flags)
        statistics = {
            "shift": np.where(flags, 0.0, statistics["shift"]),
            "scale": np.where(flags, 1.0, statistics["scale"]),
        }
    return Scaler(kind, len(fitted.low), statistics)


def _scaling(kind: str) -> Scaling:
    return SCALINGS[known("scaling", kind, SCALINGS)]
