"""Features by item, by query and by pair of both, joined into lists: from Parquet, CSV, folders, or frames.

    query_id, doc_id          string or int: which of them a table has says what its rows are
    label                     int from 0, optional, for evaluation only, in a table of pairs
    query_text, title, ...    what rankers read (`texts.py`), no features
    anything else             a number, a date, a category, or a list of numbers (`tables.py`)

The documents of a query are the pairs that tables of pairs have. Where there is no such table, they are those of
`candidates`: the pairs that a log shows. A pair without a row in the table of items is left out, so that a log
says which impressions have no features; a query without a row has missing values. Rows may come in any order.
From files the matrix is written once into the cache (`store.py`) and memory-mapped, never whole in memory.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import DataError
from unskew.files import PathLike
from unskew.names import KEYS, NOT_FEATURES, Names
from unskew.tables.engine.parquet import impressions_in
from unskew.tables.features.assembly import assemble, candidate_pairs, offsets_of
from unskew.tables.features.encoding import Encoding, refuse_absent
from unskew.tables.features.tables import (
    FeatureTable,
    Notes,
    Source,
    TablePart,
    Taken,
    feature_files,
    is_table,
    open_tables,
    surveyed,
)
from unskew.tables.frames import arrow_table, is_frame
from unskew.tables.joins import encode
from unskew.tables.lists.letor import read_letor
from unskew.tables.lists.store import parsed_files
from unskew.tables.schema import refuse_missing
from unskew.types import Array, Columns, Lists


def read_features(
    sources: Source | Sequence[Source],
    *,
    columns: Mapping[str, str] | None = None,
    candidates: Source | Sequence[Source] | None = None,
    taken: Taken | None = None,
    cache: bool | PathLike = True,
    name: str | None = None,
) -> Lists:
    """Read lists from tables of features: of items, of queries, of pairs, joined by query_id and doc_id.

    A source is a file of Parquet, CSV or TSV (plain or compressed), a folder of them, a data frame, an Arrow table
    or a dict of columns. `columns` are our names to theirs: {"doc_id": "sku"}. `candidates` is a table with
    query_id and doc_id, such as a log, or several of them: their pairs are the documents where no table of
    features has pairs. `taken` are the features that a model takes (`Encoding.taken`): others are passed over.

    >>> items = {"doc_id": ["a", "b"], "price": [3.0, None], "brand": ["acme", "bolt"]}
    >>> shown = {"query_id": ["wing", "wing", "rudder"], "doc_id": ["b", "a", "a"]}
    >>> lists = read_features(items, candidates=shown)
    >>> lists.columns.names, lists.columns.categories
    (('price', 'brand'), {'brand': ('acme', 'bolt')})
    >>> lists.query_ids.tolist(), lists.offsets.tolist(), lists.features.tolist()
    (['rudder', 'wing'], [0, 1, 3], [[3.0, 0.0], [3.0, 0.0], [nan, 1.0]])
    """
    given, names = several(sources), Names.of(columns)
    if not given:
        raise DataError("no features were named")

    def made(folder: Path | None = None) -> dict[str, Array]:
        notes: Notes = []
        tables = open_tables(given, names, notes, () if candidates is None else KEYS, taken)
        pairs = None if candidates is None else candidate_pairs(candidates, names)
        return assemble(tables, pairs, notes, folder)

    shown = [] if candidates is None else several(candidates)
    if any(is_frame(source) for source in [*given, *shown]):
        return lists_of(made(), name or "features")
    files = [path for source in given for path in feature_files(source)]
    asked = [path for source in shown for path in feature_files(impressions_in(source))]
    options = {"kind": "features", "columns": dict(names), "files": len(files)}
    options |= {} if taken is None else {"taken": dict(taken)}
    return lists_of(dict(parsed_files([*files, *asked], options, cache, made)), name or files[0].name)


def lists_for(features: object, names: Names, candidates: Sequence[Any] = ()) -> Lists:
    """The documents of a log: lists, LETOR files, or tables of features for the pairs that it shows."""
    if isinstance(features, Lists):
        return features
    sources: list[Any] = several(features)
    if all(isinstance(each, str | Path) and not is_table(each) for each in sources):
        return read_letor(sources)
    return read_features(sources, columns=names.only(NOT_FEATURES), candidates=list(candidates) or None)


def several(sources: Source | Sequence[Source] | None) -> list[Source]:
    """One or several sources as a list."""
    return list(sources) if isinstance(sources, list | tuple) else [sources]


def lists_of(arrays: dict[str, Any], name: str) -> Lists:
    """The lists that `assemble` made, after its notes are told."""
    about = json.loads(arrays.pop("columns").tobytes())
    for note in about["notes"]:
        warnings.warn(note, stacklevel=3)
    categories = {each: tuple(values) for each, values in about["categories"].items()}
    return Lists(**arrays, name=name, columns=Columns(tuple(about["names"]), categories))


# ---- by the names of the features that a model knows ----


def table_lists(source: object, encoding: Encoding) -> tuple[Lists, Array]:
    """The rows of a table as lists, and which row each document is, [N].

    Columns go by name, in any order; others are passed over. The table is one list, unless it has query_id.
    """
    table, place = arrow_table(source), type(source).__name__
    if encoding.names is None:
        hint = "give an array [n, D], with the features in the order of training"
        raise DataError("the model was trained on features without names", path=place, hint=hint)
    part = TablePart(place, table.schema, {name: name for name in table.column_names}, table)
    found = surveyed(FeatureTable("item", (part,)), [], encoding.taken)
    refuse_absent(encoding.names, dict.fromkeys([*table.column_names, *found.names]), place)
    values = np.concatenate([np.zeros((0, len(found.names)), np.float32), *found.values()])
    query, queries = np.zeros(len(table), np.int64), np.arange(min(len(table), 1))
    if "query_id" in table.column_names:
        refuse_missing(table, "query_id", place)
        query, queries = encode(table["query_id"])
    order, labels = np.argsort(query, kind="stable"), np.zeros(len(values), np.int16)
    lists = Lists(values[order], offsets_of(query), labels, queries, name=place, columns=found.columns)
    return lists, order
