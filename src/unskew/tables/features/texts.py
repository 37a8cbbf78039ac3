"""What queries and documents say: query_text, title and abstract, by query_id and doc_id, from Parquet.

The table may be one of texts or of features, with one row for each document of a query, or a log, with one row for
each impression. Where rows disagree the first text in alphabetical order counts. A document says "title abstract";
either may be missing, and a document that says nothing is read as the query alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.errors import DataError
from unskew.files import PathLike
from unskew.names import KEYS, NOT_FEATURES, TEXT
from unskew.settings import require_columns
from unskew.tables.engine.engine import connect
from unskew.tables.engine.parquet import parquet_files, schema_of
from unskew.tables.features.assembly import documents_of
from unskew.tables.features.tables import feature_files
from unskew.tables.frames import TEXT_FILES
from unskew.tables.joins import find_rows
from unskew.tables.schema import refuse_missing, to_array
from unskew.types import Array, Lists, ListTexts

DOCUMENT = TEXT[1:]


def read_texts(paths: PathLike | Sequence[PathLike], *, name: str | None = None) -> Lists:
    """Lists of documents that have texts and no features: every document that a log or a table names.

    >>> import tempfile
    >>> import pyarrow.parquet as pq
    >>> path = Path(tempfile.mkdtemp()) / "texts.parquet"
    >>> rows = {"query_id": [1, 1], "doc_id": ["a", "b"], "query_text": ["wing"] * 2, "title": ["lift", "drag"]}
    >>> pq.write_table(pa.table(rows), path)
    >>> lists = read_texts(path)
    >>> lists.features.shape, lists.texts.query.tolist(), lists.texts.document.tolist()
    ((2, 0), ['wing'], ['lift', 'drag'])
    """
    files = [Path(file) for file in parquet_files(paths)]
    table = _distinct(files).sort_by([(key, "ascending") for key in KEYS])
    documents = documents_of([table], files[:1])
    features = np.zeros((len(table), 0), np.float32)
    lists = Lists(features, **documents.arrays(), name=name or files[0].name)
    return replace(lists, texts=_texts(table, documents.query, np.arange(len(table)), lists))


def with_texts(lists: Lists, paths: PathLike | Sequence[PathLike]) -> Lists:
    """The lists with the texts of a table or a log; every document must be named there."""
    files = [Path(file) for file in parquet_files(paths)]
    table = _distinct(files)
    query, row = find_rows(table, lists)
    known = row >= 0
    missing = len(lists.features) - len(np.unique(row[known]))
    if missing:
        lost = int(np.setdiff1d(np.arange(len(lists.features)), row[known])[0])
        at = int(np.searchsorted(lists.offsets, lost, side="right")) - 1
        example = f"(query {lists.query_ids[at]}, document {lists.document_ids()[lost]})"
        what = f"{missing} of {len(lists.features)} documents of {lists.name} have no text, first {example}"
        raise DataError(what, path=files[0], hint="give a row with query_text, title or abstract for each")
    return replace(lists, texts=_texts(table.filter(pa.array(known)), query[known], row[known], lists))


def has_texts(paths: PathLike | Sequence[PathLike], *, alone: bool = False) -> bool:
    """Whether a Parquet table has columns of text; if `alone`, and none of features."""
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    file, kind = next(iter(feature_files(several[0]).items()))
    columns = set() if kind in TEXT_FILES else {*schema_of(file).names}
    return bool({*TEXT} & columns) and not (alone and columns - {*NOT_FEATURES})


def _distinct(files: Sequence[Path]) -> Any:
    """One row for each document of a query, with its texts, and its label where this is no log."""
    present = schema_of(files[0]).names
    require_columns((*KEYS, "query_text"), present, path=files[0], hint="texts go by query_id and doc_id")
    if not {*DOCUMENT} & {*present}:
        raise DataError("there is neither a title nor an abstract", path=files[0], hint="add one of the columns")
    labelled = "label" in present and "click" not in present  # a log's labels are not for learners
    with connect("duckdb") as engine:
        table = engine.read_parquet([str(file) for file in files])
        told = [column for column in (*TEXT, *(["label"] if labelled else [])) if column in present]
        found = engine.to_arrow(table.group_by(KEYS).agg(**{column: table[column].min() for column in told}))
    if not len(found):
        raise DataError("the table has no rows", path=files[0])
    for key in KEYS:
        refuse_missing(found, key, files[0])
    return found


def _texts(table: Any, query: Array, row: Array, lists: Lists) -> ListTexts:
    def column(name: str) -> Array:
        there = name in table.column_names
        return to_array(table[name].fill_null("")) if there else np.full(len(table), "", object)

    said = [f"{title} {abstract}".strip() for title, abstract in zip(*map(column, DOCUMENT), strict=True)]
    asked, documents = np.full(len(lists), "", object), np.full(len(lists.features), "", object)
    order = np.argsort(column("query_text"), kind="stable")[::-1]  # the first in the alphabet is written last
    asked[query[order]] = column("query_text")[order]
    documents[row] = said
    return ListTexts(asked, documents)
