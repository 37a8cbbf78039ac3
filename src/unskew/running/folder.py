"""Run folders: where they are written, how they ended, and what their data were.

A run is written beside its place and renamed when done. A finished one is never overwritten unasked, and nothing
that is not a run ever is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from unskew.errors import RunError
from unskew.types import Lists, Log


def fingerprint(*parts: Log | Lists | None, labels: bool = False) -> str:
    """A hash of clicks and of the features they point at; of a log's grades only where they are read."""
    digest = hashlib.blake2b(digest_size=16)
    seen: list[Lists] = []  # pages that were held out share their lists with the others
    for part in parts:
        lists = part.lists if isinstance(part, Log) else part
        arrays = [] if lists is None or any(lists is other for other in seen) else [lists.features, lists.offsets]
        if lists is not None:
            seen.append(lists)
            arrays += [lists.labels] if labels or lists is part else []
        if isinstance(part, Log):
            arrays += [part.query, part.offsets, part.row, part.position, part.click]
            arrays += [] if part.randomized is None else [part.randomized]
        for array in arrays:
            digest.update(f"{array.shape}{array.dtype.str}".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """What the result may depend on; packages that are not installed are left out."""
    packages = (
        "unskew",
        "torch",
        "numpy",
        "scipy",
        "scikit-learn",
        "pyarrow",
        "lightgbm",
        "xgboost-cpu",
        "xgboost",
    )
    found = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def status(folder: Path) -> str | None:
    """How the run in this folder ended; None where there is no run."""
    path = folder / "run.json"
    if not path.exists():
        return None
    try:
        return str(json.loads(path.read_text())["status"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: damaged; --force (force=True) starts afresh") from error


def refuse_to_overwrite(out: Path, force: bool) -> None:
    """A finished run stays; with force it goes, but nothing that is not a run ever does."""
    if not out.exists():
        return
    if force:
        if not out.is_dir() or (any(out.iterdir()) and not (out / "run.json").exists()):
            raise RunError(f"{out} exists and is not a run, so it is not overwritten; choose another place")
    elif status(out) != "interrupted":
        raise RunError(f"{out} exists and is never overwritten; choose another place, or use --force (force=True)")


def claim(out: Path, force: bool) -> Path:
    """The folder to work in, beside `out`: new, or that of a run that was killed or interrupted."""
    working = out.with_name(out.name + ".partial")
    if force:
        shutil.rmtree(working, ignore_errors=True)
    elif out.exists() and not working.exists():
        shutil.copytree(out, working)
    working.mkdir(parents=True, exist_ok=True)
    return working


def publish(working: Path, out: Path) -> None:
    """Put the working folder in its place."""
    if out.exists():
        shutil.rmtree(out)
    working.rename(out)
