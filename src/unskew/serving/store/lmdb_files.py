"""A store in a folder of LMDB files, one for each part and generation.

    PLACE/features.json                which generation of each part holds; its replacement is the commit
    PLACE/<part>-<generation>.lmdb     the rows and their head; never changed once it is named

A file that features.json does not name is not there: a writer that died left it, or a newer one replaced it, and
the next writer removes it. Who has it open goes on reading it. Files are read without locks, by any number of
processes, also from a disk that cannot be written. One process at a time writes; another is refused.

A file is hashed when it is opened, and one that is not what was written is refused: a bit that flipped could be
any feature, or a key that is then not found. That takes about a second for each gigabyte; meanwhile others look up
in what they have.
"""

import os
import threading
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from unskew.errors import ConfigError, DataError, RunError, StoreError, first_line, optional, printable
from unskew.files import digest_of, locked, read_json, remove, write_manifest
from unskew.serving.store.store import HEAD, Rows, Store, StoredPart, StoreHead
from unskew.settings import Config, checked

MANIFEST, ENDING = "features.json", ".lmdb"
FIRST_SIZE = 2**24
"""Bytes that a new file may have; doubled whenever it is full."""
TRIES = 10
"""How often a manifest is read again because what it names was replaced meanwhile."""


class LmdbPart(Config):
    """The file that holds the present rows of a part, as the manifest names it."""

    generation: str
    """The generation, a part of the file's name: a replaced part has another one."""
    size: int
    """Its size in bytes; a shorter file was cut off, and to read it would end the process."""
    digest: str
    """A hash of its bytes."""


class LmdbManifest(Config):
    """The manifest of a store: which file of the folder holds each part now."""

    format: Literal[2] = 2
    """Of this file."""
    parts: dict[str, LmdbPart] = Field(default_factory=dict)


class LmdbFiles(Store):
    """The folder; it need not be there until something is looked up."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, printable(folder)
        self._known: tuple[object, dict[str, StoredPart]] = None, {}
        self._opening = threading.Lock()

    def current(self) -> Mapping[str, StoredPart]:
        """The parts that hold now; the files of new ones are opened by one thread, while others have the old."""
        before = self._known
        if not self._opening.acquire(blocking=not before[1]):
            return before[1]
        try:
            with told(self.place, "put the features there anew"):
                return self._current()
        finally:
            self._opening.release()

    def _current(self) -> Mapping[str, StoredPart]:
        for tries in range(TRIES, 0, -1):
            seen, (known, before) = self._stamp(), self._known  # both of one moment, also with several threads
            if seen == known:
                return before
            try:
                named = self._manifest().parts
                parts = {name: opened(self._path(name, part.generation), part) for name, part in named.items()}
            except FileNotFoundError as error:  # replaced just now
                if tries == 1:
                    what = f"{self.place}: {error.filename} is missing"
                    raise StoreError(f"{what}; put the features there anew") from error
                continue
            self._known = seen, parts
            return parts
        raise AssertionError

    def _stamp(self) -> object:
        try:
            found = os.stat(self.folder / MANIFEST)
        except OSError as error:
            hint = "make one with `unskew store PLACE --items TABLE`"
            raise StoreError(f"{self.place} is no store of features ({error.strerror}); {hint}") from error
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size

    def _manifest(self) -> LmdbManifest:
        try:
            return checked(LmdbManifest, read_json(self.folder / MANIFEST), MANIFEST)
        except (ConfigError, DataError) as error:
            what = f"{self.place}: damaged, or of another version ({error})"
            raise StoreError(f"{what}; remove it, and put the features there anew") from error

    def _path(self, name: str, generation: str) -> Path:
        return self.folder / f"{name}-{generation}{ENDING}"

    def replace(self, parts: Mapping[str, tuple[StoreHead, Rows]]) -> None:
        """Write a file for each part, then name all of them."""
        with told(self.place, "what was there stays; make room, or choose another place"):
            self._refuse_others()
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder.absolute()):
                old = self._manifest() if (self.folder / MANIFEST).is_file() else LmdbManifest()
                self._tidy(old)
                made = {name: self._write(name, *part) for name, part in parts.items()}
                new = old.model_copy(update={"parts": {**old.parts, **made}})
                write_manifest(self.folder / MANIFEST, new)
                self._tidy(new)
        self._known = None, {}

    def _refuse_others(self) -> None:
        """What is not ours is left alone."""
        if not self.folder.exists() or (self.folder / MANIFEST).is_file():
            return
        if not self.folder.is_dir():
            raise RunError(f"{self.place} is a file; choose another place for the store")
        if any(each.suffix != ENDING and MANIFEST not in each.name for each in self.folder.iterdir()):
            what = f"{self.place} exists and is no store of features"
            raise RunError(f"{what}, so it is left alone; choose another place")

    def _write(self, name: str, head: StoreHead, rows: Rows) -> LmdbPart:
        generation = uuid.uuid4().hex[:16]
        path = self._path(name, generation)
        try:
            write_file(path, head, rows)
            return LmdbPart(generation=generation, size=path.stat().st_size, digest=digest_of(path))
        except BaseException:
            remove(path)
            raise

    def _tidy(self, manifest: LmdbManifest) -> None:
        named = {self._path(name, part.generation) for name, part in manifest.parts.items()}
        remove(*(path for path in self.folder.glob(f"*{ENDING}") if path not in named))

    def close(self) -> None:
        """Let go of the files; they close when nobody looks up in them any more."""
        self._known = None, {}


# ---- files ----


@contextmanager
def told(place: str, hint: str) -> Iterator[None]:
    """What LMDB or the disk cannot do, as an error of ours that says where, and what to do."""
    try:
        yield
    except (optional("lmdb", "serve").Error, OSError) as error:
        raise StoreError(f"{place}: {first_line(error)}; {hint}") from error


class _File(StoredPart):
    """An open file; one for all stores of a process, because LMDB opens a file once."""

    def __init__(self, path: Path, part: LmdbPart) -> None:
        lmdb = optional("lmdb", "serve")
        self.generation, self._place = part.generation, printable(path)
        if path.stat().st_size != part.size:
            raise StoreError(f"{self._place} was cut; put the features there anew")
        if digest_of(path) != part.digest:
            raise StoreError(f"{self._place}: damaged, it is not what was written; put the features there anew")
        try:
            self._env = lmdb.open(
                str(path), subdir=False, readonly=True, lock=False, readahead=False, map_size=part.size
            )
        except lmdb.Error as error:
            if not path.exists():
                raise FileNotFoundError(2, "No such file", str(path)) from error
            raise
        self.head = StoreHead.unpacked(self.get([HEAD])[0], self._place)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The rows stored under these keys; None where there is none."""
        with told(self._place, "put the features there anew"), self._env.begin() as reading:
            get = reading.get
            return [get(key) for key in keys]


_opening = threading.Lock()
_open_files: weakref.WeakValueDictionary[str, _File] = weakref.WeakValueDictionary()


def opened(path: Path, part: LmdbPart) -> StoredPart:
    """A file to look up in; the one that is open already where there is one."""
    key = os.path.realpath(path)
    with _opening:
        found = _open_files.get(key)
        if found is None:
            found = _open_files[key] = _File(path, part)
        return found


def write_file(path: Path, head: StoreHead, rows: Rows) -> None:
    """Write a new file, whole and on disk when this returns."""
    lmdb = optional("lmdb", "serve")
    env = lmdb.open(
        str(path), subdir=False, lock=False, sync=False, metasync=False, map_size=FIRST_SIZE, readahead=False
    )
    try:
        for keys, values in rows:
            _put(lmdb, env, sorted(zip(keys, values, strict=True)))
        _put(lmdb, env, [(HEAD, head.packed())])
        if env.stat()["entries"] != head.rows + 1:
            raise StoreError(
                f"{printable(path.parent)}: two ids are the same text; give each item an id of its own"
            )
        env.sync(True)
    finally:
        env.close()


def _put(lmdb: Any, env: Any, pairs: Sequence[tuple[bytes, bytes]]) -> None:
    """Write some rows, and make room for them."""
    while True:
        try:
            with env.begin(write=True) as writing, writing.cursor() as cursor:
                cursor.putmulti(pairs)
            return
        except lmdb.MapFullError:
            env.set_mapsize(env.info()["map_size"] * 2)
