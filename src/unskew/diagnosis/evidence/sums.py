"""What a log shows of examination, added up: documents at several ranks, and shuffled pages.

Legend: N cells, B buckets of queries, P ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.diagnosis.evidence.tables import ALL_BUCKETS, BUCKETS, LogTables, bucket_of
from unskew.results import Result
from unskew.tables.joins import encode
from unskew.types import Array

RANKS = 50
"""Ranks that are looked at; further down next to nothing is clicked."""
MOST_CELLS = 500_000
"""Cells that are looked at; of a larger log those of some queries are, and the share is said."""


@dataclass(frozen=True)
class Coverage(Result):
    """Which two ranks were swapped, [P, P] each and symmetric."""

    documents: tuple[tuple[int, ...], ...]
    """(query, document) pairs that were shown at both; at one rank twice: shown there."""
    clicks: tuple[tuple[int, ...], ...]
    """Clicks on them at these two ranks."""
    natural: bool = False
    """Whether shuffled slots were left out."""

    @property
    def moved(self) -> bool:
        """Whether any document was shown at two ranks for one query."""
        return any(number for at, row in enumerate(self.documents) for number in row[at + 1 :])


@dataclass(frozen=True)
class SwapSums:
    """Clicks of ranks on the same documents, by bucket of queries."""

    up: Array  # [B, P, P]: clicks at the first rank, weighted by how much the other can tell of the same documents
    clicks: Array  # [P] clicks at each rank on documents that were shown at others too
    share: float = 1.0
    """Share of the log's queries that was looked at."""
    coverage: Coverage | None = None
    """Which ranks documents were shown at; None of shuffled pages."""

    @property
    def buckets(self) -> int:
        """How many buckets of queries have any swap."""
        return int((self.up.sum(axis=(1, 2)) > 0).sum())

    def __add__(self, other: SwapSums) -> SwapSums:
        return SwapSums(self.up + other.up, self.clicks + other.clicks, self.share)


@dataclass(frozen=True)
class DocumentCells:
    """Impressions and clicks of documents at ranks, [N] each; a document at a rank is there once."""

    document: Array
    """Any number for a query and document."""
    rank: Array
    """From 0."""
    bucket: Array
    shown: Array
    clicks: Array

    def take(self, some: Array) -> DocumentCells:
        """Some of the cells."""
        return DocumentCells(*(getattr(self, name)[some] for name in self.__dataclass_fields__))

    def swaps(self, ranks: int, buckets: int = BUCKETS, share: float = 1.0, natural: bool = False) -> SwapSums:
        """Clicks of every two ranks on the same documents, weighed as `likelihood` says."""
        cells = self.take(np.lexsort((self.rank, self.document)))
        up, clicked = np.zeros((buckets, ranks, ranks)), np.zeros((ranks, ranks))
        documents = np.diag(np.bincount(cells.rank, minlength=ranks))
        moved = np.zeros(len(cells.rank), bool)
        for lag in range(1, ranks):  # cells of one document stand next to each other
            one = np.flatnonzero(cells.document[lag:] == cells.document[:-lag])
            if not len(one):
                break
            other = one + lag
            moved[one] = moved[other] = True
            for first, second in ((one, other), (other, one)):
                j, k, n, c = cells.rank[first], cells.rank[second], cells.shown, cells.clicks
                np.add.at(up, (cells.bucket[one], j, k), c[first] * n[second] / (n[first] + n[second]))
                np.add.at(clicked, (j, k), c[first] + c[second])
                np.add.at(documents, (j, k), 1)
        clicks = np.bincount(cells.rank[moved], cells.clicks[moved], minlength=ranks)
        shown_at, clicked_at = (tuple(map(tuple, each.astype(int).tolist())) for each in (documents, clicked))
        return SwapSums(up, clicks, share, Coverage(shown_at, clicked_at, natural))


def swap_sums(tables: LogTables, by: str | None = None) -> dict[str, SwapSums]:
    """What documents at several ranks tell, for each value of a segment, or under "" for the whole log.

    Where only some slots were shuffled, these are left out: what they tell is told by `shuffled_sums`. Where there
    are few queries, their documents take their place in the buckets.
    """

    def make() -> dict[str, SwapSums]:
        cells, share = tables.sample(MOST_CELLS)
        some = tables.shuffled == "some"
        if some:
            cells = cells.filter(~cells.shuffled)
        if tables.few_queries:
            pair = cells.query_id.cast("string") + "/" + cells.doc_id.cast("string")
            cells = cells.mutate(bucket=bucket_of(pair))
        table = tables.read_cells(cells, RANKS, by)
        every, ranks = document_cells(table), min(tables.facts["ranks"], RANKS)
        if by is None:
            return {"": every.swaps(ranks, share=share, natural=some)}
        value = np.asarray(table[by].to_pylist(), object)
        parts = {each: every.take(value == each) for each in sorted(set(value))}
        return {each: part.swaps(ranks, share=share, natural=some) for each, part in parts.items()}

    return tables.once(("sums", by), make)


def document_cells(table: Any) -> DocumentCells:
    """Cells of an Arrow table of query_id, doc_id, position, bucket, impressions and clicks."""
    query, document = (encode(table[name])[0].astype(np.int64) for name in ("query_id", "doc_id"))
    pair = query * (int(document.max(initial=0)) + 1) + document
    rank, bucket = (table[name].to_numpy().astype(np.int64) for name in ("position", "bucket"))
    shown, clicks = (table[name].to_numpy().astype(float) for name in ("impressions", "clicks"))
    return DocumentCells(pair, rank - 1, bucket, shown, clicks)


def shuffled_sums(tables: LogTables) -> SwapSums | None:
    """Clicks in shuffled slots of every rank, against clicks at rank 1 of the same pages; None without any.

    Ranks that were filled at random hold the same mix of documents, so nothing need be held fixed. A page whose
    first slot was not shuffled tells nothing. Where there are few queries, pages take their place in the buckets.
    """
    if tables.shuffled == "none":
        return None
    shown: Any = tables.impressions.filter(tables.impressions.shuffled & (tables.impressions.position <= RANKS))
    first: Any = shown.filter(shown.position == 1).join(tables.queries, "query_id")
    part = bucket_of(first.page_id) if tables.few_queries else first.bucket
    first = first.select("page_id", "query_id", part=part, top=first.click)
    both: Any = shown.select("page_id", "query_id", "position", "click").join(first, ["page_id", "query_id"])
    ranks = range(1, min(tables.facts["ranks"], RANKS) + 1)
    clicks, top = tables.laid_out(both, {"part": ALL_BUCKETS, "position": ranks}, "click", "top")
    up = np.zeros((BUCKETS, len(ranks), len(ranks)))
    up[:, 1:, 0], up[:, 0, 1:] = clicks[:, 1:], top[:, 1:]
    below = clicks.sum(axis=0)
    below[0] = top[:, 1:].sum(axis=0).max(initial=0)
    return SwapSums(up, below)
