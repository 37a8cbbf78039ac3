"""Logs larger than memory: reduced once into shards on disk, each with the counts and features of its queries.

    KEY/00000.safetensors ...  the arrays of `Counts` for shard 0, narrow types; the features of its documents,
                               and where each query starts (offsets)
    KEY/shards.json            facts: [shards + 1, 6] pages, impressions, clicks, queries, last rank, pages
                               without a click; the last row is the shard held out for validation
                               survey: numbers and gaps of every training feature; columns: their names and
                               categories. Features stay as they are, and are encoded when a shard is loaded
                               presentation: how the columns serp_* were encoded
                               missing: impressions left out for want of features

A log or a table of counts, and a table of features, are dealt out by query; then one shard after another is joined
and reduced. So memory holds a block of the input, or one shard, whatever the size of the log. Shards lie in the
cache under a key made of the content of their sources: unchanged ones are reused, half-written ones never seen.

Legend: R rows of a shard, K results of a page, D features.
"""

import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load_file

from unskew.errors import ConfigError, DataError
from unskew.files import check_below, read_json, tensors_at
from unskew.logs.counts.reduction import Counts
from unskew.logs.counts.shard_writer import ABOUT, FACTS, NARROW, SERP, ShardSource, shard_file, write_shards
from unskew.logs.presentation import Presentation
from unskew.names import KEYS
from unskew.settings import require_columns
from unskew.tables.engine.parquet import count_values, damage_named
from unskew.tables.features.encoding import Encoding
from unskew.tables.features.tables import feature_files, is_table, table_columns
from unskew.tables.lists.letor import read_letor
from unskew.tables.lists.scaling import SCALINGS, Scaler, fit_scaler, fitted_scaler
from unskew.tables.lists.store import entry_of
from unskew.tables.lists.survey import Survey
from unskew.types import Array, Columns, Lists

ANEW = "delete its folder, and run again"
SHARD_FORMAT = 4
"""To be raised when what is written changes, so that shards of an earlier version are not taken for ours."""


@dataclass(frozen=True)
class Shards:
    """Shards on disk; nothing of them is in memory but a few numbers."""

    folder: Path
    key: str
    """A hash of all that they were made from."""
    facts: Array  # [shards + 1, 6] int64, see FACTS
    by_rank: Array  # [2, P] impressions and clicks of the training shards at each rank
    survey: Survey
    """The training documents in numbers, as they are."""
    columns: Columns | None
    """What the features are called, as they are."""
    presentation: Presentation
    """How the presentation columns are encoded, fitted on the training shards."""
    name: str = "shards"
    weighted: str | None = None
    """The column of weights that stands in the place of clicks; None where feedback is clicks."""
    missing: int = 0
    """Impressions that were left out for want of features."""
    encoding: Encoding | None = None
    """What the features of a shard become when it is loaded."""

    def __len__(self) -> int:
        return len(self.facts) - 1

    @property
    def dim(self) -> int:
        """Number of features."""
        return len(self.encoded.low)

    @property
    def encoded(self) -> Survey:
        """The training documents in numbers, encoded where an encoding is set."""
        return self.survey if self.encoding is None else self.encoding.surveyed(self.survey)

    @property
    def pages(self) -> Array:
        """[shards] result pages behind each shard for training."""
        return self.facts[:-1, 0]

    @property
    def positions(self) -> int:
        """The last rank shown."""
        return int(self.facts[:, 4].max())

    def totals(self) -> dict[str, int]:
        """Pages, impressions, clicks and queries of all training shards."""
        train = self.facts[:-1]
        added = dict(zip(FACTS, train.sum(0).tolist(), strict=True))
        return added | {"positions": self.positions}

    def load(self, shard: int) -> Counts:
        """One shard in memory; the index after the last is the one held out."""
        path = shard_file(self.folder, shard)
        check_below(path, ABOUT, ANEW)
        try:
            arrays = load_file(tensors_at(path))
        except (OSError, SafetensorError) as error:
            raise DataError(f"damaged ({error})", path=path, hint=ANEW) from error
        if lost := {"offsets", "features", *NARROW} - arrays.keys():
            raise DataError(f"damaged ({min(lost)} is missing)", path=path, hint=ANEW)
        offsets, features = arrays["offsets"], arrays["features"]
        labels, queries = np.zeros(len(features), np.int16), np.arange(len(offsets) - 1)
        lists = Lists(features, offsets, labels, queries, name=self.name, columns=self.columns)
        return Counts(
            lists=lists if self.encoding is None else self.encoding.apply(lists),
            **{name: arrays[name].astype(np.int64) for name in ("query", "row", "position")},
            clicks=arrays["clicks"],
            impressions=arrays["impressions"],
            serp={name.removeprefix(SERP): values for name, values in arrays.items() if name.startswith(SERP)},
            pairs=arrays.get("pairs"),
            shown_at=arrays.get("shown_at"),
            stands_for=arrays.get("stands_for"),
        )

    def fit_scaler(self, kind: str, *others: Lists) -> Scaler:
        """As `clicks.scaling.fit_scaler` on all training documents, from the numbers kept."""
        if not SCALINGS[kind].as_ultra:
            columns = self.columns if self.encoding is None else self.encoding.columns
            return fitted_scaler(kind, self.encoded, columns)
        ends = Lists(
            np.stack([self.encoded.low, self.encoded.high]),
            np.array([0, 2]),
            np.zeros(2, np.int16),
            np.array([0]),
            name=self.name,
        )
        return fit_scaler(kind, ends, *others)


def open_shards(source: ShardSource, *, cache: bool | str | Path = True) -> Shards:
    """The shards of a source, written first where they are not there yet; a log that lacks columns is refused."""
    if source.counts is not None and source.reduction == "pages":
        raise ConfigError("the method needs single pages, and counts have none; give data.log")
    for path in source.pages():
        with damage_named(path):
            present = pq.read_schema(path).names
        require_columns(source.columns, present, path=path)
    files = source.files()
    options = asdict(source) | {
        "log": source.log is not None,
        "counts": source.counts is not None,
        "lists": len(files),
        "kind": "shards",
        "version": SHARD_FORMAT,
    }
    folder = entry_of(files, options, cache, lambda folder: write_shards(source, folder))
    try:
        about = read_json(folder / ABOUT)
        columns = None
        if about["columns"] is not None:
            names, categories = about["columns"]
            columns = Columns(tuple(names), {name: tuple(values) for name, values in categories.items()})
        return Shards(
            folder,
            folder.name,
            facts=np.array(about["facts"], np.int64),
            by_rank=np.array(about["by_rank"]),
            survey=Survey.from_dict(about["survey"]),
            columns=columns,
            presentation=Presentation.from_dict(about["presentation"]),
            name=str(source.log or source.counts),
            weighted=about["weighted"],
            missing=about["missing"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"damaged ({error})", path=folder / ABOUT, hint=ANEW) from error


def shards_for(memory: int, source: ShardSource) -> int:
    """How many shards let two of them, or one that is being written, be in so many bytes of memory."""
    slots = sum(int(pq.read_metadata(path).num_rows) for path in source.pages())
    columns = [table_columns(path, source.names) for path in source.lists if is_table(path)]
    if not columns:
        features = read_letor(list(source.lists), doc_ids=source.doc_ids).features.nbytes
    elif any({*KEYS} <= each for each in columns):  # of text files, their size
        files = {path: kind for each in source.lists for path, kind in feature_files(each).items()}
        features = sum(
            4 * count_values(pq.read_metadata(path)) if kind == "parquet" else path.stat().st_size
            for path, kind in files.items()
        )
    else:  # of items or queries: for each document that is shown
        features = 4 * slots * sum(map(len, columns))
    beside = features // 2 if source.unseen is not None else 0  # 32 bytes for each document, besides its features
    training = 2 * (features + beside + slots * (24 if source.reduction != "pairs" else 120))
    writing = 2 * features + slots * 150
    return max(1, math.ceil(max(training, writing) / memory))
