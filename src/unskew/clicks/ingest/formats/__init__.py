"""Readers of click logs in other people's formats, by the name that `unskew ingest --format` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from unskew.clicks.ingest.formats.baidu import read_baidu
from unskew.clicks.ingest.formats.metarank import read_metarank
from unskew.clicks.ingest.formats.stage import Stage
from unskew.clicks.ingest.formats.tiangong import read_tiangong
from unskew.clicks.ingest.formats.ubi import read_ubi
from unskew.clicks.ingest.formats.yandex import read_yandex
from unskew.clicks.ingest.options import IngestOptions

Reader = Callable[[Sequence[Path], Stage, IngestOptions], None]
"""Streams files into a stage; raises DataError where a file cannot be read at all."""

READERS: Mapping[str, Reader] = {
    "baidu": read_baidu,
    "metarank": read_metarank,
    "tiangong": read_tiangong,
    "ubi": read_ubi,
    "yandex": read_yandex,
}
"""All readers."""

__all__ = ["READERS", "Reader"]
