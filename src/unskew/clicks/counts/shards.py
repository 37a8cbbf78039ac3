"""Logs larger than memory: reduced once into shards on disk, each with the counts and features of its queries.

    KEY/00000.row.npy ...      the arrays of `Counts` for shard 0, narrow types
    KEY/00000.features.npy     features of its documents, and 00000.offsets.npy where each query starts
    KEY/facts.npy              [shards + 1, 6] pages, impressions, clicks, queries, last rank, pages without
                               a click; the last row is the shard held out for validation
    KEY/range.npy              [4, D] lowest, highest, mean and deviation of every training feature
    KEY/serp.npy               [columns] highest value of each presentation column
    KEY/missing.npy            impressions left out for want of features

A log or a table of counts, and a table of features, are dealt out by query (`splitting.py`); then one shard after
another is joined and reduced. So memory holds a block of the input, or one shard, whatever the size of the log.
Shards lie in the cache (`store.py`) under a key made of the content of their sources: unchanged ones are reused,
half-written ones are never seen.

Legend: R rows of a shard, K results of a page, D features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from unskew.clicks.counts.reduction import Counts
from unskew.clicks.counts.shard_writing import FACTS, Source, check_columns, write_shards
from unskew.clicks.lists.feature_table import count_values, is_table, table_files
from unskew.clicks.lists.letor import read_letor
from unskew.clicks.lists.scaling import SCALINGS, Range, Scaler, fit_scaler
from unskew.clicks.lists.store import cache_root, content_digest, entry_key, fetch_entry
from unskew.types import Array, Lists


@dataclass(frozen=True)
class Shards:
    """Shards on disk; nothing of them is in memory but a few numbers."""

    folder: Path
    key: str
    """A hash of all that they were made from."""
    facts: Array
    """[shards + 1, 6] int64, see FACTS."""
    range: Array
    serp: Mapping[str, int] = field(default_factory=dict)
    """Highest value of each presentation column."""
    name: str = "shards"
    missing: int = 0
    """Impressions that were left out for want of features."""

    def __len__(self) -> int:
        return len(self.facts) - 1

    @property
    def dim(self) -> int:
        """Number of features."""
        return int(self.range.shape[1])

    @property
    def pages(self) -> Array:
        """[shards] result pages behind each shard for training."""
        pages: Array = self.facts[:-1, 0]
        return pages

    @property
    def positions(self) -> int:
        """The last rank shown."""
        return int(self.facts[:, 4].max())

    def totals(self) -> dict[str, int]:
        """The training shards in numbers."""
        train = self.facts[:-1]
        added = dict(zip(FACTS, train.sum(0).tolist(), strict=True))
        return added | {"positions": self.positions}

    def load(self, shard: int) -> Counts:
        """One shard in memory; the index after the last is the one held out."""

        def array(name: str) -> Array:
            values: Array = np.load(self.folder / f"{shard:05d}.{name}.npy", allow_pickle=False)
            return values

        offsets, features = array("offsets"), array("features")
        lists = Lists(
            features, offsets, np.zeros(len(features), np.int16), np.arange(len(offsets) - 1), name=self.name
        )
        names = {path.name.split(".")[1] for path in self.folder.glob(f"{shard:05d}.*.npy")}
        wide = {name: array(name).astype(np.int64) for name in ("query", "row", "position")}
        return Counts(
            lists=lists,
            **wide,
            clicks=array("clicks"),
            impressions=array("impressions"),
            pairs=array("pairs") if "pairs" in names else None,
            serp={name: array(f"serp-{name}") for name in self.serp},
        )

    def fit_scaler(self, kind: str, *others: Lists) -> Scaler:
        """As `clicks.scaling.fit_scaler` on all training documents, from the numbers kept."""
        scaling, fitted = SCALINGS[kind], Range(*self.range)
        if scaling.statistics is None or not scaling.all_sets:
            statistics = {} if scaling.statistics is None else scaling.statistics(fitted)
            return Scaler(kind, self.dim, statistics)
        ends = Lists(self.range[:2], np.array([0, 2]), np.zeros(2, np.int16), np.array([0]), name=self.name)
        return fit_scaler(kind, ends, *others)


def open_shards(source: Source, *, cache: bool | str | Path = True) -> Shards:
    """The shards of a source, written first where they are not there yet."""
    check_columns(source)
    root, files = cache_root(cache), source.files()
    digests = [content_digest(file, root) for file in files]
    options = asdict(source) | {
        "log": source.log is not None,
        "counts": source.counts is not None,
        "lists": len(files),
    }
    key = entry_key(digests, {"kind": "shards"} | options)
    arrays = fetch_entry(root, key, lambda folder: write_shards(source, folder))
    serp = dict(zip(source.serp, arrays["serp"].tolist(), strict=True))
    named = str(source.log or source.counts)
    facts, ranges = np.array(arrays["facts"]), np.array(arrays["range"])
    return Shards(root / "entries" / key, key, facts, ranges, serp, named, int(arrays["missing"]))


def shards_for(memory: int, source: Source) -> int:
    """How many shards let two of them, or one that is being written, be in so many bytes of memory."""
    slots = sum(int(pq.read_metadata(path).num_rows) for path in source.pages())
    if is_table(source.lists[0]):
        features = 4 * sum(count_values(pq.read_metadata(path)) for path in table_files(source.lists))
    else:
        features = read_letor(list(source.lists), doc_ids=source.doc_ids).features.nbytes
    training = 2 * (features + slots * (24 if source.reduction != "pairs" else 120))
    writing = 2 * features + slots * 150
    return max(1, math.ceil(max(training, writing) / memory))
