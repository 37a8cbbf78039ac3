"""A window as estimators take it, batch after batch of whole pairs, so that it may be larger than memory.

Legend: R rows (a query, document and position each), P pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.tracking.estimators import Tallies
from unskew.tracking.sums import MILLI
from unskew.types import Array

ROWS = 2**18
"""Of a batch, and of a pair that lies across its end."""


@dataclass(frozen=True)
class Batch:
    """Some pairs of a window that is sorted by query and document."""

    rows: pa.Table
    starts: Array
    """[P] where each pair begins."""

    def column(self, name: str) -> Array:
        """A column of the rows, [R]."""
        values: Array = self.rows[name].to_numpy(zero_copy_only=False)
        return values

    def ids(self, name: str) -> pa.ChunkedArray:
        """query_id or doc_id of every pair, [P]."""
        return self.rows[name].take(pa.array(self.starts))

    def imputation(self) -> Array:
        """What was imputed to every pair, [P]; NaN where nothing was."""
        return self.column("imputation")[self.starts].astype(float)

    def tallies(self, kind: Literal["", "random_"] = "") -> Tallies:
        """The sums; `random_` is those of random slots alone, without ê."""
        rows = len(self.rows)
        pair = np.zeros(rows, np.int64)
        pair[self.starts[1:]] = 1
        n, c = (self.column(f"{kind}{name}").astype(float) for name in ("displays", "clicks"))
        seen = np.zeros(rows) if kind else self.column("estimated").astype(float)
        e, ee, ce = (
            np.zeros(rows) if kind else self.column(name) / scale
            for name, scale in (("examined", MILLI), ("examined_squared", MILLI**2), ("examined_clicks", MILLI))
        )
        position = np.maximum(self.column("position").astype(np.int64), 1)
        return Tallies(np.cumsum(pair), position, n, c, seen, e, ee, ce, pairs=len(self.starts))


def batch_of(rows: pa.Table) -> Batch:
    """Sorted rows as one batch."""
    query, document = (rows[name].to_numpy(zero_copy_only=False) for name in ("query_id", "doc_id"))
    if not len(query):
        return Batch(rows, np.zeros(0, np.int64))
    new = (query[1:] != query[:-1]) | (document[1:] != document[:-1])
    return Batch(rows, np.concatenate([[0], np.flatnonzero(new) + 1]))


def pair_batches(files: Sequence[Path | str], rows: int = ROWS) -> Iterator[Batch]:
    """Sorted files, one after another, in batches of about so many rows; no pair is cut in two."""
    rest: pa.Table | None = None
    for file in files:
        for part in pq.ParquetFile(file).iter_batches(batch_size=rows):
            table = pa.Table.from_batches([part])
            whole = batch_of(table if rest is None else pa.concat_tables([rest, table]))
            if not len(whole.starts):
                continue
            last = int(whole.starts[-1])
            rest = whole.rows.slice(last)
            if last:
                yield Batch(whole.rows.slice(0, last), whole.starts[:-1])
    if rest is not None:
        yield batch_of(rest)
