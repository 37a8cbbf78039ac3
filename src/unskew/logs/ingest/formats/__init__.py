"""Readers of click logs in other people's formats, by the name that `unskew ingest --format` takes."""

from collections.abc import Mapping
from importlib import import_module

from unskew.errors import ConfigError
from unskew.logs.ingest.formats.baidu import Baidu
from unskew.logs.ingest.formats.metarank import Metarank
from unskew.logs.ingest.formats.records import Reader
from unskew.logs.ingest.formats.ubi import Ubi
from unskew.logs.ingest.formats.yandex import Yandex
from unskew.settings import known
from unskew.tables.reading.files import KINDS

READERS: Mapping[str, type[Reader]] = {"baidu": Baidu, "metarank": Metarank, "ubi": Ubi, "yandex": Yandex}
"""The reader of each format, by the name that `format` takes."""


def reader_of(name: str) -> type[Reader]:
    """The reader of a format by its name, or a class of one's own, as `package.module:Class`."""
    module, of_its_own, kind = name.partition(":")
    if not of_its_own:
        return READERS[known("format", name, (*KINDS, *READERS))]
    try:
        found = getattr(import_module(module), kind)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"cannot be imported: {error}", argument="format", value=name) from None
    if not (isinstance(found, type) and issubclass(found, Reader)):
        raise ConfigError("no class of readers of a format", argument="format", value=name)
    return found
