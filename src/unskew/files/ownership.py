"""How a folder that we wrote is known, and all that may lie in it, so that force deletes nothing else."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

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
