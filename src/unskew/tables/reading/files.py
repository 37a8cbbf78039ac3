"""Which files a log is read from, what is in them, and their text, decompressed under guard."""

import codecs
import os
import shlex
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from unskew.errors import DataError, Option, Words
from unskew.files import PACKED, unpacked
from unskew.settings import known, no_such
from unskew.tables.engine.parquet import impressions_in

ENDINGS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
"""What a file holds, by the end of its name."""
KINDS = tuple(dict.fromkeys(ENDINGS.values()))
GZIP, BZIP2, XZ, ZSTD = (f"a file compressed by {name}" for name in ("gzip", "bzip2", "xz", "Zstandard"))
COMPRESSED = {".gz": GZIP, ".bz2": BZIP2, ".xz": XZ, ".zst": ZSTD}
"""What a compressed file is, by the end of its name."""
MAGIC = {
    b"PAR1": "Parquet",
    b"\x1f\x8b": GZIP,
    b"BZh": BZIP2,
    b"\xfd7zXZ": XZ,
    b"\x28\xb5\x2f\xfd": ZSTD,
    b"PK\x03\x04": "an Excel workbook or a zip archive",
    b"\xd0\xcf\x11\xe0": "an Excel workbook of the old kind",
    b"ARROW1": "an Arrow (Feather) file",
    b"Obj\x01": "an Avro file",
    b"ORC": "an ORC file",
    b"SQLite format 3": "an SQLite database",
}
"""What a file is, by its first bytes."""
MARK = "\ufdd0"
"""Stands for bytes that are no UTF-8; a code point that Unicode keeps free of meaning."""


def kind_of(path: Path) -> str | None:
    """What a file holds, by its name; None where the name does not say.

    >>> kind_of(Path("log.csv.gz")), kind_of(Path("log.parquet")), kind_of(Path("README"))
    ('csv', 'parquet', None)
    """
    inner = path.with_suffix("") if path.suffix.lower() in PACKED else path
    kind = ENDINGS.get(inner.suffix.lower())
    return None if kind == "parquet" and inner != path else kind


def magic_of(path: Path) -> str | None:
    """What a file is, by its first bytes; None for text and what is not known."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from error
    return next((kind for start, kind in MAGIC.items() if head.startswith(start)), None)


def find_files(sources: Sequence[str | Path], kind: str | None = None) -> dict[Path, str]:
    """The files that are meant by names of files, folders and patterns, with what each holds.

    Links to folders are not followed. In a folder, files whose names do not say what they hold, and names that
    begin with a dot or an underscore, are passed over.
    """
    if kind is not None:
        known("format", kind, KINDS)
    found: dict[Path, str] = {}
    for source in sources:
        for path, named in _meant(source):
            if (holds := _content(path, kind, named)) is not None:
                found[path] = holds
        if not found:
            if any(Path(source).glob(".*.open")):
                told = "a server still writes there, and no file is finished"
                raise DataError(told, path=source, hint="wait some minutes, or stop the server")
            what = f"no files that end in {' '.join(ENDINGS)} (or compressed)"
            raise DataError(what, path=source, hint=("give ", Option("format")))
    return found


def _content(path: Path, asked: str | None, named: bool) -> str | None:
    """What a file holds: as asked or as its name says, where its first bytes do not say otherwise."""
    holds, magic = asked or kind_of(path), magic_of(path)
    if (holds is None and not named) or (not named and not path.stat().st_size):
        return None
    if magic == "Parquet" and asked in (None, "parquet"):
        return "parquet"
    if holds is None:
        hint = ("give ", Option("format"), f", one of {', '.join(KINDS)}")
        raise DataError("the name does not say what the file holds", path=path, hint=hint)
    refuse_disguised(path, holds, magic)
    return holds


def refuse_disguised(path: Path, holds: str, magic: str | None) -> None:
    """Refuse a file whose first bytes are not of what it is said to hold."""
    packed = COMPRESSED.get(path.suffix.lower())
    if not path.stat().st_size:
        raise DataError("the file is empty", path=path, hint="write it again, or leave it out")
    if packed is not None and magic != packed:
        hint: Words = f"rename it to {path.with_suffix('').name}" if magic is None else f"this is {magic}"
        raise DataError(f"not {packed}, whatever its name says", path=path, hint=hint)
    if packed is None and magic in COMPRESSED.values():
        ending = next(ending for ending, kind in COMPRESSED.items() if kind == magic)
        raise DataError(f"this is {magic}", path=path, hint=f"rename it to {path.name}{ending}")
    if holds == "parquet" and magic is None:
        hint = "rename it by what it holds, as .csv, and `unskew ingest` it"
        raise DataError("not a Parquet file, whatever its name says", path=path, hint=hint)
    if packed is None and magic is not None:
        hint = ("leave ", Option("format"), " out") if magic == "Parquet" else "export it as CSV or Parquet"
        raise DataError(f"this is {magic}", path=path, hint=hint)


def all_files(sources: Sequence[str | Path]) -> list[Path]:
    """The files that are meant, whatever their names say that they hold."""
    found: dict[Path, None] = {}
    for source in sources:
        before = len(found)
        found |= dict.fromkeys(path for path, _ in _meant(source))
        if len(found) == before and Path(source).is_dir():
            raise DataError("the folder has no files", path=source)
    return list(found)


def _meant(source: str | Path) -> Iterator[tuple[Path, bool]]:
    """Files that a name means, and whether it means each by name."""
    path = Path(source)
    try:
        if path.is_dir():
            yield from ((each, False) for each in _inside(path))
        elif path.is_file():
            yield path, True
        elif path.exists():
            raise DataError("not a file and not a folder", path=path)
        elif any(sign in str(source) for sign in "*?["):
            parts = path.parts
            first = next(at for at, part in enumerate(parts) if any(sign in part for sign in "*?["))
            # unlike the module glob, Path.glob follows no links to folders, which may lead back
            matches = sorted(Path(*parts[:first]).glob(str(Path(*parts[first:]))))
            if not matches:
                raise DataError("no file matches this pattern", path=source)
            for match in matches:
                if match.is_dir():
                    yield from ((each, False) for each in _inside(match))
                elif match.is_file():
                    yield match, False
        else:
            raise no_such(source)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", path=repr(str(source))[:200]) from error


def _inside(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(impressions_in(folder), followlinks=False):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        for name in sorted(names):
            path = Path(place, name)
            if name[0] not in "._" and path.is_file():
                yield path


MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Encodings by their byte order marks; that of UTF-32 begins as that of UTF-16 does."""
codecs.register_error("unskew-mark", lambda error: (MARK, getattr(error, "end", 0)))


class Guarded:
    """Text of a file for parsers, which may read in a thread of their own: always valid UTF-8."""

    def __init__(self, blocks: Generator[bytes, None, None], path: Path) -> None:
        self.blocks, self.path, self.closed, self._lock = blocks, path, False, Lock()
        self.newlines, self._last = 0, b"\n"
        self.watch, self.met = b"", False
        """Something to look out for, and whether it has come."""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._ready = b""

    def read(self, size: int | None = None) -> bytes:
        """The next bytes, up to the end of a line at least, at most so many; MARK stands where there was no UTF-8.

        Parsers take a short read for a short block, and a line has to fit into one. Blocks of empty lines alone
        would take much memory, so no more is read than a line needs.
        """
        least = 1 if size is None or size < 0 else size
        with self._lock:
            while len(self._ready) < least and b"\n" not in self._ready and self._fill():
                pass
            size = len(self._ready) if size is None or size < 0 else size
            given, self._ready = self._ready[:size], self._ready[size:]
        self.newlines += given.count(b"\n")
        self._last = given[-1:] or self._last
        self.met = self.met or (self.watch != b"" and self.watch in given)
        return given

    def first_line(self, longest: int) -> bytes:
        """The first line, which stays to be read; more than `longest` bytes where it does not end."""
        with self._lock:
            while b"\n" not in self._ready and len(self._ready) <= longest and self._fill():
                pass
            return self._ready.partition(b"\n")[0]

    def _fill(self) -> bool:
        data = next(self.blocks, b"")
        self._decoder = self._decoder or _decoder(data, self.path)
        self._ready += self._decoder.decode(data, final=not data).encode("utf-8")
        return bool(data)

    @property
    def lines(self) -> int:
        """Lines that were read so far, the last one with or without an end."""
        return self.newlines + (self._last != b"\n")

    def readable(self) -> bool:
        """True, as Arrow asks of files."""
        return True

    def close(self) -> None:
        """The file is closed by `opened`."""
        self.closed = True

    def shut(self) -> None:
        """Close the file, once a thread that is reading has what it asked for; after that there is no more."""
        with self._lock:
            self.blocks.close()


def _decoder(first: bytes, path: Path) -> codecs.IncrementalDecoder:
    """What decodes a text that begins so: as UTF-16 or UTF-32 where a byte order mark says so, else as UTF-8."""
    encoding = next((name for mark, name in MARKS.items() if first.startswith(mark)), "utf-8")
    head = first[:4000]
    if encoding == "utf-8" and head.count(0) * 4 > len(head):  # every letter takes two bytes: text has no zeros
        wide = "UTF-16LE" if head[1::2].count(0) > head[::2].count(0) else "UTF-16BE"
        hint = f"write it in UTF-8: iconv -f {wide} -t UTF-8 {shlex.quote(str(path))} > NEW"
        raise DataError(f"looks like {wide} without a byte order mark", path=path, line=1, hint=hint)
    return codecs.getincrementaldecoder(encoding)(errors="unskew-mark")


@contextmanager
def opened(path: Path, max_expansion: int) -> Iterator[Guarded]:
    """The text of a file, decompressed by the end of its name; UTF-8, or what a byte order mark says."""
    text = Guarded(unpacked(path, expansion=max_expansion), path)
    try:
        yield text
    finally:
        text.shut()
