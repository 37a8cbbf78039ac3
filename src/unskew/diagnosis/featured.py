"""Features of what a log shows, on some of its pages.

Legend: N results, D features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.errors import DataError
from unskew.logs.log import featured
from unskew.logs.memory import lists_for, pairs_of
from unskew.tables.features.encoding import fit_encoding
from unskew.tables.joining import encode, find_rows
from unskew.types import Array, Lists, Log

if TYPE_CHECKING:
    from unskew.diagnosis.tables import LogTables

MOST_PAGES = 5000
"""Pages that are looked at, drawn at random."""


@dataclass(frozen=True)
class FeaturedRows:
    """Results of pages of two results or more, page after page, each with the features of its document."""

    page: Array
    """[N] int."""
    query: Array
    """[N] int."""
    position: Array
    """[N] int, from 1."""
    features: Array
    """[N, D] float, without gaps."""


def rows_of_log(log: Log, *, seed: int = 0) -> FeaturedRows:
    """Some pages of a log in memory."""
    several = np.flatnonzero(log.sizes > 1)
    some = log.take(np.sort(np.random.default_rng(seed).permutation(several)[:MOST_PAGES]))
    page = np.repeat(np.arange(len(some)), some.sizes)
    return FeaturedRows(page, some.query[page], some.position, filled(some.lists, some.row))


def rows_of_tables(tables: LogTables, lists: Lists) -> FeaturedRows:
    """Some pages of a log on an engine; results without features are left out, and warned of."""
    several: Any = tables.pages.filter(tables.pages.results > 1)
    drawn = several.order_by([several.page_id.cast("string").hexdigest("md5"), "query_id"]).limit(MOST_PAGES)
    some = drawn.select("page_id", "query_id")
    shown: Any = tables.impressions.select("page_id", "query_id", "doc_id", "position")
    shown = shown.join(some, ["page_id", "query_id"]).order_by(["page_id", "query_id", "position", "doc_id"])
    table = tables.engine.to_arrow(shown)
    if (find_rows(table, lists)[1] < 0).all():
        hint = "query_id and doc_id must be those of the features"
        raise DataError("no impression has features", path=tables.place, hint=hint)
    table = featured(table, lists, tables.place)
    query, row = find_rows(table, lists)
    page = encode(table["page_id"])[0].astype(np.int64) * (len(lists) + 1) + query
    order = np.argsort(page, kind="stable")
    size = np.unique(page, return_counts=True)[1]
    kept = order[np.repeat(size > 1, size)]
    position = table["position"].to_numpy().astype(np.int64)
    return FeaturedRows(page[kept], query[kept], position[kept], filled(lists, row[kept]))


def lists_of(tables: LogTables, features: Any, columns: Mapping[str, str] | None) -> Lists:
    """The documents that a log shows, with features from tables or LETOR files."""
    pairs = tables.cells.select("query_id", "doc_id").distinct().order_by(["query_id", "doc_id"])
    return lists_for(features, columns, [pairs_of(tables.engine.to_arrow(pairs))])


def filled(lists: Lists, rows: Array) -> Array:
    """Features of some documents as numbers without gaps, [N, D]."""
    encoded = fit_encoding(lists).apply(lists)
    return np.asarray(encoded.features[rows], float)
