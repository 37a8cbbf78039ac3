"""Public data sets of labelled lists by name: their files in the folder that they were unpacked in, read."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from unskew.errors import ConfigError, DataError
from unskew.files import WRITERS, PathLike
from unskew.settings import known
from unskew.tables.lists.letor import read_letor
from unskew.types import Lists


@dataclass(frozen=True)
class Preset:
    """What is known of a public data set: its width and the names of its files."""

    features: int
    """Number of features, the same in every split."""
    files: tuple[str, str, str]
    """File names of train, validation and test."""
    folders: tuple[str, ...] = ()
    """Folders that the archive unpacks to; looked into besides the folder given."""
    folds: int = 1
    """With more than one, the files lie in Fold1, Fold2, ..."""
    partitions: bool = False
    """Also found as S1.txt to S5.txt, of which a fold takes three, one and one in a circle."""
    doc_ids: bool = False
    """Each line's comment names the document."""
    splits_train: bool = False
    """May come without a validation file; then the last tenth of the training queries serves."""


_LETOR_FILES = ("train.txt", "vali.txt", "test.txt")

PRESETS: Mapping[str, Preset] = {
    "yahoo-set1": Preset(700, ("set1.train.txt", "set1.valid.txt", "set1.test.txt")),
    "yahoo-set2": Preset(700, ("set2.train.txt", "set2.valid.txt", "set2.test.txt")),
    "istella": Preset(220, _LETOR_FILES, ("full", "istella-letor", "istella-letor/full"), splits_train=True),
    "istella-s": Preset(220, _LETOR_FILES, ("sample", "istella-s-letor", "istella-s-letor/sample")),
    "mslr-web10k": Preset(136, _LETOR_FILES, ("MSLR-WEB10K",), folds=5),
    "mslr-web30k": Preset(136, _LETOR_FILES, ("MSLR-WEB30K",), folds=5),
    "mq2007": Preset(46, _LETOR_FILES, ("MQ2007",), folds=5, partitions=True, doc_ids=True),
    "mq2008": Preset(46, _LETOR_FILES, ("MQ2008",), folds=5, partitions=True, doc_ids=True),
}
"""The data sets known by name."""


def preset_files(name: str, preset: Preset, folder: Path, fold: int) -> list[list[Path]]:
    """Paths of train, validation and test in the first place that has them all."""
    inside = f"Fold{fold}/" if preset.folds > 1 else ""
    layouts = [[[inside + file] for file in preset.files]]
    if preset.splits_train:
        layouts.append([layouts[0][0], [], layouts[0][2]])
    if preset.partitions:
        circle = [f"S{(fold - 1 + step) % 5 + 1}.txt" for step in range(5)]
        layouts.append([circle[:3], circle[3:4], circle[4:]])
    places = [folder, *(folder / sub for sub in preset.folders)]
    for place in places:
        for layout in layouts:
            tried = [[[place / f"{file}{end}" for end in WRITERS] for file in split] for split in layout]
            found = [[next((path for path in each if path.is_file()), None) for each in split] for split in tried]
            if all(path is not None for split in found for path in split):
                return [[path for path in split if path is not None] for split in found]
    names = " or ".join(", ".join(file for split in layout for file in split) for layout in layouts)
    raise DataError(
        f"the files of {name} are not all there: looked for {names} (also with .gz, .xz, .bz2) in "
        + ", ".join(str(place) for place in places),
        path=folder,
        hint="name the folder that holds them",
    )


class PresetLists(NamedTuple):
    """A data set in its three parts."""

    train: Lists
    validation: Lists
    test: Lists


def read_preset(
    name: str, folder: PathLike, *, fold: int = 1, doc_ids: bool | None = None, cache: bool | PathLike = True
) -> PresetLists:
    """Read train, validation and test of a public data set from the folder it was unpacked in.

    `PRESETS` has the names.
    """
    preset = PRESETS[known("preset", name, PRESETS)]
    if not 1 <= fold <= preset.folds:
        raise ConfigError(f"{name} has folds 1 to {preset.folds}, not {fold}")
    parts = {
        split: read_letor(
            paths,
            features=preset.features,
            doc_ids=preset.doc_ids if doc_ids is None else doc_ids,
            cache=cache,
            name=f"{name}-{split}",
        )
        for split, paths in zip(PresetLists._fields, preset_files(name, preset, Path(folder), fold), strict=True)
        if paths
    }
    if "validation" not in parts:
        train = parts["train"]
        cut = max(1, len(train) - max(1, len(train) // 10))
        held = replace(train.take(slice(cut, None)), name=f"{name}-validation")
        parts |= {"train": train.take(slice(0, cut)), "validation": held}
    return PresetLists(**parts)
