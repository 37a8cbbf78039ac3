"""Documents of equal features: what they get at two ranks differs by the ranks alone, as with one document.

Equal features are equal whatever the query (M. Chen et al., "Identifiability matters", ICML 2024: a method that
sees features only cannot tell them apart).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from unskew.types import Lists

if TYPE_CHECKING:
    from ibis.expr.types import Table

    from unskew.tables.engine.engine import Engine


def equal_documents(lists: Lists) -> pa.Table:
    """Which documents are equal: query_id, doc_id and `equal`, a number that equal ones share; NaN equals NaN."""
    rows = np.ascontiguousarray(np.where(np.isnan(lists.features), np.nan, lists.features) + 0.0)  # and no -0
    whole = np.dtype((np.void, max(rows.dtype.itemsize * rows.shape[1], 1)))
    codes = np.unique(rows.view(whole).ravel(), return_inverse=True)[1] if rows.size else np.zeros(len(rows))
    query = lists.query_ids.repeat(np.diff(lists.offsets))
    ids = {"query_id": query, "doc_id": lists.document_ids()}
    named = {name: pa.array([str(one) for one in values], pa.string()) for name, values in ids.items()}
    return pa.table({**named, "equal": pa.array(codes.astype(np.int64))})


def merged(engine: Engine, cells: Table, equal: pa.Table) -> Table:
    """Cells in which equal documents have one name; documents without features keep theirs.

    Equal ones of several queries are a query of their own: nothing but their features tells of them.
    """
    import ibis

    named: Any = cells.mutate(query_id=cells.query_id.cast("string"), doc_id=cells.doc_id.cast("string"))
    joined: Any = named.left_join(engine.from_arrow(equal), ["query_id", "doc_id"])
    known, name = joined["equal"].notnull(), ibis.literal("equal ") + joined["equal"].cast("string")
    renamed = {
        "doc_id": ibis.ifelse(known, name, ibis.literal("document ") + joined.doc_id),
        "query_id": ibis.ifelse(known, name, ibis.literal("query ") + joined.query_id),
    }
    found: Table = joined.mutate(**renamed).select(*cells.columns)
    return found
