"""Labels of a log's documents, where somebody has judged some: its column `label`, or a file of them.

They serve the click matrix alone. Nothing is learned from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.errors import DataError
from unskew.names import NO_NAMES, Names
from unskew.settings import require_columns
from unskew.tables.features.tables import is_table
from unskew.tables.frames import arrow_table
from unskew.tables.joins import encodable
from unskew.tables.lists.letor import read_letor
from unskew.types import Lists

if TYPE_CHECKING:
    from ibis.expr.types import Table

    from unskew.diagnosis.evidence.tables import LogTables

LABEL = "label"
PAIR = ("query_id", "doc_id")


def read_labels(tables: LogTables, source: Any = None, names: Names = NO_NAMES) -> Table | None:
    """The label of every query and document that has one: query_id, doc_id, label as text.

    `source` is a table or file of these columns, a LETOR file, or lists; without it they are those of the log,
    or None.
    """
    shown: Any = tables.impressions
    if source is None:
        if LABEL not in shown.columns:
            return None
        given = shown.filter(shown[LABEL].notnull())
        return given.group_by(PAIR).agg(label=given[LABEL].max())
    place = str(source) if isinstance(source, str | Path) else "labels"
    table: Any = tables.engine.from_arrow(_as_table(source, names, place))
    kinds = {name: shown[name].type() for name in PAIR}
    table = table.select(**{name: table[name].try_cast(kind) for name, kind in kinds.items()}, label=table[LABEL])
    table = table.filter(table.query_id.notnull() & table.doc_id.notnull() & table[LABEL].notnull())
    found = table.group_by(PAIR).agg(label=table[LABEL].max())
    if not tables.engine.count(tables.cells.semi_join(found, PAIR)):
        hint = "query_id and doc_id must be those of the log"
        raise DataError("has no label of a document that the log shows", path=place, hint=hint)
    return tables.engine.keep(found)


def _as_table(source: Any, names: Names, place: str) -> Any:
    """Labels from wherever they are, as Arrow: query_id, doc_id, label as text, grades such as 2.0 as 2."""
    if isinstance(source, str | Path) and not is_table(source):
        source = read_letor(source)
    if isinstance(source, Lists):
        ids = encodable(source.query_ids).take(pa.array(np.repeat(np.arange(len(source)), source.sizes)))
        table = pa.table({"query_id": ids, "doc_id": encodable(source.document_ids()), LABEL: source.labels})
    else:
        table = arrow_table(source)
        table = arrow_table(table, names.within(table.column_names))
        require_columns([*PAIR, LABEL], table.column_names, path=place)
    label = table[LABEL]
    if pa.types.is_floating(label.type) and pc.all(pc.equal(label, pc.round(label))).as_py():
        label = label.cast(pa.int64())
    return pa.table({**{name: table[name] for name in PAIR}, LABEL: label.cast(pa.string())})
