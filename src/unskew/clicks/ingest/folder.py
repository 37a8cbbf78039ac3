"""Where an ingested log is written: beside its place, renamed when whole, and never over what is not one."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from unskew.errors import RunError

SUMMARY = "summary.json"


def refuse(out: Path, force: bool) -> None:
    """What is there stays; with force an earlier log goes, but nothing that is not one ever does."""
    if not out.exists() and not out.is_symlink():
        return
    if not force:
        raise RunError(f"{out} exists and is never overwritten; choose another --out, or use --force")
    if out.is_symlink() or not out.is_dir() or (any(out.iterdir()) and not (out / SUMMARY).is_file()):
        raise RunError(f"{out} exists and is not an ingested log, so it is not overwritten; choose another --out")


@contextmanager
def working_folder(out: Path, force: bool) -> Iterator[Path]:
    """A folder to write to, put in its place when the block ends without an error and removed when it does not.

    Folders that killed runs left are removed first.
    """
    refuse(out, force)
    out.parent.mkdir(parents=True, exist_ok=True)
    for stale in out.parent.glob(f".{_literal(out.name)}.*.ingest*"):
        found = re.fullmatch(rf"\.{re.escape(out.name)}\.(\d+)\.ingest(ed)?", stale.name)
        if found is not None and not _alive(int(found[1])):
            shutil.rmtree(stale, ignore_errors=True)
    working = out.with_name(f".{out.name}.{os.getpid()}.ingest")
    shutil.rmtree(working, ignore_errors=True)
    working.mkdir()
    try:
        yield working
        refuse(out, force)  # somebody else may have been faster
        _publish(working, out)
    finally:
        shutil.rmtree(working, ignore_errors=True)


def _publish(working: Path, out: Path) -> None:
    """Put the folder in its place; an earlier one steps aside first, since a rename cannot replace it."""
    old = out.with_name(f".{out.name}.{os.getpid()}.ingested")
    if out.exists():
        out.rename(old)
    working.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def write_summary(folder: Path, content: dict[str, Any]) -> None:
    """Write summary.json."""
    (folder / SUMMARY).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def row_count(folder: Path) -> int:
    """Rows of a folder of part files."""
    return sum(pq.read_metadata(path).num_rows for path in sorted(folder.glob("*.parquet")))


def _literal(name: str) -> str:
    return re.sub(r"([\[*?])", r"[\1]", name)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid != os.getpid()
