"""Documents of equal features: what they get at two ranks differs by the ranks alone, as with one document.

Where features belong to a query and a document, equal ones are equal whatever the query (M. Chen et al.,
"Identifiability matters", ICML 2024: a method that sees features only cannot tell them apart). Where they belong
to a document, equal documents are equal for one query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from unskew.errors import ConfigError, DataError
from unskew.tables.frames import arrow_table, is_frame
from unskew.types import Array, Lists

if TYPE_CHECKING:
    from ibis.expr.types import Table

    from unskew.tables.engine.engine import Engine


@dataclass(frozen=True)
class EqualDocuments:
    """Which documents are equal, as a table: doc_id, `equal` (a number), and query_id where it has a say."""

    table: Any

    @property
    def by_query(self) -> bool:
        """Whether features belong to a query and a document."""
        return "query_id" in self.table.column_names

    def merge(self, engine: Engine, cells: Table) -> Table:
        """Cells in which equal documents have one name; documents without features keep theirs.

        Equal ones of several queries are a query of their own: nothing but their features tells of them.
        """
        import ibis

        keys = ["query_id", "doc_id"] if self.by_query else ["doc_id"]
        named: Any = cells.mutate(query_id=cells.query_id.cast("string"), doc_id=cells.doc_id.cast("string"))
        joined: Any = named.left_join(engine.from_arrow(self.table), keys)
        known, name = joined["equal"].notnull(), ibis.literal("equal ") + joined["equal"].cast("string")
        renamed = {"doc_id": ibis.ifelse(known, name, ibis.literal("document ") + joined.doc_id)}
        if self.by_query:
            renamed["query_id"] = ibis.ifelse(known, name, ibis.literal("query ") + joined.query_id)
        merged: Table = joined.mutate(**renamed).select(*cells.columns)
        return merged


def equal_documents(features: Any) -> EqualDocuments:
    """Which documents are equal, from lists, from a mapping to whatever is equal, or from a table of features.

    A mapping goes from doc_id, or (query_id, doc_id), to a key; a table has doc_id, perhaps query_id, and columns
    that are equal where documents are.

    >>> equal_documents({"a": "red", "b": "blue", "c": "red"}).table["equal"].to_pylist()
    [1, 0, 1]
    """
    if isinstance(features, EqualDocuments):
        return features
    if isinstance(features, Lists):
        query = features.query_ids.repeat(np.diff(features.offsets))
        return _made(features.document_ids(), _equal_rows(features.features), query)
    if isinstance(features, Mapping) and "doc_id" not in features:
        pairs = list(features)
        codes = _codes(pa.array([str(key) for key in features.values()]))
        if not all(isinstance(pair, tuple) for pair in pairs):
            return _made(pairs, codes)
        return _made([pair[1] for pair in pairs], codes, [pair[0] for pair in pairs])
    if not is_frame(features):
        hint = "give lists, a table with doc_id, or a mapping from doc_id or (query_id, doc_id)"
        raise ConfigError(f"features: cannot tell equal documents from {type(features).__name__}; {hint}")
    return _of_table(arrow_table(features))


def _of_table(table: Any) -> EqualDocuments:
    """Equal where all columns but the ids are."""
    names = [name for name in table.column_names if name not in ("query_id", "doc_id")]
    if "doc_id" not in table.column_names or not names:
        raise DataError("the features need doc_id and at least one more column", hint="query_id is optional")
    codes = np.stack([_codes(table[name]) for name in names], axis=1)
    query = table["query_id"].to_pylist() if "query_id" in table.column_names else None
    return _made(table["doc_id"].to_pylist(), _equal_rows(codes), query)


def _codes(column: Any) -> Array:
    """A number for each value, by ascending value as text; a missing one is a value too."""
    codes: Array = np.unique(np.asarray([str(value) for value in column.to_pylist()]), return_inverse=True)[1]
    return codes


def _equal_rows(values: Array) -> Array:
    """A number for each row of a matrix [N, D], equal for equal rows; missing numbers are equal."""
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), np.nan, values) + 0.0  # one NaN, and no -0
    rows = np.ascontiguousarray(values)
    if not rows.shape[1]:
        return np.zeros(len(rows), np.int64)
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    return np.unique(whole, return_inverse=True)[1].astype(np.int64)


def _made(documents: Any, codes: Array, queries: Any = None) -> EqualDocuments:
    """The table, each document once."""
    ids = {} if queries is None else {"query_id": pa.array([str(one) for one in queries], pa.string())}
    ids["doc_id"] = pa.array([str(one) for one in documents], pa.string())
    table = pa.table({**ids, "equal": pa.array(np.asarray(codes, np.int64))})
    once = table.group_by(list(ids)).aggregate([("equal", "min"), ("equal", "max")])
    several = int((once["equal_min"].to_numpy() != once["equal_max"].to_numpy()).sum())
    if several:
        raise DataError(f"{several:,} documents have features twice that differ", hint="keep one row of each")
    return EqualDocuments(once.select([*ids, "equal_min"]).rename_columns([*ids, "equal"]))
