"""Features of requests as the lists that a model takes, with what a store has of them.

A cell that a document does not bring is ABSENT until the store has filled it: tracked clicks by query and
document, all else by document. What is still absent then is an error that names the place.

Legend: n documents, D features as they are.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from unskew.errors import DataError, UnskewError
from unskew.learning.scoring.scorer import Scorer
from unskew.serving.requests.bodies import BadRequest
from unskew.serving.requests.parsing import LARGEST, AskedRanking
from unskew.serving.store.layout import StoredPairs
from unskew.serving.store.store import View
from unskew.tables.features.encoding import refuse_absent
from unskew.types import Array, Columns, Lists, ListTexts

NUMBERS = {float, int, bool, type(None)}
"""What JSON gives for a number that may be missing."""
ABSENT: Final = object()
"""In the place of a value that a document does not bring."""
Cells = list[object] | Array
"""Values row after row, or a matrix [n, D] of float32."""
Look = Callable[[], View]
"""Gives the store as it is at the moment of an answer; not called where nothing is to be looked up."""


class FeatureBlock(NamedTuple):
    """Features of the documents of one request, in the order of training."""

    numbers: Array
    """[n, D] float32; NaN where missing."""
    named: bool
    """Whether they came by name."""
    texts: Mapping[str, Sequence[str | None]]
    """The categories."""
    seen: Sequence[bool]
    """[n] whether the clicks of each document are known."""


def read_candidates(
    scorer: Scorer, asked: Sequence[AskedRanking], look: Look | None
) -> tuple[Lists, Array | None]:
    """The documents of requests as lists, and which have known clicks; None where there is no store."""
    blocks = [_block(scorer, request, look) for request in asked]
    matrix, columns = _joined(scorer, blocks)
    offsets = np.cumsum([0, *(len(request.ids) for request in asked)])
    labels, queries = np.zeros(len(matrix), np.int16), np.arange(len(asked))
    texts = _said(asked) if scorer.reads else None
    lists = Lists(matrix, offsets, labels, queries, name="documents", columns=columns, texts=texts)
    return lists, None if look is None else np.concatenate([block.seen for block in blocks]).astype(bool)


def _said(asked: Sequence[AskedRanking]) -> ListTexts:
    """What queries and documents say, for a model that reads."""
    for request in asked:
        if not request.head.query:
            raise BadRequest("the model reads: say the query in words", f"{request.prefix}query")
        lacking = [at for at in range(len(request.ids)) if not request.texts or request.texts[at] is None]
        if lacking:
            told = "the model reads: give each document a text"
            raise BadRequest(told, f"{request.documents}.{lacking[0]}.text")
    said = [text for request in asked for text in request.texts]
    return ListTexts(np.array([request.head.query for request in asked], object), np.array(said, object))


def _joined(scorer: Scorer, blocks: Sequence[FeatureBlock]) -> tuple[Array, Columns | None]:
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


def _block(scorer: Scorer, asked: AskedRanking, look: Look | None) -> FeatureBlock:
    """The features of a request, those that it lacks from the store."""
    count, width = len(asked.ids), scorer.features
    if scorer.reads and not width:
        return FeatureBlock(np.zeros((count, 0), np.float32), False, {}, [True] * count)
    named = _named(scorer, asked)
    tracked = [] if look is None else tracked_in(scorer)
    found = _by_name(scorer.names or (), asked) if named else _by_place(scorer, asked, len(tracked))
    cells, whole = found
    seen: Sequence[bool] = [True] * count
    names = scorer.names or ["" for _ in range(width - len(tracked))] + tracked
    if look is not None and tracked:
        with _answering():
            clicks = look().get_clicks(asked.head.query, asked.ids)
        seen = clicks.known.tolist()
        _fill_clicks(cells, names, tracked, clicks)
    if isinstance(cells, list) and not whole:
        if look is not None:
            _fill_items(cells, names, asked, look)
        _refuse_absent(cells, scorer.names, asked)
    return _typed(scorer, asked, cells, named, seen)


def _absent(cells: Sequence[object]) -> bool:
    """Whether a value is still to come."""
    return any(cell is ABSENT for cell in cells)


def _named(scorer: Scorer, asked: AskedRanking) -> bool:
    """Whether features go by name; all of a request do, or none."""
    given = asked.features
    by_name = [bool(given.names)] if not given.loose else [isinstance(row, Mapping) for row in given.loose]
    by_place = [row is not None and not isinstance(row, Mapping) for row in given.loose]
    if any(by_name) and any(by_place):
        at = by_place.index(True)
        raise BadRequest("features must be given by name for all documents, or by place for all", asked.place(at))
    if any(by_name) and scorer.names is None:
        told = "the model was trained on features without names; give a list of numbers"
        raise BadRequest(told, asked.place(0))
    nothing = bool(given.loose) and not any(by_place)
    return any(by_name) or (nothing and scorer.names is not None)


def _by_name(names: Sequence[str], asked: AskedRanking) -> tuple[Cells, bool]:
    """The cells of a request under the names that a model takes, and whether none is absent."""
    given = asked.features
    if given.loose:
        rows: list[Mapping[str, object]] = [row or {} for row in given.loose]  # type: ignore[misc]
        try:
            pick = itemgetter(*names) if len(names) > 1 else lambda row: (row[names[0]],)
            return list(chain.from_iterable(map(pick, rows))), True
        except KeyError:
            return [row.get(name, ABSENT) for row in rows for name in names], False
    if [*given.names] == [*names]:
        return given.values if isinstance(given.values, np.ndarray) else list(given.values), True
    there = {name: at for at, name in enumerate(given.names)}
    places = [there.get(name, -1) for name in names]
    if isinstance(given.values, np.ndarray) and -1 not in places:
        return given.values[:, places], True
    cells = _listed(given.values)
    starts = range(0, len(cells), given.width)
    return [ABSENT if at < 0 else cells[start + at] for start in starts for at in places], -1 not in places


def _listed(values: Sequence[object] | Array) -> list[object]:
    """Values as JSON would have them."""
    if isinstance(values, np.ndarray):
        return [None if value != value else value for value in values.ravel().tolist()]
    return list(values)


def _by_place(scorer: Scorer, asked: AskedRanking, tracked: int) -> tuple[Cells, bool]:
    """The cells of a request in the order of training, and whether none is absent.

    Tracked clicks come last, and may be left to the store.
    """
    given, width = asked.features, scorer.features
    if category := next((name for name, is_one in (scorer.taken or {}).items() if is_one), None):
        raise BadRequest(f"{category} is a category; give features by name", asked.place(0))
    if not given.loose and given.width == width:
        return given.values if isinstance(given.values, np.ndarray) else list(given.values), True
    rows: list[Any] = [*given.loose]
    if not rows:
        cells, step = _listed(given.values), given.width
        rows = [cells[at * step : (at + 1) * step] for at in range(len(asked.ids))]
    for at, row in enumerate(rows):
        if row is not None and len(row) not in (width, width - tracked):
            raise BadRequest(f"the model takes {width} features, here are {len(row)}", asked.place(at))
    return list(chain.from_iterable([*(row or ()), *[ABSENT] * (width - len(row or ()))] for row in rows)), False


def _fill_clicks(cells: Cells, names: Sequence[str], tracked: Sequence[str], clicks: StoredPairs) -> None:
    """Put tracked clicks where they are absent."""
    if not isinstance(cells, list):
        return
    for name in tracked:
        column = slice(names.index(name), None, len(names))
        kept = clicks.values[:, list(clicks.names).index(name)].tolist()
        cells[column] = [new if old is ABSENT else old for old, new in zip(cells[column], kept, strict=True)]


def _fill_items(cells: list[object], names: Sequence[str], asked: AskedRanking, look: Look) -> None:
    """Put what the store has of documents where it is absent."""
    if not _absent(cells):
        return
    width = len(names)
    lacking = [at for at in range(len(asked.ids)) if _absent(cells[at * width : (at + 1) * width])]
    with _answering():
        found = look().get_items([asked.ids[at] for at in lacking]).named()
    kept = dict(zip(lacking, found, strict=True))
    if bare := [at for at, one in kept.items() if one is None and _brings_nothing(asked, at)]:
        told = ", ".join(asked.ids[at] for at in bare[:5])
        raise BadRequest(f"not in the store: {told}", asked.id_place(bare[0]))
    for at, one in kept.items():
        for place, name in enumerate(names, at * width):
            if cells[place] is ABSENT:
                cells[place] = (one or {}).get(name, ABSENT)


def _brings_nothing(asked: AskedRanking, at: int) -> bool:
    return bool(asked.features.loose) and not asked.features.loose[at]


@contextmanager
def _answering() -> Iterator[None]:
    """A store that cannot answer is not the caller's fault."""
    try:
        yield
    except UnskewError as error:
        raise BadRequest(f"the store cannot answer: {error}", status=503) from error


def tracked_in(scorer: Scorer) -> list[str]:
    """The tracked clicks that a model takes; all of them where its last features are such."""
    from unskew.tracking.features import FEATURES

    if scorer.names is not None:
        return sorted({*scorer.names} & {*FEATURES}, key=FEATURES.index)
    ranker = scorer.card.ranker or {}
    robust = ranker.get("name") == "doubly_robust_mix" and scorer.features >= len(FEATURES)
    mixed = ranker.get("name") == "vanilla_mix" and scorer.features == len(FEATURES)  # others may be any features
    return list(FEATURES) if robust or mixed or "tracked" in ranker else []


def _refuse_absent(cells: list[object], names: Sequence[str] | None, asked: AskedRanking) -> None:
    """Refuse what lacks features that the model takes."""
    if not _absent(cells):
        return
    width = len(cells) // len(asked.ids)
    at = next(place for place, cell in enumerate(cells) if cell is ABSENT) // width
    if names is None or _brings_nothing(asked, at):
        raise BadRequest("a document has no features, and there is no store", asked.place(at))
    there = [name for name, cell in zip(names, cells[at * width :], strict=False) if cell is not ABSENT]
    try:
        refuse_absent(names, dict.fromkeys([*there, *_other_names(asked, at)]), None)
    except DataError as error:
        raise BadRequest(str(error), asked.names_place(at)) from error


def _other_names(asked: AskedRanking, at: int) -> Sequence[str]:
    """What a document does bring, one of which may be a feature misspelt."""
    row: Any = asked.features.loose[at] if asked.features.loose else asked.features.names
    return list(row or ())


# ---- numbers and texts


def _typed(scorer: Scorer, asked: AskedRanking, cells: Cells, named: bool, seen: Sequence[bool]) -> FeatureBlock:
    """Cells as numbers and categories; those of a list are changed."""
    names, width, texts = scorer.names or (), scorer.features, {}
    taken = [name for name, is_category in (scorer.taken or {}).items() if is_category] if named else []
    if isinstance(cells, np.ndarray) and not taken:
        return FeatureBlock(cells, named, {}, seen)
    cells = _listed(cells) if isinstance(cells, np.ndarray) else cells
    for name in taken:
        column = slice(names.index(name), None, width)
        texts[name] = _texts(cells[column], name, asked)
        cells[column] = [0.0] * len(asked.ids)
    called: Sequence[object] = names if named else range(width)
    flat = _numbers(cells, lambda at: asked.place(at // width, called[at % width]))
    return FeatureBlock(flat.reshape(len(asked.ids), width), named, texts, seen)


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
