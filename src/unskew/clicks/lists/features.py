"""Features by (query_id, doc_id) from Parquet, as lists: one file, several, or a folder of part files.

    query_id, doc_id          string or int
    label                     int from 0, optional, for evaluation only
    anything else             one number per column; or one single column with a list of numbers

Rows may come in any order; documents of a query are brought together in the order in which they appear. The
matrix is written once into the cache (`store.py`) and memory-mapped from there, so it is never whole in memory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unskew.clicks.joining import Missing, encode, find_rows
from unskew.clicks.lists.feature_table import KEYS, Layout, blocks, damage_named, layout_of, table_files
from unskew.clicks.lists.store import parsed_files
from unskew.clicks.lists.svmlight import HIGHEST_GRADE
from unskew.clicks.schema import refuse_missing, to_array
from unskew.disk import PathLike
from unskew.errors import DataError
from unskew.types import Array, Columns, Lists

LONGEST_ID = 1000


def read_features(
    path_or_paths: PathLike | Sequence[PathLike], *, cache: bool | PathLike = True, name: str | None = None
) -> Lists:
    """Read lists from a Parquet table of features by query_id and doc_id.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "features.parquet"
    >>> pq.write_table(pa.table({"query_id": ["b", "a", "b"], "doc_id": [1, 1, 2], "bm25": [3.0, 1.0, 2.0]}), path)
    >>> lists = read_features(path, cache=False)
    >>> lists.query_ids.tolist(), lists.offsets.tolist(), lists.features.tolist()
    (['b', 'a'], [0, 2, 3], [[3.0], [2.0], [1.0]])
    """
    files = table_files(path_or_paths)
    write = partial(write_arrays, files, layout_of(files))
    arrays: dict[str, Any] = parsed_files(files, {"kind": "features", "names": True}, cache, write)
    return lists_of(arrays, name or files[0].name)


def lists_of(arrays: dict[str, Any], name: str) -> Lists:
    """The lists that `write_arrays` wrote."""
    about = json.loads(arrays.pop("columns").tobytes())
    categories = {each: tuple(values) for each, values in about["categories"].items()}
    return Lists(**arrays, name=name, columns=Columns(tuple(about["names"]), categories))


# ---- from files to arrays ----


def write_arrays(files: Sequence[Path], layout: Layout, folder: Path) -> None:
    """Write the arrays of `Lists` into a folder, the matrix block after block."""
    wanted = [*KEYS, *(["label"] if layout.labelled else [])]
    with damage_named(files[0]):
        heads = pa.concat_tables(
            [pq.read_table(path, columns=wanted) for path in files], promote_options="permissive"
        )
    if not len(heads):
        raise DataError("the table has no rows", path=files[0])
    for key in KEYS:
        refuse_missing(heads, key, files[0])
    query, query_ids = encode(heads["query_id"])
    doc_ids = _plain_ids(heads["doc_id"])
    _refuse_twins(query, heads, files[0])
    order = None if (np.diff(query) >= 0).all() else np.argsort(query, kind="stable")
    place = None if order is None else np.argsort(order, kind="stable")  # [N] where each row of the files goes
    labels = _labels(heads, files[0]) if layout.labelled else np.zeros(len(heads), np.int16)
    columns = {
        "offsets": np.concatenate([[0], np.cumsum(np.bincount(query))]).astype(np.int64),
        "query_ids": _plain_ids(pa.array(query_ids)),
        "doc_ids": doc_ids if order is None else doc_ids[order],
        "labels": labels if order is None else labels[order],
    }
    del heads
    for column, values in columns.items():
        np.save(folder / f"{column}.npy", values, allow_pickle=False)
    width = _write_matrix(files, layout, folder / "features.npy", len(labels), place)
    single = [f"{layout.columns[0]}[{at}]" for at in range(width)]
    about = {"names": single if layout.single else list(layout.columns), "categories": {}}
    np.save(folder / "columns.npy", np.frombuffer(json.dumps(about).encode(), np.uint8))


def _write_matrix(files: Sequence[Path], layout: Layout, out: Path, rows: int, place: Array | None) -> int:
    matrix, start = None, 0
    for path in files:
        row = 0
        for batch in blocks(path, list(layout.columns)):
            values = _values(batch, layout, path, row)
            if matrix is None:
                matrix = np.lib.format.open_memmap(out, "w+", np.float32, (rows, values.shape[1]))
            if values.shape[1] != matrix.shape[1]:
                what = f"lists of {values.shape[1]} numbers, where those before have {matrix.shape[1]}"
                raise DataError(what, path=path, line=row, hint="make them of equal length")
            span = slice(start, start + len(values))
            matrix[span if place is None else place[span]] = values
            start, row = start + len(values), row + len(values)
    assert matrix is not None
    matrix.flush()
    return int(matrix.shape[1])


def _values(batch: Any, layout: Layout, path: Path, first: int) -> Array:
    """[n, D] float32, all of them finite."""
    if layout.single:
        column = batch.column(0)
        lengths = np.diff(pc.list_value_length(column).fill_null(-1).to_numpy(zero_copy_only=False), prepend=0)
        width = int(lengths[0])
        if width < 1 or lengths[1:].any():
            row = first + (int(np.flatnonzero(lengths[1:])[0]) + 1 if width >= 1 else 0)
            raise DataError("list is missing, empty or of another length", path=path, line=row)
        values = _floats(pc.list_flatten(column)).reshape(len(batch), width)
    else:
        values = np.column_stack([_floats(column) for column in batch.columns])
    broken = ~np.isfinite(values)
    if broken.any():
        row, feature = np.argwhere(broken)[0]
        name = f"{layout.columns[0]}[{feature}]" if layout.single else layout.columns[feature]
        hint = "fill missing values, and keep within 32-bit floats"
        raise DataError(f"row {first + row}: {name} is missing or not finite", path=path, hint=hint)
    return values


def _floats(column: Any) -> Array:
    column = column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column
    with np.errstate(over="ignore", invalid="ignore"):
        values: Array = column.to_numpy(zero_copy_only=False).astype(np.float32)
    return values


def _plain_ids(column: Any) -> Array:
    """Ids as integers or as strings of fixed width."""
    values = to_array(column)
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    longest = max((len(value) for value in values), default=0)
    if longest > LONGEST_ID:
        raise DataError(f"an id has {longest:,} characters", hint=f"ids have up to {LONGEST_ID:,}")
    return values.astype(np.str_)


def _labels(heads: Any, path: Path) -> Array:
    values = to_array(heads["label"])
    if values.dtype.kind not in "iuf" or not ((values >= 0) & (values <= HIGHEST_GRADE) & (values % 1 == 0)).all():
        raise DataError("a label is not a whole number from 0", path=path, hint="map the grades to 0, 1, 2, ...")
    return values.astype(np.int16)


def _refuse_twins(query: Array, heads: Any, path: Path) -> None:
    """One row for each document of a query."""
    document, _ = encode(heads["doc_id"])
    pair = query.astype(np.int64) * (int(document.max()) + 1) + document
    found, first, times = np.unique(pair, return_index=True, return_counts=True)
    if len(found) < len(pair):
        twice = int(first[times > 1].min())
        example = f"query {heads['query_id'][twice].as_py()}, document {heads['doc_id'][twice].as_py()}"
        raise DataError(
            f"{len(pair) - len(found)} rows repeat a document of their query, first {example}",
            path=path,
            hint="keep one row for each query_id and doc_id",
        )


def keep_featured(log: Path, lists: Lists, out: Path, missing: Missing) -> Path:
    """The log itself where every impression has features; else a copy of those that have, written to `out`."""
    table = pq.read_table(log)
    query, row = find_rows(table, lists)
    missing.note(table, query, row)
    if (row >= 0).all():
        return log
    pq.write_table(table.filter(pa.array(row >= 0)), out)
    return out
