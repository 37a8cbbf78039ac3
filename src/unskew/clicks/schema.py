"""The impressions table, one row per result shown: what its columns are, how it is written and read.

Legend: S sessions, N impressions.

A log on disk names queries and documents; in memory an impression points at a row of the feature matrix. Reading
joins the two, vectorised. The column `label` may be in a file; it is never read here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unskew.errors import DataError
from unskew.types import Array, Lists, Log

REQUIRED = {
    "session_id": "string or int, one visit to one result page",
    "query_id": "string or int, as in the lists",
    "doc_id": "string or int, as in the lists",
    "position": "int, the rank shown, from 1",
    "click": "0 or 1",
}
"""Columns that every log has."""

OPTIONAL = {
    "timestamp": "timestamp (UTC), for tracking and for splits by time",
    "display_time": "float, seconds in view",
    "dwell_time": "float, seconds on the document after a click",
    "randomized": "bool, true where the slot was filled at random",
    "propensity": "float, examination probability known by design",
    "policy_id": "string, which ranker ordered the page",
    "logging_score": "float, what it was ordered by",
    "query_text": "string, for text rankers",
    "title": "string, for text rankers",
    "abstract": "string, for text rankers",
    "label": "int, for evaluation only; never read into a log",
}
"""Columns that mean something where they are present; serp_* and any other column are carried along."""

ROW_GROUP = 1_000_000
"""Impressions in a row group."""


# ---- writing ----


def write_log(log: Log, path: Path | str, *, row_group: int = ROW_GROUP) -> None:
    """Write a log as one Parquet file; the file appears under its name only when it is complete.

    Sessions are numbered from 0, unless the log carries a column `session_id`.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise DataError("the folder does not exist", path=path.parent, hint="create it first")
    ready = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        tables = log_tables(log, row_group)
        first = next(tables)
        with pq.ParquetWriter(ready, first.schema, compression="zstd") as writer:
            writer.write_table(first, row_group_size=row_group)
            for table in tables:
                writer.write_table(table, row_group_size=row_group)
        ready.replace(path)
    finally:
        ready.unlink(missing_ok=True)


def log_tables(log: Log, rows: int) -> Iterator[pa.Table]:
    """The log as Arrow tables of so many impressions each; one empty table for an empty log."""
    session = np.repeat(np.arange(len(log)), log.sizes)
    queries, documents = encodable(log.lists.query_ids), encodable(log.lists.document_ids())
    for start in range(0, max(len(log.row), 1), rows):
        part = slice(start, start + rows)
        columns = {
            "session_id": pa.array(log.columns.get("session_id", session)[part]),
            "query_id": pick(queries, log.query[session[part]]),
            "doc_id": pick(documents, log.row[part]),
            "position": pa.array(log.position[part], pa.int32()),
            "click": pa.array(log.click[part], pa.int8()),
        }
        if log.randomized is not None:
            columns["randomized"] = pa.array(log.randomized[part])
        extra = {name: pa.array(column[part]) for name, column in log.columns.items() if name not in columns}
        yield pa.table(columns | extra)


def encodable(ids: Array) -> Any:
    """Ids as an Arrow array."""
    return pa.array(ids if ids.dtype.kind in "iu" else ids.astype(object))


def pick(ids: Any, rows: Array) -> Any:
    """The ids at these rows, dictionary-encoded where they are strings."""
    taken = ids.take(pa.array(rows))
    return taken.dictionary_encode() if pa.types.is_string(taken.type) else taken


# ---- reading ----


def read_log(path: Path | str, lists: Lists, *, columns: Sequence[str] | None = None) -> Log:
    """Read a log from a Parquet file, or from a folder of them, and join it to its lists.

    `columns` names the further columns to keep; None keeps all. Impressions are sorted by session and position
    where they are not already. Session ids other than 0, 1, 2, ... are kept as the column `session_id`.
    """
    table = open_table(Path(path), columns)
    session, names = session_codes(table, path)
    position, click = whole_numbers(table, "position", path), whole_numbers(table, "click", path)
    check_values(position, click, path)
    query, row = join_lists(table, lists, path)
    extra = {name: to_array(table[name]) for name in table.column_names if name not in REQUIRED}
    if not plain_numbers(names):
        extra["session_id"] = names[session]
    order = reading_order(session, position)
    if order is not None:
        session, position, click, query, row = (part[order] for part in (session, position, click, query, row))
        extra = {name: part[order] for name, part in extra.items()}
    starts = session_starts(session)
    check_sessions(session, position, query, starts, names, path)
    return Log(
        lists=lists,
        query=query[starts],
        offsets=np.append(starts, len(row)).astype(np.int64),
        row=row,
        position=position.astype(np.int16),
        click=click.astype(np.uint8),
        randomized=extra.pop("randomized", None),
        columns=extra,
    )


def open_table(path: Path, columns: Sequence[str] | None) -> Any:
    """The wanted columns of the file, never `label`, after a check that the required ones are there."""
    if not path.exists():
        raise DataError("there is no such log", path=path, hint="write one with write_log, or check the name")
    try:
        present = pq.read_schema(path).names if path.is_file() else pq.ParquetDataset(path).schema.names
    except (pa.ArrowInvalid, OSError, IndexError) as error:
        raise DataError(f"not a Parquet file ({error})", path=path, hint="a log is read from Parquet") from error
    missing = [name for name in [*REQUIRED, *(columns or ())] if name not in present]
    if missing:
        further = [name for name in present if name not in REQUIRED]
        raise DataError(
            f"missing columns: {', '.join(missing)}; further columns: {', '.join(further) or 'none'}",
            path=path,
            hint="rename or add the missing columns",
        )
    wanted = present if columns is None else [*REQUIRED, "randomized", *columns]
    return pq.read_table(path, columns=[name for name in present if name in wanted and name != "label"])


def to_array(column: Any) -> Array:
    """A column as numpy: numbers and times as such, strings as objects, missing numbers as NaN."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    values: Array = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else column.to_numpy()
    return values


def refuse_missing(table: Any, name: str, path: Path | str) -> None:
    """A required column has no empty cells."""
    empty = table[name].null_count
    if empty:
        raise DataError(f"{empty} of {len(table)} rows have no {name}", path=path, hint="remove or repair them")


def whole_numbers(table: Any, name: str, path: Path | str) -> Array:
    """A required column of whole numbers, [N]; booleans and floats without a fraction will do."""
    refuse_missing(table, name, path)
    values = to_array(table[name])
    if values.dtype.kind == "b":
        return values.astype(np.uint8)
    if values.dtype.kind == "f":
        broken = values != np.rint(values)
        if not broken.any():
            return values.astype(np.int64)
        raise DataError(f"{name} {values[broken][0]} is not a whole number", path=path, hint="round or repair it")
    if values.dtype.kind not in "iu":
        raise DataError(f"{name} is of type {table[name].type}", path=path, hint=f"make it {REQUIRED[name]}")
    return values


def check_values(position: Array, click: Array, path: Path | str) -> None:
    """Positions count from 1 and clicks are 0 or 1."""
    if len(click) and (click.min() < 0 or click.max() > 1):
        wrong = np.flatnonzero((click < 0) | (click > 1))
        raise DataError(
            f"{len(wrong)} rows have a click that is not 0 or 1, first row {wrong[0]} with {click[wrong[0]]}",
            path=path,
            hint="one row is one impression; turn counts into 1",
        )
    if len(position) and (position.min() < 1 or position.max() > np.iinfo(np.int16).max):
        wrong = np.flatnonzero((position < 1) | (position > np.iinfo(np.int16).max))
        raise DataError(
            f"{len(wrong)} rows have a position below 1 or above 32767, first row {wrong[0]} with "
            f"{position[wrong[0]]}",
            path=path,
            hint="positions are ranks from 1; add 1 if they count from 0",
        )


# ---- sessions ----


def session_codes(table: Any, path: Path | str) -> tuple[Array, Array]:
    """A number for each row's session [N], ascending with the session's id, and the ids [S]."""
    refuse_missing(table, "session_id", path)
    column = table["session_id"]
    if pa.types.is_integer(column.type):
        ids = to_array(column)
        if not len(ids) or (ids[1:] >= ids[:-1]).all():
            new = np.concatenate([[False], ids[1:] != ids[:-1]])[: len(ids)]
            return np.cumsum(new), ids[session_starts(ids)]
    codes, names = encode(column)
    order = np.argsort(names, kind="stable")
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    return rank[codes], names[order]


def encode(column: Any) -> tuple[Array, Array]:
    """Codes [N] and the distinct values [U] of a column."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    whole = pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
    if not pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_encode()
    return to_array(whole.indices), to_array(whole.dictionary)


def plain_numbers(names: Array) -> bool:
    """Whether the ids are 0, 1, 2, ..."""
    return names.dtype.kind in "iu" and np.array_equal(names, np.arange(len(names)))


def session_starts(session: Array) -> Array:
    """Index of the first row of each run of equal values."""
    if not len(session):
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.flatnonzero(session[1:] != session[:-1]) + 1])


def reading_order(session: Array, position: Array) -> Array | None:
    """The order by session and position, or None where the rows are in it."""
    change = np.diff(session)
    if (change >= 0).all() and ((np.diff(position.astype(np.int32)) >= 0) | (change > 0)).all():
        return None
    return np.lexsort((position, session))


def check_sessions(
    session: Array, position: Array, query: Array, starts: Array, names: Array, path: Path | str
) -> None:
    """A session has one query, and one document at each position; rows are sorted here."""
    twice = np.flatnonzero((session[1:] == session[:-1]) & (position[1:] == position[:-1]))
    if len(twice):
        at = twice[0]
        raise DataError(
            f"{len(twice)} positions are taken twice, first {position[at]} in session {names[session[at]]}",
            path=path,
            hint="keep one document per position, or give each page its own session_id",
        )
    several = np.flatnonzero(query[1:] != query[:-1])
    several = several[session[several + 1] == session[several]]
    if len(several):
        raise DataError(
            f"{len(np.unique(session[several]))} sessions have more than one query, first session "
            f"{names[session[several[0]]]}",
            path=path,
            hint="give each result page its own session_id",
        )


# ---- joining ----


def join_lists(table: Any, lists: Lists, path: Path | str) -> tuple[Array, Array]:
    """Index of the query and row of the document for every impression, [N] int64 each."""
    for name in ("query_id", "doc_id"):
        refuse_missing(table, name, path)
    if len(np.unique(lists.query_ids)) != len(lists):
        raise DataError(
            "two queries have one id, so a log cannot be joined",
            path=lists.name,
            hint="make the query ids of the lists distinct",
        )
    query = match(table["query_id"], lists.query_ids)
    row = positional_rows(table, lists, query) if lists.doc_ids is None else named_rows(table, lists, query)
    if (row < 0).any():
        raise DataError(unmatched(table, query, row), path=path, hint="give the lists that this log was made with")
    return query, row


def match(column: Any, ids: Array) -> Array:
    """Index of each value among the distinct ids, [N] int64, -1 for none; 7 and "7" are the same id."""
    if pa.types.is_integer(column.type) and ids.dtype.kind in "iu":
        return whole_match(to_array(column).astype(np.int64, copy=False), ids)
    codes, values = encode(column)
    texts = [encodable(side).cast(pa.string()) for side in (values, ids)]
    found: Array = pc.index_in(texts[0], value_set=texts[1]).fill_null(-1).to_numpy(zero_copy_only=False)
    return found.astype(np.int64)[codes]


def whole_match(values: Array, ids: Array) -> Array:
    """Index of each integer among the distinct ids, [N] int64, -1 for none; by table where they lie close."""
    low, high = (int(ids.min()), int(ids.max())) if len(ids) else (0, -1)
    if high - low > 4 * len(ids) + 1_000_000:
        found = pc.index_in(pa.array(values), value_set=pa.array(ids, pa.int64())).fill_null(-1)
        return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)
    table = np.full(high - low + 2, -1, np.int64)  # the last entry stands for everything outside
    table[ids - low] = np.arange(len(ids))
    result: Array = table[np.where((values >= low) & (values <= high), values - low, high - low + 1)]
    return result


def positional_rows(table: Any, lists: Lists, query: Array) -> Array:
    """Rows of documents whose id is their index in the list; -1 where there is none."""
    longest = int(lists.sizes.max(initial=0))
    if pa.types.is_integer(table["doc_id"].type):
        index = to_array(table["doc_id"])
    else:
        index = match(table["doc_id"], np.arange(longest))
    known = (query >= 0) & (index >= 0)
    known &= index < lists.sizes[query]
    rows: Array = np.where(known, lists.offsets[query] + index, -1)
    return rows


def named_rows(table: Any, lists: Lists, query: Array) -> Array:
    """Rows of documents by (query, document id); -1 where there is none."""
    assert lists.doc_ids is not None
    codes, names = encode(encodable(lists.doc_ids))
    document = match(table["doc_id"], names)
    of_row = np.repeat(np.arange(len(lists)), lists.sizes) * len(names) + codes
    wanted = np.where((query >= 0) & (document >= 0), query * len(names) + document, -1)
    found: Array = pc.index_in(pa.array(wanted), value_set=pa.array(of_row)).fill_null(-1).to_numpy()
    return found.astype(np.int64)


def unmatched(table: Any, query: Array, row: Array) -> str:
    """What could not be joined: how many impressions, how many queries, and the first examples."""
    lost = np.flatnonzero(row < 0)
    examples = [
        f"(query {table['query_id'][int(at)].as_py()}, document {table['doc_id'][int(at)].as_py()})"
        for at in lost[:3]
    ]
    return (
        f"{len(lost)} of {len(row)} impressions have no features ({int((query < 0).sum())} of them of unknown "
        f"queries), first {', '.join(examples)}"
    )
