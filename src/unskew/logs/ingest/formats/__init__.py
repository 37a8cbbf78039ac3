"""Readers of click logs in other people's formats, by the name that `unskew ingest --format` takes."""

from collections.abc import Mapping

from unskew.logs.ingest.formats.metarank import Metarank
from unskew.logs.ingest.formats.records import Reader
from unskew.logs.ingest.formats.ubi import Ubi
from unskew.settings import kind_of, known
from unskew.tables.reading.files import KINDS

READERS: Mapping[str, type[Reader]] = {"metarank": Metarank, "ubi": Ubi}
"""The reader of each format, by the name that `format` takes."""


def reader_of(name: str) -> type[Reader]:
    """The reader of a format by its name, or a class of one's own, as `package.module:Class`."""
    if ":" not in name:
        known("format", name, (*KINDS, *READERS))
    return kind_of("format", name, READERS, Reader)
