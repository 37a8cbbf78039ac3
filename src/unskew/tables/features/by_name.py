"""The rows of a table as lists, by the names of the features that a model knows.

Legend: N rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.errors import DataError
from unskew.tables.features.encoding import Encoding, refuse_absent
from unskew.tables.features.fields import CategoryField
from unskew.tables.features.values import Feature, kind_of_type, numbers_of, text_values, vector_width
from unskew.tables.frames import arrow_table
from unskew.tables.joining import encode
from unskew.tables.schema import refuse_missing
from unskew.types import Array, Columns, Lists


def table_lists(source: object, encoding: Encoding) -> tuple[Lists, Array]:
    """The rows of a table as lists, and which row each document is, [N].

    Columns go by name, in any order; others are passed over. The table is one list, unless it has query_id.
    """
    table, place = arrow_table(source), type(source).__name__
    if encoding.names is None:
        hint = "give an array [n, D], with the features in the order of training"
        raise DataError("the model was trained on features without names", path=place, hint=hint)
    columns = _features(table, encoding)
    there = dict.fromkeys([*table.column_names, *(name for feature in columns for name in feature.names)])
    refuse_absent(encoding.names, there, place)
    blocks = [numbers_of(table[feature.name], feature, place) for feature in columns]
    names = tuple(name for feature in columns for name in feature.names)
    categories = {feature.name: feature.values for feature in columns if feature.kind == "category"}
    values = np.concatenate(blocks, axis=1) if blocks else np.zeros((len(table), 0), np.float32)
    order, offsets, queries = _lists(table, place)
    lists = Lists(
        values[order],
        offsets,
        np.zeros(len(values), np.int16),
        queries,
        name=place,
        columns=Columns(names, categories),
    )
    return lists, order


def _features(table: Any, encoding: Encoding) -> list[Feature]:
    """The columns that the model takes, as they are here."""
    found: dict[str, Feature] = {}
    lists = {name for name in table.column_names if hasattr(table[name].type, "value_type")}
    for field in encoding.fields:
        name = field.name
        base = name.rpartition("[")[0]
        if name in table.column_names:
            found[name] = _feature(table[name], name, isinstance(field, CategoryField))
        elif base in lists and base not in found:
            found[base] = Feature(base, "vector", vector_width(table[base]))
    return list(found.values())


def _feature(column: Any, name: str, category: bool) -> Feature:
    """A column as a feature; a category may be written in numbers."""
    if category or kind_of_type(name, column.type, "the table") == "category":
        return Feature(name, "category", values=tuple(sorted(text_values([column]))))
    kind = kind_of_type(name, column.type, "the table") or "number"
    return Feature(name, kind, vector_width(column) if kind == "vector" else 1)


def _lists(table: Any, place: str) -> tuple[Array, Array, Array]:
    """The order that brings queries together [N], where each begins [Q + 1], and their ids [Q]."""
    if "query_id" not in table.column_names or not len(table):
        queries = np.arange(1 if len(table) else 0)
        return np.arange(len(table)), np.array([0, len(table)][: len(queries) + 1]), queries
    refuse_missing(table, "query_id", place)
    query, ids = encode(table["query_id"])
    order = np.argsort(query, kind="stable")
    return order, np.concatenate([[0], np.cumsum(np.bincount(query))]).astype(np.int64), ids
