"""Manifests: the JSON file of a folder, with a hash of each file there, and of itself.

    {..., "files": {"impressions/part-00000.parquet": HASH, ...}, "sealed": HASH of all else in here}

A bit that flipped on a disk reads as another number, and neither DuckDB nor zstd notices. So files are hashed when
they are opened, at about a second for each gigabyte, and once in a process. What none names is read as it is.
"""

import json
import os
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from unskew.errors import DataError
from unskew.files.reading import SEAL, digest_of, read_json, seal_of
from unskew.files.writing import write_json
from unskew.results import json_text

ANEW = "put a copy back, or write it anew"
SETTLED = 2_000_000_000
"""Nanoseconds without a change after which a hash holds for the process, as clocks of file systems tick slowly."""


def write_manifest(
    path: Path, content: object, files: Iterable[Path] = (), known: Mapping[str, str] | None = None
) -> None:
    """Write a result with the hashes of files beside or below it; those that are `known` are not hashed again."""
    told = json.loads(json_text(content))
    found = {file.relative_to(path.parent).as_posix(): file for file in sorted(files)}
    if found:
        told["files"] = {name: (known or {}).get(name) or digest_of(file) for name, file in found.items()}
    write_json(path, told | {SEAL: seal_of(told)})


def check_files(folder: Path, hashes: Mapping[str, str], hint: str = ANEW) -> None:
    """Refuse files of a folder that are not what was written."""
    for name, digest in hashes.items():
        path = folder / name
        try:
            found = path.stat()
            stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            settled = time.time_ns() - max(stamp[3:]) > SETTLED
            same = digest == (_hashed(path, stamp) if settled else digest_of(path))
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", path=path, hint=hint) from error
        if not same:
            raise DataError("damaged, it is not what was written", path=path, hint=hint)


def read_manifest(path: Path, hint: str = ANEW) -> dict[str, Any]:
    """What a manifest says, once all files that it names are what was written."""
    content = read_json(path)
    check_files(path.parent, content.get("files", {}), hint)
    return content


def check_below(place: Path, manifest: str = "summary.json", hint: str = ANEW) -> None:
    """Refuse a file, or a folder of them, that is not what a manifest above says; of a log unless it is named."""
    place = Path(os.path.abspath(place))
    for folder in (place, *place.parents[:2]):
        told = folder / manifest
        if told.is_file() and f'"{SEAL}"'.encode() in told.read_bytes():  # others may have one too
            hashes = read_json(told).get("files", {})
            below = {name: each for name, each in hashes.items() if (folder / name).is_relative_to(place)}
            check_files(folder, below, hint)


@lru_cache(maxsize=4096)
def _hashed(path: Path, stamp: tuple[int, ...]) -> str:
    return digest_of(path)
