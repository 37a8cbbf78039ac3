"""The data sets that recipes run on: found in folders by their content, else generated."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from unskew.errors import DataError, Option
from unskew.files import WRITERS, complete_file
from unskew.settings import checked, known
from unskew.studies.compare.config import SyntheticLists
from unskew.tables.lists.svmlight import read_blocks
from unskew_reproductions.formats.labelled import PRESETS, preset_files
from unskew_reproductions.recipe import sources

NAMES = ("yahoo", "istella", "mq2008", "mslr", "generated")
"""What a recipe can run on."""
VARIABLE = "UNSKEW_DATA"
"""Names the folder that is looked into where none is given."""
_SPLITS = {"S1": "train", "S2": "train", "S3": "train", "S4": "vali", "S5": "test"}


@dataclass(frozen=True)
class DataSet:
    """A data set, ready for a compare file."""

    name: str
    title: str
    data: Mapping[str, Any]
    """What goes into [data]."""
    paper: bool
    """Whether papers report on it, so that values compare and not only orders."""


Found = tuple[Path, str]
"""Where a data set lies, and its name among the presets; empty for a sample with a table of its queries."""
Look = tuple[int, int]  # highest feature and first query id of a file's first lines

_PRESETS: Mapping[str, tuple[tuple[str, ...], Callable[[Look], bool]]] = {
    "yahoo": (("yahoo-set1",), lambda look: look[0] <= 700),
    # MSLR and LETOR have files of the same names as Istella, and MQ2007 of the same as MQ2008
    "istella": (("istella-s",), lambda look: 136 < look[0] <= 220),
    "mq2008": (("mq2008",), lambda look: look[0] == 46 and look[1] >= 10_000),
    "mslr": (("mslr-web10k", "mslr-web30k"), lambda look: 46 < look[0] <= 136),
}


def find_sets(folders: Sequence[Path]) -> dict[str, Found]:
    """The data sets in these folders or directly below them; the first found of each."""
    found: dict[str, Found] = {}
    for folder in folders:
        if not folder.is_dir():
            raise DataError(
                "is not a folder", path=folder, hint=("give ", Option("data"), " the folder that holds data sets")
            )
        for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
            for name, (presets, fits) in _PRESETS.items():
                preset = next((preset for preset in presets if _holds(place, preset, fits)), None)
                if preset is not None:
                    found.setdefault(name, (place, preset))
            if _sample(place) is not None:
                found.setdefault("mslr", (place, ""))
    return found


def choose_sources(
    on: Sequence[str], folders: Sequence[Path], work: Path, *, quick: bool = False
) -> list[DataSet]:
    """The data sets asked for; else those of the papers where found; else the small ones found and the generated.

    `work` is a folder to write to, where a data set must be cut into files first.
    """
    for name in on:
        known("on", name, NAMES)
    named = os.environ.get(VARIABLE)
    looked = list(folders) or ([Path(named)] if named else [])
    found = find_sets(looked)
    missing = [name for name in on if name != "generated" and name not in found]
    if missing:
        where = ", ".join(map(str, looked)) or "no folder"
        hint = None if looked else ("give one, ", Option("data"))
        raise DataError(f"{', '.join(missing)} not found; looked into {where}", hint=hint)
    papers = [name for name in NAMES if name in found and sources()[name].get("paper")]
    chosen = list(dict.fromkeys(on)) or papers or [*(name for name in NAMES if name in found), "generated"]
    made = [_source(name, found.get(name), work) for name in chosen]
    few = sources()["quick"]["title"]
    return [replace(source, title=few) if quick and source.name == "generated" else source for source in made]


def _source(name: str, found: Found | None, work: Path) -> DataSet:
    about = sources()[name]
    data, title = {}, about["title"]
    if found is not None and found[1]:
        files = preset_files(found[1], PRESETS[found[1]], found[0].resolve(), 1)
        parts = ([str(path) for path in part] for part in files)
        data = dict(zip(("lists", "validation", "test"), parts, strict=True))
    elif found is not None:
        data, title = cut_sample(found[0], work), f"{title}, a sample"
    return DataSet(name, title, data, bool(about.get("paper")))


def _holds(folder: Path, preset: str, fits: Callable[[Look], bool]) -> bool:
    """Whether the files of the preset are there, and look like it."""
    try:
        train = preset_files(preset, PRESETS[preset], folder, 1)[0][0]
        return fits(look_at(train))
    except (DataError, ValueError, IndexError):
        return False


def look_at(path: Path, lines: int = 50) -> Look:
    """Highest feature id and first query id of the first lines of a LETOR file."""
    highest, query = 0, -1
    first = (line for _, block in read_blocks(path, 2**16) for line in block.split(b"\n"))
    for line in islice(first, lines):
        fields = line.split(b"#")[0].split()
        if len(fields) < 2:
            continue
        query = int(fields[1].removeprefix(b"qid:")) if query < 0 else query
        highest = max([highest, *(int(entry.split(b":")[0]) for entry in fields[2:])])
    return highest, query


def _sample(folder: Path) -> Path | None:
    """The LETOR file of a sample: MSLR by its width, beside a queries.tsv with each query's partition."""
    table = folder / "queries.tsv"
    if not table.is_file() or not {"qid", "partition"} <= set(
        table.read_text(encoding="utf-8").split("\n")[0].split()
    ):
        return None
    for path in sorted(folder.iterdir()):
        if path.name.removesuffix(path.suffix if path.suffix in WRITERS else "").endswith(".txt"):
            try:
                return path if 46 < look_at(path)[0] <= 136 else None
            except ValueError:
                return None
    return None


def cut_sample(folder: Path, work: Path) -> dict[str, Any]:
    """Cut a sample into train, validation and test by the partition of each query; written once."""
    source = _sample(folder)
    assert source is not None
    parts = {name: work / f"{name}.txt" for name in ("train", "vali", "test")}
    work.mkdir(parents=True, exist_ok=True)
    with (folder / "queries.tsv").open(encoding="utf-8", newline="") as file:
        split = {row["qid"]: _SPLITS[row["partition"]] for row in csv.DictReader(file, delimiter="\t")}
    lines: dict[str, list[bytes]] = {name: [] for name in parts}
    for _, block in read_blocks(source):
        for line in block.split(b"\n"):
            query = line.split(maxsplit=2)[1].removeprefix(b"qid:").decode()
            lines[split[query]].append(line + b"\n")
    for name, path in parts.items():
        content = b"".join(lines[name])
        if not path.exists() or path.read_bytes() != content:
            with complete_file(path) as ready:
                ready.write_bytes(content)
    names = {key: str(path.resolve()) for key, path in parts.items()}
    return {"lists": names["train"], "validation": names["vali"], "test": names["test"]}


def resized(source: DataSet, size: Mapping[str, int]) -> DataSet:
    """Generated lists of another size, with a title that says so; other sets as they are."""
    if source.name != "generated" or not size:
        return source
    made = checked(SyntheticLists, {**sources()["generated"]["compare"]["data"]["synthetic"], **size}, "generated")
    title = f"generated lists: {made.queries:,} queries, {made.features} features, {made.documents} documents"
    return replace(source, data={"synthetic": dict(size)}, title=title)
