"""Write a click log as Parquet, and read it back joined to its lists.

Legend: S pages, N impressions.
"""

import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import DataError, Words
from unskew.files import complete_file
from unskew.names import REQUIRED
from unskew.tables.engine.parquet import impressions_in
from unskew.tables.joins import SAME_LISTS, Missing, encodable, encode, find_rows, join_lists
from unskew.tables.schema import (
    check_pages,
    check_values,
    read_feedback,
    refuse_missing,
    required,
    to_array,
    whole_numbers,
)
from unskew.types import Array, Lists, Log

ROW_GROUP = 1_000_000
"""Impressions in a row group."""
TABLE = "the table"
"""What errors call a table without a name."""
SIMULATED = b"unskew.simulated"
"""The key in a file's metadata that says how its clicks were simulated."""


def write_log(log: Log, path: Path | str, *, row_group: int = ROW_GROUP, simulated: str = "") -> None:
    """Write a log as one Parquet file; the file appears under its name only when it is complete.

    Pages are numbered from 0, unless the log carries a column `page_id`. `simulated` is how it was, where it was;
    the file keeps it.
    """
    kept = {SIMULATED: simulated.encode()} if simulated else None
    with complete_file(Path(path)) as ready:
        tables = log_tables(log, row_group)
        first = next(tables)
        with pq.ParquetWriter(
            ready, first.schema.with_metadata(kept), compression="zstd", write_page_checksum=True
        ) as writer:
            writer.write_table(first, row_group_size=row_group)
            for table in tables:
                writer.write_table(table, row_group_size=row_group)


def simulated_by(path: Path | str) -> str | None:
    """How a log in files was simulated, as far as they tell; None where nothing says that it was."""
    try:
        place = impressions_in(path)
        file = place if place.is_file() else next(iter(sorted(place.rglob("*.parquet"))))
        schema = pq.read_schema(file)
    except (OSError, ValueError, StopIteration):  # not here, or not Parquet
        return None
    told = (schema.metadata or {}).get(SIMULATED)
    if told is not None:
        return str(told, errors="replace")
    true = [name for name in schema.names if name.startswith("true_")]
    return f"it has a column {true[0]}" if true else None


def log_tables(log: Log, rows: int) -> Iterator[pa.Table]:
    """The log as Arrow tables of so many impressions each; one empty table for an empty log."""
    page = np.repeat(np.arange(len(log)), log.sizes)
    queries, documents = encodable(log.lists.query_ids), encodable(log.lists.document_ids())
    for start in range(0, max(len(log.row), 1), rows):
        part = slice(start, start + rows)
        columns = {
            "page_id": pa.array(log.columns.get("page_id", page)[part]),
            "query_id": pick(queries, log.query[page[part]]),
            "doc_id": pick(documents, log.row[part]),
            "position": pa.array(log.position[part], pa.int32()),
            "click": pa.array(log.click[part] > 0).cast(pa.int8()),
        }
        if log.feedback != "click" or log.weighted:  # `click` says then whether there is any
            columns["weight" if log.feedback == "click" else log.feedback] = pa.array(log.click[part])
        if log.randomized is not None:
            columns["randomized"] = pa.array(log.randomized[part])
        others = {name: column for name, column in log.columns.items() if name not in columns}
        # a missing number is NaN in memory and null in a file
        extra = {name: pa.array(column[part], from_pandas=True) for name, column in others.items()}
        yield pa.table(columns | extra)


def hash_arrays(digest: Any, arrays: Iterable[Array]) -> None:
    """Add arrays to a digest of `hashlib`: their shapes, types and values."""
    for each in arrays:
        array = each.astype(str) if each.dtype.kind == "O" else each
        digest.update(f"{array.shape}{array.dtype.str}".encode())
        plain = array.view(np.int64) if array.dtype.kind in "mM" else array  # times have no buffer
        digest.update(np.ascontiguousarray(plain).data)


def pick(ids: Any, rows: Array) -> Any:
    """The ids at these rows, dictionary-encoded where they are strings."""
    taken = ids.take(pa.array(rows))
    return taken.dictionary_encode() if pa.types.is_string(taken.type) else taken


def log_of(table: Any, lists: Lists, feedback: str | None, path: Path | str, hint: Words = SAME_LISTS) -> Log:
    """An Arrow table of impressions under our names, joined to its lists; `path` is what errors name.

    `hint` is what to do where impressions have no features.
    """
    page, names = page_codes(table, path)
    position, click = whole_numbers(table, "position", path), read_feedback(table, feedback, path)
    check_values(position, click, path)
    query, row = join_lists(table, lists, path, hint)
    apart = {*REQUIRED, *required(feedback)}
    extra = {name: to_array(table[name]) for name in table.column_names if name not in apart}
    if names.dtype.kind not in "iu" or not np.array_equal(names, np.arange(len(names))):
        extra["page_id"] = names[page]
    log = in_order(lists, page, query, {"row": row, "position": position, "click": click} | extra, names, path)[0]
    extra = dict(log.columns)
    log = replace(log, randomized=extra.pop("randomized", None), columns=extra, feedback=feedback or "click")
    return log.with_ranks()


def featured(table: Any, lists: Lists, path: Path | str = TABLE) -> Any:
    """The impressions whose document has features; the others are counted, and warned of."""
    query, row = find_rows(table, lists)
    missing = Missing()
    missing.note(table, query, row)
    if not missing.lost:
        return table
    if missing.lost == missing.impressions:
        hint = "query_id and doc_id must be those of the features"
        raise DataError("no impression has features", path=path, hint=hint)
    warnings.warn(f"{path}: {missing}; they were left out", stacklevel=outside())
    return table.filter(pa.array(row >= 0))


def outside() -> int:
    """How many calls up from the caller the first line is that is not ours, for warnings."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith("unskew."):
        depth, frame = depth + 1, frame.f_back
    return depth


def in_order(
    lists: Lists, page: Array, query: Array, columns: dict[str, Array], names: Array, path: Path | str
) -> tuple[Log, Array]:
    """Impressions [N] with the number of their page as a log, sorted by page and position; the pages, sorted.

    `columns` has row, position, click and any others; `names` are the ids of the pages.
    """
    order = reading_order(page, columns["position"])
    if order is not None:
        page, query = page[order], query[order]
        columns = {name: column[order] for name, column in columns.items()}
    starts, position, click = page_starts(page), columns.pop("position"), columns.pop("click")
    check_pages(page, position, query, names, path)
    log = Log(
        lists=lists,
        query=query[starts],
        offsets=np.append(starts, len(page)).astype(np.int64),
        row=columns.pop("row"),
        position=position.astype(np.int16),
        click=click if click.dtype.kind == "f" else click.astype(np.uint8),
        columns=columns,
    )
    return log, page


def page_codes(table: Any, path: Path | str, name: str = "page_id") -> tuple[Array, Array]:
    """A number for each row's page [N], ascending with the page's id, and the ids [S]."""
    refuse_missing(table, name, path)
    column = table[name]
    if pa.types.is_integer(column.type):
        ids = to_array(column)
        if not len(ids) or (ids[1:] >= ids[:-1]).all():
            new = np.concatenate([[False], ids[1:] != ids[:-1]])[: len(ids)]
            return np.cumsum(new), ids[page_starts(ids)]
    codes, names = encode(column)
    order = np.argsort(names, kind="stable")
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    return rank[codes], names[order]


def page_starts(page: Array) -> Array:
    """Index of the first row of each run of equal values."""
    if not len(page):
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.flatnonzero(page[1:] != page[:-1]) + 1])


def reading_order(page: Array, position: Array) -> Array | None:
    """The order by page and position, or None where the rows are in it."""
    change = np.diff(page)
    if (change >= 0).all() and ((np.diff(position.astype(np.int32)) >= 0) | (change > 0)).all():
        return None
    return np.lexsort((position, page))
