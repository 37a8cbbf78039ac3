"""Files and folders written whole or not at all, and never over what is not ours.

What is being written lies beside its place under a name such as `.log.parquet.4711-1a2b3c4d.part`, and takes its
own name in one step. A folder that is replaced changes places with its successor, also in one step; where the file
system has no such step, it steps aside (`.old`) until its successor is in place. What dead processes left is
removed by the next writer; where one died between two renames, the old folder is put back.

Everything has the mode that the umask leaves it, whatever library wrote it.

A place that is written to is locked as long as its process lives: the lock of `run` is the file `.run.unskew-lock`
beside it, held by the system, with the number of the process in it. A scratch folder is named
`unskew-1a2b3c4d.scratch`, and locked itself. Who is done removes both. What a killed process left is held by
nobody, and goes with the next one.
"""

import ctypes
import errno
import fcntl
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from unskew.errors import DataError, Option, RunError, UnskewError, printable
from unskew.results import json_text

ENDING = "unskew-lock"
PATIENCE = 0.1
"""Seconds to wait for a lock: its holder may be removing it just now."""
LOCK = re.compile(rf"\..+\.{ENDING}", re.DOTALL)
SCRATCH = re.compile(r"unskew-[a-z0-9_]{8}\.scratch")


def taken(path: Path, flags: int = os.O_RDONLY) -> int | None:
    """A handle that holds a file or folder locked; None where another process does, or where it is gone."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        return None
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.stat(path)):  # not removed between opening and locking
            return handle
    os.close(handle)
    return None


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Let no other process write to a place meanwhile; refused at once where one does."""
    path, until = place.with_name(f".{place.name}.{ENDING}"), time.monotonic() + PATIENCE
    while (handle := taken(path, os.O_RDWR | os.O_CREAT)) is None:
        if time.monotonic() > until:
            holder = ""
            with suppress(OSError):
                holder = path.read_text(errors="replace")[:20].strip()
            what = f"{printable(place)} is being written by another process{f' ({holder})' if holder else ''}"
            raise RunError(what, hint="wait for it, or choose another place")
        time.sleep(PATIENCE / 10)
    try:
        os.truncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is still ours
        os.close(handle)


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """A new folder for a block, below the given one or the system's temporary folder."""
    below = Path(tempfile.gettempdir() if parent is None else parent)
    remove_dead(below, SCRATCH)
    handle = None
    while handle is None:  # somebody may take it for a dead one's before it is locked
        path = Path(tempfile.mkdtemp(prefix="unskew-", suffix=".scratch", dir=below))
        handle = taken(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def remove_dead(below: Path, names: re.Pattern[str]) -> None:
    """Remove the locks, or the scratch folders, that killed processes of this user left in a folder."""
    with suppress(OSError), os.scandir(below) as entries:
        for path in [Path(entry.path) for entry in entries if names.fullmatch(entry.name)]:
            with suppress(OSError):
                if path.lstat().st_uid == os.getuid() and (handle := taken(path)) is not None:
                    remove(path)
                    os.close(handle)


def remove(*paths: Path) -> None:
    """Remove files and folders, where they are there."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


# ---- how a folder that we wrote is known, and all that may lie in it, so that force deletes nothing else ----


ASIDE = re.compile(r"\.(.+)\.(\d+)-[0-9a-f]{8}\.(part|old)", re.DOTALL)
"""Names of what lies beside its place: the place, a process, and what it is."""
JUNK = (".DS_Store",)
"""What file managers leave; nobody misses it."""


@dataclass(frozen=True)
class Ours:
    """A kind of folder that we write."""

    marker: str
    """The file that tells it from what is not ours."""
    names: tuple[str, ...] = ()
    """Patterns of all else in it, with / between folders; * stands for / too."""

    def strangers(self, folder: Path) -> Iterator[str]:
        """Files in a folder, by their names below it, that are not of this kind."""
        for root, _, files in os.walk(folder):
            for file in files:
                name = Path(root, file).relative_to(folder).as_posix()
                known = name == self.marker or any(fnmatchcase(name, own) for own in self.names)
                if not known and file not in JUNK and not ASIDE.fullmatch(file):
                    yield name

    def files(self, folder: Path) -> set[Path]:
        """Files in a folder that are of this kind, besides the marker."""
        return {path for own in self.names for path in folder.glob(own) if path.is_file()}

    def why_not(self, folder: Path) -> str | None:
        """Why a folder may not go; None where it may."""
        if not folder.is_dir() or not (folder / self.marker).exists():
            return f"it has no {self.marker}"
        stranger = next(self.strangers(folder), None)
        return None if stranger is None else f"we did not write {stranger} in it"


def parts(*folders: str) -> tuple[str, ...]:
    """Patterns of the files that an engine writes into such folders."""
    return tuple(f"{folder}/{name}" for folder in folders for name in ("*.parquet", "_SUCCESS", "*.crc"))


CACHED = Ours(".", ("*",))
"""What lies in a cache, whatever it is."""


# ---- exchanging two places in one step ----


AT_FDCWD = -100
RENAME_EXCHANGE = 2
CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM)
"""What a system or a file system answers that has no such thing."""


def exchange(one: Path, other: Path) -> bool:
    """Give each of two things the other's name, in one step; False where that cannot be done here."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    sys.audit("os.rename", str(one), str(other), -1, -1)  # as os.rename says it
    if call(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


UNWRITABLE = ("No space left on device", "Disk quota exceeded", "Read-only file system", "File too large")
"""What systems and libraries say of a disk that takes no more."""
TRIES = 20
"""How often a folder is put in its place, where other writers of the place are at it too."""
_ours: set[str] = set()  # what this process is writing now


def refuse_existing(place: Path, *, force: bool = False, ours: Ours | None = None) -> None:
    """A place to write to is free, or an empty folder; with force a file, or a folder that is ours, may go.

    A folder is ours where it has its kind's marker and nothing that is not of its kind.
    """
    if place.parent.is_dir():
        _tidy(place.parent)
    if is_free(place):
        return
    shown = printable(place)
    if not force:
        hint = ("choose another place, or pass ", Option("force", True))
        raise RunError(f"{shown} exists and is never overwritten", hint=hint)
    if place.is_symlink():
        why: str | None = "it is a link"
    elif ours is None:
        why = None if place.is_file() else "it is no file"
    else:
        why = ours.why_not(place)
    if why is not None:
        raise RunError(f"{shown} exists and is not ours ({why}), so it is not overwritten; choose another place")


def is_free(place: Path) -> bool:
    """Whether nothing is at a place, or an empty folder."""
    return not os.path.lexists(place) or (place.is_dir() and not place.is_symlink() and not any(place.iterdir()))


@contextmanager
def complete_file(path: Path) -> Iterator[Path]:
    """A name to write to; what was written gets its own name only when the block ends without an error."""
    if not path.parent.is_dir():
        raise DataError("the folder does not exist", path=path.parent, hint="create it first")
    with told_of_disks(path), beside(path) as ready:
        ready.touch()
        mode = ready.stat().st_mode
        yield ready
        ready.chmod(mode)  # some libraries write files that only their owner can read
        ready.replace(path)


@contextmanager
def complete_folder(place: Path, *, force: bool = False, ours: Ours | None = None) -> Iterator[Path]:
    """A new folder to write to; it gets its own name when the block ends without an error, else it is removed.

    Of several writers each has a folder of its own; without force the first to end has the place.
    """
    refuse_existing(place, force=force, ours=ours)
    with told_of_disks(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with beside(place) as working:
            working.mkdir()
            yield working
            publish(working, place, force=force, ours=ours)


def publish(working: Path, place: Path, *, force: bool = False, ours: Ours | None = None) -> None:
    """Put a finished folder in its place; what is there, and may go, goes when its successor is in place."""
    with beside(place) as ready:
        for tries in range(TRIES, 0, -1):
            try:
                refuse_existing(place, force=force, ours=ours)  # somebody else may have been faster
                if not force or is_free(place):
                    working.rename(place)  # fails where somebody was faster
                else:
                    _replace(working, ready, place)
                return
            except (OSError, RunError):  # another writer came between two steps, or it cannot be done
                if tries == 1:
                    raise
                time.sleep(0.01)


def _replace(working: Path, ready: Path, place: Path) -> None:
    """Put a folder in the place of another, which ends at `ready`, a name that is removed however this ends."""
    working.rename(ready)
    try:
        if exchange(ready, place):
            return
        with beside(place, "old") as old:
            try:
                place.rename(old)
                ready.rename(place)
            finally:
                if old.exists() and not os.path.lexists(place):
                    old.rename(place)
    except BaseException:
        with suppress(FileNotFoundError):
            ready.rename(working)
        raise


@contextmanager
def told_of_disks(place: Path) -> Iterator[None]:
    """Whatever library finds a disk full or not to be written, it is one error that names the place."""
    try:
        yield
    except UnskewError:
        raise
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        if not any(reason in said for reason in UNWRITABLE):
            raise
        what = f"{printable(place)} was not written, what was there stays: {said}"
        raise RunError(f"{what}; make room, or choose another disk") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with complete_file(path) as ready:
        ready.write_text(text, encoding="utf-8")


def write_json(path: Path, content: object) -> None:
    """Write a result, or any other value, as JSON for people to read."""
    write_text(path, json_text(content, indent=2) + "\n")


# ---- what dead processes left ----


def restore(place: Path) -> Path:
    """The place; where a process died while it replaced the folder there, the folder is put back first."""
    if not os.path.lexists(place) and place.parent.is_dir():
        _tidy(place.parent)
    return place


@contextmanager
def beside(place: Path, ending: str = "part") -> Iterator[Path]:
    """A name of our own beside a place; what is there in the end is removed."""
    _tidy(place.parent)
    path = place.with_name(f".{place.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.{ending}")
    _ours.add(path.name)
    try:
        yield path
    finally:
        remove(path)
        _ours.discard(path.name)


def _tidy(folder: Path) -> None:
    remove_dead(folder, LOCK)
    with os.scandir(folder) as entries:
        asides = [found for entry in entries if (found := ASIDE.fullmatch(entry.name))]
    for found in asides:
        path, place = folder / found[0], folder / found[1]
        if path.name in _ours or _alive(int(found[2])):
            continue
        if found[3] == "old" and not os.path.lexists(place):
            with suppress(OSError):  # somebody else put it back
                path.rename(place)
        else:
            remove(path)


def _alive(pid: int) -> bool:
    """Whether another process has this number; what has our own and is not ours, an earlier one left."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid != os.getpid()
