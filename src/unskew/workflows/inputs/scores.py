"""Documents scored by a model, block after block, under the names of their owner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.learning.scoring.scorer import list_chunks
from unskew.names import Names
from unskew.tables.features.features import read_features, several
from unskew.tables.frames import is_frame
from unskew.types import Array, Lists
from unskew.workflows.inputs.lists import ScoresLists, read_lists, texts_for
from unskew.workflows.inputs.parts import log_parts


def documents(model: ScoresLists, features: Any, candidates: Any, names: Names, *, doc_ids: bool = False) -> Lists:
    """What is to be scored, with the features that the model takes."""
    if isinstance(features, Lists):
        return features
    sources = several(features)
    pairs = [part for each in several(candidates) if each is not None for part in _parts(each)]
    if any(is_frame(each) for each in [*sources, *pairs]):
        return read_features(sources, columns=names, candidates=pairs or None, taken=model.taken)
    files: list[str | Path] = [str(each) for each in sources]
    texts = texts_for(files) if model.reads else None
    paths = [Path(each) for each in pairs]
    return read_lists(files, doc_ids, texts, columns=names, candidates=paths, taken=model.taken)


def _parts(candidates: Any) -> Sequence[Any]:
    """A log that was cut, in its parts."""
    cut = log_parts(Path(candidates)) if isinstance(candidates, str | Path) else {}
    return list(cut.values()) or [candidates]


def score_blocks(model: ScoresLists, lists: Lists, names: Names) -> Iterator[Any]:
    """Tables of whole queries with their scores, in the order of the lists; one at least."""
    for first, last in list(list_chunks(lists.offsets)) or [(0, 0)]:
        part = lists.take(slice(first, last))
        scores = model.score(part) if len(part) else np.zeros(0, np.float32)
        yield pa.table(
            {
                names.theirs("query_id"): np.repeat(part.query_ids, part.sizes),
                names.theirs("doc_id"): part.document_ids(),
                "score": scores,
                "rank": ranks(scores, part.offsets),
            }
        )


def ranks(scores: Array, offsets: Array) -> Array:
    """The rank of each document in its list, [N] int32 from 1; ties keep their order.

    >>> ranks(np.array([0.1, 0.9, 0.9, 0.5]), np.array([0, 3, 4])).tolist()
    [3, 1, 2, 1]
    """
    of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    found = np.empty(len(scores), np.int32)
    found[np.lexsort((-scores, of))] = np.arange(len(scores)) - offsets[of] + 1
    return found


def write_blocks(blocks: Iterator[Any], target: Any, writer: type[Any] = pq.ParquetWriter) -> None:
    """Write tables of one kind, one after another, to a file."""
    first = next(blocks)
    with writer(target, first.schema) as opened:
        for block in chain([first], blocks):
            opened.write_table(block)
