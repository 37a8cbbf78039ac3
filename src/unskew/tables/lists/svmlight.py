"""Parse LETOR / SVMlight text, block after block, into arrays on disk.

    label qid:ID 1:0.5 7:2 # comment

The start of a line (label, query) is checked line by line; the features of a block go through one call of Arrow's
number parser. A block in which anything looks unusual is read again line by line by `slow_entries`, which says
what is wrong in which line, or finds that nothing is.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unskew.errors import DataError, Option
from unskew.files import WRITERS, PathLike, unpacked, whole_lines
from unskew.tables.lists.survey import row_blocks
from unskew.types import Array

BLOCK = 2 * 2**20
"""Bytes of text parsed at once; small enough for the processor's cache, which makes it twice as fast as 16 MB."""
LONGEST_LINE = 64 * 2**20
MOST_FEATURES = 1_000_000
"""Feature ids above this are taken for a mistake: the matrix is dense."""
HIGHEST_GRADE = 32767
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
ENTRY = re.compile(rb"0*(\d{1,18}):(%b)" % NUMBER.pattern)
INTEGER = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
DOC_ID = re.compile(rb"\s*docid\s*[=:]\s*(\S+)")


class ListFile(NamedTuple):
    """A file, and the file with its group sizes where it has no qid."""

    path: Path
    groups: Path | None = None


def parse_files(
    sources: Sequence[ListFile], folder: Path, *, doc_ids: bool, width: int | None
) -> dict[str, Array]:
    """The arrays of the files of one set, those of features in a folder."""
    matrix = GrowingMatrix(folder / "features.bin", "<f4", width or 0)
    present = GrowingMatrix(folder / "present.bin", "|u1", ((width or 0) + 7) // 8)
    parser, entries = Parser(doc_ids), 0
    for source in sources:
        before, parser.last = len(parser.labels), b""
        groups = None if source.groups is None else group_tokens(source.groups, len(parser.seen))
        for first, block in read_blocks(source.path):
            lines, rests = parser.take_heads(block, first, source.path, groups)
            if rests:
                entries += _append(rests, lines, source.path, width or MOST_FEATURES, matrix, present)
        if len(parser.labels) == before:
            raise DataError("no data lines", path=source.path, hint="the file is empty or has only comments")
        if groups is not None and next(groups, None) is not None:
            what = f"group sizes sum to more than the {len(parser.labels) - before} data lines of {source.path}"
            raise DataError(what, path=source.groups, hint="check that the two files belong together")
    if matrix.width == 0:
        raise DataError("no line has a feature", path=sources[0].path, hint="write `label qid:ID 1:value ...`")
    arrays = {"features": matrix.array()} | parser.columns()
    if entries < len(parser.labels) * matrix.width:
        return arrays | {"present": present.array()}
    present.path.unlink()
    return arrays


class Parser:
    """Takes label, query and document id off each line of the files of a set."""

    def __init__(self, doc_ids: bool) -> None:
        self.labels = array("h")
        self.docs: list[str] | None = [] if doc_ids else None
        self.starts: list[int] = []
        """The first row of each query."""
        self.seen: dict[str, str] = {}
        """Where each query began, in the order of the files."""
        self.last, self._grades = b"", dict[bytes, int]()

    def take_heads(
        self, block: bytes, first: int, path: Path, groups: Iterator[bytes] | None
    ) -> tuple[list[int], list[bytes]]:
        """The numbers of the lines of a block that have data, and what each has after its head.

        The qid of a line is in it, or the next one of `groups`.
        """
        lines, rests, grades, splits = list[int](), list[bytes](), self._grades, 2 if groups is None else 1
        for line, text in enumerate(block.split(b"\n"), first):
            body, _, comment = text.partition(b"#")
            head = body.split(None, splits)
            if not head:
                continue
            if head[0] not in grades:
                grades[head[0]] = _grade(head[0], path, line)
            token = next(groups, b"") if groups is not None else head[1] if len(head) > 1 else b""
            if not token or token != self.last:
                self._begin_query(token, path, line)
            self.labels.append(grades[head[0]])
            lines.append(line)
            rests.append(head[splits] if len(head) > splits else b"")
            if self.docs is not None:
                match = DOC_ID.match(comment)
                if match is None:
                    hint = ("end each line with `# docid = ID`, or pass ", Option("doc_ids", False))
                    raise DataError("no document id in the comment", path=path, line=line, hint=hint)
                self.docs.append(_text(match[1], "document id", path, line))
        return lines, rests

    def _begin_query(self, token: bytes, path: Path, line: int) -> None:
        """A token that differs from the line before: check that it is a new qid, and note where it starts."""
        if not token.startswith(b"qid:") or len(token) == 4:
            hint = "write `label qid:ID 1:value ...`, or put all group sizes, one per line, into FILE.query"
            what = (
                f"no qid after the label, but {quote(token)}" if token else "no qid after the label, no group size"
            )
            raise DataError(what, path=path, line=line, hint=hint)
        query = _text(token[4:], "qid", path, line)
        if query in self.seen:
            hint = "put the lines of a query together, in one file"
            raise DataError(f"qid {query} was already at {self.seen[query]}", path=path, line=line, hint=hint)
        self.seen[query] = f"{path}:{line}"
        self.starts.append(len(self.labels))
        self.last = token

    def columns(self) -> dict[str, Array]:
        """The arrays of all documents and queries."""
        found: dict[str, Array] = {
            "labels": np.array(self.labels, np.int16),
            "offsets": np.array([*self.starts, len(self.labels)], np.int64),
        }
        if all(INTEGER.fullmatch(query) and abs(int(query)) < 2**63 for query in self.seen):
            found["query_ids"] = np.array([int(query) for query in self.seen], np.int64)
        else:
            found["query_ids"] = np.array(list(self.seen), np.str_)
        return found if self.docs is None else found | {"doc_ids": np.array(self.docs, np.str_)}


# ---- features ----


def _append(
    rests: Sequence[bytes],
    lines: Sequence[int],
    path: Path,
    limit: int,
    matrix: GrowingMatrix,
    present: GrowingMatrix,
) -> int:
    """Add the features of some lines to the matrix, and bits of what is present; returns how many there are."""
    counts, ids, values = fast_entries(rests, limit) or slow_entries(rests, lines, path, limit)
    width, ends = max(matrix.width, int(ids.max(initial=0))), np.cumsum(counts)
    for rows in row_blocks(len(rests), width):
        each = counts[rows]
        cut = slice(int(ends[rows.start] - each[0]), int(ends[rows.stop - 1]))
        dense, mask = values[cut], np.ones(len(each) * width, bool)
        if len(dense) < len(mask):  # else these are 1 to width in every line, since ids ascend
            flat = np.repeat(np.arange(len(each)) * width - 1, each) + ids[cut]
            dense, mask = np.zeros(len(mask), np.float32), np.zeros(len(mask), bool)
            dense[flat], mask[flat] = values[cut], True
        matrix.append(dense.reshape(len(each), width))
        present.append(np.packbits(mask.reshape(len(each), width), axis=1))
    return len(ids)


class GrowingMatrix:
    """A matrix in a file, written block after block; a wider block widens the rows before it with zeros."""

    def __init__(self, path: Path, dtype: str, width: int = 0) -> None:
        self.path, self.dtype, self.rows, self.width = path, np.dtype(dtype), 0, width

    def append(self, block: Array) -> None:
        """Add the rows of a block [n, width]."""
        width = max(self.width, block.shape[1])
        if self.rows and width > self.width:
            narrow, old = self.array(), self.path.with_suffix(".old")
            self.path.rename(old)
            for rows in row_blocks(self.rows, width):
                self._write(narrow[rows], width)
            old.unlink()
        self._write(block, width)
        self.rows, self.width = self.rows + len(block), width

    def array(self) -> Array:
        """The matrix as it is now, memory-mapped."""
        return np.memmap(self.path, self.dtype, "r", 0, (self.rows, self.width))

    def _write(self, block: Array, width: int) -> None:
        if block.shape[1] < width:
            block = np.pad(block, ((0, 0), (0, width - block.shape[1])))
        with self.path.open("ab") as file:
            file.write(np.ascontiguousarray(block, dtype=self.dtype).data)


class Entries(NamedTuple):
    """Features of n lines: counts [n] per line, ids [m] from 1 and values [m], line after line."""

    counts: Array
    ids: Array
    values: Array


def fast_entries(rests: Sequence[bytes], limit: int) -> Entries | None:
    """Features of many lines at once, or None where `slow_entries` should look: it decides what is legal."""
    import pyarrow as pa
    from pyarrow import csv

    text = b" ".join(rests)
    if b":" not in text or text.translate(None, b"0123456789.eE+-: \t\r"):
        return None
    counts = np.fromiter((rest.count(b":") for rest in rests), np.int64, len(rests))
    try:
        table = csv.read_csv(
            pa.py_buffer(text.translate(bytes.maketrans(b" \t\r", b"\n\n\n"))),
            read_options=csv.ReadOptions(column_names=["id", "value"], use_threads=False),
            parse_options=csv.ParseOptions(delimiter=":", quote_char=False),
            convert_options=csv.ConvertOptions(
                column_types={"id": pa.int32(), "value": pa.float64()}, null_values=[], check_utf8=False
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table["id"].null_count or table["value"].null_count or len(table) != counts.sum():
        return None
    with np.errstate(over="ignore"):
        ids, values = table["id"].to_numpy(), table["value"].to_numpy().astype(np.float32)
    follows = np.ones(len(ids) + 1, bool)  # whether an entry follows another one of its line
    follows[np.cumsum(counts) - counts] = False
    ascending = np.all((ids[1:] > ids[:-1]) | ~follows[1:-1])
    sound = ascending and ids.min() >= 1 and ids.max() <= limit and np.isfinite(values).all()
    return Entries(counts, ids, values) if sound else None


def slow_entries(rests: Sequence[bytes], lines: Sequence[int], path: Path, limit: int) -> Entries:
    """Features line by line; raises DataError with the line where one is not legal."""
    counts, ids, values = [], [], []
    for line, rest in zip(lines, rests, strict=True):
        tokens, last = rest.split(), 0
        for token in tokens:
            last, value = _entry(token, last, limit, path, line)
            ids.append(last)
            values.append(value)
        counts.append(len(tokens))
    return Entries(np.array(counts, np.int64), np.array(ids, np.int32), np.array(values, np.float32))


def _entry(token: bytes, last: int, limit: int, path: Path, line: int) -> tuple[int, np.float32]:
    found, number, value = ENTRY.fullmatch(token), 0, np.float32(0)
    if found is not None:
        with np.errstate(over="ignore"):
            number, value = int(found[1]), np.float32(float(found[2]))
    if found is None:
        what, hint = "no feature id, colon and finite number", "write id:value; a qid comes right after the label"
    elif not 1 <= number <= limit:
        most = f"{limit:,}" + (", the width declared" if limit != MOST_FEATURES else "")
        what, hint = f"feature id is not from 1 to {most}", "check the file, or pass features=WIDTH"
    elif number <= last:
        what, hint = f"feature id does not come after {last}", "name each feature once, in ascending order"
    elif not np.isfinite(value):
        what, hint = "value does not fit a 32-bit float", "scale the feature first"
    else:
        return number, value
    raise DataError(f"{what} in {quote(token)}", path=path, line=line, hint=hint)


def _grade(token: bytes, path: Path, line: int) -> int:
    grade = float(token) if NUMBER.fullmatch(token) else -1.0
    if not (grade.is_integer() and 0 <= grade <= HIGHEST_GRADE):
        hint = "start each line with a grade; map grades to 0, 1, 2, ... first"
        raise DataError(f"label is not an integer from 0: {quote(token)}", path=path, line=line, hint=hint)
    return int(grade)


def _text(token: bytes, what: str, path: Path, line: int) -> str:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        hint = "convert the file to UTF-8"
        raise DataError(f"{what} is not UTF-8: {quote(token)}", path=path, line=line, hint=hint) from None
    if "\0" in text:
        raise DataError(f"{what} has a zero byte: {quote(token)}", path=path, line=line, hint="remove it")
    return text


def quote(token: bytes) -> str:
    """A token as an error quotes it: short, and printable whatever it holds."""
    text = bytes(islice(token, 60)).decode(errors="backslashreplace")
    return repr(text + ("..." if len(token) > 60 else ""))


# ---- files ----


def read_blocks(path: Path, size: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with the number of its first line."""
    for line, text, endless in whole_lines(unpacked(path, size=size or BLOCK), LONGEST_LINE):
        if endless:
            raise DataError("line does not end", path=path, line=line, hint="this is not a LETOR file")
        yield line, text


def find_sources(paths: PathLike | Sequence[PathLike]) -> list[ListFile]:
    """One path or several, all of them files, each with the group sizes that lie beside it."""
    listed = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if not listed:
        raise DataError("no files given", hint="pass a path or a list of paths")
    for path in listed:
        if path.is_dir():
            raise DataError("is a folder, not a file", path=path, hint="name its files")
        if not path.exists():
            hint = "pass sorted(Path(folder).glob(pattern))" if "*" in path.name else "check the path"
            raise DataError("no such file", path=path, hint=hint)
    return [ListFile(path, side_file(path)) for path in listed]


def side_file(path: Path) -> Path | None:
    """The group sizes beside a file whose first line has no qid: rank.train.xz -> rank.train.query.gz."""
    plain = path.with_suffix("") if path.suffix in WRITERS else path
    beside = [plain.with_name(f"{plain.name}.query{end}") for end in WRITERS]
    found = next((side for side in beside if side.is_file()), None)
    if found is None:
        return None
    for _, block in read_blocks(path, 2**16):
        for line in block.split(b"\n"):
            if tokens := line.partition(b"#")[0].split(None, 2):
                return None if len(tokens) > 1 and tokens[1].startswith(b"qid:") else found
    return None


def group_tokens(groups: Path, known: int) -> Iterator[bytes]:
    """The qid of each line by group sizes, after so many known: 3, 2 -> qid:1 three times, qid:2 twice."""
    for number, block in read_blocks(groups):
        for line, text in enumerate(block.split(b"\n"), number):
            if not (size := text.strip()):
                continue
            if not size.isdigit() or len(size) > 18 or int(size) == 0:
                hint = "write one group size, a positive integer, per line"
                raise DataError(f"group size is {quote(size)}", path=groups, line=line, hint=hint)
            known += 1
            yield from repeat(b"qid:%d" % known, int(size))
