"""Write the shards of a log: deal it out by query, then join and reduce one part after another."""

import hashlib
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

from unskew.errors import DataError, Key, Option
from unskew.files import read_json, write_manifest
from unskew.logs.counts.rankings import COUNTED_SLOT, counts_of
from unskew.logs.counts.reduction import Counts, Reduction, by_query, rank_counts, reduce_log
from unskew.logs.log import log_of
from unskew.logs.presentation import NO_COLUMNS, Presentation, fit_tallies, merge_tallies, tally_columns
from unskew.names import KEYS, Names
from unskew.tables.engine.parquet import blocks, damage_named, impressions_in, parquet_files, undone
from unskew.tables.features.assembly import assemble, candidate_pairs
from unskew.tables.features.features import lists_of, read_features
from unskew.tables.features.tables import Notes, feature_files, is_table, open_tables
from unskew.tables.joins import Missing, encodable, encode, find_rows
from unskew.tables.lists.letor import read_letor
from unskew.tables.lists.survey import Survey, merge_surveys, survey
from unskew.tables.schema import required, to_array
from unskew.types import Array, Columns, Lists

ABOUT = "shards.json"
FACTS = ("pages", "impressions", "clicks", "queries", "positions", "clickless")
SERP = "serp-"
"""Before the names of columns, in a shard."""
BUFFERED = 64 * 2**20
"""Bytes that wait in memory, over all parts."""
NARROW = {
    "query": np.int32,
    "row": np.int32,
    "position": np.int16,
    "clicks": np.float32,
    "impressions": np.float32,
}
HELD_OUT = 0.1
"""Share of the queries to validate on, where no shard would be larger than the others for it."""


@dataclass(frozen=True)
class ShardSource:
    """The log that shards are written from, and the choices that decide what they hold."""

    log: str | None
    """Impressions: a Parquet file, or a folder of them, or what `unskew ingest` wrote."""
    counts: str | None
    """In the place of a log: what `unskew counts` wrote."""
    lists: tuple[str, ...]
    """Features of the documents: Parquet or LETOR."""
    shards: int
    held_out: bool = False
    """Keep a share of the queries apart, to validate on."""
    reduction: Reduction = "counts"
    unseen: int | None = None
    """Documents that were never shown to join those of each query, as `by_query` does; None: rows are rankings."""
    serp: tuple[str, ...] = ()
    """Presentation columns to carry, encoded."""
    feedback: str | None = None
    """The column of a log that stands in the place of `click`: weights from 0."""
    averages: tuple[str, ...] = ()
    """Columns of numbers to carry the mean of, where a log has them."""
    bins: int = 0
    """As in `fit_presentation`."""
    missing: Literal["error", "drop"] = "error"
    """What to do with impressions without features."""
    doc_ids: bool = False
    names: Names = field(default_factory=Names)
    """Our names of the columns of features to theirs."""

    @property
    def held(self) -> float:
        """Share of the queries that is held out; not more than a shard has."""
        return min(HELD_OUT, 1 / (self.shards + 1)) if self.held_out else 0.0

    @property
    def columns(self) -> list[str]:
        """Columns that are read; of those to average, what the log has."""
        if self.log is None:
            return [*COUNTED_SLOT, *self.serp]
        present = pq.read_schema(self.pages()[0]).names if self.averages else ()
        return [*required(self.feedback), *self.serp, *(name for name in self.averages if name in present)]

    def pages(self) -> list[Path]:
        """The files of the log, or of the slots of the counts."""
        folder = impressions_in(self.log) if self.log is not None else Path(self.counts or "") / "slots"
        return [Path(file) for file in parquet_files(folder)]

    def files(self) -> list[Path]:
        """Every file that is read."""
        files = self.pages()
        for path in self.lists:
            files += feature_files(path) if is_table(path) else [Path(path)]
        if self.counts is not None and self.reduction == "pairs":
            files += [Path(file) for file in parquet_files(Path(self.counts) / "pairs")]
        return files


def write_shards(source: ShardSource, folder: Path) -> None:
    """Fill a folder with every shard, and with what is known of all of them."""
    spill, missing = folder / "spill", Missing()
    parts = split_table(source.pages(), source.columns, spill / "pages", source.shards, source.held)
    presentation = _fit_parts(source, [part for part in parts[:-1] if part is not None])
    facts, by_rank = np.zeros((source.shards + 1, len(FACTS)), np.int64), np.zeros((2, 0))
    surveys: list[Survey] = []
    columns: Columns | None = None
    open_lists = _lists_of(source, spill)
    summary = Path(source.counts or "") / "summary.json"
    weighted = read_json(summary).get("feedback") if source.counts is not None and summary.exists() else None
    for shard, part in enumerate(parts):
        if part is None:
            continue
        lists = open_lists(shard, part)
        counts, clickless, weights = _reduce(source, part, lists, missing, presentation)
        if counts is None:
            continue
        weighted = source.feedback if weights else weighted
        shown = (counts.impressions.max(1), counts.impressions, counts.clicks)
        added = [int(values.sum(dtype=np.float64).round()) for values in shown]
        facts[shard] = [*added, len(np.unique(counts.query)), counts.positions, clickless]
        if shard < source.shards:
            surveys.append(survey(lists))
            columns = lists.columns
            ranks = rank_counts(counts.position, counts.impressions, counts.clicks)
            deepest = max(ranks.shape[1], by_rank.shape[1])
            by_rank, ranks = (np.pad(each, ((0, 0), (0, deepest - each.shape[1]))) for each in (by_rank, ranks))
            by_rank = by_rank + ranks
            counts = counts if source.unseen is None else by_query(counts, source.unseen)
        save_shard(counts, shard_file(folder, shard))
    shutil.rmtree(spill)
    if missing.lost and (source.missing == "error" or not surveys):
        hint = ("add their features, or give ", Option(Key("data.missing_features"), "drop"))
        raise DataError(str(missing), path=source.log or source.counts, hint=hint)
    if not surveys:
        raise DataError("there is nothing to learn from", path=source.log or source.counts)
    about = {
        "facts": facts.tolist(),
        "by_rank": by_rank.tolist(),
        "survey": merge_surveys(surveys).to_dict(),
        "columns": None if columns is None else [columns.names, dict(columns.categories)],
        "presentation": presentation.to_dict(),
        "missing": missing.lost,
        "weighted": weighted,
    }
    write_manifest(folder / ABOUT, about, folder.glob("*.safetensors"))


def shard_file(folder: Path, shard: int) -> Path:
    """Where a shard lies."""
    return folder / f"{shard:05d}.safetensors"


def save_shard(counts: Counts, path: Path) -> None:
    """Write the arrays of a shard."""
    arrays = {name: getattr(counts, name).astype(kind) for name, kind in NARROW.items()}
    arrays |= {f"{SERP}{name}": values for name, values in counts.serp.items()}
    further = {"pairs": counts.pairs, "shown_at": counts.shown_at, "stands_for": counts.stands_for}
    arrays |= {name: values for name, values in further.items() if values is not None}
    arrays |= {"features": counts.lists.features, "offsets": counts.lists.offsets}
    save_file({name: np.ascontiguousarray(values) for name, values in arrays.items()}, path)


def _lists_of(source: ShardSource, spill: Path) -> Callable[[int, Path], Lists]:
    """A function from a shard, and the part of the log that it shows, to the lists of its queries, in memory."""

    def taken(whole: Lists) -> Callable[[int, Path], Lists]:
        part = part_of(encodable(whole.query_ids), source.shards, source.held)
        return lambda shard, _: whole.take(part == shard)  # all lists are memory-mapped

    if not is_table(source.lists[0]):
        return taken(read_letor(list(source.lists), doc_ids=source.doc_ids))
    notes: Notes = []
    tables = open_tables(source.lists, source.names, notes)
    pairs = [table for table in tables if table.kind == "pair"]
    parts = [part for each in pairs for part in each.parts]
    # files are dealt out by the query_id that they have under our name
    if len(pairs) > 1 or any(
        part.table is not None or any(part.theirs[key] != key for key in KEYS) for part in parts
    ):
        return taken(read_features(list(source.lists), columns=source.names))
    for note in notes:
        warnings.warn(note, stacklevel=6)
    dealt: list[Path | None] = [None] * (source.shards + 1)
    if pairs:
        files = [Path(part.path) for part in parts]
        dealt = split_table(files, None, spill / "features", source.shards, source.held)

    def lists(shard: int, shown: Path) -> Lists:
        path = dealt[shard]
        if pairs and path is None:
            return Lists(np.zeros((0, 0)), np.zeros(1, np.int64), np.zeros(0), np.zeros(0, np.int64))
        whole = [
            replace(table, parts=(replace(table.parts[0], path=path),)) if table.kind == "pair" and path else table
            for table in tables
        ]
        candidates = None if pairs else candidate_pairs(shown)
        arrays = assemble(whole, candidates, [])
        if path is not None:
            path.unlink()
        return lists_of(arrays, source.lists[0])

    return lists


def _fit_parts(source: ShardSource, parts: Sequence[Path]) -> Presentation:
    """The presentation of all training parts, one of them in memory at a time."""
    if not source.serp:
        return NO_COLUMNS
    weight = [] if source.log is not None else ["impressions"]
    tallies = None
    for part in parts:
        table = pq.read_table(part, columns=[*source.serp, *weight])
        columns = {name: to_array(table[name]) for name in table.column_names}
        found = tally_columns(columns, source.serp, weights=columns.get("impressions"))
        tallies = found if tallies is None else merge_tallies(tallies, found)
    return fit_tallies(tallies or {}, bins=source.bins)


def _reduce(
    source: ShardSource, part: Path, lists: Lists, missing: Missing, presentation: Presentation
) -> tuple[Counts | None, int, bool]:
    """The counts of a part, None where no impression has features; pages without a click; whether it is weighted.

    Counts do not say how many pages have no click; then all of them may.
    """
    table = pq.read_table(part)
    part.unlink()
    query, row = find_rows(table, lists) if len(lists) else np.full((2, len(table)), -1)
    missing.note(table, query, row)
    table = table.filter(pa.array(row >= 0))
    if not len(table):
        return None, 0, False
    if source.counts is not None:
        kind: Literal["counts", "pairs"] = "pairs" if source.reduction == "pairs" else "counts"
        # pairs of rankings that other shards have are passed over
        counts = counts_of(table, lists, Path(source.counts), kind, presentation)
        return counts, int(counts.impressions.max(1).sum()), False
    log = log_of(table, lists, source.feedback, part)
    clicked = np.add.reduceat(log.click, log.offsets[:-1])  # a page in a file has a row
    counts = reduce_log(log, source.reduction, presentation=presentation, averages=source.averages)
    return counts, int((clicked == 0).sum()), log.weighted


# ---- dealt out ----


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
    """Write the parts of a table to OUT/0/part-0.parquet and so on; None in the place of an empty part."""
    batches = _dealt(files, columns, parts, held)
    first = next(batches, None)
    if first is None:
        return [None] * (parts + 1)
    waiting = max(BUFFERED // (parts + 1), 2**16) * len(first) // max(first.nbytes, 1)
    from pyarrow import dataset  # it imports pandas, which those who train do not wait for

    dataset.write_dataset(
        chain([first], batches),
        out,
        schema=first.schema,
        format="parquet",
        # a dictionary takes megabytes in each of many writers, and features hardly repeat
        file_options=dataset.ParquetFileFormat().make_write_options(
            compression="lz4", use_dictionary=False, write_statistics=False
        ),
        partitioning=["part"],
        min_rows_per_group=waiting,
        max_rows_per_group=2 * waiting,
        max_partitions=parts + 1,
        use_threads=False,
    )
    found = [out / str(part) / "part-0.parquet" for part in range(parts + 1)]
    return [path if path.exists() else None for path in found]


def _dealt(files: Sequence[Path], columns: Sequence[str] | None, parts: int, held: float) -> Iterator[Any]:
    """The rows of a table in blocks, each with its part; without dictionaries, which differ between files."""
    schema = None
    for path in files:
        for block in blocks(path, None if columns is None else list(columns)):
            batch = pa.RecordBatch.from_arrays([undone(column) for column in block.columns], block.schema.names)
            schema = schema or batch.schema
            if batch.schema.names != schema.names:
                raise DataError("has other columns than the first file", path=path, hint="write all parts alike")
            with damage_named(path):
                batch = batch.cast(schema)
            part = part_of(batch["query_id"], parts, held)
            yield batch.append_column("part", pa.array(part, pa.int32()))
