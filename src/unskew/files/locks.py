"""One writer of a place at a time: a lock that names its holder and goes with the process.

The lock of `run` is the file `.run.unskew-lock` beside it, held by the system (flock) for as long as the process
lives; the number of the process stands in it. Who is done removes it. One that a killed process left is nobody's,
and the next writer removes it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unskew.errors import RunError, printable

ENDING = "unskew-lock"


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Let no other process write to a place meanwhile; refused at once where one does."""
    path = place.with_name(f".{place.name}.{ENDING}")
    handle = _taken(path, place)
    try:
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is still ours
        os.close(handle)


def remove_dead_locks(folder: Path) -> None:
    """Remove the locks in a folder whose processes were killed."""
    for path in folder.glob(f".*.{ENDING}"):
        with suppress(OSError):
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is(handle, path):
                    path.unlink()
            finally:
                os.close(handle)


def _taken(path: Path, place: Path) -> int:
    """An open file that this process alone has the lock of."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is(handle, path):
                return handle
        except BlockingIOError:
            holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
            os.close(handle)
            raise RunError(
                f"{printable(place)} is being written by another process{f' ({holder})' if holder else ''}; "
                "wait for it, or choose another place"
            ) from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its holder removed it just now


def _is(handle: int, path: Path) -> bool:
    """Whether the file that is open still lies under its name."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False
