"""Rankings of any origin behind one interface: a run, a table of scores, a LightGBM file, or what was shown.

And what a model needs for that: the documents to score, and their scores block after block.

Higher scores are better. What has no score is NaN, and whoever asks says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.errors import ConfigError, DataError, Option
from unskew.files import restore
from unskew.learning.scoring.scorer import Scorer, list_chunks, load_scorer
from unskew.logs.reader import StoredLog, TableLog, under_our_names
from unskew.names import NO_NAMES, OURS, Names, guess_columns
from unskew.settings import no_such, read_toml, require_columns
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.expressions import Table
from unskew.tables.features.features import several
from unskew.tables.frames import arrow_table, is_frame
from unskew.tables.joins import find_rows
from unskew.tables.reading.files import all_files, kind_of
from unskew.tables.schema import to_array
from unskew.types import Array, Lists
from unskew.workflows.inputs.lists import (
    ScoresLists,
    has_ranks,
    ranked_lists,
    read_lists,
    texts_for,
    tracked_lists,
)
from unskew.workflows.inputs.tree_files import TreeFile

SHOWN = "shown"
KEYS = ("query_id", "doc_id")
WANTED = "name a run folder, a table with query_id, doc_id and score, a LightGBM file, or shown"
TREES = (".txt", ".model", ".lgb")
"""How files of LightGBM end."""


class Ranking(ABC):
    """A way to order the results of logged pages: a model, scores in a table, or the order shown."""

    name: str
    """What messages call it."""

    @abstractmethod
    def of_documents(self, lists: Lists) -> Array | None:
        """A score of every document, [M]; NaN where it has none. None for the order that was shown."""

    @abstractmethod
    def table(self, engine: Engine, log: StoredLog | TableLog) -> Table | None:
        """query_id, doc_id, score on an engine, for a log that is no `Log`; None for the order that was shown."""


class ShownRanking(Ranking):
    """The order of each page as logged."""

    name = SHOWN

    def of_documents(self, lists: Lists) -> None:
        """There is none: the log has the positions."""

    def table(self, engine: Engine, log: StoredLog | TableLog) -> None:
        """There is none: the log has the positions."""


@dataclass(frozen=True)
class ModelRanking(Ranking):
    """A model, and the features of documents where the log is one in files."""

    model: ScoresLists
    name: str
    features: Any = None
    """Files, tables in memory, or `Lists`."""
    names: Names = field(default_factory=Names)
    doc_ids: bool = False
    tracked: Path | str | None = None

    def of_documents(self, lists: Lists) -> Array:
        """Scores of all documents, by their features."""
        scores: Array = self.model.score(tracked_lists(self.model, lists, self.tracked))
        return scores

    def table(self, engine: Engine, log: StoredLog | TableLog) -> Table:
        """Documents scored block after block into a file of the engine's scratch folder."""
        if self.features is None:
            what = f"{self.name} scores documents by their features: give "
            raise ConfigError((what, Option("features"), " of those of the log"))
        names, path = Names({**self.names, **log.names}), engine.scratch / f"scores_{id(self)}.parquet"
        how: dict[str, Any] = {"doc_ids": self.doc_ids, "tracked": self.tracked}
        lists = documents(self.model, self.features, names, candidates=log.candidates, **how)
        write_blocks(score_blocks(self.model, lists, NO_NAMES), path)
        return engine.read_parquet(path).select(*KEYS, "score")


@dataclass(frozen=True)
class ScoreTable(Ranking):
    """Scores as others made them: query_id, doc_id, score."""

    source: Any
    """A file, a folder, or a table in memory."""
    name: str
    names: Names = field(default_factory=Names)

    def of_documents(self, lists: Lists) -> Array:
        """Scores of all documents, found in the table by query and document; NaN where it has none."""
        found = np.full(len(lists.features), np.nan)
        table = arrow_table(self.source)
        theirs = self._ours(table.column_names)
        table = table.rename_columns([theirs.get(name, name) for name in table.column_names])
        self._check(table.column_names)
        rows = find_rows(table, lists)[1]
        known = rows >= 0
        if len(np.unique(rows[known])) < known.sum():
            what = "a document of a query has two scores"
            raise DataError(what, path=self.name, hint="keep one row for each query_id and doc_id")
        found[rows[known]] = to_array(table["score"]).astype(np.float64)[known]
        return found

    def table(self, engine: Engine, log: StoredLog | TableLog) -> Table:
        """Read by the engine where it is Parquet."""
        files = [] if is_frame(self.source) else all_files([self.source])
        if all(kind_of(path) == "parquet" for path in files) and files:
            read = engine.read_parquet(self.source)
        else:
            read = engine.from_arrow(arrow_table(self.source))
        named = Names({ours: theirs for theirs, ours in self._ours(read.columns).items()})
        read = under_our_names(read, named, self.name, (*OURS, "score"))
        self._check(read.columns)
        if not read.score.type().is_numeric():
            raise DataError(f"score is of type {read.score.type()}", path=self.name, hint="make it a number")
        return read.select(*KEYS, score=read.score.cast("float64"))

    def _ours(self, present: Sequence[str]) -> dict[str, str]:
        return {theirs: ours for ours, theirs in self.names.items() if theirs in present and ours not in present}

    def _check(self, present: Sequence[str]) -> None:
        if "position" in present and "click" in present and "score" not in present:
            raise DataError("this is a log, not a table of scores", path=self.name, hint=WANTED)
        guess = guess_columns(list(present))
        try:
            require_columns((*KEYS, "score"), present, path=self.name)
        except DataError as error:
            meant = {name: guess[name] for name in KEYS if name in guess}
            error.hint = ("name theirs, ", Option("columns", meant)) if meant else WANTED
            raise


def open_ranking(
    what: Any,
    *,
    features: Any = None,
    names: Names = NO_NAMES,
    doc_ids: bool = False,
    tracked: Path | str | None = None,
) -> Ranking:
    """What a user calls a ranking: a run, a model, scores in a table, a LightGBM file, or "shown".

    `features` are those of the log's documents, where the log is one in files; a run folder knows its own.
    Without `names` columns are called as the run was told.
    """
    if isinstance(what, Ranking):
        return what
    if is_frame(what):
        return ScoreTable(what, "the table of scores", names)
    model: ScoresLists | None = model_of(what)
    if model is None and not isinstance(what, str | Path):
        raise ConfigError(f"no ranking can be made of {type(what).__name__}; {WANTED}")
    if model is None and str(what) == SHOWN and not Path(what).exists():
        return ShownRanking()
    place = restore(Path(what)) if model is None else None if isinstance(what, Scorer) else what.folder
    name = str(model.card.method["name"]) if isinstance(model, Scorer) and place is None else str(place)
    if model is None and place is not None:
        if not place.exists():
            raise no_such(place, "run or table of scores")
        if _is_scores(place):
            return ScoreTable(place, name, names)
        if place.is_file() and place.suffix not in TREES:
            raise DataError("no ranking that is known", path=place, hint=WANTED)
        model = load_scorer(place) if place.is_dir() else TreeFile.read(place)
    assert model is not None
    given = _own_features(place) if features is None else features
    return ModelRanking(model, name, given, names or Names.of(None, what), doc_ids, tracked)


def model_of(what: object) -> Scorer | None:
    """The model of a run, or one itself; None of anything else."""
    model = getattr(what, "model", what)
    return model if isinstance(model, Scorer) else None


def _is_scores(place: Path) -> bool:
    if place.is_dir():
        return not (place / "model.json").exists() and next(place.rglob("*.parquet"), None) is not None
    return kind_of(place) in ("parquet", "csv", "tsv") and place.suffix not in TREES


def _own_features(folder: Path | None) -> list[Path] | None:
    """The features that a run folder was learned with, where its run.toml names them and they are still there."""
    if folder is None or not (folder / "run.toml").is_file():
        return None
    named = read_toml(folder / "run.toml").get("data", {}).get("features") or []
    files = [folder / path for path in ([named] if isinstance(named, str) else named)]
    return files if files and all(path.exists() for path in files) else None


# ---- documents and their scores


def documents(
    model: ScoresLists | None,
    features: Any,
    names: Names = NO_NAMES,
    *,
    candidates: Any = None,
    doc_ids: bool = False,
    tracked: Path | str | None = None,
) -> Lists:
    """What is to be scored: `Lists`, files or tables, with the features and texts that a model takes.

    `candidates` are tables or logs that say which documents a query has, where no features do.
    """
    if isinstance(features, Lists):
        return tracked_lists(model, features, tracked)
    shown: list[Any] = []
    for each in several(candidates):
        parts: dict[str, Path] = {}
        if isinstance(each, str | Path):
            from unskew.workflows.inputs.logs import log_parts  # has all of ingest, which scoring does without

            parts = log_parts(Path(each))
        shown += parts.values() or [each]
    texts = texts_for(several(features)) if model is not None and model.reads else None
    taken = None if model is None else model.taken
    lists = read_lists(features, doc_ids, texts=texts, names=names, candidates=shown, taken=taken)
    if isinstance(model, Scorer) and model.combination is not None:
        ranks = [each for each in (*shown, *several(features)) if each is not None and has_ranks(each, names)]
        lists = ranked_lists(lists, ranks, names)
    return tracked_lists(model, lists, tracked)


def score_blocks(model: ScoresLists, lists: Lists, names: Names) -> Iterator[Any]:
    """Tables of whole queries with their scores and ranks, in the order of the lists; one at least.

    Documents of one score keep their order.
    """
    for first, last in list(list_chunks(lists.offsets)) or [(0, 0)]:
        part = lists.take(slice(first, last))
        scores = model.score(part) if len(part) else np.zeros(0, np.float32)
        yield pa.table(
            {
                names.theirs("query_id"): np.repeat(part.query_ids, part.sizes),
                names.theirs("doc_id"): part.document_ids(),
                "score": scores,
                "rank": document_order(scores, part).astype(np.int32),
            }
        )


def document_order(scores: Array, lists: Lists) -> Array:
    """The place of every document among those of its query by descending score, [M] from 1; NaN comes last."""
    query, place = np.repeat(np.arange(len(lists)), lists.sizes), np.empty(len(scores), np.int64)
    place[np.lexsort((-scores, query))] = np.arange(len(query)) - lists.offsets[query] + 1
    return place


def write_blocks(blocks: Iterator[Any], target: Any, writer: type[Any] = pq.ParquetWriter) -> None:
    """Write tables of one kind, one after another, to a file."""
    first = next(blocks)
    with writer(target, first.schema) as opened:
        for block in chain([first], blocks):
            opened.write_table(block)
