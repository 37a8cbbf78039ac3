"""Which Parquet files are meant by names of files and folders."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from unskew.errors import DataError
from unskew.files import restore
from unskew.settings import no_such

Paths = Path | str | Sequence[Path | str]


def parquet_files(paths: Paths) -> list[str]:
    """The Parquet files that are meant: files as they are, those inside folders by name, addresses as they are."""
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    found: list[str] = []
    for path in several:
        if isinstance(path, str) and "://" in path:
            found.append(path)
            continue
        place = restore(Path(path))
        if not place.exists():
            raise no_such(place)
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
    inside = restore(Path(path)) / "impressions"
    return inside if inside.is_dir() and (Path(path) / "summary.json").is_file() else Path(path)


def _hidden(path: Path) -> bool:
    """Whether a part of the path is such as _temporary or .part, which is not data."""
    return any(part[0] in "._" for part in path.parts)


def plain_name(path: str) -> str:
    """A name whose brackets and stars stand for themselves; an address is taken as a pattern."""
    return path if "://" in path else re.sub(r"([\[*?])", r"[\1]", path)
