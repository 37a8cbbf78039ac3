"""Folders for what is needed only while a process lives; those of killed ones go with the next.

A scratch folder is named `unskew-1a2b3c4d.scratch` and locked by the process that made it, as long as it lives.
Who makes one removes those of the same user beside it that nobody holds. Folders are locked themselves, which
filelock does not do; and every command that reads a log makes one, where loading filelock would cost a tenth of a
second.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unskew.files.writing import remove

PREFIX, SUFFIX = "unskew-", ".scratch"
_NAME = re.compile(r"unskew-[a-z0-9_]{8}\.scratch")


class Scratch:
    """A new folder below the given one, or below the system's temporary folder; `close` removes it."""

    def __init__(self, parent: Path | None = None) -> None:
        below = Path(tempfile.gettempdir() if parent is None else parent)
        _tidy(below)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, suffix=SUFFIX, dir=below))
            with suppress(FileNotFoundError):  # somebody took it for a dead one's before it was opened
                self._handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                if _lock(self._handle) and self.path.is_dir():
                    return
                os.close(self._handle)  # or before it was locked

    def close(self) -> None:
        """Remove it."""
        if self._handle >= 0:
            remove(self.path)
            os.close(self._handle)
            self._handle = -1


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """A scratch folder for a block."""
    scratch = Scratch(parent)
    try:
        yield scratch.path
    finally:
        scratch.close()


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _tidy(below: Path) -> None:
    """Remove what killed processes of this user left."""
    with suppress(OSError), os.scandir(below) as entries:
        found = [Path(entry.path) for entry in entries if _NAME.fullmatch(entry.name)]
        for path in found:
            with suppress(OSError):
                _remove_dead(path)


def _remove_dead(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(handle).st_uid == os.getuid() and _lock(handle):
            remove(path)
    finally:
        os.close(handle)
