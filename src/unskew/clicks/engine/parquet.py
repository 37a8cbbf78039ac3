"""Folders of Parquet files: which files are meant, and writing a folder whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from unskew.errors import DataError, RunError

Paths = Path | str | Sequence[Path | str]


def parquet_files(paths: Paths) -> list[str]:
    """The Parquet files that are meant: files as they are, those inside folders by name, addresses as they are."""
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    found: list[str] = []
    for path in several:
        if isinstance(path, str) and "://" in path:
            found.append(path)
            continue
        place = Path(path)
        if not place.exists():
            raise DataError("there is no such file or folder", path=place, hint="check the name")
        inside = [place] if place.is_file() else sorted(place.rglob("*.parquet"))
        visible = [file for file in inside if file.is_file() and not _hidden(file.relative_to(place))]
        if not visible:
            raise DataError("the folder has no *.parquet files", path=place)
        found += [os.path.abspath(file) for file in visible]
    if not found:
        raise DataError("no Parquet files were named")
    return found


def impressions_in(path: Path | str) -> Path:
    """Where the impressions of a log are: where `unskew ingest` put them if the folder is its, else as named."""
    inside = Path(path) / "impressions"
    return inside if inside.is_dir() and (Path(path) / "summary.json").is_file() else Path(path)


def _hidden(path: Path) -> bool:
    """Whether a part of the path is such as _temporary or .part, which is not data."""
    return any(part[0] in "._" for part in path.parts)


def plain_name(path: str) -> str:
    """A name whose brackets and stars stand for themselves; an address is taken as a pattern."""
    return path if "://" in path else re.sub(r"([\[*?])", r"[\1]", path)


def refuse_existing(folder: Path, force: bool = False) -> None:
    """A place to write to is free or empty; with force it may hold what a command of ours wrote."""
    free = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    if not free and not (force and (folder / "summary.json").is_file()):
        why = "is not ours, so it is not overwritten" if force else "is never overwritten"
        hint = "choose another place" if force else "choose another place, or use --force"
        raise RunError(f"{folder} exists and {why}; {hint}")


@contextmanager
def complete_folder(folder: Path, *, force: bool = False) -> Iterator[Path]:
    """A place to write a folder to, not made yet; it gets its own name when the block ends without an error.

    What a killed process left behind stays beside it under a name that begins with a dot.
    """
    refuse_existing(folder, force)
    folder.parent.mkdir(parents=True, exist_ok=True)
    working = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    old = working.with_suffix(".old")
    shutil.rmtree(working, ignore_errors=True)
    try:
        yield working
        if folder.exists():
            folder.rename(old)
        working.replace(folder)
    finally:
        shutil.rmtree(working, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
