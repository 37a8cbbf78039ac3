"""Readers of click logs in other people's formats, by the name that `unskew ingest --format` takes."""

from collections.abc import Mapping

from unskew.logs.ingest.formats.baidu import Baidu
from unskew.logs.ingest.formats.metarank import Metarank
from unskew.logs.ingest.formats.records import Reader
from unskew.logs.ingest.formats.tiangong import TianGong
from unskew.logs.ingest.formats.ubi import Ubi
from unskew.logs.ingest.formats.yandex import Yandex

READERS: Mapping[str, type[Reader]] = {
    "baidu": Baidu,
    "metarank": Metarank,
    "tiangong": TianGong,
    "ubi": Ubi,
    "yandex": Yandex,
}
"""The reader of each format, by the name that `format` takes."""
