"""Folders of studies: nothing that is not one of theirs is ever written over or removed."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from unskew.errors import RunError


def refuse_foreign(out: Path, mark: str) -> None:
    """Write only where there is nothing, or a study of this kind, which its `mark` tells."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / mark).exists())):
        raise RunError(f"{out} exists and has no {mark}, so nothing is written there; choose another out=")


def remove(out: Path, names: Iterable[str]) -> None:
    """Remove these files and folders of a study, and nothing else."""
    for path in (out / name for name in names):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
