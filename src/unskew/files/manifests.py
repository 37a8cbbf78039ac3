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

from unskew.errors import DataError
from unskew.files.reading import SEAL, digest_of, read_json, seal_of
from unskew.files.writing import write_json
from unskew.results import json_text

FILES = "files"
"""The key of a manifest that has the hashes, by names below its folder."""
SUMMARY = "summary.json"
"""The manifest of a log, of its parts and of its counts."""
ANEW = "put a copy back, or write it anew"
SETTLED = 2_000_000_000
"""Nanoseconds without a change after which a hash holds for the process, as clocks of file systems tick slowly."""


def write_manifest(path: Path, content: object, files: Iterable[Path] = ()) -> None:
    """Write a result with the hashes of files beside or below it."""
    told = json.loads(json_text(content))
    told |= {FILES: hashes} if (hashes := hashes_of(path.parent, files)) else {}
    write_json(path, told | {SEAL: seal_of(told)})


def hashes_of(folder: Path, files: Iterable[Path]) -> dict[str, str]:
    """Hashes of files by their names below a folder."""
    return {path.relative_to(folder).as_posix(): digest_of(path) for path in sorted(files)}


def check_files(folder: Path, hashes: Mapping[str, str], hint: str = ANEW) -> None:
    """Refuse files of a folder that are not what was written."""
    for name, digest in hashes.items():
        path = folder / name
        try:
            found = path.stat()
            stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            settled = time.time_ns() - max(stamp[3:]) > SETTLED
            same = (_hashed_once if settled else _hashed)(path, stamp) == digest
        except FileNotFoundError:
            raise DataError("missing", path=path, hint=hint) from None
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", path=path, hint=hint) from error
        if not same:
            raise DataError("damaged, it is not what was written", path=path, hint=hint)


def check_below(place: Path) -> None:
    """Refuse a file, or a folder of them, that is not what the summary of a log above says."""
    place = Path(os.path.abspath(place))
    for folder in (place, *place.parents[:2]):
        if (folder / SUMMARY).is_file() and f'"{SEAL}"'.encode() in (folder / SUMMARY).read_bytes():
            hashes = read_json(folder / SUMMARY).get(FILES, {})
            below = {name: each for name, each in hashes.items() if (folder / name).is_relative_to(place)}
            check_files(folder, below)


def _hashed(path: Path, stamp: tuple[int, ...]) -> str:
    return digest_of(path)


_hashed_once = lru_cache(maxsize=4096)(_hashed)
