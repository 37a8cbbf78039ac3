"""CSV, TSV and JSON lines to batches of text columns, in one pass over the file.

A row of CSV with too few or too many fields is rejected, not guessed at; fields beyond the last name of the header
are too many only if something is in them. A quote that is not closed makes one row of several. Where these have
too few or too many fields, or one of their values looks like the end of one row and the beginning of another,
every line of them is rejected. A line of JSON that is no object is rejected.
"""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.errors import DataError
from unskew.files import whole_lines
from unskew.tables.reading.files import MARK, Guarded, opened
from unskew.tables.reading.options import Texts

BLOCK = 4 * 2**20
"""Bytes parsed at once, which is also the longest row of CSV."""
LONGEST = 16 * 2**20
"""Bytes of the longest line of JSON; a longer one is rejected without being held."""
MOST_COLUMNS = 100_000
NULLS = ["", "\\N"]
DELIMITERS = ",\t;|"
HINT = 'give files.quote = "" in a mapping file where quotes do not enclose fields'
SERP = re.compile(r'"(serp_\w{1,100})"\s*:')
"""Keys of JSON that look like serp columns, also nested ones."""
Reject = Callable[[int, str, str], None]
"""Takes the row, the reason and the text."""
Batches = Iterator[tuple[Any, Any]]
"""Text columns, and the number of each row."""
Enough = Callable[[list[str]], bool]
"""Whether these columns are all that is needed, so that no further rows are asked for others."""


@contextmanager
def open_text(path: Path, kind: str, texts: Texts) -> Iterator[CsvText | JsonText]:
    """A text file, to be asked for its columns and then for its rows."""
    with opened(path, texts.max_expansion) as file:
        if kind != "jsonl":
            yield CsvText(file, path, kind, texts)
            return
        import duckdb

        with duckdb.connect(config={"threads": 1}) as con:  # rows keep their order
            yield JsonText(file, con)


def text_columns(path: Path, kind: str, texts: Texts) -> list[str]:
    """The columns of a text file."""
    with open_text(path, kind, texts) as text:
        return text.columns()


# ---- CSV ----


class CsvText:
    """An open CSV or TSV file; rows are numbered as the file has them, the header being row 1."""

    def __init__(self, file: Guarded, path: Path, kind: str, texts: Texts) -> None:
        self.file, self.path, self.texts = file, path, texts
        self._given = self._header(kind)
        """The names as they stand in the header."""
        first = {
            name: at for at, name in reversed([*enumerate(self._given)])
        }  # one that comes again gets a number
        self._names = [name if first[name] == at else f"column {at + 1}" for at, name in enumerate(self._given)]
        self._named = max((at + 1 for at, name in enumerate(self._given) if name), default=0)
        """How many names there are before the last ones, which are empty."""
        self._reject: Reject = lambda *_: None
        self._next, self._passed_over = 2, 0
        """The number of the next row, and lines that the parser did not take."""
        self._skipped: list[int] = []
        self._longer: list[tuple[int, str]] = []

    def _header(self, kind: str) -> list[str]:
        """The names in the first line, after it is known what lies between them."""
        first = self.file.first_line(BLOCK)

        def refuse(what: str, hint: str | None = None) -> DataError:
            return DataError(what, path=self.path, line=1, hint=hint)

        if len(first) > BLOCK:
            raise refuse("the header does not end", "this is not a CSV file")
        line = first.decode("utf-8").rstrip("\r")
        if not line.strip():
            raise refuse("the file has no header", "name the columns in line 1")
        texts = self.texts
        self._delimiter = texts.delimiter or ("\t" if kind == "tsv" else max(DELIMITERS, key=line.count))
        names = line.split(self._delimiter)
        if len(names) > MOST_COLUMNS:
            raise refuse(f"the header has {len(names):,} columns")
        if texts.quote:
            try:
                names = next(csv.reader([line], delimiter=self._delimiter, quotechar=texts.quote))
            except (csv.Error, StopIteration, ValueError, TypeError) as error:
                raise refuse(f"the header cannot be read ({error})") from error
        if MARK in line:
            hint = f"write the file in UTF-8: iconv -f LATIN1 -t UTF-8 {shlex.quote(str(self.path))} > NEW"
            raise refuse(f"the header is not UTF-8: {line[:200].replace(MARK, chr(0xFFFD))}", hint)
        return [name.strip() for name in names]

    def columns(self, wanted: Collection[str] = (), _: Enough | None = None) -> list[str]:
        """The names in the header; one that is wanted stands there once."""
        for name, count in Counter(self._given).items():
            if count > 1 and name and (name in wanted or name.startswith("serp_")):
                places = [str(at + 1) for at, each in enumerate(self._given) if each == name]
                what = f"{name} names {count} columns, {' and '.join(places)}"
                raise DataError(what, path=self.path, line=1, hint="rename those that are not meant")
        return self._names[: self._named]

    def batches(self, wanted: Sequence[str], reject: Reject, _: Collection[str] = ()) -> Batches:
        """Batches of text columns with the number of each row."""
        file, names, taken, seen = self.file, self._names, set(wanted), 1  # the header
        present = [name for name in names if name in taken]
        self._reject, file.watch = reject, self.texts.quote.encode()
        for batch in self._parsed(file, names, present, self._invalid):
            numbers = self._numbers(batch.num_rows)
            seen += batch.num_rows
            for column in batch.columns if file.met else ():
                seen += pc.sum(pc.count_substring(column, "\n")).as_py() or 0
            broken = dict(self._torn(batch)) if file.met else {}
            for at, lines in broken.items():
                for line in lines:
                    reject(int(numbers[at]), "unclosed_quote", line)
            whole = ~np.isin(np.arange(batch.num_rows), list(broken))
            yield _filled(batch, numbers, whole)
            if self._longer:
                yield from self._trimmed(present)
        others = [name for name in names if name not in taken]
        if file.met and others and file.lines > seen + self._passed_over:
            self._refuse_torn(others)

    def _parsed(self, file: Any, names: list[str], present: list[str], invalid: Any) -> Iterator[Any]:
        from pyarrow import csv as arrow_csv

        try:
            reader = arrow_csv.open_csv(
                pa.PythonFile(file, mode="r"),
                arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK, column_names=names, skip_rows=1),
                arrow_csv.ParseOptions(
                    delimiter=self._delimiter,
                    quote_char=self.texts.quote or False,
                    newlines_in_values=bool(self.texts.quote),
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
            raise DataError(what[:300], path=self.path, hint=HINT) from error

    def _refuse_torn(self, others: list[str]) -> None:
        """Lines lie inside values of columns that are not read: are they text, or rows that a quote took?"""
        with opened(self.path, self.texts.max_expansion) as file:
            for batch in self._parsed(file, self._names, others, lambda row: "skip"):
                for _, lines in self._torn(batch):
                    what = f"a quote is not closed, or closed in another line: {lines[0][:200]!r}"
                    raise DataError(what, path=self.path, hint=HINT)

    def _torn(self, batch: Any) -> Iterator[tuple[int, list[str]]]:
        """Rows in which a quoted field holds whole rows, with the lines of those."""
        names, delimiter = self._names, self._delimiter
        seen: set[int] = set()
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            several = pc.or_(pc.match_substring(column, "\n"), pc.match_substring(column, "\r"))
            for at in pc.indices_nonzero(several).to_pylist():
                lines = column[at].as_py().replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
                if at not in seen and _are_rows(lines, names.index(name), len(names), delimiter):
                    seen.add(at)
                    yield at, lines

    def _trimmed(self, present: list[str]) -> Batches:
        """Batches of the rows whose last fields were empty, parsed again without these."""
        between, number = self._delimiter, "unskew number"
        held, self._longer = self._longer, []

        def refuse(row: Any) -> str:
            before, _, text = row.text.partition(between)
            self._reject(int(before), "wrong_number_of_fields", text)
            return "skip"

        file = io.BytesIO("".join(["\n", *(f"{at}{between}{text}\n" for at, text in held)]).encode())
        for batch in self._parsed(file, [number, *self._names], [number, *present], refuse):
            numbers = batch[number].cast(pa.int64()).to_numpy()
            yield _filled(batch.select(present), numbers, np.ones(len(numbers), bool))

    def _invalid(self, row: Any) -> str:
        """A row with too few or too many fields; one whose last fields are empty is kept for `_trimmed`."""
        number, lines = row.number or 0, row.text.split("\n")
        self._skipped.append(number)
        self._passed_over += len(lines)
        end = (row.actual_columns - self._named) * self._delimiter
        if row.actual_columns >= self._named and len(lines) == 1 and row.text.endswith(end):
            fill = (len(self._names) - self._named) * self._delimiter
            self._longer.append((number, row.text.removesuffix(end) + fill))
            return "skip"
        reason = "not_utf8" if MARK in row.text else "wrong_number_of_fields"
        for line in lines:
            self._reject(number, reason, f"{row.actual_columns} fields, not {row.expected_columns}: {line}")
        return "skip"

    def _numbers(self, count: int) -> Any:
        """The numbers of the next so many good rows, whatever was skipped in between."""
        candidates = np.arange(self._next, self._next + count + len(self._skipped))
        good = np.setdiff1d(candidates, self._skipped, assume_unique=True)[:count]
        self._next = int(good[-1]) + 1 if count else self._next
        self._skipped = [number for number in self._skipped if number >= self._next]
        return good


def _filled(batch: Any, numbers: Any, whole: Any) -> tuple[Any, Any]:
    """Rows that are whole and have a value, with their numbers; an empty line has none."""
    there = [np.asarray(column.is_valid()) for column in batch.columns]
    kept = whole & np.any(there, axis=0)
    return (batch, numbers) if kept.all() else (batch.filter(pa.array(kept)), numbers[kept])


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


# ---- JSON lines ----


class JsonText:
    """An open file of JSON lines."""

    def __init__(self, file: Guarded, con: Any) -> None:
        self.late: set[str] = set()
        """Columns that begin after the first block, and are not read."""
        self._reject: Reject = lambda *_: None
        self._blocks, self._con = self._lines(file), con

    def columns(self, wanted: Collection[str] = (), enough: Enough = lambda names: True) -> list[str]:
        """The keys of the first block, and those of further ones that are wanted, until they are enough."""
        names: dict[str, None] = {}
        held: list[tuple[int, list[str]]] = []
        for block in self._blocks:
            table = self._objects(pa.table({"line": pa.array(block[1], pa.string())}))[0]
            sql = "SELECT k FROM (SELECT unnest(json_keys(line)) AS k FROM given) GROUP BY k ORDER BY k"
            found = [name for name in self._run(sql, table)["k"].to_pylist() if name]
            names |= dict.fromkeys(name for name in found if not held or name in wanted)
            held = held or [block]
            if enough(list(names)):
                break
        self._blocks = chain(held, self._blocks)
        return list(names)

    def batches(self, wanted: Sequence[str], reject: Reject, late: Collection[str] = ()) -> Batches:
        """Batches of text columns with the line of each row; keys of `late` are noted, as serp ones are."""
        self._reject = reject
        paths = [
            name if name.startswith("/") else "/" + name.replace("~", "~0").replace("/", "~1") for name in wanted
        ]
        picked = ", ".join(f'v[{at + 1}] AS "c{at}"' for at in range(len(wanted)))
        sql = f"SELECT {picked} FROM (SELECT json_extract_string(line, $paths) AS v FROM given)"
        known: set[str] | None = None
        for first, lines in self._blocks:
            names = {name for line in lines if '"serp_' in line for name in SERP.findall(line)}
            names |= {name for name in late if any(f'"{name}":' in line for line in lines)}
            known = {*wanted, *names} if known is None else known
            self.late |= names - known
            table = pa.table({"line": pa.array(lines, pa.string()), "row": np.arange(first, first + len(lines))})
            table = table.filter(pc.not_equal(pc.utf8_trim_whitespace(table["line"]), ""))
            good, bad = self._objects(table)
            for row, line in zip(bad["row"].to_pylist(), bad["line"].to_pylist(), strict=True):
                reject(row, "not_utf8" if MARK in line else "not_json", line.replace(MARK, "\ufffd"))
            if len(good):
                found = self._run(sql, good.select(["line"]), {"paths": paths})
                yield found.rename_columns(wanted), good["row"].to_numpy()

    def _lines(self, file: Guarded) -> Iterator[tuple[int, list[str]]]:
        for number, text, endless in whole_lines(iter(lambda: file.read(BLOCK), b""), LONGEST):
            if endless:
                self._reject(number, "line_too_long", text.decode("utf-8", "ignore"))
            else:
                yield number, text.decode("utf-8").split("\n")

    def _objects(self, table: Any) -> tuple[Any, Any]:
        sql = "SELECT CASE WHEN json_valid(line) THEN json_type(line) = 'OBJECT' ELSE false END AS ok FROM given"
        valid = self._run(sql, table.select(["line"]))["ok"]
        return table.filter(valid), table.filter(pc.invert(valid))

    def _run(self, sql: str, given: Any, params: dict[str, Any] | None = None) -> Any:
        self._con.register("given", given)
        return self._con.sql(sql, params=params).to_arrow_table()
