"""Files read: JSON, whose own hash is checked where it has one, and text decompressed under guard."""

import bz2
import codecs
import gzip
import hashlib
import json
import lzma
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from unskew.errors import DataError

READ = 2**20
"""Bytes that are read at once."""
HEAD = 2000
"""Bytes that are told of a line that is too long."""
FREE = 64 * 2**20
"""Bytes that a compressed file may always grow to."""
EXPANSION = 200
"""How many times its size a compressed file may grow to once past FREE; more is taken for a bomb."""
XZ_MEMORY = 128 * 2**20
"""Memory that an xz stream may ask for; the strongest preset needs 65 MB, a hostile header 4 GB."""
LARGEST_HEADER = 4 * 2**20
"""Bytes of the header of a safetensors file: some 40,000 tensors. Parsed it takes thirty times as much memory."""
LARGEST_JSON = 32 * 2**20
"""Bytes of a JSON file of ours."""
SEAL = "sealed"
"""The key of a manifest that has a hash of all else in it."""
WRITERS: Mapping[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
"""How to open a file for writing, by the end of its name."""
PACKED = (".gz", ".bz2", ".xz", ".zst")
"""Endings of compressed files."""
ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", ".7z", ".rar")
"""Endings of files that hold several files; their members have names of their own, and none of them is trusted."""
PathLike = str | Path


def read_text(path: Path, most: int) -> str:
    """The text of a file that has at most so many bytes."""
    try:
        if (size := path.stat().st_size) > most:
            raise DataError(f"{size:,} bytes, where a file of this kind has at most {most:,}", path=path)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from error
    except UnicodeDecodeError as error:
        raise DataError("damaged, not text", path=path) from error


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; anything else in it, or another content than was sealed, is an error."""
    try:
        content = json.loads(read_text(path, LARGEST_JSON))
    except (ValueError, RecursionError) as error:
        raise DataError(f"damaged, not JSON ({error})", path=path) from error
    if not isinstance(content, dict):
        raise DataError("damaged, not a JSON object", path=path)
    if SEAL in content and content.pop(SEAL) != seal_of(content):
        hint = f"put a copy back, or write it anew; if you changed it yourself, take {SEAL!r} out"
        raise DataError("damaged, it is not what was written", path=path, hint=hint)
    return content


def seal_of(content: Mapping[str, Any]) -> str:
    """A hash of what a JSON file says, however it is laid out."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def tensors_at(path: Path) -> Path:
    """The path of a safetensors file, whose header is of a size that those of models are."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > min(LARGEST_HEADER, path.stat().st_size):
        raise DataError(f"a header of {length:,} bytes, at most {LARGEST_HEADER:,} are read", path=path)
    return path


def digest_of(path: Path) -> str:
    """A hash of what is in a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def unpacked(
    path: Path, *, size: int | None = None, expansion: int = EXPANSION, floor: int = FREE
) -> Generator[bytes, None, None]:
    """The bytes of a file in blocks, decompressed by the end of its name, without a byte order mark.

    A block is at most `size` bytes. A compressed file may grow to `floor`, then to `expansion` times its size.
    """
    packed = path.suffix.lower() in PACKED
    if (path.with_suffix("") if packed else path).suffix.lower() in ARCHIVES:
        raise DataError("an archive of several files is not read", path=path, hint="unpack it, and name its files")
    given, line = 0, 1
    try:
        most = max(floor, expansion * path.stat().st_size)
        for block in _without_mark(_decompressed(path, size or READ)):
            given += len(block)
            if packed and given > most:
                raise DataError(
                    f"grows past {most:,} bytes when decompressed, {expansion} times its size or more",
                    path=path,
                    hint="decompress it yourself if you trust it",
                )
            yield block
            line += block.count(b"\n") if packed else 0
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DataError(f"cannot be read: {error.strerror}", path=path) from error
        what = f"the archive is cut short or damaged ({str(error)[:200] or type(error).__name__})"
        raise DataError(what, path=path, line=line, hint="download or compress the file again") from error


def whole_lines(blocks: Iterable[bytes], longest: int) -> Iterator[tuple[int, bytes, bool]]:
    r"""Bytes of any size as blocks of whole lines, each with the number of its first line.

    Of a line that grows past `longest` without an end comes its head alone, by itself, and True.

    >>> list(whole_lines([b"a\nb", b"c\n", b"defg", b"h\ni"], 3))
    [(1, b'a', False), (2, b'bc', False), (3, b'defg', True), (4, b'i', False)]
    """
    number, rest, skipping = 1, b"", False
    for block in blocks:
        if skipping:
            _, newline, rest = block.partition(b"\n")
            if not newline:
                continue
            number, skipping, block = number + 1, False, b""
        text, newline, rest = (rest + block).rpartition(b"\n")
        if newline:
            yield number, text, False
            number += text.count(b"\n") + 1
        if len(rest) > longest:
            yield number, rest[:HEAD], True
            rest, skipping = b"", True
    if rest:
        yield number, rest, False


def _without_mark(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The blocks without a byte order mark at the beginning of the first, which may be cut anywhere."""
    head = b""
    for block in blocks:
        head += block
        if len(head) >= len(codecs.BOM_UTF8):
            yield head.removeprefix(codecs.BOM_UTF8)
            yield from blocks
            return
    if head:
        yield head


def _decompressed(path: Path, size: int) -> Iterator[bytes]:
    ending = path.suffix.lower()
    with path.open("rb") as raw:
        if ending == ".xz":
            yield from _xz(raw, size)
            return
        file: Any = raw
        if ending == ".zst":
            import pyarrow as pa

            file = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
        elif ending in PACKED:
            file = WRITERS[ending](raw)
        while block := file.read(size):
            yield block


def _xz(file: IO[bytes], size: int) -> Iterator[bytes]:
    """What lzma.open does, which takes no limit of memory."""
    unpack, held = lzma.LZMADecompressor(memlimit=XZ_MEMORY), b""
    while True:
        if unpack.eof:  # a file may hold several streams, with zero bytes between them
            held = unpack.unused_data.lstrip(b"\0")
            while not held:
                if not (more := file.read(size)):
                    return
                held = more.lstrip(b"\0")
            unpack = lzma.LZMADecompressor(memlimit=XZ_MEMORY)
        elif unpack.needs_input:
            held = file.read(size)
            if not held:
                raise EOFError("the file ends before its stream does")
        if block := unpack.decompress(held, size):
            yield block
        held = b""
