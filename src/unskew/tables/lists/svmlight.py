"""Parse blocks of LETOR / SVMlight lines: the start of each line, and the features of many lines at once.

    label qid:ID 1:0.5 7:2 # comment

The start of a line (label, query) is checked line by line; the features of a block go through one call of Arrow's
number parser. A block in which anything looks unusual is read again line by line by `slow_entries`, which says
what is wrong in which line, or finds that nothing is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from unskew.errors import DataError, Option
from unskew.files import WRITERS, PathLike, unpacked
from unskew.types import Array

BLOCK = 2 * 2**20
"""Bytes of text parsed at once; small enough for the processor's cache, which makes it twice as fast as 16 MB."""
LONGEST_LINE = 64 * 2**20
MOST_FEATURES = 1_000_000
"""Feature ids above this are taken for a mistake: the matrix is dense."""
HIGHEST_GRADE = 32767
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
DOC_ID = re.compile(rb"\s*docid\s*[=:]\s*(\S+)")


@dataclass
class Parsing:
    """What has been read so far, apart from the features."""

    doc_ids: bool
    grouped: bool
    limit: int
    labels: list[Array] = field(default_factory=list)
    docs: list[Array] = field(default_factory=list)
    rows: int = 0
    starts: list[int] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    last: bytes = b""
    seen: dict[str, str] = field(default_factory=dict)
    grades: dict[bytes, int] = field(default_factory=dict)

    def begin_query(self, token: bytes, row: int, path: Path, line: int) -> None:
        """A token that differs from the line before: check that it is a new qid, and note where it starts."""
        if not token.startswith(b"qid:") or len(token) == 4:
            hint = "write `label qid:ID 1:value ...`, or put group sizes, one per line, into FILE.query"
            raise DataError(f"no qid after the label, but {quote(token)}", path=path, line=line, hint=hint)
        query = _text(token[4:], "qid", path, line)
        if query in self.seen:
            hint = "put the lines of a query together, in one file"
            raise DataError(f"qid {query} was already at {self.seen[query]}", path=path, line=line, hint=hint)
        self.seen[query] = f"{path}:{line}"
        self.queries.append(query)
        self.starts.append(row)
        self.last = token


def parse_heads(block: bytes, first: int, path: Path, progress: Parsing) -> tuple[list[int], list[bytes]]:
    """Take label, query and document id off each line; returns the line numbers and the rest of each line."""
    lines: list[int] = []
    rests: list[bytes] = []
    labels: list[int] = []
    docs: list[str] = []
    grades, splits = progress.grades, 1 if progress.grouped else 2
    for line, text in enumerate(block.split(b"\n"), first):
        body, _, comment = text.partition(b"#")
        head = body.split(None, splits)
        if not head:
            continue
        if head[0] not in grades:
            grades[head[0]] = _grade(head[0], path, line)
        if splits == 2 and (len(head) < 2 or head[1] != progress.last):
            progress.begin_query(head[1] if len(head) > 1 else b"", progress.rows + len(rests), path, line)
        labels.append(grades[head[0]])
        lines.append(line)
        rests.append(head[splits] if len(head) > splits else b"")
        if progress.doc_ids:
            docs.append(_doc_id(comment, path, line))
    if rests:
        progress.rows += len(rests)
        progress.labels.append(np.array(labels, np.int16))
        if progress.doc_ids:
            progress.docs.append(np.array(docs, np.str_))
    return lines, rests


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
        entries = Entries(counts, table["id"].to_numpy(), table["value"].to_numpy().astype(np.float32))
    return entries if _is_sound(entries, limit) else None


def _is_sound(entries: Entries, limit: int) -> bool:
    """Ids from 1 to the limit, ascending within each line; values finite."""
    counts, ids, values = entries
    follows = np.ones(len(ids) + 1, bool)  # whether an entry follows another one of its line
    follows[np.cumsum(counts) - counts] = False
    ascending = bool(np.all((ids[1:] > ids[:-1]) | ~follows[1:-1]))
    return ascending and bool(ids.min() >= 1) and bool(ids.max() <= limit) and bool(np.isfinite(values).all())


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
    """One `id:value` that follows the id `last` in its line."""

    def refuse(message: str, hint: str) -> NoReturn:
        raise DataError(f"{message} in {quote(token)}", path=path, line=line, hint=hint)

    name, colon, text = token.partition(b":")
    if name == b"qid":
        refuse("qid out of place", "put it right after the label, and nowhere if there are group sizes")
    if not colon or not name.isdigit():
        refuse("no feature id and colon", "write features as id:value, with no blank inside")
    if len(name.lstrip(b"0")) > 18 or not 1 <= (number := int(name.lstrip(b"0") or b"0")) <= limit:
        most = f"{limit:,}" + (", the width declared" if limit != MOST_FEATURES else "")
        refuse(f"feature id is not from 1 to {most}", "check the file, or pass features=WIDTH")
    if number <= last:
        refuse(f"feature id does not come after {last}", "name each feature once, in ascending order")
    if not NUMBER.fullmatch(text):
        refuse("value is not a finite number", "fix the value, or leave the feature out")
    with np.errstate(over="ignore"):
        value = np.float32(float(text))
    if not np.isfinite(value):
        refuse("value does not fit a 32-bit float", "scale the feature first")
    return number, value


def _grade(token: bytes, path: Path, line: int) -> int:
    """The label at the start of a line."""
    if not NUMBER.fullmatch(token):
        hint = "start each line with an integer grade"
        raise DataError(f"label is not a number: {quote(token)}", path=path, line=line, hint=hint)
    grade = float(token)
    if not (grade.is_integer() and 0 <= grade <= HIGHEST_GRADE):
        hint = "map the grades to 0, 1, 2, ... first"
        raise DataError(f"label is not an integer from 0: {quote(token)}", path=path, line=line, hint=hint)
    return int(grade)


def _doc_id(comment: bytes, path: Path, line: int) -> str:
    match = DOC_ID.match(comment)
    if match is None:
        hint = ("end each line with `# docid = ID`, or pass ", Option("doc_ids", False))
        raise DataError("no document id in the comment", path=path, line=line, hint=hint)
    return _text(match[1], "document id", path, line)


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
    line, rest = 1, b""
    for chunk in unpacked(path, size=size or BLOCK):
        text, newline, rest = (rest + chunk).rpartition(b"\n")
        if len(rest) > LONGEST_LINE:
            raise DataError("line does not end", path=path, line=line, hint="this is not a LETOR file")
        if newline:
            yield line, text
            line += text.count(b"\n") + 1
    if rest:
        yield line, rest


@dataclass(frozen=True)
class ListFile:
    """A file, and the file with its group sizes where it has no qid."""

    path: Path
    groups: Path | None = None

    def files(self) -> list[Path]:
        """Every file that is read."""
        return [self.path] if self.groups is None else [self.path, self.groups]


def as_paths(paths: PathLike | Sequence[PathLike]) -> list[Path]:
    """One path or several as a list, all of which are files."""
    listed = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if not listed:
        raise DataError("no files given", hint="pass a path or a list of paths")
    for path in listed:
        if path.is_dir():
            raise DataError("is a folder, not a file", path=path, hint="name its files, or use read_preset")
        if not path.exists():
            hint = "pass sorted(Path(folder).glob(pattern))" if "*" in path.name else "check the path"
            raise DataError("no such file", path=path, hint=hint)
    return listed


def find_sources(paths: Sequence[Path], groups: Sequence[Path] | None) -> list[ListFile]:
    """Each file with its group sizes: those given, or those that lie beside it."""
    if groups is not None:
        if len(groups) != len(paths):
            raise DataError(f"{len(groups)} group files for {len(paths)} files", hint="pass one for each file")
        return [ListFile(*pair) for pair in zip(paths, groups, strict=True)]
    sources = [ListFile(path, side_file(path)) for path in paths]
    if len({source.groups is None for source in sources}) > 1:
        bare = next(source.path for source in sources if source.groups is None)
        hint = "read them apart, or give every file a .query file and no qid"
        raise DataError("other files of this set have a .query file, this one has not", path=bare, hint=hint)
    return sources


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


def read_groups(source: ListFile, first_row: int, rows: int) -> list[int]:
    """Where the queries of a file of so many rows start, from its group sizes: 3, 2 -> rows 0, 3."""
    assert source.groups is not None
    row, starts = first_row, []
    for first, block in read_blocks(source.groups):
        for line, text in enumerate(block.split(b"\n"), first):
            if not (size := text.strip()):
                continue
            if not size.isdigit() or len(size) > 18 or int(size) == 0:
                hint = "write one group size, a positive integer, per line"
                raise DataError(f"group size is {quote(size)}", path=source.groups, line=line, hint=hint)
            starts.append(row)
            row += int(size)
    if row != first_row + rows:
        raise DataError(
            f"group sizes sum to {row - first_row}, but {source.path} has {rows} data lines",
            path=source.groups,
            hint="check that the two files belong together",
        )
    return starts
