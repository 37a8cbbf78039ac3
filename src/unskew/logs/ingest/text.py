"""Text files to Parquet part files of text columns, which an engine then reads like any other Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from unskew.errors import ConfigError, DataError, Option, printable
from unskew.logs.ingest.formats.stage import Stage
from unskew.names import Names, guess_columns
from unskew.tables.reading.csv_text import Reject, csv_batches, csv_columns
from unskew.tables.reading.files import MARK
from unskew.tables.reading.json_text import BLOCK, json_batches, json_columns
from unskew.tables.reading.options import IngestOptions

FILE, ROW = "unskew_file", "unskew_row"
"""Where a row came from, in staged part files."""
LONGEST_CELL = 2**20
"""Characters of the longest value."""


@dataclass(frozen=True)
class Text:
    """What text files were turned into."""

    folder: Path
    rejected: Path | None
    columns: tuple[str, ...]
    """Names of all columns, also of those that were not wanted."""
    lost: int
    """Rows that could not be parsed."""
    read: tuple[str, ...]
    """Names of the columns that were read."""
    notes: tuple[str, ...] = ()


def stage_text(files: Mapping[Path, str], options: IngestOptions, folder: Path) -> Text:
    """Write the wanted columns of text files as part files of one schema."""
    headers, wanted = survey(files, options)
    present = dict.fromkeys(name for names in headers.values() for name in names)
    lines = {path: names for path, names in headers.items() if files[path] != "jsonl"}
    lacking = differing(lines, wanted, options)
    # a key of JSON may come first in any line, so known ones are always looked for
    maybe = [name for name in options.known() if name not in wanted] if "jsonl" in files.values() else []
    seen: set[str] = set()
    late: set[str] = set()
    columns = [*wanted, *maybe]
    schema = pa.schema([(FILE, pa.string()), (ROW, pa.int64()), *((name, pa.string()) for name in columns)])
    stage = Stage(folder / "broken")
    parts = folder / "text"
    parts.mkdir(parents=True)
    for at, (path, kind) in enumerate(files.items()):
        reject = partial(stage.reject, printable(path))
        batches = (
            json_batches(path, columns, options.files, reject, late)
            if kind == "jsonl"
            else csv_batches(path, kind, wanted, options.files, reject)
        )
        with pq.ParquetWriter(parts / f"part-{at:05d}.parquet", schema, compression="zstd") as writer:
            for batch, numbers in batches:
                table = _checked(batch, numbers, reject)
                table = table if kind == "jsonl" else _filled(table, batch.schema.names)
                if options.time.format is not None:
                    table = _iso_times(table, options.source("timestamp"), options.time.format)
                named = pa.array([printable(path)]).take(pa.array(np.zeros(len(table), np.int8)))
                arrays = [
                    table[name] if name in table.column_names else pa.nulls(len(table), pa.string())
                    for name in (ROW, *columns)
                ]
                writer.write_table(pa.table([named, *arrays], schema))
                if kind == "jsonl":
                    seen |= {name for name in maybe if table[name].null_count < len(table)}
    staged = stage.close()
    found = [name for name in maybe if name in seen]
    begun = f"{', '.join(sorted(late)[:20])}; name them in `keep`"
    not_read = f"not read, since they begin after the first {BLOCK >> 20} MB: {begun}"
    return Text(
        folder=parts,
        rejected=staged.rejected,
        columns=(*present, *found),
        lost=staged.rejected_rows,
        read=(*wanted, *found),
        notes=(*lacking, *([not_read] if late else [])),
    )


def survey(files: Mapping[Path, str], options: IngestOptions) -> tuple[dict[Path, list[str]], list[str]]:
    """The columns of each file, and those of all that are wanted, of which there is at least one."""
    headers = {
        path: json_columns(path, options.files)
        if kind == "jsonl"
        else csv_columns(path, kind, options.files, options.known())
        for path, kind in files.items()
    }
    present = dict.fromkeys(name for names in headers.values() for name in names)
    wanted = options.wanted(list(present))
    if not wanted:
        Names.of(options.columns).check(list(present), next(iter(files)))
        some = ", ".join(list(present)[:20])[:500] or "none"
        pairs = guess_columns(list(present)) or {"OURS": "THEIRS"}
        raise DataError(
            f"no column is one of ours; there are: {some}",
            path=next(iter(files)),
            hint=("name them with ", Option("columns", pairs)),
        )
    return headers, wanted


def differing(
    headers: Mapping[Path, Sequence[str]], wanted: Sequence[str], options: IngestOptions
) -> tuple[str, ...]:
    """Which files lack a column that others have, as notes; a file that lacks a required one is refused.

    Files of click events may lack any; lines of JSON, which may too, are not asked.
    """
    events = any((options.events.column or "event") in names for names in headers.values())
    needed = [options.source(name) for name in ("query_id", "doc_id", "position", "click")]
    notes = []
    for path, names in headers.items():
        missing = [name for name in wanted if name not in names and not name.startswith("/")]
        lost = [name for name in missing if name in needed]
        if lost and not events:
            other = next((each for each, theirs in headers.items() if lost[0] in theirs), "another file")
            there = ", ".join(names)[:500] or "none"
            raise DataError(
                f"no column {lost[0]}, which {printable(other)} has; there are: {there}",
                path=path,
                hint="name the column alike in all files, or ingest the file apart",
            )
        notes += [f"{printable(path)} has no {', '.join(missing)}"] if missing else []
    return tuple(notes[:20])


def _checked(batch: Any, numbers: Any, reject: Reject) -> Any:
    """A batch as a table with its row numbers, without rows whose values cannot be taken."""
    names = batch.schema.names
    table = pa.table({ROW: pa.array(numbers, pa.int64()), **{name: batch[name] for name in names}})
    bad: dict[int, tuple[str, str]] = {}
    for name in names:
        marked = np.asarray(pc.fill_null(pc.match_substring(table[name], MARK), False))
        long = np.asarray(pc.fill_null(pc.greater(pc.binary_length(table[name]), LONGEST_CELL), False))
        for reason, mask in (("not_utf8", marked), ("value_too_long", long)):
            for at in np.flatnonzero(mask).tolist():
                bad.setdefault(at, (reason, f"{name}={table[name][at].as_py()[:1000]}"))
    if not bad:
        return table
    for at, (reason, text) in sorted(bad.items()):
        reject(table[ROW][at].as_py(), reason, text.replace(MARK, "\ufffd"))
    return table.filter(pa.array(~np.isin(np.arange(len(table)), list(bad))))


def _filled(table: Any, names: list[str]) -> Any:
    """Without rows that are empty lines."""
    filled = np.logical_or.reduce([np.asarray(pc.is_valid(table[name])) for name in names])
    return table if filled.all() else table.filter(pa.array(filled))


def _iso_times(table: Any, name: str, time_format: str) -> Any:
    """Times in a format of their own as ISO text; what does not fit stays as it is, to be rejected later."""
    if name not in table.column_names:
        return table
    try:
        parsed = pc.strptime(table[name], format=time_format, unit="us", error_is_null=True)
    except pa.ArrowInvalid as error:
        raise ConfigError(f"time.format {time_format!r}: {str(error)[:200]}") from error
    text = pc.coalesce(pc.strftime(parsed, format="%Y-%m-%dT%H:%M:%S"), table[name])
    return table.set_column(table.column_names.index(name), name, text)
