"""Run folders: where they are written, how they ended, and what their data were.

A run is written beside its place and renamed when done. A finished one is never overwritten unasked, and nothing
that is not a run ever is.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from unskew.disk import publish as put_in_place
from unskew.disk import read_json, refuse_existing, restore
from unskew.errors import DataError, RunError
from unskew.types import Lists, Log

MARKER = "run.json"
"""What makes a folder a run, which force may replace."""
_held: dict[Path, int] = {}  # locked folders of this process


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
            for texts in () if lists.texts is None else (lists.texts.query, lists.texts.document):
                digest.update("\0".join(texts).encode())
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
        "transformers",
        "tokenizers",
    )
    found = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def status(folder: Path) -> str | None:
    """How the run in this folder ended; None where there is no run."""
    path = restore(folder) / MARKER
    if not path.exists():
        return None
    try:
        return str(read_json(path)["status"])
    except (DataError, KeyError) as error:
        raise RunError(f"{path}: damaged; force=True starts afresh") from error


def refuse_to_overwrite(out: Path, force: bool) -> None:
    """A finished run stays unless forced; one that was interrupted goes on."""
    if force or status(out) != "interrupted":
        refuse_existing(out, force=force, marker=MARKER)


def claim(out: Path, force: bool) -> Path:
    """The folder to work in, beside `out`: new, or that of a run that was killed or interrupted.

    It is this process's until `publish`, or until the process ends.
    """
    working = out.with_name(out.name + ".partial")
    working.mkdir(parents=True, exist_ok=True)
    _lock(working, out)
    if force:
        for path in working.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif out.exists() and not any(working.iterdir()):
        shutil.copytree(out, working, dirs_exist_ok=True)
    return working


def publish(working: Path, out: Path) -> None:
    """Put the working folder in its place."""
    put_in_place(working, out, force=True, marker=MARKER)
    os.close(_held.pop(working))


def _lock(working: Path, out: Path) -> None:
    """Let no other process write to a folder; the lock goes with the process that holds it."""
    if working in _held:
        if _same(_held[working], working):
            return
        os.close(_held.pop(working))
    handle = os.open(working, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _same(handle, working):  # its owner has just put it in its place
            raise BlockingIOError
    except OSError as error:
        os.close(handle)
        raise RunError(
            f"{out} is being written by another process; wait for it, or choose another place"
        ) from error
    _held[working] = handle


def _same(handle: int, folder: Path) -> bool:
    return folder.exists() and os.path.samestat(os.fstat(handle), folder.stat())
