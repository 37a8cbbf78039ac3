"""What a log shows of examination, added up on the engine: documents at several ranks, and shuffled pages.

Legend: B buckets of queries, P ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.diagnosis.evidence.tables import BUCKETS, LogTables, bucket_of
from unskew.results import Result
from unskew.tables.engine.functions import bit_or
from unskew.types import Array

if TYPE_CHECKING:
    from ibis.expr.types import Table

RANKS = 50
"""Ranks that are looked at; further down next to nothing is clicked."""
MOST_CELLS = 500_000
"""Cells that are looked at; of a larger log those of some queries are, and the share is said."""
PAIR = ("query_id", "doc_id")


@dataclass(frozen=True)
class SwapSums:
    """Clicks of ranks on the same documents, by bucket of queries."""

    up: Array
    """[B, P, P]: clicks at the first rank, weighted by how much the other can tell of the same documents."""
    clicks: Array
    """[P] clicks at each rank on documents that were shown at others too."""
    share: float = 1.0
    """Share of the log's queries that was looked at."""

    @property
    def buckets(self) -> int:
        """Buckets of queries that have any."""
        return int((self.up.sum(axis=(1, 2)) > 0).sum())

    def __add__(self, other: SwapSums) -> SwapSums:
        return SwapSums(self.up + other.up, self.clicks + other.clicks, self.share)


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


def swap_sums(tables: LogTables, by: str | None = None) -> tuple[dict[str, SwapSums], Coverage]:
    """What documents at several ranks tell, for each value of a segment, or under "" for the whole log; coverage.

    Where only some slots were shuffled, these are left out: what they tell is told by `shuffled_sums`.
    """
    if ("sums", by) not in tables.fetched:
        tables.fetched["sums", by] = _swap_sums(tables, by)
    known: tuple[dict[str, SwapSums], Coverage] = tables.fetched["sums", by]
    return known


def _swap_sums(tables: LogTables, by: str | None) -> tuple[dict[str, SwapSums], Coverage]:
    import ibis

    cells, share = _natural(tables, by)
    key = [*PAIR] if by is None else [*PAIR, by]
    bit: Any = cells.position.cast("int64")
    cell = ibis.struct({name: cells[name] for name in (*key, "position")})
    documents = tables.engine.keep(
        cells.group_by(key).agg(
            n=cells.count(),
            mask=bit_or((bit * 0 + 1).cast("int64") << bit),
            clicked=cells.clicks.sum(),
            pair=tables.engine.set_hash(cell),  # a number for the key: joins by text take twice as long
        )
    )
    moved = documents.filter((documents.n > 1) & (documents.clicked > 0)).select(*key, "pair")
    wanted = ["pair", "position", "bucket", "impressions", "clicks", *([] if by is None else [by])]
    part = tables.engine.keep(cells.join(moved, key).select(*wanted))
    ranks = min(tables.facts["ranks"], RANKS)
    sums = tables.engine.to_arrow(_pair_sums(part, by))
    masks = tables.engine.to_arrow(documents.group_by("mask").agg(n=documents.count()))
    values = [""] if by is None else [row[by] for row in tables.engine.rows(documents.select(by).distinct())]
    up, clicks = _by_value(sums, ranks), _clicks_at(tables, part, by)
    nothing = np.zeros((BUCKETS, ranks, ranks))
    found = {
        value: SwapSums(up.get(value, nothing), clicks.get(value, nothing[0, 0]), share)
        for value in sorted(values)
    }
    return found, _coverage(masks, sums, ranks, tables.shuffled == "some")


def _natural(tables: LogTables, by: str | None) -> tuple[Table, float]:
    """Cells of the log, or of values of a segment, without single shuffled slots, and the share of its queries.

    Where there are few queries, their documents take their place in the buckets.
    """
    cells, share = tables.sample(MOST_CELLS)
    cells = cells.filter(cells.position <= RANKS)
    if tables.shuffled == "some":
        cells = cells.filter(~cells.shuffled)
    if tables.few_queries:
        pair = cells.query_id.cast("string") + "/" + cells.doc_id.cast("string")
        cells = cells.mutate(bucket=bucket_of(pair))
    if tables.shuffled != "some" and not tables.segments:
        return cells.drop("shuffled", "turn"), share
    keys = [*PAIR, "position", "bucket", *([] if by is None else [by])]
    return cells.group_by(keys).agg(impressions=cells.impressions.sum(), clicks=cells.clicks.sum()), share


def _pair_sums(part: Table, by: str | None) -> Table:
    """Clicks of every two ranks on the same documents, by bucket."""
    import ibis

    other = part.select("pair", k="position", n_k="impressions", c_k="clicks")
    both: Any = part.join(other, ["pair", part.position < other.k])
    total = (both.impressions + both.n_k).cast("float64")
    value = ibis.literal("") if by is None else both[by]
    both = both.mutate(value=value, over=both.clicks * both.n_k / total, under=both.c_k * both.impressions / total)
    return both.group_by(["value", "bucket", "position", "k"]).agg(
        over=both.over.sum(), under=both.under.sum(), clicks=(both.clicks + both.c_k).sum()
    )


def _by_value(sums: Any, ranks: int) -> dict[str, Array]:
    """The sums laid out, [B, P, P] for each value of the segment."""
    found: dict[str, Array] = {}
    values = np.asarray(sums["value"].to_pylist(), object)
    bucket, j, k = (sums[name].to_numpy() - shift for name, shift in (("bucket", 0), ("position", 1), ("k", 1)))
    for value in dict.fromkeys(sorted(set(values))):
        some, up = values == value, np.zeros((BUCKETS, ranks, ranks))
        np.add.at(up, (bucket[some], j[some], k[some]), sums["over"].to_numpy()[some])
        np.add.at(up, (bucket[some], k[some], j[some]), sums["under"].to_numpy()[some])
        found[str(value)] = up
    return found


def _clicks_at(tables: LogTables, part: Table, by: str | None) -> dict[str, Array]:
    """Clicks at each rank on documents that were shown at several, [P] for each value."""
    keys = ["position", *([] if by is None else [by])]
    found: dict[str, Array] = {}
    for row in tables.engine.rows(part.group_by(keys).agg(n=part.clicks.sum())):
        value = "" if by is None else str(row[by])
        clicks = found.setdefault(value, np.zeros(min(tables.facts["ranks"], RANKS)))
        clicks[int(row["position"]) - 1] += float(row["n"])
    return found


def _coverage(masks: Any, sums: Any, ranks: int, natural: bool) -> Coverage:
    """Documents by two ranks, from the sets of ranks that they were shown at, and their clicks."""
    mask, n = (masks[name].to_numpy().astype(np.int64) for name in ("mask", "n"))
    shown = (mask[:, None] >> np.arange(1, ranks + 1)) & 1
    clicks = np.zeros((ranks, ranks), np.int64)
    j, k = (sums[name].to_numpy() - 1 for name in ("position", "k"))
    np.add.at(clicks, (j, k), sums["clicks"].to_numpy().astype(np.int64))
    documents = shown.T @ (shown * n[:, None])
    shown_at, clicked = (tuple(map(tuple, each.tolist())) for each in (documents, clicks + clicks.T))
    return Coverage(shown_at, clicked, natural)


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
    summed = both.group_by(["part", "position"]).agg(clicks=both.click.sum(), top=both.top.sum())
    ranks = min(tables.facts["ranks"], RANKS)
    up = np.zeros((BUCKETS, ranks, ranks))
    for row in tables.engine.rows(summed):
        bucket, rank = int(row["part"]), int(row["position"]) - 1
        if rank:
            up[bucket, rank, 0], up[bucket, 0, rank] = row["clicks"], row["top"]
    clicks = up[:, :, 0].sum(axis=0)
    clicks[0] = up[:, 0, :].sum(axis=0).max(initial=0)
    return SwapSums(up, clicks)
