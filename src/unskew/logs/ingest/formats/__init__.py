"""Readers of click logs in other people's formats, by the name that `unskew ingest --format` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from unskew.logs.ingest.formats.baidu import read_baidu
from unskew.logs.ingest.formats.metarank import read_metarank
from unskew.logs.ingest.formats.stage import Stage
from unskew.logs.ingest.formats.tiangong import read_tiangong
from unskew.logs.ingest.formats.ubi import read_ubi
from unskew.logs.ingest.formats.yandex import read_yandex
from unskew.tables.reading.options import IngestOptions

Reader = Callable[[Sequence[Path], Stage, IngestOptions], None]
"""Streams files into a stage; raises DataError where a file cannot be read at all."""

READERS: Mapping[str, Reader] = {
    "baidu": read_baidu,
    "metarank": read_metarank,
    "tiangong": read_tiangong,
    "ubi": read_ubi,
    "yandex": read_yandex,
}
"""The reader of each format, by the name that `format` takes."""

__all__ = ["READERS", "Reader"]
