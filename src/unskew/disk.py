"""Files and folders: written whole or not at all, never over what is not ours, and decompressed under guard.

What is being written lies beside its place under a name such as `.log.parquet.4711-1a2b3c4d.part`, and takes its
own name in one step. A folder that is replaced steps aside (`.old`) until its successor is in place. What dead
processes left is removed by the next writer; where one died between two renames, the old folder is put back.

Everything has the mode that the umask leaves it, whatever library wrote it.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import lzma
import os
import re
import shutil
import time
import uuid
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from unskew.errors import DataError, RunError

READ = 2**20
"""Bytes that are read at once."""
FREE = 64 * 2**20
"""Bytes that a compressed file may always grow to."""
EXPANSION = 200
"""How many times its size a compressed file may grow to once past FREE; more is taken for a bomb."""
XZ_MEMORY = 128 * 2**20
"""Memory that an xz stream may ask for; the strongest preset needs 65 MB, a hostile header 4 GB."""
WRITERS: Mapping[str, Callable[..., Any]] = {"": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
"""How to open a file for writing, by the end of its name."""
PACKED = (".gz", ".bz2", ".xz", ".zst")
"""Endings of compressed files."""
ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".txz", ".7z", ".rar")
"""Endings of files that hold several files; their members have names of their own, and none of them is trusted."""
ANY = "."
"""A marker that every folder has."""
_ASIDE = re.compile(r"\.(.+)\.(\d+)-[0-9a-f]{8}\.(part|old)", re.DOTALL)
TRIES = 20
"""How often a folder is put in its place, where other writers of the place are at it too."""
_ours: set[str] = set()  # what this process is writing now
PathLike = str | Path


# ---- writing ----


def refuse_existing(place: Path, *, force: bool = False, marker: str | None = None) -> None:
    """A place to write to is free, or an empty folder; with force a file, or a folder that has the marker, may go.

    `marker` is the file that tells what we wrote from what is not ours, which never goes; ANY is any folder.
    """
    restore(place)
    if not os.path.lexists(place) or (place.is_dir() and not place.is_symlink() and not any(place.iterdir())):
        return
    if not force:
        raise RunError(f"{place} exists and is never overwritten; choose another place, or pass force=True")
    ours = place.is_file() if marker is None else place.is_dir() and (place / marker).exists()
    if not ours or place.is_symlink():
        why = "it is no file" if marker is None else f"it has no {marker}"
        raise RunError(f"{place} exists and is not ours ({why}), so it is not overwritten; choose another place")


@contextmanager
def complete_file(path: Path) -> Iterator[Path]:
    """A name to write to; what was written gets its own name only when the block ends without an error."""
    if not path.parent.is_dir():
        raise DataError("the folder does not exist", path=path.parent, hint="create it first")
    with _beside(path) as ready:
        ready.touch()
        mode = ready.stat().st_mode
        yield ready
        ready.chmod(mode)  # some libraries write files that only their owner can read
        ready.replace(path)


@contextmanager
def complete_folder(place: Path, *, force: bool = False, marker: str | None = None) -> Iterator[Path]:
    """A new folder to write to; it gets its own name when the block ends without an error, else it is removed.

    Of several writers each has a folder of its own; without force the first to end has the place.
    """
    refuse_existing(place, force=force, marker=marker)
    place.parent.mkdir(parents=True, exist_ok=True)
    with _beside(place) as working:
        working.mkdir()
        yield working
        publish(working, place, force=force, marker=marker)


def publish(working: Path, place: Path, *, force: bool = False, marker: str | None = None) -> None:
    """Put a finished folder in its place; what is there, and may go, goes when its successor is in place."""
    with _beside(place, "old") as old:
        for tries in range(TRIES, 0, -1):
            try:
                refuse_existing(place, force=force, marker=marker)  # somebody else may have been faster
                remove(old)
                if force and place.exists():
                    place.rename(old)
                working.rename(place)
                return
            except (OSError, RunError):  # another writer came between two steps, or it cannot be done
                if tries == 1:
                    raise
                time.sleep(0.01)
            finally:
                if old.exists() and not os.path.lexists(place):
                    old.rename(place)


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with complete_file(path) as ready:
        ready.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object, for people to read."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


# ---- what dead processes left ----


def restore(place: Path) -> Path:
    """The place; where a process died while it replaced the folder there, the folder is put back first."""
    if not os.path.lexists(place) and place.parent.is_dir():
        _tidy(place.parent)
    return place


@contextmanager
def _beside(place: Path, ending: str = "part") -> Iterator[Path]:
    """A name of our own beside a place; what is there in the end is removed."""
    _tidy(place.parent)
    path = place.with_name(f".{place.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.{ending}")
    _ours.add(path.name)
    try:
        yield path
    finally:
        remove(path)
        _ours.discard(path.name)


def _asides(folder: Path) -> list[tuple[re.Match[str], Path]]:
    """What lies in a folder under names of ours beside their places."""
    with os.scandir(folder) as entries:
        named = [(_ASIDE.fullmatch(entry.name), Path(entry.path)) for entry in entries if entry.name[0] == "."]
    return [(found, path) for found, path in named if found is not None]


def _tidy(folder: Path) -> None:
    """Put back or remove what dead processes left in a folder."""
    for found, path in _asides(folder):
        if path.name in _ours or _alive(int(found[2])):
            continue
        place = path.with_name(found[1])
        if found[3] == "old" and not os.path.lexists(place):
            with suppress(OSError):  # somebody else put it back
                path.rename(place)
        else:
            remove(path)


def remove(*paths: Path) -> None:
    """Remove files and folders, where they are there."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    """Whether another process has this number; what has our own and is not ours, an earlier one left."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid != os.getpid()


# ---- reading ----


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from error
    except ValueError as error:
        raise DataError(f"damaged, not JSON ({error})", path=path) from error
    if not isinstance(content, dict):
        raise DataError("damaged, not a JSON object", path=path)
    return content


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
        elif ending == ".zst":
            yield from _zstd(raw, size)
        else:
            kind: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(ending)
            file = raw if kind is None else kind(raw)
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


def _zstd(file: IO[bytes], size: int) -> Iterator[bytes]:
    import pyarrow as pa

    try:
        stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")
        while block := stream.read(size):
            yield bytes(block)
    except pa.ArrowException as error:
        raise EOFError(str(error)) from error
