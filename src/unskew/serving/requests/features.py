"""Features of requests as the lists that a model takes, with what a store has of them.

A cell that a document does not bring is ABSENT until the store has filled it: tracked clicks by query and
document, all else by document. What is still absent then is an error that names the place.

Legend: n documents, D features as they are.
"""

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from unskew.errors import DataError, UnskewError
from unskew.learning.scoring.scorer import Scorer
from unskew.serving.requests.bodies import BadRequest
from unskew.serving.requests.parsing import LARGEST, AskedRanking
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
    """Whether the request gave its features by name."""
    texts: Mapping[str, Sequence[str | None]]
    """The categories."""
    seen: Sequence[bool]
    """[n] whether the clicks of each document are known."""


def read_candidates(
    scorer: Scorer, asked: Sequence[AskedRanking], look: Look | None
) -> tuple[Lists, Array | None]:
    """The documents of requests as lists, and which have known clicks; None where there is no store."""
    reader = _Reader(scorer, look)
    blocks = [reader.block(request) for request in asked]
    matrix, columns = reader.joined(blocks)
    offsets = np.cumsum([0, *(len(request.ids) for request in asked)])
    labels, queries = np.zeros(len(matrix), np.int16), np.array([request.head.query for request in asked], object)
    texts = _said(asked) if reader.reads else None
    lists = Lists(matrix, offsets, labels, queries, name="documents", columns=columns, texts=texts)
    if scorer.combination is not None:  # what knows of the engine's order, and of clicks of pairs
        ids = np.array([each for request in asked for each in request.ids], object)
        lists = replace(lists, doc_ids=ids, shown=np.concatenate([request.ranks for request in asked]))
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


class _Reader:
    def __init__(self, scorer: Scorer, look: Look | None) -> None:
        self.encoding, self.names, self.look, self.reads = scorer.card.encoding, scorer.names, look, scorer.reads
        self.width = scorer.card.features if self.names is None else len(self.names)
        self.categories = [] if self.encoding is None else [each.name for each in self.encoding.categories]
        self.tracked = [] if look is None else _tracked(scorer, self.names, self.width)
        self.called = self.names or (*[""] * (self.width - len(self.tracked)), *self.tracked)

    def block(self, asked: AskedRanking) -> FeatureBlock:
        """The features of a request, those that it lacks from the store."""
        count = len(asked.ids)
        if self.reads and not self.width:
            return FeatureBlock(np.zeros((count, 0), np.float32), False, {}, [True] * count)
        named, seen = self._goes_by_name(asked), [True] * count
        cells, whole = self._by_name(asked) if named else self._by_place(asked)
        if self.look is not None and self.tracked:
            with _answering():
                clicks = self.look().get_clicks(asked.head.query, asked.ids)
            seen = clicks.known.tolist()
        if isinstance(cells, list) and not whole:
            for name in self.tracked:
                column = slice(self.called.index(name), None, self.width)
                kept = clicks.values[:, list(clicks.names).index(name)].tolist()
                cells[column] = [
                    new if old is ABSENT else old for old, new in zip(cells[column], kept, strict=True)
                ]
            if self.look is not None:
                self._fill_items(cells, asked, self.look)
            self._refuse_absent(cells, asked)
        return self._typed(asked, cells, named, seen)

    def joined(self, blocks: Sequence[FeatureBlock]) -> tuple[Array, Columns | None]:
        """The features of requests as one matrix, and what they are called; None where all go by place."""
        matrix = blocks[0].numbers if len(blocks) == 1 else np.concatenate([block.numbers for block in blocks])
        if self.encoding is None or self.names is None or not any(block.named for block in blocks):
            return matrix, None
        if not self.categories:
            return matrix, Columns(self.names)
        categories = {}
        for name in self.categories:
            texts = [text for block in blocks for text in block.texts[name]]
            values = sorted({text for text in texts if text is not None})
            codes = {text: code for code, text in enumerate(values)}
            categories[name] = tuple(values)
            matrix[:, self.names.index(name)] = [math.nan if text is None else codes[text] for text in texts]
        return matrix, Columns(self.names, categories)

    def _goes_by_name(self, asked: AskedRanking) -> bool:
        """Whether features go by name; all of a request do, or none."""
        kinds = {isinstance(row, dict) for row in asked.rows if row is not None}
        kinds |= set() if asked.rows else {bool(asked.names)}
        if len(kinds) > 1:
            at = next(at for at, row in enumerate(asked.rows) if isinstance(row, list))
            told = "features must be given by name for all documents, or by place for all"
            raise BadRequest(told, asked.place(at))
        if True in kinds and self.names is None:
            told = "the model was trained on features without names; give a list of numbers"
            raise BadRequest(told, asked.place(0))
        return True in kinds or (not kinds and self.names is not None)

    def _by_name(self, asked: AskedRanking) -> tuple[Cells, bool]:
        """The cells of a request under the names that the model takes, and whether none is absent."""
        names = self.names or ()
        if asked.rows:
            rows: list[Mapping[str, object]] = [row or {} for row in asked.rows]  # type: ignore[misc]
            first = [*rows[0]]  # clients mostly write all of them in the model's order, which is read faster
            if (*first,) == names and all([*row] == first for row in rows):
                return list(chain.from_iterable(row.values() for row in rows)), True
            try:
                pick = itemgetter(*names) if len(names) > 1 else lambda row: (row[names[0]],)
                return list(chain.from_iterable(map(pick, rows))), True
            except KeyError:
                return [row.get(name, ABSENT) for row in rows for name in names], False
        if (*asked.names,) == names:
            return asked.values if isinstance(asked.values, np.ndarray) else list(asked.values), True
        there = {name: at for at, name in enumerate(asked.names)}
        places = [there.get(name, -1) for name in names]
        if isinstance(asked.values, np.ndarray) and -1 not in places:
            return asked.values[:, places], True
        cells = _listed(asked.values)
        starts = range(0, len(cells), asked.width)
        return [ABSENT if at < 0 else cells[start + at] for start in starts for at in places], -1 not in places

    def _by_place(self, asked: AskedRanking) -> tuple[Cells, bool]:
        """The cells of a request in the order of training, and whether none is absent.

        Tracked clicks come last, and may be left to the store.
        """
        width = self.width
        if self.categories:
            raise BadRequest(f"{self.categories[0]} is a category; give features by name", asked.place(0))
        if not asked.rows and asked.width == width:
            return asked.values if isinstance(asked.values, np.ndarray) else list(asked.values), True
        rows: list[Any] = [*asked.rows]
        if not rows:
            cells, step = _listed(asked.values), asked.width
            rows = [cells[at * step : (at + 1) * step] for at in range(len(asked.ids))]
        for at, row in enumerate(rows):
            if row is not None and len(row) not in (width, width - len(self.tracked)):
                raise BadRequest(f"the model takes {width} features, here are {len(row)}", asked.place(at))
        if all(row is not None and len(row) == width for row in rows):
            return list(chain.from_iterable(rows)), True
        filled = ([*(row or ()), *[ABSENT] * (width - len(row or ()))] for row in rows)
        return list(chain.from_iterable(filled)), False

    def _fill_items(self, cells: list[object], asked: AskedRanking, look: Look) -> None:
        """Put what the store has of documents where it is absent."""
        width = self.width
        lacking = sorted({place // width for place, cell in enumerate(cells) if cell is ABSENT})
        if not lacking:
            return
        with _answering():
            found = look().get_items([asked.ids[at] for at in lacking]).named()
        kept = dict(zip(lacking, found, strict=True))
        if bare := [at for at, one in kept.items() if one is None and _brings_nothing(asked, at)]:
            told = ", ".join(asked.ids[at] for at in bare[:5])
            raise BadRequest(f"not in the store: {told}", asked.id_place(bare[0]))
        for at, one in kept.items():
            for place, name in enumerate(self.called, at * width):
                if cells[place] is ABSENT:
                    cells[place] = (one or {}).get(name, ABSENT)

    def _refuse_absent(self, cells: list[object], asked: AskedRanking) -> None:
        first = next((place for place, cell in enumerate(cells) if cell is ABSENT), None)
        if first is None:
            return
        at = first // self.width
        if self.names is None or _brings_nothing(asked, at):
            raise BadRequest("a document has no features, and there is no store", asked.place(at))
        own = zip(self.names, cells[at * self.width :], strict=False)
        there = [name for name, cell in own if cell is not ABSENT]
        others: Any = asked.rows[at] if asked.rows else asked.names  # one of which may be a feature misspelt
        try:
            refuse_absent(self.names, dict.fromkeys([*there, *(others or ())]), None)
        except DataError as error:
            raise BadRequest(str(error), asked.names_place(at)) from error

    def _typed(self, asked: AskedRanking, cells: Cells, named: bool, seen: Sequence[bool]) -> FeatureBlock:
        """Cells as numbers and categories; those of a list are changed."""
        names, width, texts = self.names or (), self.width, {}
        taken = self.categories if named else []
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


def _tracked(scorer: Scorer, names: Sequence[str] | None, width: int) -> list[str]:
    """The tracked clicks that a model takes; all of them where its last features are such."""
    from unskew.tracking.features import FEATURES

    if names is not None:
        return sorted({*names} & {*FEATURES}, key=FEATURES.index)
    ranker = scorer.card.ranker or {}
    robust = ranker.get("name") == "doubly_robust_mix" and width >= len(FEATURES)
    mixed = ranker.get("name") == "vanilla_mix" and width == len(FEATURES)  # others may be any features
    return list(FEATURES) if robust or mixed or "tracked" in ranker else []


def _brings_nothing(asked: AskedRanking, at: int) -> bool:
    return bool(asked.rows) and not asked.rows[at]


@contextmanager
def _answering() -> Iterator[None]:
    """A store that cannot answer is not the caller's fault."""
    try:
        yield
    except UnskewError as error:
        raise BadRequest(f"the store cannot answer: {error}", status=503) from error


# ---- numbers and texts


def _listed(values: Sequence[object] | Array) -> list[object]:
    if isinstance(values, np.ndarray):
        return [None if value != value else value for value in values.ravel().tolist()]
    return list(values)


def _numbers(values: Sequence[object], place: Callable[[int], str]) -> Array:
    """Numbers as float32, missing ones as NaN; `place` says where the value of an index is."""
    form = f"{len(values)}d"
    try:
        packed = struct.pack(form, *values)  # a good deal faster than numpy
    except struct.error:  # gaps, or what is no number
        try:
            packed = struct.pack(form, *[math.nan if value is None else value for value in values])
        except struct.error as error:
            at = next(at for at, value in enumerate(values) if type(value) not in NUMBERS)
            wrong = values[at]  # lists may be too deep to print
            said = "a list" if isinstance(wrong, list) else "an object"
            said = repr(wrong[:40]) if isinstance(wrong, str) else said
            raise BadRequest(f"not a number, nor null: {said}", place(at)) from error
    numbers = np.frombuffer(packed)
    large = np.abs(numbers) > LARGEST
    if large.any():
        at = int(np.flatnonzero(large)[0])
        raise BadRequest(f"not a finite number of 32 bits: {str(values[at])[:40]}", place(at))
    return numbers.astype(np.float32)


def _texts(column: Sequence[object], name: str, asked: AskedRanking) -> list[str | None]:
    """The values of a category as training wrote them."""
    for at, value in enumerate(column):
        if value is not None and not isinstance(value, str | int | float):
            raise BadRequest("a category is a text, a number or null", asked.place(at, name))
    return [
        None if value is None else str(value).lower() if type(value) is bool else str(value) for value in column
    ]
