"""Read labelled lists from LETOR / SVMlight text, and the public data sets by name.

    label qid:ID 1:0.5 7:2 # comment

A file is read in blocks of whole lines. The start of each line (label, query) is checked line by line; the
features of a block go through one call of Arrow's number parser. A block in which anything looks unusual is read
again line by line by `_slow_entries`, which says what is wrong in which line, or finds that nothing is.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np

from unskew.clicks.store import (
    GrowingMatrix,
    cache_root,
    content_digest,
    entry_key,
    fetch_entry,
    open_entry,
    seal_entry,
)
from unskew.errors import ConfigError, DataError, did_you_mean
from unskew.types import Array, Lists

BLOCK = 2 * 2**20
"""Bytes of text parsed at once; small enough for the processor's cache, which makes it twice as fast as 16 MB."""
LONGEST_LINE = 64 * 2**20
MOST_FEATURES = 1_000_000
"""Feature ids above this are taken for a mistake: the matrix is dense."""
HIGHEST_GRADE = 32767

OPENERS: Mapping[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
"""How to open a file, by the end of its name."""

NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
INTEGER = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)
DOC_ID = re.compile(rb"\s*docid\s*[=:]\s*(\S+)")

PathLike = str | Path


class Splits(NamedTuple):
    """A data set in its three parts."""

    train: Lists
    validation: Lists
    test: Lists


@dataclass(frozen=True)
class Preset:
    """What is known of a public data set: its width and the names of its files."""

    features: int
    """Number of features, the same in every split."""
    files: tuple[str, str, str]
    """File names of train, validation and test."""
    folders: tuple[str, ...] = ()
    """Folders that the archive unpacks to; looked into besides the folder given."""
    folds: int = 1
    """With more than one, the files lie in Fold1, Fold2, ..."""
    partitions: bool = False
    """Also found as S1.txt to S5.txt, of which a fold takes three, one and one in a circle."""
    doc_ids: bool = False
    """Each line's comment names the document."""
    splits_train: bool = False
    """May come without a validation file; then the last tenth of the training queries serves."""


_LETOR_FILES = ("train.txt", "vali.txt", "test.txt")

PRESETS: Mapping[str, Preset] = {
    "yahoo-set1": Preset(700, ("set1.train.txt", "set1.valid.txt", "set1.test.txt")),
    "yahoo-set2": Preset(700, ("set2.train.txt", "set2.valid.txt", "set2.test.txt")),
    "istella": Preset(220, _LETOR_FILES, ("full", "istella-letor", "istella-letor/full"), splits_train=True),
    "istella-s": Preset(220, _LETOR_FILES, ("sample", "istella-s-letor", "istella-s-letor/sample")),
    "mslr-web10k": Preset(136, _LETOR_FILES, ("MSLR-WEB10K",), folds=5),
    "mslr-web30k": Preset(136, _LETOR_FILES, ("MSLR-WEB30K",), folds=5),
    "mq2007": Preset(46, _LETOR_FILES, ("MQ2007",), folds=5, partitions=True, doc_ids=True),
    "mq2008": Preset(46, _LETOR_FILES, ("MQ2008",), folds=5, partitions=True, doc_ids=True),
}
"""The data sets that `read_preset` knows."""


def read_letor(
    path_or_paths: PathLike | Sequence[PathLike],
    *,
    groups: PathLike | Sequence[PathLike] | None = None,
    preset: str | None = None,
    doc_ids: bool = False,
    features: int | None = None,
    cache: bool | PathLike = True,
    name: str | None = None,
) -> Lists:
    r"""Read one set of labelled lists from one or several files, which may end in .gz, .xz or .bz2.

    `groups` names files with one group size per line for files without qid, in the same order; without it,
    `FILE.query` is used where it lies beside. Queries are then numbered from 1. `doc_ids=True` takes each
    document's id from the comment (`# docid = X`). `features` declares the width, as does `preset`.
    The parsed arrays are kept in `cache` (True: the user's cache folder) and memory-mapped from there.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "tiny.txt"
    >>> _ = path.write_text("2 qid:7 1:0.5 3:1\n0 qid:7 2:4\n1 qid:9 1:1 # the second query\n")
    >>> lists = read_letor(path, cache=False)
    >>> lists.features.tolist(), lists.offsets.tolist(), lists.query_ids.tolist()
    ([[0.5, 0.0, 1.0], [0.0, 4.0, 0.0], [1.0, 0.0, 0.0]], [0, 2, 3], [7, 9])
    """
    paths = _as_paths(path_or_paths)
    if features is None and preset is not None:
        features = _preset(preset).features
    if features is not None and not 1 <= features <= MOST_FEATURES:
        raise ConfigError(f"features must be from 1 to {MOST_FEATURES:,}, not {features}")
    sources = _sources(paths, None if groups is None else _as_paths(groups))
    write = partial(_parse, sources, doc_ids=doc_ids, width=features)
    if cache is False:
        with tempfile.TemporaryDirectory(prefix="unskew-") as folder:
            write(Path(folder))
            seal_entry(Path(folder))
            arrays = open_entry(Path(folder), mapped=False)
    else:
        arrays = _cached(sources, {"doc_ids": doc_ids, "features": features}, cache_root(cache), write)
    assert arrays is not None, "an entry just written can be opened"
    return Lists(
        features=arrays["features"],
        offsets=arrays["offsets"],
        labels=arrays["labels"],
        query_ids=arrays["query_ids"],
        doc_ids=arrays.get("doc_ids"),
        present=arrays.get("present"),
        name=name or preset or "+".join(path.name for path in paths),
    )


def read_preset(
    name: str, folder: PathLike, *, fold: int = 1, doc_ids: bool | None = None, cache: bool | PathLike = True
) -> Splits:
    """Read train, validation and test of a public data set (see `PRESETS`) from the folder it was unpacked in."""
    preset = _preset(name)
    if not 1 <= fold <= preset.folds:
        raise ConfigError(f"{name} has folds 1 to {preset.folds}, not {fold}")
    train, validation, test = (
        read_letor(
            paths,
            features=preset.features,
            doc_ids=preset.doc_ids if doc_ids is None else doc_ids,
            cache=cache,
            name=f"{name}-{split}",
        )
        if paths
        else None
        for split, paths in zip(Splits._fields, _find_files(name, preset, Path(folder), fold), strict=True)
    )
    assert train is not None
    assert test is not None
    if validation is None:
        cut = max(1, len(train) - max(1, len(train) // 10))
        train, validation = _slice(train, 0, cut), _slice(train, cut, len(train), f"{name}-validation")
    return Splits(train, validation, test)


def open_maybe_compressed(path: Path) -> IO[bytes]:
    """Open for reading in binary mode, decompressing by the end of the name."""
    file: IO[bytes] = OPENERS.get(path.suffix, open)(path, "rb")
    return file


# ------------------------------------------------------------------------------------------------ which files


@dataclass(frozen=True)
class _Source:
    """A file, and the file with its group sizes where it has no qid."""

    path: Path
    groups: Path | None = None

    def files(self) -> list[Path]:
        return [self.path] if self.groups is None else [self.path, self.groups]


def _as_paths(paths: PathLike | Sequence[PathLike]) -> list[Path]:
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


def _sources(paths: Sequence[Path], groups: Sequence[Path] | None) -> list[_Source]:
    if groups is not None:
        if len(groups) != len(paths):
            raise DataError(f"{len(groups)} group files for {len(paths)} files", hint="pass one for each file")
        return [_Source(*pair) for pair in zip(paths, groups, strict=True)]
    sources = [_Source(path, _side_file(path)) for path in paths]
    if len({source.groups is None for source in sources}) > 1:
        bare = next(source.path for source in sources if source.groups is None)
        hint = "read them apart, or give every file a .query file and no qid"
        raise DataError("other files of this set have a .query file, this one has not", path=bare, hint=hint)
    return sources


def _side_file(path: Path) -> Path | None:
    """The group sizes beside a file whose first line has no qid: rank.train.xz -> rank.train.query.gz."""
    plain = path.with_suffix("") if path.suffix in OPENERS else path
    beside = [plain.with_name(f"{plain.name}.query{end}") for end in OPENERS]
    found = next((side for side in beside if side.is_file()), None)
    if found is None:
        return None
    for _, block in _blocks(path, 2**16):
        for line in block.split(b"\n"):
            if tokens := line.partition(b"#")[0].split(None, 2):
                return None if len(tokens) > 1 and tokens[1].startswith(b"qid:") else found
    return None


def _preset(name: str) -> Preset:
    if name not in PRESETS:
        raise ConfigError(f"unknown data set {name!r}. {did_you_mean(name, PRESETS)}")
    return PRESETS[name]


def _find_files(name: str, preset: Preset, folder: Path, fold: int) -> list[list[Path]]:
    """Paths of train, validation and test in the first place that has them all."""
    inside = f"Fold{fold}/" if preset.folds > 1 else ""
    layouts = [[[inside + file] for file in preset.files]]
    if preset.splits_train:
        layouts.append([layouts[0][0], [], layouts[0][2]])
    if preset.partitions:
        circle = [f"S{(fold - 1 + step) % 5 + 1}.txt" for step in range(5)]
        layouts.append([circle[:3], circle[3:4], circle[4:]])
    places = [folder, *(folder / sub for sub in preset.folders)]
    for place in places:
        for layout in layouts:
            found = [[_existing(place / file) for file in split] for split in layout]
            if all(path is not None for split in found for path in split):
                return [[path for path in split if path is not None] for split in found]
    names = " or ".join(", ".join(file for split in layout for file in split) for layout in layouts)
    raise DataError(
        f"the files of {name} are not all there: looked for {names} (also with .gz, .xz, .bz2) in "
        + ", ".join(str(place) for place in places),
        path=folder,
        hint="name the folder that holds them",
    )


def _existing(path: Path) -> Path | None:
    tried = (path.with_name(path.name + end) for end in OPENERS)
    return next((file for file in tried if file.is_file()), None)


def _slice(lists: Lists, start: int, stop: int, name: str | None = None) -> Lists:
    """Neighbouring queries as views, so a memory-mapped set stays on disk."""
    rows = slice(int(lists.offsets[start]), int(lists.offsets[stop]))
    return replace(
        lists,
        features=lists.features[rows],
        offsets=lists.offsets[start : stop + 1] - lists.offsets[start],
        labels=lists.labels[rows],
        query_ids=lists.query_ids[start:stop],
        doc_ids=None if lists.doc_ids is None else lists.doc_ids[rows],
        present=None if lists.present is None else lists.present[rows],
        name=name or lists.name,
    )


# ------------------------------------------------------------------------------------------------- whole files


def _cached(
    sources: Sequence[_Source], options: dict[str, Any], root: Path, write: Callable[[Path], None]
) -> dict[str, Array]:
    files = [file for source in sources for file in source.files()]
    try:
        digests = [content_digest(file, root) for file in files]
        options["sources"] = [[file.suffix for file in source.files()] for source in sources]

        def write_unchanged(folder: Path) -> None:
            write(folder)
            for file, digest in zip(files, digests, strict=True):
                if content_digest(file, root) != digest:
                    raise DataError("changed while it was read", path=file, hint="read it again")

        return fetch_entry(root, entry_key(digests, options), write_unchanged)
    except OSError as error:
        place = error.filename or root
        raise DataError(f"cannot be read or written: {error.strerror or error}", path=place) from error


@dataclass
class _Progress:
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
            raise DataError(f"no qid after the label, but {_show(token)}", path=path, line=line, hint=hint)
        query = _text(token[4:], "qid", path, line)
        if query in self.seen:
            hint = "put the lines of a query together, in one file"
            raise DataError(f"qid {query} was already at {self.seen[query]}", path=path, line=line, hint=hint)
        self.seen[query] = f"{path}:{line}"
        self.queries.append(query)
        self.starts.append(row)
        self.last = token


def _parse(sources: Sequence[_Source], folder: Path, *, doc_ids: bool, width: int | None) -> None:
    """Parse the sources into .npy files in a folder."""
    progress = _Progress(doc_ids, sources[0].groups is not None, width or MOST_FEATURES)
    with ExitStack() as stack:
        matrix = stack.enter_context(GrowingMatrix(folder / "features.npy", "<f4", width or 0))
        present = stack.enter_context(GrowingMatrix(folder / "present.npy", "|u1", ((width or 0) + 7) // 8))
        entries = 0
        for source in sources:
            before = progress.rows
            progress.last = b""
            for first, block in _blocks(source.path):
                entries += _parse_block(block, first, source.path, progress, matrix, present)
            if progress.rows == before:
                raise DataError("no data lines", path=source.path, hint="the file is empty or has only comments")
            if source.groups is not None:
                _read_groups(source, progress, before)
        if matrix.width == 0:
            raise DataError("no line has a feature", path=sources[0].path, hint="write `label qid:ID 1:value ...`")
    if entries == progress.rows * matrix.width:
        (folder / "present.npy").unlink()
    _save_columns(folder, progress)


def _save_columns(folder: Path, progress: _Progress) -> None:
    columns = {
        "labels": np.concatenate(progress.labels),
        "offsets": np.array([*progress.starts, progress.rows], dtype=np.int64),
    }
    if progress.grouped:
        columns["query_ids"] = np.arange(1, len(progress.starts) + 1)
    elif all(INTEGER.fullmatch(query) and abs(int(query)) < 2**63 for query in progress.queries):
        columns["query_ids"] = np.array([int(query) for query in progress.queries], dtype=np.int64)
    else:
        columns["query_ids"] = np.array(progress.queries, dtype=np.str_)
    if progress.doc_ids:
        columns["doc_ids"] = np.concatenate(progress.docs)
    for name, column in columns.items():
        np.save(folder / f"{name}.npy", column, allow_pickle=False)


def _read_groups(source: _Source, progress: _Progress, before: int) -> None:
    """Note where the queries of a file start, from its group sizes: 3, 2 -> rows 0, 3."""
    assert source.groups is not None
    row = before
    for first, block in _blocks(source.groups):
        for line, text in enumerate(block.split(b"\n"), first):
            if not (size := text.strip()):
                continue
            if not size.isdigit() or len(size) > 18 or int(size) == 0:
                hint = "write one group size, a positive integer, per line"
                raise DataError(f"group size is {_show(size)}", path=source.groups, line=line, hint=hint)
            progress.starts.append(row)
            row += int(size)
    if row != progress.rows:
        raise DataError(
            f"group sizes sum to {row - before}, but {source.path} has {progress.rows - before} data lines",
            path=source.groups,
            hint="check that the two files belong together",
        )


def _blocks(path: Path, size: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with the number of its first line."""
    line, rest = 1, b""
    try:
        with open_maybe_compressed(path) as file:
            while chunk := file.read(size or BLOCK):
                text, newline, rest = (rest + chunk).rpartition(b"\n")
                if len(rest) > LONGEST_LINE:
                    raise DataError("line does not end", path=path, line=line, hint="this is not a LETOR file")
                if newline:
                    yield line, text.removeprefix(b"\xef\xbb\xbf") if line == 1 else text
                    line += text.count(b"\n") + 1
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"cannot be read: {error.strerror}", path=path) from error
        hint = "download or compress the file again"
        raise DataError(
            f"the archive is cut short or damaged ({error})", path=path, line=line, hint=hint
        ) from error
    if rest:
        yield line, rest.removeprefix(b"\xef\xbb\xbf") if line == 1 else rest


# -------------------------------------------------------------------------------------------------- one block


class _Entries(NamedTuple):
    """Features of n lines: counts [n] per line, ids [m] from 1 and values [m], line after line."""

    counts: Array
    ids: Array
    values: Array


def _parse_block(
    block: bytes, first: int, path: Path, progress: _Progress, matrix: GrowingMatrix, present: GrowingMatrix
) -> int:
    """Add the lines of a block; returns the number of entries in it."""
    lines, rests = _parse_heads(block, first, path, progress)
    if not rests:
        return 0
    entries = _fast_entries(rests, progress.limit)
    if entries is None:
        entries = _slow_entries(rests, lines, path, progress.limit)
    width = max(matrix.width, int(entries.ids.max(initial=0)))
    ends = np.cumsum(entries.counts)
    step = max(1, 2**23 // max(1, width))
    for start in range(0, len(rests), step):
        rows = slice(start, start + step)
        cut = slice(int(ends[start - 1]) if start else 0, int(ends[rows][-1]))
        dense, mask = _dense(_Entries(entries.counts[rows], entries.ids[cut], entries.values[cut]), width)
        matrix.append(dense)
        present.append(mask)
    return len(entries.ids)


def _dense(entries: _Entries, width: int) -> tuple[Array, Array]:
    """Rows [n, width] with 0 where absent, and packed bits [n, ceil(width / 8)] of what is present."""
    rows = len(entries.counts)
    if len(entries.ids) == rows * width:  # ids ascend within a line, so these are 1..width in every line
        return entries.values.reshape(rows, width), np.packbits(np.ones((1, width), bool), axis=1).repeat(rows, 0)
    flat = np.repeat(np.arange(rows) * width - 1, entries.counts) + entries.ids
    dense, mask = np.zeros(rows * width, np.float32), np.zeros(rows * width, bool)
    dense[flat], mask[flat] = entries.values, True
    return dense.reshape(rows, width), np.packbits(mask.reshape(rows, width), axis=1)


def _parse_heads(block: bytes, first: int, path: Path, progress: _Progress) -> tuple[list[int], list[bytes]]:
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


def _fast_entries(rests: Sequence[bytes], limit: int) -> _Entries | None:
    """Features of many lines at once, or None where `_slow_entries` should look: it decides what is legal."""
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
        entries = _Entries(counts, table["id"].to_numpy(), table["value"].to_numpy().astype(np.float32))
    return entries if _is_sound(entries, limit) else None


def _is_sound(entries: _Entries, limit: int) -> bool:
    """Ids from 1 to the limit, ascending within each line; values finite."""
    counts, ids, values = entries
    follows = np.ones(len(ids) + 1, bool)  # whether an entry follows another one of its line
    follows[np.cumsum(counts) - counts] = False
    ascending = bool(np.all((ids[1:] > ids[:-1]) | ~follows[1:-1]))
    return ascending and bool(ids.min() >= 1) and bool(ids.max() <= limit) and bool(np.isfinite(values).all())


def _slow_entries(rests: Sequence[bytes], lines: Sequence[int], path: Path, limit: int) -> _Entries:
    """Features line by line; raises DataError with the line where one is not legal."""
    counts, ids, values = [], [], []
    for line, rest in zip(lines, rests, strict=True):
        tokens, last = rest.split(), 0
        for token in tokens:
            last, value = _entry(token, last, limit, path, line)
            ids.append(last)
            values.append(value)
        counts.append(len(tokens))
    return _Entries(np.array(counts, np.int64), np.array(ids, np.int32), np.array(values, np.float32))


def _entry(token: bytes, last: int, limit: int, path: Path, line: int) -> tuple[int, np.float32]:
    """One `id:value` that follows the id `last` in its line."""

    def refuse(message: str, hint: str) -> NoReturn:
        raise DataError(f"{message} in {_show(token)}", path=path, line=line, hint=hint)

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
        raise DataError(f"label is not a number: {_show(token)}", path=path, line=line, hint=hint)
    grade = float(token)
    if not (grade.is_integer() and 0 <= grade <= HIGHEST_GRADE):
        hint = "map the grades to 0, 1, 2, ... first"
        raise DataError(f"label is not an integer from 0: {_show(token)}", path=path, line=line, hint=hint)
    return int(grade)


def _doc_id(comment: bytes, path: Path, line: int) -> str:
    match = DOC_ID.match(comment)
    if match is None:
        hint = "end each line with `# docid = ID`, or pass doc_ids=False"
        raise DataError("no document id in the comment", path=path, line=line, hint=hint)
    return _text(match[1], "document id", path, line)


def _text(token: bytes, what: str, path: Path, line: int) -> str:
    try:
        text = token.decode()
    except UnicodeDecodeError:
        hint = "convert the file to UTF-8"
        raise DataError(f"{what} is not UTF-8: {_show(token)}", path=path, line=line, hint=hint) from None
    if "\0" in text:
        raise DataError(f"{what} has a zero byte: {_show(token)}", path=path, line=line, hint="remove it")
    return text


def _show(token: bytes) -> str:
    """A token as an error quotes it: short, and printable whatever it holds."""
    text = bytes(islice(token, 60)).decode(errors="backslashreplace")
    return repr(text + ("..." if len(token) > 60 else ""))
