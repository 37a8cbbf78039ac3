"""The cache of parsed files: memory-mapped arrays in a folder, found again by the content of their source.

    ROOT/index/HASH.json    what a path held when it was last hashed: size, times, inode, digest
    ROOT/entries/KEY/       the bytes of each array in NAME.bin, other files, and meta.json with shapes and sizes

The root is UNSKEW_CACHE, else XDG_CACHE_HOME/unskew, else ~/.cache/unskew. An entry's key is made of the digests
of its sources and of the options they were parsed with, so a changed file never meets an old entry. A digest is
taken from the index only while size, times and inode are unchanged, and only if the file had been left alone for
two seconds when it was hashed: a later change inside the clock's resolution could otherwise go unseen.
"""

import atexit
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import DataError, Option, RunError, UnskewError, printable
from unskew.files import CACHED, beside, complete_folder, digest_of, read_json, scratch_folder, write_json
from unskew.types import Array

FORMAT = 3
"""Version of the layout and of the parsers; part of every key, so older entries are not found any more."""
RACY_NS = 2_000_000_000
"""A file changed less than this long before it was hashed is hashed again next time."""


def cache_root(cache: bool | str | Path = True) -> Path:
    """The cache folder, made if that can be: the given one, or the one that the environment names."""
    named, shared = os.environ.get("UNSKEW_CACHE"), os.environ.get("XDG_CACHE_HOME")
    root = Path(named) if named else Path(shared or Path.home() / ".cache") / "unskew"
    root = root if isinstance(cache, bool) else Path(cache)
    with suppress(OSError):  # one that cannot be written is passed over
        for part in ("index", "entries"):
            (root / part).mkdir(parents=True, exist_ok=True)
    return root.absolute()


def unwritable(folder: Path) -> str | None:
    """Why nothing can be written to a folder; None where it can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with beside(folder / "try") as path:
            path.touch()
    except OSError as error:
        return error.strerror or str(error)
    return None


def content_digest(path: Path, root: Path) -> str:
    """Digest of a file's bytes, from the index where that cannot be stale."""
    absolute = os.path.abspath(path)
    note = root / "index" / f"{hashlib.blake2b(os.fsencode(absolute), digest_size=16).hexdigest()}.json"
    state, known = _state(path), _read_json(note)
    if known == {"path": absolute, "state": state, "settled": True, "digest": known.get("digest")}:
        return str(known["digest"])
    settled, digest = time.time_ns() - max(state["mtime_ns"], state["ctime_ns"]) > RACY_NS, digest_of(path)
    if _state(path) == state:
        with suppress(OSError, UnskewError):  # without a note it is hashed again
            write_json(note, {"path": absolute, "state": state, "settled": settled, "digest": digest})
    return digest


def parsed_files(
    files: Sequence[Path],
    options: Mapping[str, Any],
    cache: bool | str | Path,
    write: Callable[[Path], Mapping[str, Array]],
) -> dict[str, Array]:
    """The arrays that `write` makes of these files, from the cache if they are there; in memory without one.

    It gets a folder, where a large array NAME may lie in NAME.bin already.
    """
    if cache is False:
        with scratch_folder() as folder:
            return {name: np.array(array) for name, array in write(folder).items()}
    arrays = open_entry(entry_of(files, options, cache, write))
    assert arrays is not None, "an entry just written can be opened"
    return arrays


def entry_of(
    files: Sequence[Path],
    options: Mapping[str, Any],
    cache: bool | str | Path,
    write: Callable[[Path], Mapping[str, Array] | None],
) -> Path:
    """The folder that `write` fills from these files with these options (JSON values), unless the cache has it.

    Where the cache cannot be written, it is a scratch folder that goes with this process.
    """
    root = cache_root(cache)
    try:
        digests = [content_digest(file, root) for file in files]
        text = json.dumps({"format": FORMAT, "digests": digests, "options": options}, sort_keys=True)
        folder = root / "entries" / hashlib.blake2b(text.encode(), digest_size=20).hexdigest()
        for _ in range(3):
            damaged = folder.exists()  # asked first: what another process puts there from now on is whole
            if open_entry(folder) is not None:
                return folder
            if (why := unwritable(folder.parent)) is not None:
                what = f"{printable(root)}: cannot be written ({why}); files are parsed anew each time"
                warnings.warn(f"{what}, set UNSKEW_CACHE to keep them", stacklevel=4)
                scratch = ExitStack()
                atexit.register(scratch.close)
                folder = scratch.enter_context(scratch_folder()) / folder.name
            # where another process is faster, what it wrote is as good as ours
            with suppress(RunError), complete_folder(folder, force=damaged, ours=CACHED) as working:
                arrays = write(working)
                for file, digest in zip(files, digests, strict=True):
                    if content_digest(file, root) != digest:
                        raise DataError("changed while it was read", path=file, hint="read it again")
                seal_entry(working, arrays or {})
    except OSError as error:
        place = error.filename or root
        raise DataError(f"cannot be read or written: {error.strerror or error}", path=place) from error
    hint = ("delete that folder, or pass ", Option("cache", False))
    raise DataError("cannot write a cache entry", path=folder, hint=hint)


def open_entry(folder: Path) -> dict[str, Array] | None:
    """Arrays of a sealed folder by name, or None if it is missing, cut short or not ours."""
    meta = _read_json(folder / "meta.json")
    arrays: dict[str, Array] = {}
    try:
        if meta["format"] != FORMAT:
            return None
        if any((folder / name).stat().st_size != size for name, size in meta["files"].items()):
            return None
        for name, (kind, shape) in meta["arrays"].items():
            if np.dtype(kind).hasobject:  # bytes would be taken for addresses
                return None
            array = np.memmap(folder / f"{name}.bin", np.dtype(kind), "r", 0, tuple(shape))
            arrays[name] = array if name == "features" else np.asarray(array)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return arrays


def seal_entry(folder: Path, arrays: Mapping[str, Array]) -> None:
    """Write the arrays that are not there yet, and meta.json, which makes a folder an entry."""
    for name, array in arrays.items():
        if not (folder / f"{name}.bin").exists():
            array.tofile(folder / f"{name}.bin")
    facts = {name: [array.dtype.str, array.shape] for name, array in arrays.items()}
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    write_json(folder / "meta.json", {"format": FORMAT, "arrays": facts, "files": files})


def _state(path: Path) -> dict[str, int]:
    stat = os.stat(path)
    return {name: getattr(stat, f"st_{name}") for name in ("size", "mtime_ns", "ctime_ns", "ino", "dev")}


def _read_json(path: Path) -> dict[str, Any]:
    with suppress(DataError):
        return read_json(path)
    return {}
