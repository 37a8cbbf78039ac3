"""What is a process's own as long as it lives: a place that it writes to, and its scratch folders.

The lock of `run` is the file `.run.unskew-lock` beside it, held by the system as long as the process lives; the
number of the process stands in it. A scratch folder is named `unskew-1a2b3c4d.scratch`, and locked itself. Who is
done removes both. What a killed process left is held by nobody, and goes with the next one.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unskew.errors import RunError, printable

ENDING = "unskew-lock"
PATIENCE = 0.1
"""Seconds to wait for a lock: its holder may be removing it just now."""
PREFIX, SUFFIX = "unskew-", ".scratch"
_SCRATCH = re.compile(r"unskew-[a-z0-9_]{8}\.scratch")


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


def remove_dead_locks(folder: Path) -> None:
    """Remove the locks in a folder whose processes were killed."""
    for path in folder.glob(f".*.{ENDING}"):
        with suppress(OSError):
            if (handle := taken(path)) is not None:
                path.unlink()
                os.close(handle)


class Scratch:
    """A new folder below the given one, or below the system's temporary folder; `close` removes it."""

    def __init__(self, parent: Path | None = None) -> None:
        below = Path(tempfile.gettempdir() if parent is None else parent)
        _remove_dead_folders(below)
        self._handle: int | None = None
        while self._handle is None:  # somebody may take it for a dead one's before it is locked
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, suffix=SUFFIX, dir=below))
            self._handle = taken(self.path)

    def close(self) -> None:
        """Remove it."""
        if self._handle is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._handle)
            self._handle = None


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """A scratch folder for a block."""
    scratch = Scratch(parent)
    try:
        yield scratch.path
    finally:
        scratch.close()


def _remove_dead_folders(below: Path) -> None:
    """Remove the scratch folders that killed processes of this user left."""
    with suppress(OSError), os.scandir(below) as entries:
        for path in [Path(entry.path) for entry in entries if _SCRATCH.fullmatch(entry.name)]:
            with suppress(OSError):
                if path.lstat().st_uid == os.getuid() and (handle := taken(path, os.O_DIRECTORY)) is not None:
                    shutil.rmtree(path, ignore_errors=True)
                    os.close(handle)
