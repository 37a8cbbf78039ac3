"""Lists of documents from files or tables in memory, and as a model takes them; read without torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import DataError, Option
from unskew.learning.scoring.scorer import Scorer
from unskew.names import NO_NAMES, NOT_FEATURES, Names
from unskew.tables.engine.parquet import impressions_in
from unskew.tables.features.assembly import shown_ranks
from unskew.tables.features.features import read_features, several
from unskew.tables.features.tables import is_table, table_columns
from unskew.tables.features.texts import has_texts, read_texts, with_texts
from unskew.tables.frames import arrow_table, is_frame
from unskew.tables.joins import find_rows
from unskew.tables.lists.letor import read_letor
from unskew.tables.schema import to_array
from unskew.tracking.features import FEATURES, with_tracked
from unskew.types import Lists
from unskew.workflows.inputs.tree_files import TreeFile

ScoresLists = Scorer | TreeFile
"""What scores documents by their features: a model of ours, or trees from a file."""


def read_lists(
    sources: Any,
    doc_ids: bool = False,
    *,
    texts: Sequence[str | Path] | None = None,
    names: Names = NO_NAMES,
    candidates: Any = (),
    taken: Mapping[str, bool] | None = None,
) -> Lists:
    """One set of lists: `Lists` as they are, tables of features (in memory, or files by their ending), or LETOR.

    `texts` are tables of what queries and documents say; `names` theirs for ours in tables; `candidates`
    logs that say which documents a query has where the tables do not; `taken` are the features that a model takes.
    """
    if isinstance(sources, Lists):
        return sources
    given, shown = several(sources), [each for each in several(candidates) if each is not None]
    in_memory = any(is_frame(each) for each in given)
    if not in_memory and not is_table(given[0]):
        lists = read_letor(given[0] if len(given) == 1 else given, doc_ids=doc_ids)
    elif not in_memory and has_texts(given, alone=True):
        return read_texts(given)
    else:
        lists = read_features(given, columns=names.only(NOT_FEATURES), candidates=shown or None, taken=taken)
    return lists if texts is None else with_texts(lists, texts)


def texts_for(*sources: Sequence[str | Path]) -> Sequence[str | Path]:
    """Where texts come from: the first of these tables with columns of text."""
    for source in sources:
        if source and is_table(source[0]) and has_texts(source):
            return source
    raise DataError(
        "the ranker reads text, and there is none",
        path=next(source[0] for source in sources if source),
        hint="name a table with query_id, doc_id, query_text, title and abstract: data.texts",
    )


def has_ranks(source: Any, names: Names) -> bool:
    """Whether a log or table says at which rank queries had documents."""
    needed = {"query_id", "doc_id", "position"}
    if is_frame(source):
        return needed <= {names.ours(name) for name in arrow_table(source).column_names}
    place = impressions_in(source)
    return is_table(place) and needed <= table_columns(place, names)


def ranked_lists(lists: Lists, sources: Sequence[Any], names: Names) -> Lists:
    """The lists with the mean rank that logs, or tables with a column `position`, gave their documents."""
    found = [ranks for each in sources if (ranks := shown_ranks(each, names)) is not None]
    if not found:
        return lists
    parts = []
    for table in found:
        rows = find_rows(table, lists)[1]
        parts.append([rows, *(to_array(table[name]).astype(float) for name in ("position", "deepest"))])
    rows, mean, deepest = (np.concatenate(each) for each in zip(*parts, strict=True))
    return lists.ranked(rows[rows >= 0], mean[rows >= 0], deepest[rows >= 0])


def tracked_lists(model: ScoresLists | None, lists: Lists, store: Path | str | None) -> Lists:
    """The lists as a model takes them: with the clicks of a tracking store, or an error where one is missing."""
    if store is not None:
        return with_tracked(lists, store)
    if model is not None and model.features == lists.dim + len(FEATURES):
        raise DataError(
            f"the run has {len(FEATURES)} features more than these lists, as many as tracked clicks have",
            path=lists.name,
            hint=("give the store that it was trained with, ", Option("tracked")),
        )
    return lists
