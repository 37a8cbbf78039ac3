"""Which files a set of lists is read from, and the files with the sizes of their groups.

A file without qid has one group size per line in another file: `rank.train.query` beside `rank.train`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from unskew.errors import DataError
from unskew.files import WRITERS, PathLike, unpacked
from unskew.tables.lists.svmlight import quote

BLOCK = 2 * 2**20
"""Bytes of text parsed at once; small enough for the processor's cache, which makes it twice as fast as 16 MB."""
LONGEST_LINE = 64 * 2**20


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
