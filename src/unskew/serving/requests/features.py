"""Documents of requests as lists that a model takes, with what a store has for them.

Legend: n documents, D features as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import numpy as np

from unskew.errors import UnskewError
from unskew.learning.scoring.scorer import Scorer
from unskew.serving.requests.bodies import BadRequest
from unskew.serving.requests.parsing import AskedRanking, Grid, Row, Written
from unskew.serving.requests.values import FeatureBlock, block_of, joined
from unskew.serving.store.store import Version
from unskew.types import Array, Lists, ListTexts


class FoundItems(Protocol):
    """Items that a store was asked for."""

    def named(self) -> Sequence[Mapping[str, object] | None]:
        """Features by name of each; None for one that is unknown."""
        ...


class FoundPairs(Protocol):
    """Tracked clicks that a store was asked for."""

    @property
    def names(self) -> Sequence[str]:
        """Of the features."""
        ...

    @property
    def values(self) -> Array:
        """[n, D]; zeros for a document that is not known."""
        ...

    @property
    def known(self) -> Array:
        """[n] bool."""
        ...


class Moment(Protocol):
    """A store as it is at one moment."""

    @property
    def version(self) -> Version:
        """The generation of each part."""
        ...

    def get_items(self, ids: Sequence[str]) -> FoundItems:
        """Features of items."""
        ...

    def get_clicks(self, query: str, ids: Sequence[str]) -> FoundPairs:
        """Tracked clicks of a query's documents."""
        ...


def read_candidates(
    scorer: Scorer, asked: Sequence[AskedRanking], store: Moment | None
) -> tuple[Lists, Array | None]:
    """The documents of requests as lists, and which have known clicks."""
    blocks: list[FeatureBlock] = []
    seen: list[bool] = []
    for request in asked:
        request, known = _whole(request, store, scorer)
        blocks.append(block_of(scorer, request))
        seen += known
    matrix, columns = joined(scorer, blocks)
    offsets = np.cumsum([0, *(len(request.ids) for request in asked)])
    labels, queries = np.zeros(len(matrix), np.int16), np.arange(len(asked))
    texts = _texts(asked) if scorer.reads else None
    lists = Lists(matrix, offsets, labels, queries, name="documents", columns=columns, texts=texts)
    return lists, None if store is None else np.array(seen, bool)


def _texts(asked: Sequence[AskedRanking]) -> ListTexts:
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


def _whole(request: AskedRanking, store: Moment | None, scorer: Scorer) -> tuple[AskedRanking, Sequence[bool]]:
    """A request with what the store has for it, and whether the clicks of each document are known."""
    if scorer.reads and not scorer.features:
        return replace(request, features=[[]] * len(request.ids)), [True] * len(request.ids)
    tracked = [] if store is None else tracked_in(scorer)
    if tracked and scorer.features == len(tracked) and not isinstance(request.features, Written | Grid):
        nothing: Row = [] if scorer.names is None else {}  # all that it takes is tracked
        request = replace(request, features=[nothing if row is None else row for row in request.rows()])
    needed = frozenset() if store is None else frozenset(scorer.names or ()).difference(tracked)
    if lacking := _lacking(request, needed):
        request = replace(request, features=_kept(request, lacking, store))
    if store is None or not tracked:
        return request, [True] * len(request.ids)
    with _store():
        clicks = store.get_clicks(request.head.query, request.ids)
    rows = request.rows()
    return replace(request, features=_with_clicks(rows, clicks, tracked, scorer.features)), clicks.known.tolist()


def _lacking(request: AskedRanking, needed: frozenset[str]) -> list[int]:
    """The documents that bring none of their features, or not all that they could bring by name."""
    if isinstance(request.features, Written | Grid):
        names = request.features.names
        return [] if not names or needed <= {*names} else [*range(len(request.ids))]
    return [
        at
        for at, row in enumerate(request.features)
        if row is None or (needed and isinstance(row, Mapping) and not row.keys() >= needed)
    ]


def _kept(request: AskedRanking, lacking: Sequence[int], store: Moment | None) -> list[Row]:
    """Features of each document, those that it lacks from the store."""
    if store is None:
        raise BadRequest("a document has no features, and there is no store", request.place(lacking[0]))
    with _store():
        found = store.get_items([request.ids[at] for at in lacking]).named()
    rows, kept = request.rows(), dict(zip(lacking, found, strict=True))
    if unknown := [at for at, each in kept.items() if each is None and not rows[at]]:
        told = ", ".join(request.ids[at] for at in unknown[:5])
        raise BadRequest(f"not in the store: {told}", request.id_place(unknown[0]))
    return [_merged(row, kept.get(at)) for at, row in enumerate(rows)]


def _merged(features: Row | None, kept: Mapping[str, object] | None) -> Row:
    """What a document brings, then what the store has of it."""
    if kept is None or not isinstance(features, Mapping | None):
        return {} if features is None else features
    return {**kept, **(features or {})}


def tracked_in(scorer: Scorer) -> list[str]:
    """The tracked clicks that a model takes; all of them where its last features are such."""
    from unskew.tracking.features import FEATURES

    if scorer.names is not None:
        return sorted({*scorer.names} & {*FEATURES}, key=FEATURES.index)
    ranker = scorer.card.ranker or {}
    robust = ranker.get("name") == "doubly_robust_mix" and scorer.features >= len(FEATURES)
    mixed = ranker.get("name") == "vanilla_mix" and scorer.features == len(FEATURES)  # others may be any features
    return list(FEATURES) if robust or mixed or "tracked" in ranker else []


def _with_clicks(rows: Sequence[Row | None], clicks: FoundPairs, tracked: Sequence[str], width: int) -> list[Row]:
    """Rows with the tracked clicks that they lack."""
    places = [list(clicks.names).index(name) for name in tracked]
    found: list[Row] = []
    for row, values in zip(rows, clicks.values[:, places].tolist(), strict=True):
        if isinstance(row, Mapping):
            found.append({**dict(zip(tracked, values, strict=True)), **row})
        elif row is not None:  # by place, tracked clicks come last
            found.append([*row, *values] if len(row) + len(values) == width else row)
    return found


@contextmanager
def _store() -> Iterator[None]:
    """A store that cannot answer is not the caller's fault."""
    try:
        yield
    except UnskewError as error:
        raise BadRequest(f"the store cannot answer: {error}", status=503) from error
