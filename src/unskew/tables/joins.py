"""Join a table of impressions to lists: from query and document ids to rows of the feature matrix, vectorised.

Legend: N impressions, U distinct values.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.errors import DataError, Words
from unskew.tables.schema import refuse_missing, to_array
from unskew.types import Array, Lists

SAME_LISTS = "give the lists that this log was made with"


def join_lists(table: Any, lists: Lists, path: Path | str, hint: Words = SAME_LISTS) -> tuple[Array, Array]:
    """Index of the query and row of the document for every impression, [N] int64 each."""
    for name in ("query_id", "doc_id"):
        refuse_missing(table, name, path)
    if len(np.unique(lists.query_ids)) != len(lists):
        raise DataError(
            "two queries have one id, so a log cannot be joined",
            path=lists.name,
            hint="make the query ids of the lists distinct",
        )
    query, row = find_rows(table, lists)
    if (row < 0).any():
        missing = Missing()
        missing.note(table, query, row)
        raise DataError(str(missing), path=path, hint=hint)
    return query, row


def find_rows(table: Any, lists: Lists) -> tuple[Array, Array]:
    """As `join_lists`, with -1 where there is no such query or document."""
    query = match(table["query_id"], lists.query_ids)
    if lists.doc_ids is None:  # an id is the index in its list
        index = match(table["doc_id"], np.arange(int(lists.sizes.max(initial=0))))
        known = (query >= 0) & (index >= 0) & (index < lists.sizes[query])
        return query, np.where(known, lists.offsets[query] + index, -1)
    codes, names = encode(encodable(lists.doc_ids))
    document = match(table["doc_id"], names)
    of_row = np.repeat(np.arange(len(lists)), lists.sizes) * len(names) + codes
    wanted = np.where((query >= 0) & (document >= 0), query * len(names) + document, -1)
    return query, _places(pa.array(wanted), pa.array(of_row))


def match(column: Any, ids: Array) -> Array:
    """Index of each value among the distinct ids, [N] int64, -1 for none; 7 and "7" are the same id."""
    if not (pa.types.is_integer(column.type) and ids.dtype.kind in "iu"):
        codes, values = encode(column)
        return _places(*(encodable(side).cast(pa.string()) for side in (values, ids)))[codes]
    values = to_array(column).astype(np.int64, copy=False)
    low, high = (int(ids.min()), int(ids.max())) if len(ids) else (0, -1)
    if high - low > 4 * len(ids) + 1_000_000:
        return _places(pa.array(values), pa.array(ids, pa.int64()))
    table = np.full(high - low + 2, -1, np.int64)  # ids lie close; the last entry stands for everything outside
    table[ids - low] = np.arange(len(ids))
    return table[np.where((values >= low) & (values <= high), values - low, high - low + 1)]


def _places(values: Any, among: Any) -> Array:
    """Index of each value of an Arrow array among others, [N] int64, -1 for none."""
    found: Array = pc.index_in(values, value_set=among).fill_null(-1).to_numpy(zero_copy_only=False)
    return found.astype(np.int64)


@dataclass
class Missing:
    """Impressions without features, counted."""

    impressions: int = 0
    lost: int = 0
    unknown_queries: int = 0
    """Those among the lost whose query has no features at all."""
    examples: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.lost} of {self.impressions} impressions have no features ({self.unknown_queries} of them of "
            f"unknown queries), first {', '.join(self.examples)}"
        )

    def note(self, table: Any, query: Array, row: Array) -> None:
        """Count a log or counts whose query and feature row are known, -1 for none."""
        lost = np.flatnonzero(row < 0)
        shown = to_array(table["impressions"]) if "impressions" in table.column_names else np.ones(len(row), int)
        self.impressions += int(shown.sum())
        self.lost += int(shown[lost].sum())
        self.unknown_queries += int(shown[query < 0].sum())
        for at in lost[: 3 - len(self.examples)].tolist():
            self.examples.append(
                f"(query {table['query_id'][at].as_py()}, document {table['doc_id'][at].as_py()})"
            )


def encode(column: Any) -> tuple[Array, Array]:
    """Codes [N] and the distinct values [U] of a column."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    whole = pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
    if not pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_encode()
    return to_array(whole.indices), to_array(whole.dictionary)


def encodable(ids: Array) -> Any:
    """Ids as an Arrow array, of strings or whole numbers."""
    return pa.array(ids if ids.dtype.kind in "iu" else ids.astype(object))
