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
