"""Deal a Parquet table out into parts by query, block after block: all rows of a query land in one part.

A query's place is a hash of its id as text, so that a log and its features meet again, and so that neither needs
to be known in advance. The first `held` of the hash's range, where asked for, is a part of its own: queries to
validate on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import DataError
from unskew.tables.features.feature_table import blocks, damage_named
from unskew.tables.joining import encode
from unskew.types import Array

BUFFERED = 64 * 2**20
"""Bytes that wait in memory, over all parts."""


def part_of(ids: Any, parts: int, held: float) -> Array:
    """The part of each id [N]: 0 to parts - 1, or `parts` for those held out.

    >>> part_of(pa.array(["7", "8", "7"]), 4, 0.0).tolist() == part_of(pa.array([7, 8, 7]), 4, 0.0).tolist()
    True
    """
    codes, values = encode(ids)
    hashes = [
        hashlib.blake2b(str(value).encode(errors="surrogatepass"), digest_size=6).digest() for value in values
    ]
    share = np.array([int.from_bytes(one, "big") / 2**48 for one in hashes])  # [U] from 0 to 1
    part = np.floor((share - held) / (1 - held) * parts).astype(np.int64)
    return np.where(share < held, parts, part.clip(0, parts - 1))[codes]


def split_table(
    files: Sequence[Path], columns: Sequence[str] | None, out: Path, parts: int, held: float
) -> list[Path | None]:
    """Write part after part of a table to OUT/00000.parquet and so on; None in the place of an empty part."""
    out.mkdir(parents=True)
    names = [out / f"{part:05d}.parquet" for part in range(parts + 1)]
    waiting: list[list[Any]] = [[] for _ in names]
    size = np.zeros(len(names), np.int64)
    writers: dict[int, pq.ParquetWriter] = {}
    full = max(BUFFERED // len(names), 2**16)
    schema = None

    def flush(part: int) -> None:
        if part not in writers:
            # a dictionary takes megabytes in each of many writers, and features hardly repeat
            options = {"compression": "lz4", "use_dictionary": False, "write_statistics": False}
            writers[part] = pq.ParquetWriter(names[part], schema, **options)
        writers[part].write_table(pa.Table.from_batches(waiting[part], schema))
        waiting[part], size[part] = [], 0

    try:
        for path in files:
            for block in blocks(path, None if columns is None else list(columns)):
                batch = decoded(block)
                schema = schema or batch.schema
                batch = _alike(batch, schema, path)
                for part, piece in pieces(batch, part_of(batch["query_id"], parts, held)):
                    waiting[part].append(piece)
                    size[part] += piece.nbytes
                    if size[part] >= full:
                        flush(part)
        for part, left in enumerate(waiting):
            if left:
                flush(part)
    finally:
        for writer in writers.values():
            writer.close()
    return [name if part in writers else None for part, name in enumerate(names)]


def pieces(batch: Any, part: Array) -> Iterator[tuple[int, Any]]:
    """The rows of each part that a batch has, in their order; copied, so that none keeps the whole batch alive."""
    order, sizes = np.argsort(part, kind="stable"), np.bincount(part)
    ends = np.cumsum(sizes)
    for which in np.flatnonzero(sizes).tolist():
        yield which, batch.take(pa.array(order[ends[which] - sizes[which] : ends[which]]))


def decoded(batch: Any) -> Any:
    """The batch without dictionaries, which differ between files."""
    columns = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _alike(batch: Any, schema: Any, path: Path) -> Any:
    if batch.schema.names != schema.names:
        raise DataError("has other columns than the first file", path=path, hint="write all parts alike")
    with damage_named(path):
        return batch.cast(schema)
