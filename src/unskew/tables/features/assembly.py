"""Tables of features joined into the arrays of lists: which documents there are, and their numbers.

Legend: N documents, Q queries, U distinct ids, D features, R rows of a table, I items.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.errors import DataError, Option, printable
from unskew.names import KEYS, NO_NAMES, Names
from unskew.settings import require_columns
from unskew.tables.engine.engine import connect
from unskew.tables.engine.parquet import impressions_in
from unskew.tables.features.tables import KEYS_OF, FeatureTable, Notes, alike, feature_files
from unskew.tables.frames import arrow_table, is_frame, read_table, renamed
from unskew.tables.joins import encode, match
from unskew.tables.lists.survey import row_blocks
from unskew.tables.lists.svmlight import HIGHEST_GRADE
from unskew.tables.schema import refuse_missing, to_array
from unskew.types import Array

LONGEST_ID = 1000
KEY_WORDS = {"query_id": "query", "doc_id": "document"}


@dataclass
class Documents:
    """Which documents there are, query after query."""

    query: Array  # [N] the query of each, ascending
    document: Array  # [N] its id, as an index of doc_names
    labels: Array  # [N] int16
    query_names: Array  # [Q] ids
    doc_names: Array  # [U] ids
    places: list[Array]
    """[R] for each table of pairs: where its rows go, -1 for nowhere."""

    def arrays(self) -> dict[str, Any]:
        """Their ids, labels and queries, as `Lists` has them."""
        return {
            "offsets": offsets_of(self.query),
            "query_ids": plain_ids(self.query_names),
            "doc_ids": plain_ids(self.doc_names)[self.document],
            "labels": self.labels,
        }

    def keep(self, mask: Array) -> None:
        """Leave out the documents where a mask [N] does not hold, and queries that have none left."""
        moved = np.where(mask, np.cumsum(mask) - 1, -1)
        self.places = [np.where(place >= 0, moved[place], -1) for place in self.places]
        queries, query = np.unique(self.query[mask], return_inverse=True)
        self.query, self.query_names = query, self.query_names[queries]
        self.document, self.labels = self.document[mask], self.labels[mask]


def assemble(
    tables: Sequence[FeatureTable], candidates: Any | None, notes: Notes, folder: Path | None = None
) -> dict[str, Array]:
    """The arrays of `Lists`, with what the features are called as JSON in `columns`.

    The matrix is in memory, or in a folder, written block after block.
    """
    pairs = [table for table in tables if table.kind == "pair"]
    if not pairs and candidates is None:
        what = "has features of items or queries, and nothing says which documents a query has"
        hint = ("give the log, ", Option("candidates"), ", or a table with query_id and doc_id")
        raise DataError(what, path=tables[0].path, hint=hint)
    heads = [table.heads() for table in pairs] or [candidates]
    documents = documents_of(heads, [table.path for table in pairs] or ["candidates"])
    others = [table for table in tables if table.kind != "pair"]
    rows = [_rows_of(table, documents) for table in others]
    _leave_out(others, rows, documents, notes)
    shape = (len(documents.query), sum(len(table.names) for table in tables))
    features = np.empty(shape, np.float32)
    if folder is not None:
        features = np.memmap(folder / "features.bin", np.float32, "w+", shape=shape)
    start, of_others, places = 0, iter(rows), iter(documents.places)
    for table in tables:
        part = features[:, start : start + len(table.names)]
        start += len(table.names)
        at = next(places if table.kind == "pair" else of_others)
        if table.features and table.kind == "pair":
            _pour(table, at, part, whole=len(pairs) == 1)
        elif table.features:
            _lay_out(table, at, part)
    values = {name: each for table in tables for name, each in table.columns.categories.items()}
    about = {"names": [name for table in tables for name in table.names], "categories": values, "notes": notes}
    told = np.frombuffer(json.dumps(about).encode(), np.uint8)
    return {"features": features, "columns": told, **documents.arrays()}


# ---- which documents there are ----


def candidate_pairs(source: Any, names: Names = NO_NAMES) -> Any:
    """The distinct pairs of query_id and doc_id that a log or table, or several of them, have, sorted."""
    several = list(source) if isinstance(source, list | tuple) else [source]
    found = alike([_pairs_of(each, names) for each in several])
    if len(several) > 1:
        found = found.group_by(list(KEYS)).aggregate([])
    return found.sort_by([(key, "ascending") for key in KEYS])


def shown_ranks(source: Any, names: Names = NO_NAMES) -> Any | None:
    """query_id, doc_id, mean rank `position` and largest `deepest` of the pairs of a log; None without ranks."""
    found = _pairs_of(source, names, ranks=True)
    return found if "position" in found.column_names else None


def _pairs_of(source: Any, names: Names, *, ranks: bool = False) -> Any:
    place = type(source).__name__ if is_frame(source) else impressions_in(source)
    if is_frame(source) or set(feature_files(place).values()) != {"parquet"}:
        table = arrow_table(source) if is_frame(source) else read_table(Path(place), names)
        theirs = _their_keys(names, table.column_names, place, ranks=ranks)
        keys = renamed(table.select(list(theirs.values())), theirs, place).group_by(list(KEYS))
        found = keys.aggregate([("position", "mean"), ("position", "max")] if "position" in theirs else [])
        named = {"position_mean": "position", "position_max": "deepest"}
        found = found.rename_columns([named.get(name, name) for name in found.column_names])
    else:
        with connect("duckdb") as engine:
            shown = engine.read_parquet(place)
            theirs = _their_keys(names, shown.columns, place, ranks=ranks)
            keys = shown.select(**{ours: shown[name] for ours, name in theirs.items()})
            ranks_of = {} if "position" not in theirs else {"position": keys.position.mean()}
            ranks_of |= {} if "position" not in theirs else {"deepest": keys.position.max()}
            found = engine.to_arrow(keys.group_by(list(KEYS)).agg(**ranks_of) if ranks_of else keys.distinct())
    for key in KEYS:
        refuse_missing(found, key, place)
    return found


def _their_keys(names: Names, present: Sequence[str], path: Path | str, *, ranks: bool = False) -> Names:
    """What query_id and doc_id are called in a table with these columns, and position, asked for and there."""
    own = names.within(present)
    theirs = Names({key: own.theirs(key) for key in KEYS})
    require_columns(theirs.values(), present, path=path, hint="candidates have query_id and doc_id")
    there = ranks and own.theirs("position") in present
    return Names({**theirs, "position": own.theirs("position")}) if there else theirs


def documents_of(heads: Sequence[Any], paths: Sequence[Path | str]) -> Documents:
    """The documents that tables of keys have, in the order in which queries and then documents appear."""
    for head, path in zip(heads, paths, strict=True):
        if not len(head):
            raise DataError("the table has no rows", path=path)
        for key in KEYS:
            refuse_missing(head, key, path)
    keys = alike([head.select(list(KEYS)) for head in heads])
    query, query_names = encode(keys["query_id"])
    document, doc_names = encode(keys["doc_id"])
    pair = query.astype(np.int64) * len(doc_names) + document
    ends = np.cumsum([len(head) for head in heads])
    found, first, inverse = np.unique(pair, return_index=True, return_inverse=True)
    spans = [slice(end - len(head), end) for end, head in zip(ends.tolist(), heads, strict=True)]
    if len(found) < len(pair):  # in one table, or in several
        for span, head, path in zip(spans, heads, paths, strict=True):
            _refuse_twins(pair[span], head, path, "pair")
    order = np.lexsort((first, query[first]))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    labels = np.zeros(len(order), np.int16)
    for span, head, path in zip(spans, heads, paths, strict=True):
        if "label" in head.column_names:
            grades = to_array(head["label"])
            whole = grades.dtype.kind in "iuf" and (grades >= 0) & (grades <= HIGHEST_GRADE) & (grades % 1 == 0)
            if not np.all(whole):
                hint = "map the grades to 0, 1, 2, ..."
                raise DataError("a label is not a whole number from 0", path=path, hint=hint)
            labels[place[inverse[span]]] = grades
    rows = first[order]
    places = [place[inverse[span]] for span in spans]
    return Documents(query[rows], document[rows], labels, query_names, doc_names, places)


def _refuse_twins(codes: Array, heads: Any, path: Path | str, kind: str) -> None:
    found, first, times = np.unique(codes, return_index=True, return_counts=True)
    if len(found) < len(codes):
        twice = int(first[times > 1].min())
        there = [key for key in KEYS if key in heads.column_names]
        told = ", ".join(f"{KEY_WORDS[key]} {heads[key][twice].as_py()}" for key in there)
        what = {"pair": "a document of their query", "item": "a document", "query": "a query"}[kind]
        hint = f"keep one row for each {' and '.join(there)}"
        raise DataError(f"{len(codes) - len(found)} rows repeat {what}, first {told}", path=path, hint=hint)


def _rows_of(table: FeatureTable, documents: Documents) -> Array:
    """The row of each document's item or query in a table, [N]; -1 where there is none."""
    heads = table.heads()
    key = KEYS_OF[table.kind][0]
    refuse_missing(heads, key, table.path)
    codes, ids = encode(heads[key])
    _refuse_twins(codes, heads, table.path, table.kind)
    wanted = documents.doc_names if table.kind == "item" else documents.query_names
    row = np.empty(len(ids), np.int64)
    row[codes] = np.arange(len(codes))
    found = match(pa.array(wanted), ids)
    at = np.where(found >= 0, row[found], -1) if len(ids) else found
    return at[documents.document if table.kind == "item" else documents.query]


def _leave_out(tables: Sequence[FeatureTable], rows: list[Array], documents: Documents, notes: Notes) -> None:
    """Leave out documents that no table of items has; note them, and queries without a row."""
    for table, at in zip(tables, rows, strict=True):
        if table.kind == "query" and (at < 0).any():
            lost = np.unique(documents.query[at < 0])
            notes.append(
                f"{printable(table.path)}: {len(lost):,} of {len(documents.query_names):,} queries have no row, "
                f"first {documents.query_names[lost[0]]}; their values are missing"
            )
    items = [at for table, at in zip(tables, rows, strict=True) if table.kind == "item"]
    if not items:
        return
    known = np.maximum.reduce(items) >= 0
    if known.all():
        return
    path = next(table.path for table in tables if table.kind == "item")
    lost = np.flatnonzero(~known)
    query, document = documents.query[lost[0]], documents.document[lost[0]]
    first = f"first (query {documents.query_names[query]}, document {documents.doc_names[document]})"
    if not known.any():
        raise DataError(f"none of {len(known):,} documents has a row, {first}", path=path, hint=SAME_IDS)
    what = f"{len(lost):,} of {len(known):,} documents of queries have no row, {first}; they are left out"
    notes.append(f"{printable(path)}: {what}")
    documents.keep(known)
    rows[:] = [at[known] for at in rows]


SAME_IDS = ("are these the ids that the log has? ", Option("columns"), " names the column that holds them")


# ---- their numbers ----


def _pour(table: FeatureTable, place: Array, out: Array, *, whole: bool) -> None:
    if not whole:
        out[:] = np.nan
    start, straight = 0, bool((place == np.arange(len(place))).all())
    for values in table.values():
        span = slice(start, start + len(values))
        if straight:
            out[span] = values
        else:
            kept = place[span] >= 0
            out[place[span][kept]] = values[kept]
        start += len(values)


def _lay_out(table: FeatureTable, row: Array, out: Array) -> None:
    values = np.concatenate([*table.values(), np.full((1, len(table.names)), np.nan, np.float32)])  # [I + 1, d]
    for some in row_blocks(len(row), values.shape[1]):
        out[some] = values[row[some]]


def offsets_of(query: Array) -> Array:
    """Where each query begins, and the end, [Q + 1], from how often its number is there."""
    return np.concatenate([[0], np.cumsum(np.bincount(query))]).astype(np.int64)


def plain_ids(values: Array) -> Array:
    """Ids as integers or as strings of fixed width."""
    if values.dtype.kind in "iu":
        return values.astype(np.int64)
    longest = max((len(value) for value in values), default=0)
    if longest > LONGEST_ID:
        raise DataError(f"an id has {longest:,} characters", hint=f"ids have up to {LONGEST_ID:,}")
    return values.astype(np.str_)
