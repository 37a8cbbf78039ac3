"""Which logs a run learns from, is chosen by and measured on: as named, or the parts that `unskew split` wrote."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import ConfigError, DataError
from unskew.files import restore
from unskew.tables.engine.parquet import impressions_in, parquet_files

if TYPE_CHECKING:
    from unskew.workflows.runs.settings import DataFiles, Paths

PARTS = ("train", "validation", "test")
"""Folders of a log that was cut."""


@dataclass(frozen=True)
class RunLogs:
    """The logs of a run."""

    train: Path | None
    """What is learned from; None where counts are."""
    validation: Path | None = None
    """Whose clicks choose weights; None where labelled lists or pages of `train` do."""
    test: Path | None = None
    """Whose clicks say where the run stands; None where held-out ones do."""

    def __str__(self) -> str:
        train, validation, test = (
            None if path is None else os.path.normpath(path) for path in (self.train, self.validation, self.test)
        )
        said = [f"learning from {train}"]
        said += [] if validation is None else [f"clicks of {validation} choose the weights"]
        said += [] if test is None else [f"clicks of {test} say where it stands"]
        return ", ".join(said)


def logs_of(base: Path, data: DataFiles) -> RunLogs:
    """The logs among the files of a run, whose paths are relative to `base`."""
    place = None if data.log is None else base / data.log
    parts = {} if place is None else log_parts(place)
    others = {
        name: parts.get(name) if given is None else _as_log(f"data.{name}", base, given, data.columns)
        for name, given in (("validation", data.validation), ("test", data.test))
    }
    return RunLogs(parts.get("train", place), **others)


def log_parts(path: Path) -> dict[str, Path]:
    """The parts of a log that was cut into train, validation and test, those that have rows; none of another."""
    folder = restore(path)
    inside = {name: folder / name for name in PARTS if (folder / name).is_dir()}
    if "train" not in inside or len(inside) < 2:
        return {}
    return {name: part for name, part in inside.items() if name == "train" or _rows(part)}


def is_log(path: Path, columns: Mapping[str, str] | None = None) -> bool:
    """Whether a file or folder holds impressions, by the columns of its first Parquet file."""
    if path.suffix != ".parquet" and not path.is_dir():
        return False
    named = columns or {}
    try:
        present = pq.read_schema(parquet_files(impressions_in(path))[0]).names
    except (DataError, pa.ArrowInvalid, OSError):
        return False  # whoever opens it says what is wrong
    return all(named.get(name, name) in present or name in present for name in ("page_id", "doc_id", "position"))


def _as_log(key: str, base: Path, given: Paths, columns: Mapping[str, str]) -> Path | None:
    """The path where it is one of a log; None where lists are named."""
    paths = [base / path for path in ([given] if isinstance(given, str) else given)]
    logs = [path for path in paths if is_log(path, columns)]
    if logs and len(paths) > 1:
        raise ConfigError(f"{key}: {logs[0]} is a log, and one log is all that it takes")
    return logs[0] if logs else None


def _rows(part: Path) -> int:
    """Rows of a part, as its files say."""
    try:
        return sum(pq.read_metadata(file).num_rows for file in parquet_files(part))
    except (DataError, pa.ArrowInvalid, OSError):
        return 0
