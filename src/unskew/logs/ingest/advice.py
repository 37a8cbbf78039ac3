"""What further columns of a source could be for: which may be bias factors, and which would give the click away.

A bias factor is known before the click and has a few values or numbers. A column gives the click away where it is
filled, or has another value than usual, only at clicked results, or where it ranks nearly all clicked results
before the others: the time of the click, the seconds that somebody stayed, what was put into the cart. A method
that is told such a column explains every click by it and learns nothing of what people like.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unskew.errors import DataError
from unskew.logs.ingest.columns import YES
from unskew.names import OURS
from unskew.tables.reading.options import IngestOptions
from unskew.types import Array

FEW = 50
"""Values of a category that a bias can be learned for."""
ENOUGH = 5
"""Rows that make a rule of what could be chance."""
AWAY = 0.98
"""Area under the curve from which on a column gives the click away."""
MOST = 100
"""Further columns that are looked at, at most."""
PAGING = re.compile(r"^(results?_?)?(page|offset|start|from)(_?(no|nr|num|number|index|offset))?$", re.IGNORECASE)
RANDOM = re.compile(r"random|shuffl|explor", re.IGNORECASE)
ISO = r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d|$)"
ROWS, FILES = 40_000, 4
"""Rows of a sample in all, and files that they come from."""


@dataclass(frozen=True)
class SourceColumn:
    """What a column of a source that is not ours could be for, as a sample of rows tells."""

    kind: str
    """id, time, number, category, text, constant or empty."""
    values: int
    """How many different ones there are."""
    missing: float
    """Share of the rows without a value."""
    differs: str
    """Between what it differs: results of a page, or pages."""
    advice: str


class SampleRows:
    """Rows of a source with all of its columns, as they are: the first of some files, never more than `ROWS`."""

    def __init__(self, files: Collection[Path], options: IngestOptions) -> None:
        self.known = _known(options)
        self.paths = list(files)[:: max(1, len(files) // FILES)][:FILES]
        self._parts: list[pa.Table] = []

    def take(self, path: Path, names: Sequence[str], batches: Iterable[Any]) -> None:
        """The first rows of a file, where it is asked and has columns that are not known."""
        if path not in self.paths or all(name in self.known for name in names):
            return
        most, rows = ROWS // len(self.paths), 0
        try:
            for batch in batches:
                part = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
                self._parts.append(part.slice(0, most - rows))
                rows += len(batch)
                if rows >= most:
                    break
        except (DataError, pa.ArrowException, OSError):
            return  # what is wrong with a file is told by who reads all of it

    @property
    def table(self) -> pa.Table | None:
        """The sample, where there is one; the longest part alone where types do not go together."""
        parts = [part for part in self._parts if len(part)]
        try:
            return pa.concat_tables(parts, promote_options="permissive") if parts else None
        except pa.ArrowException:
            return max(parts, key=len)


def parquet_sample(files: Collection[Path], options: IngestOptions) -> pa.Table | None:
    """A sample of Parquet files."""
    sample = SampleRows(files, options)
    for path in sample.paths:
        try:
            with pq.ParquetFile(path) as file:
                sample.take(path, file.schema_arrow.names, file.iter_batches(batch_size=ROWS // len(sample.paths)))
        except (pa.ArrowException, OSError):
            continue
    return sample.table


def _known(options: IngestOptions) -> set[str]:
    return {options.source(name) for name in OURS} | {options.events.column or "event"}


def column_advice(table: pa.Table | None, options: IngestOptions) -> dict[str, SourceColumn]:
    """What is known of each further column of a sample."""
    if table is None:
        return {}
    known = _known(options)
    clicked, groups = _clicked(table, options), _groups(table, options)
    return {
        name: _source_column(name, table, clicked, groups, options)
        for name in [name for name in table.column_names if name not in known][:MOST]
        if table.column_names.count(name) == 1 and not pa.types.is_nested(table[name].type)
    }


def _clicked(table: pa.Table, options: IngestOptions) -> Array | None:
    """Which rows are clicked; None where a sample does not tell."""
    name = options.source("click")
    if name not in table.column_names:
        return None
    words = pc.utf8_lower(pc.utf8_trim_whitespace(table[name].cast(pa.string())))
    found = np.asarray(pc.fill_null(pc.is_in(words, pa.array(YES)), False))
    return found if 0 < found.sum() < len(found) else None


def _groups(table: pa.Table, options: IngestOptions) -> Array:
    """The page of each row, or what comes close: person and query."""
    people = [options.source(name) for name in ("visit_id", "user_id")] + list(options.pages.by)
    person = [name for name in people if name in table.column_names][:1]
    page = options.source("page_id")
    names = [page] if page in table.column_names else [*person, options.source("query_id")]
    codes = np.zeros(len(table), np.int64)
    for name in (name for name in names if name in table.column_names):
        each = _codes(table[name])
        codes = np.unique(codes * (each.max() + 2) + each + 1, return_inverse=True)[1]
    return codes


def _codes(column: Any) -> Array:
    return np.asarray(pc.fill_null(_plain(column).dictionary_encode().indices, -1)).astype(np.int64)


def _plain(column: Any) -> Any:
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _source_column(
    name: str, table: pa.Table, clicked: Array | None, groups: Array, options: IngestOptions
) -> SourceColumn:
    column = _plain(table[name])
    if pa.types.is_string(column.type):
        column = pc.if_else(pc.equal(column, ""), None, column)
    codes, numbers = _codes(column), _numbers(column)
    there, values = codes >= 0, int(codes.max() + 1)
    kind = _kind(name, column, numbers, values, int(there.sum()))
    if clicked is not None and gives_away(codes, numbers, clicked):
        advice = "gives the click away"
    elif kind in ("constant", "empty"):
        advice = "says nothing"
    elif numbers is not None and PAGING.match(name) and _begins_again(numbers, table, options):
        advice = "begins again"
    elif values == 2 and RANDOM.search(name):
        advice = "shuffled"
    else:
        advice = {"number": "bias factor", "category": "bias factor", "id": "names things"}.get(
            kind, "not a factor"
        )
    differs = "result" if _differs(codes, groups) else "page"
    return SourceColumn(kind, values, round(1 - float(there.mean()), 4), differs, advice)


def _numbers(column: Any) -> Array | None:
    """A column as floats, missing ones as NaN; None where it holds anything else."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_string(kind)):
        return None
    try:
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
    except pa.ArrowInvalid:
        return None


def _kind(name: str, column: Any, numbers: Array | None, values: int, there: int) -> str:
    if values <= 1:
        return "constant" if there else "empty"
    if pa.types.is_temporal(column.type):
        return "time"
    if numbers is None:
        if pa.types.is_string(column.type) and pc.all(pc.match_substring_regex(column.drop_null(), ISO)).as_py():
            return "time"
        if values > FEW and (values > there / 2 or re.search(r"(_|^)(id|uuid|guid|key|token)$", name.lower())):
            return "id"
        return "category" if values <= FEW else "text"
    finite = numbers[np.isfinite(numbers)]
    if len(finite) and finite.min() > 1e9 and values > FEW:
        return "time" if finite.max() < 2e18 else "id"
    whole = len(finite) and bool((finite == np.floor(finite)).all())
    return "id" if whole and values > FEW and values > 0.9 * there else "number"


def _differs(codes: Array, groups: Array) -> bool:
    """Whether results of one page have different values, in more than one page of a hundred."""
    order = np.lexsort((codes, groups))
    same = groups[order][1:] == groups[order][:-1]
    changes = same & (codes[order][1:] != codes[order][:-1])
    pages = len(np.unique(groups[order][1:][same]))
    return len(np.unique(groups[order][1:][changes])) > 0.01 * pages


def gives_away(codes: Array, numbers: Array | None, clicked: Array) -> bool:
    """Whether a column tells which results were clicked; `codes` are its values, -1 where it is empty.

    >>> clicked = np.array([1, 1, 1, 1, 1, 0, 0, 0, 0, 0], bool)
    >>> gives_away(np.array([0, 1, 2, 3, 4, -1, -1, -1, -1, -1]), None, clicked)
    True
    >>> gives_away(np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1]), None, clicked)
    False
    """
    usual = np.unique(codes[~clicked])
    other = ~np.isin(codes, usual)
    if len(usual) == 1 and other.sum() >= ENOUGH:
        return True  # one value where nothing was clicked, others where something was
    if numbers is not None:
        ranked = np.where(np.isfinite(numbers), numbers, -np.inf)
    else:
        if codes.max() >= FEW:
            return False
        counts = np.bincount(codes + 1)
        ranked = (np.bincount(codes + 1, clicked) / np.maximum(counts, 1))[codes + 1]
    area = _area(ranked, clicked)
    return max(area, 1 - area) >= AWAY


def _area(values: Array, clicked: Array) -> float:
    """Chance that a clicked result has a larger value than one that was not clicked, ties by half."""
    _, rank, counts = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts - 1) / 2
    positive = int(clicked.sum())
    above = middle[rank][clicked].sum() - positive * (positive + 1) / 2
    return float(above / (positive * (len(clicked) - positive)))


def _begins_again(pages: Array, table: pa.Table, options: IngestOptions) -> bool:
    """Whether positions of further pages of results begin where those of the first do."""
    name = options.source("position")
    ranks = _numbers(_plain(table[name])) if name in table.column_names else None
    if ranks is None:
        return False
    first = pages == np.nanmin(pages)
    further = np.isfinite(pages) & ~first
    return bool(further.any() and np.nanmin(ranks[further]) == np.nanmin(ranks[first]))
