"""Bytes of a file, plain or compressed, cut into lines of bounded length.

A path is only ever one that the user gave. Files that hold several files (zip, tar) are refused: their members
have names of their own, and none of them is trusted. A compressed stream may not expand without end.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from unskew.clicks.ingest.formats.options import ReaderOptions
from unskew.errors import DataError

BLOCK = 2**20
"""Bytes read at once."""
XZ_MEMORY = 128 * 2**20
"""Memory that an xz stream may ask for; the strongest preset needs 65 MB."""
HELD = 1_000
"""Bytes kept of a line that is too long."""
ARCHIVES = {".zip", ".tar", ".tgz", ".tbz2", ".txz", ".7z", ".rar"}
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, OSError, pa.ArrowException)


def lines(path: Path, options: ReaderOptions) -> Iterator[tuple[int, bytes, bool]]:
    """Every line that is not blank: its number from 1, its bytes, and whether it was too long to be held whole."""
    number, held, too_long = 1, b"", False
    for block in blocks(path, options):
        first, *others = block.split(b"\n")
        held, too_long = _extend(held, too_long, first, options.longest_line)
        for piece in others:
            if too_long or held.strip():
                yield number, held.rstrip(b"\r"), too_long
            number += 1
            held, too_long = _extend(b"", False, piece, options.longest_line)
    if too_long or held.strip():
        yield number, held.rstrip(b"\r"), too_long


def _extend(held: bytes, too_long: bool, piece: bytes, longest: int) -> tuple[bytes, bool]:
    """The line so far; only the head of one that has grown too long."""
    if too_long:
        return held, True
    if len(held) + len(piece) > longest:
        return (held + piece[:HELD])[:HELD], True
    return held + piece, False


def blocks(path: Path, options: ReaderOptions) -> Iterator[bytes]:
    """The decompressed bytes of a file, without a byte order mark."""
    if ARCHIVES & {suffix.lower() for suffix in path.suffixes}:
        raise DataError("an archive of several files is not read", path=path, hint="unpack it, and name its files")
    expanded = 0
    try:
        allowed = max(options.expansion_floor, options.expansion * path.stat().st_size)
        for block in _decompressed(path):
            block = block.removeprefix(b"\xef\xbb\xbf") if not expanded else block
            expanded += len(block)
            if expanded > allowed and path.suffix.lower() in _COMPRESSED:
                raise DataError(
                    f"expands to more than {allowed:,} bytes, {options.expansion} times its size or more",
                    path=path,
                    hint="decompress it yourself if you trust it",
                )
            yield block
    except _DAMAGED as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"cannot be read: {error.strerror}", path=path) from error
        raise DataError(
            f"cut short or damaged ({type(error).__name__})", path=path, hint="download or compress the file again"
        ) from error


def _decompressed(path: Path) -> Iterator[bytes]:
    with contextlib.ExitStack() as stack:
        if path.suffix.lower() == ".xz":
            yield from _xz(stack.enter_context(path.open("rb")))
            return
        file = stack.enter_context(_COMPRESSED.get(path.suffix.lower(), _plain)(path))
        while block := file.read(BLOCK):
            yield bytes(block)


def _xz(file: IO[bytes]) -> Iterator[bytes]:
    """lzma.open takes no limit of memory, and a hostile header may ask for 4 GB."""
    unpack, held = lzma.LZMADecompressor(memlimit=XZ_MEMORY), b""
    while True:
        if unpack.eof:  # a file may hold several streams, with zero bytes between them
            held = (unpack.unused_data or file.read(BLOCK)).lstrip(b"\0")
            if not held:
                return
            unpack = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
        elif unpack.needs_input:
            held = file.read(BLOCK)
            if not held:
                raise EOFError
        block = unpack.decompress(held, BLOCK)
        held = b""
        if block:
            yield block


def _plain(path: Path) -> Any:
    return path.open("rb")


_COMPRESSED: dict[str, Any] = {
    ".gz": gzip.GzipFile,
    ".bz2": bz2.BZ2File,
    ".xz": None,
    ".zst": lambda path: pa.CompressedInputStream(pa.OSFile(str(path)), "zstd"),
}
