"""Readers of data sets: `unskew ingest --format unskew_reproductions.formats.baidu:Baidu`, for one."""

from unskew_reproductions.formats.baidu import Baidu
from unskew_reproductions.formats.tiangong import TianGong
from unskew_reproductions.formats.yandex import Yandex

READERS = {"baidu": Baidu, "tiangong": TianGong, "yandex": Yandex}
"""The reader of each data set."""
