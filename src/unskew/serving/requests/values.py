"""Features of requests as the numbers and categories that a model takes: by name, by place, or as columns.

Legend: n documents, D features as they are.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter

import numpy as np

from unskew.errors import DataError
from unskew.learning.scoring.scorer import Scorer
from unskew.serving.requests.bodies import BadRequest
from unskew.serving.requests.parsing import LARGEST, AskedRanking, Grid, Written
from unskew.tables.features.encoding import refuse_absent
from unskew.types import Array, Columns

NUMBERS = {float, int, bool, type(None)}
"""What JSON gives for a number that may be missing."""


@dataclass(frozen=True)
class FeatureBlock:
    """Features of the documents of one request, in the order of training."""

    numbers: Array
    """[n, D] float32; NaN where missing."""
    named: bool
    """Whether they came by name."""
    texts: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    """The categories."""


def block_of(scorer: Scorer, asked: AskedRanking) -> FeatureBlock:
    """The features of a request that brings them all."""
    if isinstance(asked.features, Grid):
        return _columns(scorer, asked, asked.features)
    if isinstance(asked.features, Written):
        rows, names = asked.features.rows, asked.features.names
        if not names:
            return _by_place(scorer, asked, rows)
        values, written = _picked(scorer, asked, rows, names)
        return _block(scorer, asked, values, written)
    named = [row for row in asked.features if isinstance(row, Mapping)]
    placed = [row for row in asked.features if row is not None and not isinstance(row, Mapping)]
    if not named:
        return _by_place(scorer, asked, placed)
    if placed:
        at = next(at for at, row in enumerate(asked.features) if not isinstance(row, Mapping))
        raise BadRequest("features must be given by name for all documents, or by place for all", asked.place(at))
    _refuse_names(scorer, asked)
    return _block(scorer, asked, *_values(scorer.names or (), asked, named))


def joined(scorer: Scorer, blocks: Sequence[FeatureBlock]) -> tuple[Array, Columns | None]:
    """The features of several requests as one matrix, and what they are called; None where all came by place."""
    matrix = blocks[0].numbers if len(blocks) == 1 else np.concatenate([block.numbers for block in blocks])
    encoding, names = scorer.card.encoding, scorer.names
    if encoding is None or names is None or not any(block.named for block in blocks):
        return matrix, None
    if not encoding.categories:
        return matrix, encoding.numbers
    categories = {}
    for each in encoding.categories:
        texts = [text for block in blocks for text in block.texts[each.name]]
        values = sorted({text for text in texts if text is not None})
        codes = {text: code for code, text in enumerate(values)}
        categories[each.name] = tuple(values)
        matrix[:, names.index(each.name)] = [math.nan if text is None else codes[text] for text in texts]
    return matrix, Columns(names, categories)


def _values(
    names: Sequence[str], asked: AskedRanking, rows: Sequence[Mapping[str, object]]
) -> tuple[list[object], Sequence[str]]:
    """What all rows have under the names, row after row, and the names in the order in which they stand there.

    Clients mostly write the features of all documents in one order; then no name is looked up.
    """
    first = list(rows[0])
    if len(first) == len(names) and {*first} == {*names} and all(list(row) == first for row in rows):
        return list(chain.from_iterable([row.values() for row in rows])), first
    for at, row in enumerate(rows):
        if not all(map(row.__contains__, names)):
            _refuse_absent(names, row, asked.place(at))
    pick = itemgetter(*names) if len(names) > 1 else lambda row: (row[names[0]],)
    return list(chain.from_iterable(map(pick, rows))), names


def _picked(
    scorer: Scorer, asked: AskedRanking, rows: Sequence[Sequence[object]], written: Sequence[str]
) -> tuple[list[object], Sequence[str]]:
    """The values of a table's rows under the names that the model takes, and the names as they stand there."""
    _refuse_names(scorer, asked)
    names = scorer.names or ()
    if {*written} == {*names}:
        return list(chain.from_iterable(rows)), written
    there = {name: at for at, name in enumerate(written)}
    _refuse_absent(names, there, f"{asked.documents}.names")
    return [row[there[name]] for row in rows for name in names], names


def _block(scorer: Scorer, asked: AskedRanking, values: list[object], written: Sequence[str]) -> FeatureBlock:
    """Values row after row as a block; they are changed."""
    names, taken = scorer.names or (), scorer.taken or {}
    width, there = len(names), {name: at for at, name in enumerate(written)}
    texts = {}
    for name in names:
        if taken[name]:
            texts[name] = _texts(values[there[name] :: width], name, asked)
            values[there[name] :: width] = [0.0] * len(asked.ids)
    flat = _numbers(values, lambda at: asked.place(at // width, written[at % width]))
    numbers, order = flat.reshape(len(asked.ids), width), [there[name] for name in names]
    return FeatureBlock(numbers if order == [*range(width)] else numbers[:, order], True, texts)


def _columns(scorer: Scorer, asked: AskedRanking, grid: Grid) -> FeatureBlock:
    """Columns as a block."""
    names, taken = scorer.names, scorer.taken or {}
    if not grid.names:
        numbers = grid.numbers(())
        if numbers.shape[1] != scorer.features:
            told = f"the model takes {scorer.features} features, here are {numbers.shape[1]}"
            raise BadRequest(told, asked.place(0))
        _refuse_categories(scorer, asked)
        return FeatureBlock(numbers, False)
    _refuse_names(scorer, asked)
    if [*grid.names] != [*(names or ())]:
        _refuse_absent(names or (), grid.names, "names")
    if not any(taken.values()):
        return FeatureBlock(grid.numbers(names or ()), True)
    plain = [name for name in taken if not taken[name]]
    numbers = np.empty((len(asked.ids), len(taken)), np.float32)
    numbers[:, [at for at, name in enumerate(taken) if not taken[name]]] = grid.numbers(plain)
    texts = {name: _texts(grid.column(name), name, asked) for name in taken if taken[name]}
    return FeatureBlock(numbers, True, texts)


def _by_place(scorer: Scorer, asked: AskedRanking, rows: Sequence[Sequence[object]]) -> FeatureBlock:
    """Features in the order of training as a block."""
    width = scorer.features
    for at, row in enumerate(rows):
        if len(row) != width:
            raise BadRequest(f"the model takes {width} features, here are {len(row)}", asked.place(at))
    _refuse_categories(scorer, asked)
    flat = _numbers(list(chain.from_iterable(rows)), lambda at: asked.place(at // width, at % width))
    return FeatureBlock(flat.reshape(len(rows), width), False)


def _numbers(values: Sequence[object], place: Callable[[int], str]) -> Array:
    """Numbers as float32, missing ones as NaN; `place` says where the value of an index is."""
    numbers = np.frombuffer(_packed(values, place))
    large = np.abs(numbers) > LARGEST
    if large.any():
        at = int(np.flatnonzero(large)[0])
        raise BadRequest(f"not a finite number of 32 bits: {str(values[at])[:40]}", place(at))
    return numbers.astype(np.float32)


def _packed(values: Sequence[object], place: Callable[[int], str]) -> bytes:
    """Numbers as 64 bits each; `struct` takes them a good deal faster than numpy."""
    form = f"{len(values)}d"
    try:
        return struct.pack(form, *values)
    except struct.error:  # gaps, or what is no number
        pass
    try:
        return struct.pack(form, *[math.nan if value is None else value for value in values])
    except struct.error as error:
        at = next(at for at, value in enumerate(values) if type(value) not in NUMBERS)
        raise BadRequest(f"not a number, nor null: {_brief(values[at])}", place(at)) from error


def _brief(value: object) -> str:
    """What is no number, in a few letters; lists may be too deep to print."""
    return repr(value[:40]) if isinstance(value, str) else "a list" if isinstance(value, list) else "an object"


def _texts(column: Sequence[object], name: str, asked: AskedRanking) -> list[str | None]:
    """The values of a category as training wrote them."""
    for at, value in enumerate(column):
        if value is not None and not isinstance(value, str | int | float):
            raise BadRequest("a category is a text, a number or null", asked.place(at, name))
    return [
        None if value is None else str(value).lower() if type(value) is bool else str(value) for value in column
    ]


def _refuse_categories(scorer: Scorer, asked: AskedRanking) -> None:
    """Refuse features by place where the model takes categories."""
    if category := next((name for name, is_one in (scorer.taken or {}).items() if is_one), None):
        raise BadRequest(f"{category} is a category; give features by name", asked.place(0))


def _refuse_names(scorer: Scorer, asked: AskedRanking) -> None:
    """Refuse features by name where the model's have none."""
    if scorer.names is None:
        told = "the model was trained on features without names; give a list of numbers"
        raise BadRequest(told, asked.place(0))


def _refuse_absent(names: Sequence[str], there: Mapping[str, object] | Sequence[str], place: str | None) -> None:
    """Refuse what lacks features that the model takes."""
    try:
        refuse_absent(names, dict.fromkeys(there), None)
    except DataError as error:
        raise BadRequest(str(error), place) from error
