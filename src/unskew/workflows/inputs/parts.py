"""Logs among files: the parts that `unskew split` wrote, and whether a file holds impressions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import DataError
from unskew.files import restore
from unskew.tables.engine.parquet import impressions_in, parquet_files

PARTS = ("train", "validation", "test")
"""Folders of a log that was cut."""


def log_parts(path: Path) -> dict[str, Path]:
    """The parts of a log that was cut into train, validation and test, those that have rows; none of another."""
    folder = restore(path)
    inside = {name: folder / name for name in PARTS if (folder / name).is_dir()}
    if "train" not in inside or len(inside) < 2:
        return {}
    return {name: part for name, part in inside.items() if name == "train" or _rows(part)}


def is_log(path: Path, names: Mapping[str, str]) -> bool:
    """Whether a file or folder holds impressions, by the columns of its first Parquet file."""
    if path.suffix != ".parquet" and not path.is_dir():
        return False
    try:
        present = pq.read_schema(parquet_files(impressions_in(path))[0]).names
    except (DataError, pa.ArrowInvalid, OSError):
        return False  # whoever opens it says what is wrong
    return all(names.get(name, name) in present or name in present for name in ("page_id", "doc_id", "position"))


def _rows(part: Path) -> int:
    """Rows of a part, as its files say."""
    try:
        return sum(pq.read_metadata(file).num_rows for file in parquet_files(part))
    except (DataError, pa.ArrowInvalid, OSError):
        return 0
