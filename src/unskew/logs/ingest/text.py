"""Text files as one stream of text columns, which an engine reads once."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.errors import ConfigError, DataError, Key, Option, printable
from unskew.logs.ingest.advice import SampleRows
from unskew.logs.ingest.columns import FILE, ROW
from unskew.logs.ingest.formats.stage import Stage
from unskew.names import OPTIONAL, REQUIRED, Names, guess_columns
from unskew.tables.reading.files import MARK
from unskew.tables.reading.options import IngestOptions
from unskew.tables.reading.text import BLOCK, JsonText, Reject, open_text

LONGEST_CELL = 2**20
"""Characters of the longest value."""
LATE = (*OPTIONAL, "visit_id", "user_id")
"""Columns that are read wherever in a file of JSON lines they begin."""


class TextStream:
    """Text files, opened once for their columns and a sample, and once for their rows."""

    def __init__(
        self,
        files: Mapping[Path, str],
        options: IngestOptions,
        folder: Path,
        *,
        joined: bool = False,
        results: bool = True,
    ) -> None:
        """`joined` where clicks are in files of their own, and not `results` where these are they."""
        self.files, self.options = files, options
        self._joined, self._results = joined, results
        sample = SampleRows(files if results else (), options)
        headers = {path: self._columns(path, kind, sample) for path, kind in files.items()}
        self.sample = sample.table
        """Rows with all of their columns."""
        self.columns = list(dict.fromkeys(name for names in headers.values() for name in names))
        """All columns, also those that are not read."""
        self.wanted = options.wanted(self.columns)
        if not self.wanted:
            first = next(iter(files))
            Names(options.columns).check(self.columns, first)
            some = ", ".join(self.columns[:20])[:500] or "none"
            hint = ("name them with ", Option("columns", guess_columns(self.columns) or {"OURS": "THEIRS"}))
            raise DataError(f"no column is one of ours; there are: {some}", path=first, hint=hint)
        lines = {path: names for path, names in headers.items() if files[path] != "jsonl"}
        self.notes = list(differing(lines, self.wanted, options))
        # a key of JSON may come first in any line, so columns that may be missing are always looked for
        lines_of_json = "jsonl" in files.values()
        self.maybe = [name for name in LATE if lines_of_json and name not in (*options.columns, *self.wanted)]
        self.seen: set[str] = set()
        self.read = [*self.wanted, *self.maybe]
        """Columns that are read."""
        texts = [(name, pa.string()) for name in self.read]
        self.schema = pa.schema([(FILE, pa.string()), (ROW, pa.int64()), *texts])
        self.error: BaseException | None = None
        """What stopped the stream; an engine that reads it tells of it in words of its own."""
        self._stage = Stage(folder / "broken")

    @property
    def unseen(self) -> list[str]:
        """Columns that were looked for and not found, once all is read."""
        return [name for name in self.maybe if name not in self.seen]

    def _columns(self, path: Path, kind: str, sample: SampleRows) -> list[str]:
        with open_text(path, kind, self.options.files) as text:
            names = text.columns(self.options.known(), self._enough)
            sample.take(path, names, (batch for batch, _ in text.batches(names, lambda *_: None)))
            return names

    def _enough(self, present: Sequence[str]) -> bool:
        options = self.options

        def there(*names: str) -> bool:
            return any(options.source(name) in present or options.source(name)[:1] == "/" for name in names)

        if not self._results:
            return there("doc_id", "position")
        named = (*options.columns.values(), *options.keep, *options.further())
        return (
            all(name in present or name[:1] == "/" for name in named)
            and all(map(there, ("query_id", "doc_id", "position")))
            and (self._joined or there("click") or (options.events.column or "event") in present)
            and (there("page_id") or bool(options.page) or (there("timestamp") and there("visit_id", "user_id")))
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Every row that can be read, in batches; the others are rejected."""
        late: set[str] = set()
        try:
            for path, kind in self.files.items():
                for table in self._tables(path, kind, late):
                    yield from table.to_batches()
        except BaseException as error:
            self.error = error
            raise
        if late:
            begun = f"{', '.join(sorted(late)[:20])}; name them in `keep`"
            self.notes.append(f"not read, since they begin after the first {BLOCK >> 20} MB: {begun}")

    def _tables(self, path: Path, kind: str, late: set[str]) -> Iterator[pa.Table]:
        reject = partial(self._stage.reject, printable(path))
        theirs = [*map(self.options.source, REQUIRED), self.options.events.column or "event"]
        with open_text(path, kind, self.options.files) as text:
            lines = isinstance(text, JsonText)
            looked = self.read if lines else self.wanted
            for batch, numbers in text.batches(looked, reject, [name for name in theirs if name not in looked]):
                table = _checked(batch, numbers, reject)
                if self.options.time.format is not None:
                    table = _iso_times(table, self.options.source("timestamp"), self.options.time.format)
                if lines:
                    self.seen |= {name for name in self.unseen if table[name].null_count < len(table)}
                arrays = [
                    table[name] if name in table.column_names else pa.nulls(len(table), pa.string())
                    for name in (ROW, *self.read)
                ]
                yield pa.table([pa.repeat(printable(path), len(table)), *arrays], self.schema)
            late |= text.late if isinstance(text, JsonText) else set()

    def close(self) -> tuple[tuple[Path, ...], int]:
        """The folder of rows that could not be parsed, where there are any, and how many they are."""
        return tuple(self._stage.close().values()), self._stage.rows("rejected")


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
        marked = pc.match_substring(table[name], MARK)
        long = pc.greater(pc.binary_length(table[name]), LONGEST_CELL)
        for reason, mask in (("not_utf8", marked), ("value_too_long", long)):
            for at in pc.indices_nonzero(mask).to_pylist():
                bad.setdefault(at, (reason, f"{name}={table[name][at].as_py()[:1000]}"))
    if not bad:
        return table
    for at, (reason, text) in sorted(bad.items()):
        reject(table[ROW][at].as_py(), reason, text.replace(MARK, "\ufffd"))
    return table.filter(pa.array(~np.isin(np.arange(len(table)), list(bad))))


def _iso_times(table: Any, name: str, time_format: str) -> Any:
    """Times in a format of their own as ISO text; what does not fit stays as it is, to be rejected later."""
    if name not in table.column_names:
        return table
    try:
        parsed = pc.strptime(table[name], format=time_format, unit="us", error_is_null=True)
    except pa.ArrowInvalid as error:
        raise ConfigError(str(error)[:200], argument=Key("time.format"), value=time_format) from error
    text = pc.coalesce(pc.strftime(parsed, format="%Y-%m-%dT%H:%M:%S"), table[name])
    return table.set_column(table.column_names.index(name), name, text)
