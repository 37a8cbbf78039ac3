"""One writer of a place at a time: a lock that names its holder and goes with the process.

The lock of `run` is the file `.run.unskew-lock` beside it, held by the system for as long as the process lives;
the number of the process stands in it. Who is done removes it. One that a killed process left is nobody's, and the
next writer removes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unskew.errors import RunError, printable

ENDING = "unskew-lock"


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Let no other process write to a place meanwhile; refused at once where one does."""
    from filelock import FileLock, Timeout

    path = place.with_name(f".{place.name}.{ENDING}")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0.1, poll_interval=0.01)  # its holder may be removing it just now
    except Timeout:
        holder = _holder(path)
        what = f"{printable(place)} is being written by another process{f' ({holder})' if holder else ''}"
        raise RunError(what, hint="wait for it, or choose another place") from None
    try:
        path.write_text(f"{os.getpid()}\n")
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is still ours
        lock.release()


def _holder(path: Path) -> str:
    """The number of the process that has a lock; empty where it went meanwhile."""
    with suppress(OSError):
        return path.read_text(errors="replace")[:20].strip()
    return ""


def remove_dead_locks(folder: Path) -> None:
    """Remove the locks in a folder whose processes were killed."""
    found = list(folder.glob(f".*.{ENDING}"))
    if not found:
        return
    from filelock import FileLock, Timeout

    for path in found:
        with suppress(OSError, Timeout), FileLock(path, timeout=0):
            path.unlink()
