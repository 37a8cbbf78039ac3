"""Features as they are, made finite numbers for every ranker: categories one-hot, gaps filled and marked.

A category becomes one column of 0 and 1 for each of its frequent values (`brand=acme`), one for the rare ones
together (`brand is other`) and one for missing ones (`brand is missing`), these two where training had such. A
value that training did not have counts as rare; where nothing was rare, it is none of the known ones. A missing
number becomes the mean of training, and where training had gaps a column says so (`price is missing`).

An encoding is fitted on the lists of the training log and saved with the model. Features go by name, so other
lists may have them in another order, among others, and with other values. Lists without names go by place.

Legend: N documents, n of them in a block, D features as they are, E encoded ones, U values of a category in lists,
V of them with a column.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter

from unskew.errors import DataError
from unskew.settings import Config
from unskew.tables.lists.survey import Survey, row_blocks, survey
from unskew.types import Array, Columns, Lists

Gaps = Literal["indicator", "mean", "refuse"]
AS_TRAINED = "give the features that the model was trained on"


@dataclass(frozen=True)
class NumberField:
    """A feature that is a number."""

    name: str
    mean: float
    """What stands where it is missing."""
    gaps: bool
    """Whether it was missing anywhere in training."""
    marked: bool
    """Whether a column then says so."""
    spread: float = 0.0
    """Standard deviation in training, gaps filled."""
    missing: float = 0.0
    """Share of training that lacked it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What the encoded columns are called."""
        return (self.name, *self.flags)

    @property
    def flags(self) -> tuple[str, ...]:
        """The encoded columns that hold 0 and 1 alone."""
        return (f"{self.name} is missing",) if self.gaps and self.marked else ()

    def mapping(self, texts: Sequence[str] | None, path: str) -> Array | None:
        """None where lists have numbers too; else the values that they have as numbers, [U]."""
        if texts is None:
            return None
        numbers = np.empty(len(texts), np.float32)
        for place, text in enumerate(texts):
            try:
                numbers[place] = float(text)
            except ValueError:
                what = f"{self.name} is text here, such as {text!r}, and was a number in training"
                raise DataError(what, path=path, hint="make it a number") from None
        return numbers


@dataclass(frozen=True)
class CategoryField:
    """A feature that is one of several values."""

    name: str
    values: tuple[str, ...]
    """Those with a column of their own, the most frequent first."""
    rare: bool
    """Whether training had further values, which count as one."""
    gaps: bool
    """Whether it was missing anywhere in training."""
    marked: bool
    """Whether a column then says so."""
    shares: tuple[float, ...] = ()
    """Share of training that each encoded column marks."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What the encoded columns are called."""
        own = tuple(f"{self.name}={value}" for value in self.values)
        other = (f"{self.name} is other",) if self.rare else ()
        return own + other + ((f"{self.name} is missing",) if self.gaps and self.marked else ())

    flags = columns

    def mapping(self, texts: Sequence[str] | None, path: str) -> Array | None:
        """The column of each value that lists have, [U]; V for rare and unseen ones."""
        if texts is None:
            what = f"{self.name} is a number here, and was a category in training"
            raise DataError(what, path=path, hint="make it text")
        places = {value: place for place, value in enumerate(self.values)}
        return np.array([places.get(text, len(places)) for text in texts], np.float32)

    def fill(self, column: Array, missing: Array, out: Array) -> None:
        """Write the encoded columns [n, E] of places [n]."""
        out[:] = 0.0
        rows = np.flatnonzero(~missing & (column < len(self.values) + self.rare))
        out[rows, column[rows].astype(np.int64)] = 1.0
        if self.gaps and self.marked:
            out[missing, -1] = 1.0


_FIELDS = TypeAdapter(tuple[NumberField | CategoryField, ...])


class EncodingRules(Config):
    """The rules by which features become numbers: categories, bins, missing values."""

    missing_values: Gaps = "indicator"
    """What a missing value becomes: the mean with a column that says so, the mean alone, or an error."""
    most_categories: int = Field(100, ge=1, le=100_000)
    """Most values of a category that have a column of their own, the most frequent ones."""
    least_share: float = Field(0.001, ge=0, le=1)
    """Share of the documents below which a value is rare."""


@dataclass(frozen=True)
class Encoding:
    """What each feature becomes; make one with `fit_encoding`."""

    fields: tuple[NumberField | CategoryField, ...] = ()
    """The features as they are, in the order of training; none where they have no names and no gaps."""
    missing_values: Gaps = "indicator"

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The features as they are; None where they have no names."""
        return tuple(field.name for field in self.fields) or None

    @cached_property
    def columns(self) -> Columns:
        """The encoded features."""
        names = tuple(name for field in self.fields for name in field.columns)
        return Columns(names, flags=tuple(name for field in self.fields for name in field.flags))

    @cached_property
    def starts(self) -> Array:
        """[features + 1] where the encoded columns of each feature begin, and the end."""
        return np.cumsum([0, *(len(field.columns) for field in self.fields)])

    @cached_property
    def origins(self) -> Array:
        """[E] which feature, as it is, each encoded one comes from."""
        return np.repeat(np.arange(len(self.fields)), np.diff(self.starts))

    @cached_property
    def identity(self) -> bool:
        """Whether numbers stay what they are."""
        return not self.columns.flags and not self.categories

    @cached_property
    def taken(self) -> dict[str, bool] | None:
        """The features that training had, and whether each is a category; None where they have no names."""
        return {field.name: isinstance(field, CategoryField) for field in self.fields} or None

    @cached_property
    def categories(self) -> tuple[CategoryField, ...]:
        """The features that are categories."""
        return tuple(field for field in self.fields if isinstance(field, CategoryField))

    def apply(self, lists: Lists) -> Lists:
        """The lists with encoded features, finite ones; those that are so already, and memory maps, stay."""
        if not self.fields:
            if (gap := first_gap(lists)) is not None:
                what = f"document {gap[0]}: feature {gap[1] + 1} is missing or not finite"
                raise DataError(what, path=lists.name, hint="fill it: training had no gaps")
            return lists
        if not self.identity and lists.columns == self.columns:
            return lists
        places = self.places(lists)
        if self.identity and places == list(range(lists.dim)) and first_gap(lists) is None:
            return lists if lists.columns == self.columns else replace(lists, columns=self.columns)
        out = np.empty((len(lists.features), len(self.columns.names)), np.float32)
        theirs = {} if lists.columns is None else lists.columns.categories
        values = [field.mapping(theirs.get(field.name), lists.name) for field in self.fields]
        unused: set[str] = set()
        for rows in row_blocks(*lists.features.shape):
            unused |= self._encode(lists, rows, places, values, out[rows])
        if unused:
            in_order = [field.name for field in self.fields if field.name in unused]
            what = "take the mean" if not self.categories else "take the mean, and categories none of their values"
            told = f"missing where training had no gaps: {', '.join(in_order)}; they {what}"
            warnings.warn(f"{lists.name}: {told}", stacklevel=3)
        return replace(lists, features=out, columns=self.columns, present=None)

    def _encode(
        self, lists: Lists, rows: slice, places: Sequence[int], values: Sequence[Array | None], out: Array
    ) -> set[str]:
        """Write some rows, numbers at once; returns the features with gaps that training had no place for."""
        columns = np.asarray(lists.features[rows])[:, places]
        for index, mapping in enumerate(values):
            if mapping is not None:
                known = np.where(np.isnan(columns[:, index]), -1, columns[:, index]).astype(np.int64)
                columns[:, index] = np.append(mapping, np.nan)[known]  # the last one where missing
        missing, infinite = np.isnan(columns), np.isinf(columns).any(0)
        gaps = missing.any(0)
        for at in np.flatnonzero(infinite | (gaps if self.missing_values == "refuse" else False)):
            name, row = self.fields[at].name, rows.start + int(missing[:, at].argmax())
            if infinite[at]:
                raise DataError(f"{name} is infinite", path=lists.name, hint="remove or clip such values")
            hint = 'fill it, or set missing_values = "indicator"'
            raise DataError(f"row {row}: {name} is missing", path=lists.name, hint=hint)
        own, means, flagged = self._numbers
        first = self.starts[own]
        out[:, first] = np.where(missing[:, own], means, columns[:, own])
        out[:, first[flagged] + 1] = missing[:, own[flagged]]
        for index, field in enumerate(self.fields):
            if isinstance(field, CategoryField):
                place = slice(self.starts[index], self.starts[index + 1])
                field.fill(columns[:, index], missing[:, index], out[:, place])
        return {self.fields[at].name for at in np.flatnonzero(gaps) if not self.fields[at].gaps}

    @cached_property
    def _numbers(self) -> tuple[Array, Array, Array]:
        """Which features are numbers, what stands where they are missing, and whether a column says so."""
        found = [(at, field) for at, field in enumerate(self.fields) if isinstance(field, NumberField)]
        return (
            np.array([at for at, _ in found], np.int64),
            np.array([field.mean for _, field in found], np.float32),
            np.array([bool(field.flags) for _, field in found], bool),
        )

    def places(self, lists: Lists) -> list[int]:
        """Where each feature is among those of the lists."""
        names = self.names or ()
        if lists.columns is None:
            if self.categories:
                what = f"{self.categories[0].name} is a category, and these features have no names"
                raise DataError(what, path=lists.name, hint="give a table with named columns")
            if lists.dim != len(names):
                what = f"the model was trained on {len(names)} features, these documents have {lists.dim}"
                raise DataError(what, path=lists.name, hint=AS_TRAINED)
            return list(range(lists.dim))
        if lists.columns.names == names:
            return list(range(lists.dim))
        there = {name: at for at, name in enumerate(lists.columns.names)}
        refuse_absent(names, there, lists.name)
        return [there[name] for name in names]

    def surveyed(self, found: Survey) -> Survey:
        """What the documents of a survey have once they are encoded."""
        if not self.fields:
            return found
        own, flags = self.origins, np.isin(self.columns.names, self.columns.flags)
        filled = (found.present > 0)[own] & ~flags
        return Survey(
            rows=found.rows,
            present=np.full(len(own), found.rows),
            low=np.where(filled, found.low[own], 0.0),
            high=np.where(filled, found.high[own], flags),
            mean=np.where(flags, 0.0, found.mean[own]),
            square=np.where(flags, 0.0, found.square[own]),
        )

    def to_dict(self) -> dict[str, Any]:
        """The encoding as model.json has it."""
        return {"missing_values": self.missing_values, "features": _FIELDS.dump_python(self.fields, mode="json")}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Encoding:
        """The encoding that `to_dict` was called on."""
        return cls(_FIELDS.validate_python(content["features"]), content["missing_values"])


def refuse_absent(names: Sequence[str], there: Collection[str], path: str | None) -> None:
    """Refuse what lacks features that the model takes."""
    if missing := [name for name in names if name not in there]:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        close = difflib.get_close_matches(missing[0], there, n=1)
        meant = f" (did you mean {close[0]} for {missing[0]}?)" if close else ""
        listed = ", ".join(there)[:500] or "none"
        what = f"missing features: {', '.join(missing[:5])}{more}{meant}; there are {listed}"
        raise DataError(what, path=path, hint=AS_TRAINED)


def fit_encoding(lists: Lists, rules: EncodingRules | None = None) -> Encoding:
    """The encoding of training lists.

    >>> names = Columns(("price", "brand"), {"brand": ("acme", "bolt")})
    >>> values = np.array([[1.0, 0.0], [np.nan, 0.0], [3.0, 1.0]], np.float32)
    >>> raw = Lists(values, np.array([0, 3]), np.zeros(3, np.int16), np.array([7]), columns=names)
    >>> encoded = fit_encoding(raw).apply(raw)
    >>> encoded.columns.names
    ('price', 'price is missing', 'brand=acme', 'brand=bolt')
    >>> encoded.features.tolist()
    [[1.0, 0.0, 1.0, 0.0], [2.0, 1.0, 1.0, 0.0], [3.0, 0.0, 0.0, 1.0]]
    """
    rules, columns = rules or EncodingRules(), lists.columns
    if columns is None:
        if first_gap(lists) is None:
            return Encoding(missing_values=rules.missing_values)
        columns = Columns(tuple(f"feature {at + 1}" for at in range(lists.dim)))
    return encoding_of(survey(lists), columns, rules)


def encoding_of(found: Survey, columns: Columns, rules: EncodingRules) -> Encoding:
    """The encoding of features of which this is known."""
    rows, marked = max(found.rows, 1), rules.missing_values == "indicator"
    fields: list[NumberField | CategoryField] = []
    for at, (name, gaps) in enumerate(zip(columns.names, found.gaps.tolist(), strict=True)):
        if name in found.counts:
            fields.append(_category(name, columns.categories[name], found, gaps, rules))
            continue
        spread, missing = np.sqrt(found.square[at] / rows), 1 - found.present[at] / rows
        mean = float(np.float32(found.mean[at]))
        fields.append(NumberField(name, mean, gaps, marked, spread=float(spread), missing=float(missing)))
    return Encoding(tuple(fields), rules.missing_values)


def _category(name: str, values: Sequence[str], found: Survey, gaps: bool, rules: EncodingRules) -> CategoryField:
    """The values with a column of their own, the most frequent first, and what the others become."""
    counts, marked = found.counts[name], rules.missing_values == "indicator"
    least = max(rules.least_share * counts.sum(), 1)
    order = sorted(np.flatnonzero(counts >= least).tolist(), key=lambda at: (-counts[at], values[at]))
    frequent = order[: rules.most_categories]
    rare = len(frequent) < int((counts > 0).sum())
    marks = [int(counts[at]) for at in frequent]
    marks += [int(counts.sum()) - sum(marks)] if rare else []
    marks += [found.rows - int(counts.sum())] if gaps and marked else []
    shares = tuple(count / max(found.rows, 1) for count in marks)
    return CategoryField(name, tuple(values[at] for at in frequent), rare, gaps, marked, shares)


def first_gap(lists: Lists) -> tuple[int, int] | None:
    """The first document and feature that is not a finite number."""
    for rows in row_blocks(*lists.features.shape):
        broken = ~np.isfinite(np.asarray(lists.features[rows]))
        if broken.any():
            row, feature = np.argwhere(broken)[0].tolist()
            return rows.start + row, feature
    return None
