"""Folders of studies: what was written there before is removed, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path


def remove(out: Path, names: Iterable[str]) -> None:
    """Remove these files and folders of a study, and nothing else."""
    for path in (out / name for name in names):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
