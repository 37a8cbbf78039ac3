"""CSV and TSV to batches of text columns; a row with too few or too many fields is rejected, not guessed at.

Fields beyond the last name of the header are too many only if something is in them.
A quote that is not closed makes one row of several. Where these have too few or too many fields, or one of their
values looks like the end of one row and the beginning of another, every line of them is rejected.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.errors import DataError
from unskew.tables.reading.files import MARK, Guarded, opened
from unskew.tables.reading.options import Texts

BLOCK = 4 * 2**20
"""Bytes parsed at once, which is also the longest row."""
MOST_COLUMNS = 100_000
NULLS = ["", "\\N"]
DELIMITERS = ",\t;|"
HINT = 'give files.quote = "" in a mapping file where quotes do not enclose fields'
Reject = Callable[[int, str, str], None]
"""Takes the row, the reason and the text."""


def csv_columns(path: Path, kind: str, texts: Texts, wanted: Collection[str] = ()) -> list[str]:
    """The names in the header; one that is wanted stands there once."""
    with opened(path, texts.max_expansion) as file:
        header = _header(_first_line(file, path), path, kind, texts)
    for name in header.repeated:
        places = [str(at + 1) for at, each in enumerate(header.given) if each == name]
        if name in wanted or name.startswith("serp_"):
            what = f"{name} names {len(places)} columns, {' and '.join(places)}"
            raise DataError(what, path=path, line=1, hint="rename those that are not meant")
    return header.names[: header.named]


class Header(NamedTuple):
    """The first line of a file."""

    names: list[str]
    named: int
    """How many there are before the last ones, which are empty."""
    delimiter: str
    given: list[str]
    """The names as they stand there."""

    @property
    def repeated(self) -> list[str]:
        """Names that stand there more than once."""
        return [name for name, count in Counter(self.given).items() if name and count > 1]


def _first_line(file: Guarded, path: Path) -> str:
    held = b""
    while b"\n" not in held and len(held) <= BLOCK and (data := file.read()):
        held += data
    line, newline, _ = held.partition(b"\n")
    if not newline and len(held) > BLOCK:
        raise DataError("the header does not end", path=path, line=1, hint="this is not a CSV file")
    return line.decode("utf-8").rstrip("\r")


def _header(line: str, path: Path, kind: str, texts: Texts) -> Header:
    """The names; one that comes again gets a number, so that it is not taken for the first."""
    if not line.strip():
        raise DataError("the file has no header", path=path, line=1, hint="name the columns in line 1")
    delimiter = texts.delimiter or ("\t" if kind == "tsv" else max(DELIMITERS, key=line.count))
    names = line.split(delimiter)
    if len(names) > MOST_COLUMNS:
        raise DataError(f"the header has {len(names):,} columns", path=path, line=1)
    if texts.quote:
        try:
            names = next(csv.reader([line], delimiter=delimiter, quotechar=texts.quote))
        except (csv.Error, StopIteration, ValueError, TypeError) as error:
            raise DataError(f"the header cannot be read ({error})", path=path, line=1) from error
    if MARK in line:
        hint = f"write the file in UTF-8: iconv -f LATIN1 -t UTF-8 {shlex.quote(str(path))} > NEW"
        shown = line[:200].replace(MARK, "\ufffd")
        raise DataError(f"the header is not UTF-8: {shown}", path=path, line=1, hint=hint)
    seen: set[str] = set()
    unique = []
    for at, name in enumerate(each.strip() for each in names):
        unique.append(name if name not in seen else f"column {at + 1}")
        seen.add(name)
    named = max((at + 1 for at, name in enumerate(names) if name.strip()), default=0)
    return Header(unique, named, delimiter, [name.strip() for name in names])


def csv_batches(
    path: Path, kind: str, wanted: list[str], texts: Texts, reject: Reject
) -> Iterator[tuple[Any, Any]]:
    """Batches of text columns with the number of each row, the header being row 1."""
    with opened(path, texts.max_expansion) as file:
        header = _header(_first_line(file, path), path, kind, texts)
    names, delimiter = header.names, header.delimiter
    taken = set(wanted)
    present = [name for name in names if name in taken]
    rows, seen = _Rows(header, reject), 1  # the header
    with opened(path, texts.max_expansion) as file:
        file.watch = texts.quote.encode()
        for batch in _batches(file, path, names, delimiter, present, texts, rows.invalid):
            numbers = rows.numbers(batch.num_rows)
            seen += batch.num_rows + (_newlines(batch) if file.met else 0)
            broken = dict(_torn(batch, names, delimiter)) if file.met else {}
            for at, lines in broken.items():
                for line in lines:
                    reject(int(numbers[at]), "unclosed_quote", line)
            whole = ~np.isin(np.arange(batch.num_rows), list(broken))
            yield (batch.filter(pa.array(whole)), numbers[whole]) if broken else (batch, numbers)
            if rows.longer:
                yield from _trimmed(rows, path, present, texts)
        others = [name for name in names if name not in taken]
        if file.met and others and file.lines > seen + rows.passed_over:
            _refuse_torn(path, names, delimiter, others, texts)


def _batches(
    file: Any, path: Path, names: list[str], delimiter: str, present: list[str], texts: Texts, invalid: Any
) -> Iterator[Any]:
    """Some columns of a CSV file as text."""
    from pyarrow import csv as arrow_csv

    try:
        reader = arrow_csv.open_csv(
            pa.PythonFile(file, mode="r"),
            arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK, column_names=names, skip_rows=1),
            arrow_csv.ParseOptions(
                delimiter=delimiter,
                quote_char=texts.quote or False,
                newlines_in_values=bool(texts.quote),
                ignore_empty_lines=False,
                invalid_row_handler=invalid,
            ),
            arrow_csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(present, pa.string()),
                include_columns=present,
                null_values=NULLS,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        yield from reader
    except pa.ArrowInvalid as error:
        if str(error).startswith("Empty CSV"):
            return
        what = str(error)
        if "straddl" in what:
            what = f"a row is longer than {BLOCK:,} bytes, or a quote is not closed"
        raise DataError(what[:300], path=path, hint=HINT) from error


def _refuse_torn(path: Path, names: list[str], delimiter: str, others: list[str], texts: Texts) -> None:
    """Lines lie inside values of columns that are not read: are they text, or rows that a quote took?"""
    with opened(path, texts.max_expansion) as file:
        for batch in _batches(file, path, names, delimiter, others, texts, lambda row: "skip"):
            for _, lines in _torn(batch, names, delimiter):
                what = f"a quote is not closed, or closed in another line: {lines[0][:200]!r}"
                raise DataError(what, path=path, hint=HINT)


def _newlines(batch: Any) -> int:
    """How many ends of lines are in the values."""
    return sum(pc.sum(pc.count_substring(column, "\n")).as_py() or 0 for column in batch.columns)


def _torn(batch: Any, names: list[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that are several, with their lines."""
    seen: set[int] = set()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        several = pc.fill_null(pc.or_(pc.match_substring(column, "\n"), pc.match_substring(column, "\r")), False)
        for at in np.flatnonzero(several.to_numpy(zero_copy_only=False)).tolist():
            lines = column[at].as_py().replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
            if at not in seen and _are_rows(lines, names.index(name), len(names), delimiter):
                seen.add(at)
                yield at, lines


def _are_rows(lines: list[str], place: int, columns: int, delimiter: str) -> bool:
    """Whether a value is the end of a row, whole rows, and the beginning of another, all of the right size.

    A quote that opens in a column can only close in the same column of another row, else fields would be missing.

    >>> _are_rows(["d,1,0", "p,q,e"], 2, 5, ","), _are_rows(["Hello,", "world"], 2, 5, ",")
    (True, False)
    """
    first, *others = (line.count(delimiter) for line in lines)
    return (
        len(others) > 0
        and first >= columns - 1 - place
        and others[-1] >= place
        and all(count >= columns - 1 or not line for count, line in zip(others[:-1], lines[1:-1], strict=True))
    )


class _Rows:
    """Numbers rows as the file has them, the header being row 1, whatever was skipped in between."""

    def __init__(self, header: Header, reject: Reject) -> None:
        self.header, self.reject, self.next = header, reject, 2
        self.passed_over = 0
        """Lines that the parser did not take."""
        self.skipped: list[int] = []
        self.longer: list[tuple[int, str]] = []

    def invalid(self, row: Any) -> str:
        """A row with too few or too many fields; one whose last fields are empty is kept for `trimmed`."""
        number, lines = row.number or 0, row.text.split("\n")
        self.skipped.append(number)
        self.passed_over += len(lines)
        end = (row.actual_columns - self.header.named) * self.header.delimiter
        if row.actual_columns >= self.header.named and len(lines) == 1 and row.text.endswith(end):
            fill = (len(self.header.names) - self.header.named) * self.header.delimiter
            self.longer.append((number, row.text.removesuffix(end) + fill))
            return "skip"
        reason = "not_utf8" if MARK in row.text else "wrong_number_of_fields"
        for line in lines:
            self.reject(number, reason, f"{row.actual_columns} fields, not {row.expected_columns}: {line}")
        return "skip"

    def numbers(self, count: int) -> Any:
        """The numbers of the next so many good rows."""
        candidates = np.arange(self.next, self.next + count + len(self.skipped))
        good = np.setdiff1d(candidates, self.skipped, assume_unique=True)[:count]
        self.next = int(good[-1]) + 1 if count else self.next
        self.skipped = [number for number in self.skipped if number >= self.next]
        return good

    def refuse(self, row: Any) -> str:
        """A row that `_trimmed` wrote, with its number before it, and that is broken all the same."""
        number, _, text = row.text.partition(self.header.delimiter)
        self.reject(int(number), "wrong_number_of_fields", text)
        return "skip"


def _trimmed(rows: _Rows, path: Path, present: list[str], texts: Texts) -> Iterator[tuple[Any, Any]]:
    """Batches of the rows whose last fields were empty, parsed again without these."""
    between, number = rows.header.delimiter, "unskew number"
    held, rows.longer = rows.longer, []
    file = io.BytesIO("".join(["\n", *(f"{at}{between}{text}\n" for at, text in held)]).encode())
    names = [number, *rows.header.names]
    for batch in _batches(file, path, names, between, [number, *present], texts, rows.refuse):
        yield batch.select(present), batch[number].cast(pa.int64()).to_numpy()
