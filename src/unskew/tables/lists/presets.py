"""Read train, validation and test of a public data set by its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from unskew.errors import ConfigError
from unskew.files import PathLike
from unskew.tables.lists.datasets import find_files, preset_named
from unskew.tables.lists.letor import read_letor
from unskew.types import Lists


class PresetLists(NamedTuple):
    """A data set in its three parts."""

    train: Lists
    validation: Lists
    test: Lists


def read_preset(
    name: str, folder: PathLike, *, fold: int = 1, doc_ids: bool | None = None, cache: bool | PathLike = True
) -> PresetLists:
    """Read train, validation and test of a public data set from the folder it was unpacked in.

    `datasets.PRESETS` has the names.
    """
    preset = preset_named(name)
    if not 1 <= fold <= preset.folds:
        raise ConfigError(f"{name} has folds 1 to {preset.folds}, not {fold}")
    train, validation, test = (
        read_letor(
            paths,
            features=preset.features,
            doc_ids=preset.doc_ids if doc_ids is None else doc_ids,
            cache=cache,
            name=f"{name}-{split}",
        )
        if paths
        else None
        for split, paths in zip(PresetLists._fields, find_files(name, preset, Path(folder), fold), strict=True)
    )
    assert train is not None
    assert test is not None
    if validation is None:
        cut = max(1, len(train) - max(1, len(train) // 10))
        held = replace(train.take(slice(cut, None)), name=f"{name}-validation")
        train, validation = train.take(slice(0, cut)), held
    return PresetLists(train, validation, test)
