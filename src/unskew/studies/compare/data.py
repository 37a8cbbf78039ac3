"""The lists of a comparison: read or made, grades scaled, queries filtered, and hashed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import cast

import numpy as np

from unskew.errors import DataError
from unskew.pages.origins import GENERATED, real
from unskew.settings import listed
from unskew.studies.compare.config import CompareData
from unskew.tables.lists.letor import read_preset
from unskew.tables.lists.scaling import fit_scaler
from unskew.types import Lists
from unskew.workflows.inputs.lists import read_lists
from unskew.workflows.runs.folder import fingerprint
from unskew.workflows.twins.simulate import synthetic_parts


@dataclass(frozen=True)
class ListParts:
    """The lists of a comparison, with the hash of their content."""

    train: Lists
    validation: Lists | None
    test: Lists
    hashes: tuple[str, str, str]

    @property
    def longest(self) -> int:
        """Documents of the longest list of all parts."""
        return max(int(part.sizes.max(initial=0)) for part in (self.train, self.validation, self.test) if part)


@lru_cache(maxsize=1)
def read_data(data: CompareData, base: Path) -> ListParts:
    """The lists, their grades scaled and their queries filtered as asked; kept while the process runs."""
    if data.synthetic is not None:
        parts: tuple[Lists | None, ...] = tuple(synthetic_parts(**dict(data.synthetic)).values())
    elif data.preset is not None:
        parts = read_preset(data.preset, base / str(data.folder), fold=data.fold)
    else:
        named = (
            (paths,) if isinstance(paths, str) else paths for paths in (data.lists, data.validation, data.test)
        )
        parts = tuple(None if p is None else read_lists([base / path for path in p], data.doc_ids) for p in named)
    graded = _scaled([None if part is None else _graded(part, data) for part in parts], data.scaled)
    hashes = tuple("" if part is None else _hash(part) for part in graded)
    return ListParts(cast(Lists, graded[0]), graded[1], cast(Lists, graded[2]), cast(tuple[str, str, str], hashes))


def lists_words(data: CompareData) -> str:
    """What the lists are, in a few words."""
    if data.synthetic is not None:
        return GENERATED
    if data.preset is not None:
        return real(data.preset)
    paths = [data.lists] if isinstance(data.lists, str) else data.lists or []
    return f"the lists of {listed([Path(path).name for path in paths])}"


def _graded(lists: Lists, data: CompareData) -> Lists:
    """Grades scaled, and queries without a relevant document left out, as asked."""
    lists = replace(lists, labels=lists.labels * data.label_scale)
    if data.only_relevant:
        best = [lists.labels[a:b].max(initial=0) for a, b in zip(lists.offsets, lists.offsets[1:], strict=False)]
        lists = lists.take(np.asarray(best) > 0)
    if not (lists.labels > 0).any():
        raise DataError("no document has a grade above 0", path=lists.name)
    return lists


def _scaled(parts: list[Lists | None], kind: str) -> list[Lists | None]:
    """The parts with their features scaled, by what all of them have."""
    given = [part for part in parts if part is not None]
    scaler = fit_scaler(kind, *given)
    return [None if part is None else scaler.apply(part) for part in parts]


def _hash(lists: Lists) -> str:
    """A hash of all of the lists that learning and measuring may depend on."""
    present = b"" if lists.present is None else np.ascontiguousarray(lists.present).tobytes()
    more = hashlib.blake2b(present, digest_size=8).hexdigest()
    return f"{fingerprint(lists)}-{lists.confounder}-{more}"
