"""Metrics by how often queries are asked: counted in a log, dealt into buckets, each bucket measured.

Buckets hold as many queries each, the most frequent first; queries that the log does not have are asked 0 times.
Legend: Q queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unskew.errors import ConfigError, DataError
from unskew.logs.impressions import read_impressions
from unskew.measuring.frequency import frequency_buckets
from unskew.names import Names
from unskew.tables.engine.engine import connect
from unskew.tables.joining import encodable, match
from unskew.tables.schema import to_array
from unskew.types import Array, Lists, Log

NAMES = ("head", "middle", "tail")
"""What three buckets are called; more or fewer are numbered from 1."""


class QueryFrequency:
    """How often each query was asked, and the bucket that it falls into."""

    def __init__(
        self,
        log: Log | Path | str,
        lists: Lists,
        buckets: int | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        buckets = len(NAMES) if buckets is None else buckets
        if not 1 <= buckets <= len(lists):
            raise ConfigError(f"buckets={buckets}: give one to as many as the lists have queries, {len(lists)}")
        self.pages = pages_per_query(log, lists, columns)
        """[Q] pages of the log."""
        self.bucket = frequency_buckets(self.pages, buckets)
        """[Q] from 0 for the most frequent."""
        self.names = NAMES if buckets == len(NAMES) else tuple(str(number + 1) for number in range(buckets))

    def facts(self) -> dict[str, dict[str, Any]]:
        """Queries and pages of each bucket, and how often its rarest and its commonest query was asked."""
        each = {name: self.pages[self.bucket == number] for number, name in enumerate(self.names)}
        return {
            name: {"queries": len(pages), "pages": int(pages.sum())}
            | {"least": int(pages.min()), "most": int(pages.max())}
            for name, pages in each.items()
        }


def pages_per_query(log: Log | Path | str, lists: Lists, columns: Mapping[str, str] | None = None) -> Array:
    """Pages of a log for each query of the lists, [Q]; counted on the engine where it is in files."""
    if isinstance(log, Log):
        ids, pages = encodable(log.lists.query_ids), np.bincount(log.query, minlength=len(log.lists))
    else:
        keys = {name: theirs for name, theirs in (columns or {}).items() if name in ("page_id", "query_id")}
        with Names.of(keys).told(), connect() as engine:
            table = read_impressions(engine, log, keys, ("page_id", "query_id"))
            counted = table.group_by("query_id").aggregate(pages=table["page_id"].nunique())
            found = engine.to_arrow(counted.filter(counted["query_id"].notnull()))
        ids, pages = found["query_id"], to_array(found["pages"])
    return _of_lists(ids, pages, lists, "the log" if isinstance(log, Log) else log)


def _of_lists(ids: Any, pages: Array, lists: Lists, place: Path | str) -> Array:
    """Counts [Q] in the order of the lists."""
    at = match(ids, lists.query_ids)
    counts = np.zeros(len(lists), np.int64)
    np.add.at(counts, at[at >= 0], pages[at >= 0])
    if not counts.any():
        theirs = f"such as {ids[0].as_py()}" if len(ids) else "none at all"
        raise DataError(
            f"none of its queries ({theirs}) is one of the {len(lists)} measured, such as {lists.query_ids[0]}",
            path=place,
            hint="give the log of a time when these queries were asked",
        )
    return counts
