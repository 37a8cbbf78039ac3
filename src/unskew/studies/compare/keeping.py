"""What every cell of a comparison does: it is run once, and kept under a hash of all that it depends on.

cells/<hash>.json    settings, numbers, seconds; or the error
cells/<hash>.npy     what is measured of each query or document
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unskew import __version__
from unskew.errors import DataError, UnskewError
from unskew.files import complete_file, read_json, write_json
from unskew.studies.compare.arms import Point
from unskew.types import Array


@dataclass(frozen=True)
class Kept:
    """What a cell kept, or the error that it ended with."""

    content: Mapping[str, Any]
    """Status, and the numbers of validation and test."""

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return bool(self.content["status"] == "finished")

    @property
    def error(self) -> str | None:
        """What the cell failed of."""
        return self.content.get("error")


class Task(Protocol):
    """One thing to learn and measure."""

    @property
    def key(self) -> str:
        """Hash of all that it depends on."""

    @property
    def seed(self) -> int:
        """Seed of all that is drawn."""

    @property
    def point(self) -> Point | None:
        """Its method and settings; None where nothing is learned."""

    def found(self) -> tuple[dict[str, Any], Array]:
        """Run it: numbers for JSON, and an array."""

    def unpacked(self, kept: Array) -> dict[str, Any]:
        """The array by name, as readers want it."""


def run_cell(cell: Task, folder: Path) -> str | None:
    """Run a cell and keep what it found in the folder; the message where it failed."""
    began = time.perf_counter()
    try:
        found, kept = cell.found()
    except Exception as error:  # whatever a cell dies of, the others go on
        message = str(error) if isinstance(error, UnskewError) else f"{type(error).__name__}: {error}"
        _write(folder, cell, {"status": "failed", "error": message}, None)
        return message
    found |= {"status": "finished", "seconds": round(time.perf_counter() - began, 3), "largest_mb": peak_memory()}
    _write(folder, cell, found, kept)
    return None


def read_cell(folder: Path, cell: Task) -> dict[str, Any] | None:
    """What a cell found; None where it has not been run, or not to its end."""
    try:
        found = read_json(folder / f"{cell.key}.json")
        if found["status"] == "finished":
            found |= cell.unpacked(np.load(folder / f"{cell.key}.npy", allow_pickle=False))
    except (OSError, ValueError, KeyError, DataError):
        return None
    return found


def hash_of(depends: dict[str, Any]) -> str:
    """A name for all that something depends on."""
    text = json.dumps(depends, sort_keys=True, default=_plain)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def dumped(config: Any) -> dict[str, Any]:
    """What was set, so that a setting added later, at its default, reruns nothing."""
    return {"kind": type(config).__name__} | dict(config.model_dump(exclude_defaults=True))


def learned_by(point: Point) -> dict[str, Any]:
    """What learning depends on, of a combination of settings; packages take little of the training settings."""
    if point.ranker is None:
        return {"method": dumped(point.method), "validate_on": point.training.validate_on}
    return {"method": dumped(point.method), "training": dumped(point.training), "ranker": dumped(point.ranker)}


def settings_of(cell: Task) -> dict[str, Any]:
    """Settings of the cell's method and training, ready for JSON."""
    if cell.point is None:
        return {}
    point, method = cell.point, cell.point.method.model_dump(mode="json")
    if point.ranker is None:
        return {"method": method, "training": {"validate_on": point.training.validate_on}}
    training = point.training.model_dump(mode="json", exclude={"seed", "threads", "device"})
    return {"method": method, "ranker": point.ranker.model_dump(mode="json"), "training": training}


def peak_memory() -> float | None:
    """The most memory that this process has had so far, in MB; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


def _write(folder: Path, cell: Task, found: dict[str, Any], kept: Array | None) -> None:
    """The numbers first, then the text: where there is text, the cell is whole."""
    about = {"cell": str(cell), "settings": settings_of(cell), "seed": cell.seed, "version": __version__}
    if kept is not None:
        with complete_file(folder / f"{cell.key}.npy") as path, path.open("wb") as file:
            np.save(file, kept)
    write_json(folder / f"{cell.key}.json", about | found)
