"""What is put into a store: tables of items as `predict` reads them, windows of clicks as `track` left them.

Both come block after block: features of items lie in a scratch file meanwhile, those of clicks in Parquet.
"""

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import DataError
from unskew.files import scratch_folder
from unskew.names import Names
from unskew.serving.store.store import Rows, StoreHead, item_key, query_key, rows_of
from unskew.tables.engine.engine import connect
from unskew.tables.engine.parquet import parquet_files
from unskew.tables.features.assembly import assemble
from unskew.tables.features.tables import FeatureTable, Notes, alike, open_tables
from unskew.tables.schema import refuse_missing
from unskew.tracking.features import FEATURES, click_features
from unskew.tracking.store import open_tracking
from unskew.types import Array

BLOCK = 4096
"""Rows that are written at once."""


@contextmanager
def items_of(sources: Sequence[Any], names: Names, made: str) -> Iterator[tuple[StoreHead, Rows]]:
    """The features of items that tables have, by doc_id."""
    notes: Notes = []
    tables = open_tables(list(sources), names, notes)
    for table in tables:
        if table.kind != "item":
            hint = "give tables with doc_id and no query_id; features of pairs come with the request"
            raise DataError("has query_id, and a store has features of items", path=table.path, hint=hint)
    with scratch_folder() as folder:
        arrays = assemble(tables, _all_items(tables), notes, folder)
        about = json.loads(arrays["columns"].tobytes())
        for note in notes:
            warnings.warn(note, stacklevel=2)
        ids = arrays["doc_ids"]
        yield (
            StoreHead(len(ids), tuple(about["names"]), about["categories"], made),
            _item_rows(ids, arrays["features"]),
        )


def _all_items(tables: Sequence[FeatureTable]) -> Any:
    heads = [table.heads() for table in tables]
    for table, head in zip(tables, heads, strict=True):
        refuse_missing(head, "doc_id", table.path)
    ids = alike(heads).group_by(["doc_id"]).aggregate([])
    return ids.append_column("query_id", pa.array(np.zeros(len(ids), np.int64)))


def _item_rows(ids: Array, features: Array) -> Rows:
    for first in range(0, len(ids), BLOCK):
        some = slice(first, first + BLOCK)
        yield [item_key(each) for each in ids[some].tolist()], rows_of(features[some])


@contextmanager
def clicks_of(tracked: Path | str, made: str) -> Iterator[tuple[StoreHead, Rows]]:
    """The click features of all pairs that the windows of a tracking store have."""
    store = open_tracking(tracked)
    with scratch_folder() as folder, connect("duckdb") as engine:
        engine.write_parquet(click_features(engine, store), folder / "clicks", partitions=1)
        files = parquet_files(folder / "clicks")
        rows = sum(pq.read_metadata(file).num_rows for file in files)
        windows = store.manifest.windows.items()
        until = {name: datetime.fromtimestamp(each.until * 3600, UTC).isoformat() for name, each in windows}
        yield StoreHead(rows, FEATURES, made=made, until=until), _click_rows(files)


def _click_rows(files: Sequence[str]) -> Rows:
    for file in files:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=BLOCK):
            queries, documents = (batch[name].to_pylist() for name in ("query_id", "doc_id"))
            keys = [query_key(query) + item_key(each) for query, each in zip(queries, documents, strict=True)]
            values = np.column_stack([batch[name].to_numpy(zero_copy_only=False) for name in FEATURES])
            yield keys, rows_of(values)
