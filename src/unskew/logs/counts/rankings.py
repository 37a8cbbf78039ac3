"""The exact reduction on the engine: a log of any size becomes counts that one machine trains on.

The same reduction as `reduce_log`, as two group-bys and a join:

    pages     one row per result page: a hash of its (query, position, document, presentation)
    slots     one row per (hash, query, position, document, presentation): impressions and clicks

A ranking is named after the smallest page_id that showed it. The hash only finds candidates: where all pages
under one hash are the same, every slot was shown once on each of them, and this is checked on the result. Should
two rankings ever collide, another hash is tried, so the counts are exact. Values are checked first, in one pass.

What is written, and training reads:

    slots/        Parquet, one row per slot: ranking_id, query_id, position, doc_id, serp_*, impressions, clicks
    pairs/        Parquet, pages with two clicks: ranking_id, position, other_position, pages; where asked for
    summary.json  what it was made from, in numbers

Legend: N slots, G rankings in the folder, R rows of Counts, K results of the longest page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import pyarrow.parquet as pq

from unskew.errors import Column, DataError
from unskew.files import Ours, check_below, complete_folder, parts, refuse_existing, restore, write_manifest
from unskew.logs.counts.reduction import Counts, lay_out, same_page, with_pairs
from unskew.logs.log import in_order, page_codes
from unskew.logs.presentation import NO_COLUMNS, Presentation
from unskew.logs.reader import AnyLog, check_rows, open_log, weights
from unskew.names import Names
from unskew.options.base import EngineConnection
from unskew.results import Result
from unskew.settings import require_columns
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.engine.expressions import Table, ibis
from unskew.tables.engine.parquet import damage_named
from unskew.tables.joins import join_lists, match
from unskew.tables.schema import required, to_array
from unskew.types import Array, Lists

SLOT = ("query_id", "position", "doc_id")
COUNTED_SLOT = ("ranking_id", *SLOT, "impressions", "clicks")
"""Columns of slots in a folder, besides the presentation."""
RANKING = "page_hash"
COUNTED = Ours("summary.json", parts("slots", "pairs"))
"""What lies in a folder of counts."""


@dataclass(frozen=True)
class Rankings:
    """A reduced log on its engine."""

    slots: Table
    """One row per slot: ranking_id, query_id, position, doc_id, the presentation, impressions, clicks."""
    pairs: Table | None
    """ranking_id, position, other_position (larger), pages with a click on both; where asked for."""
    summary: dict[str, Any]
    """The reduced log in numbers: impressions, clicks, slots, pages, rankings."""

    def write(self, engine: Engine, folder: Path, *, force: bool = False) -> None:
        """Write the counts; the folder appears whole or not at all."""
        with complete_folder(folder, force=force, ours=COUNTED) as working:
            engine.write_parquet(self.slots, working / "slots")
            if self.pairs is not None:
                engine.write_parquet(self.pairs, working / "pairs")
            write_manifest(working / COUNTED.marker, self.summary, COUNTED.files(working))


@dataclass(frozen=True)
class CountedLog(Result):
    """A log that was reduced to counts, in numbers."""

    out: str
    impressions: int
    clicks: float
    """Clicks; the sum of weights where a column of feedback was counted."""
    slots: int
    pages: int
    rankings: int
    feedback: str | None = None
    """The column of weights; None where clicks were counted."""
    absent = ("feedback",)


def count_rankings(
    engine: Engine,
    impressions: Table,
    *,
    serp: Sequence[str] = (),
    pairs: bool = False,
    feedback: str | None = None,
) -> Rankings:
    """Reduce impressions to counts; `serp` names presentation columns to keep apart and carry.

    Slots that were filled at random are kept apart too, where there is a column `randomized`. `feedback` is a
    column of weights to add up in the place of clicks.
    """
    require_columns([*required(feedback), *serp], impressions.columns)
    extra = [*serp, *(["randomized"] if "randomized" in impressions.columns else [])]
    log = impressions.select(*required(feedback), *extra)
    weighted = False
    if feedback is not None:
        log, weighted = weights(engine, log, feedback)
        if weighted and pairs:
            raise DataError(("pairs are counted from clicks, and ", Column(feedback), " has weights"))
    if "randomized" in extra:
        log = log.mutate(randomized=log.randomized.fill_null(False))
    check_rows(engine, log, weighted=weighted)
    for salt in range(3):
        # absent values are told apart: Spark's hash passes over what is absent
        fields = {name: log[name] for name in (*SLOT, *extra)} | {
            f"no_{name}": log[name].isnull() for name in extra
        }
        row = ibis.struct(fields | {"salt": ibis.literal(salt)})
        pages = engine.keep(log.group_by("page_id").agg(page_hash=engine.set_hash(row)))
        shown = log.join(pages, "page_id")
        clicks = shown.click if weighted else shown.click.cast("int64")
        slots = shown.group_by([RANKING, *SLOT, *extra]).agg(impressions=shown.count(), clicks=clicks.sum())
        slots = engine.keep(slots)  # before the join, which needs memory of its own
        slots = engine.keep(slots.join(name_rankings(pages), RANKING))
        summary = summarise(engine, slots, pages)
        if not summary.pop("unlike"):
            final = slots.select("ranking_id", *SLOT, *extra, "impressions", "clicks")
            both = count_pairs(log, pages) if pairs else None
            return Rankings(final, both, summary | ({"feedback": feedback} if weighted else {}))
        # two rows of a page at one position look like a collision; a slow check, so made last
        taken = log.group_by("page_id", "position").agg(rows=log.count())
        refuse_taken(engine, taken, "page_id")
    raise DataError("could not tell the rankings apart: three different hashes collided")


def counts(
    log: AnyLog,
    out: Path | str,
    *,
    serp: Sequence[str] = (),
    pairs: bool = False,
    feedback: str | None = None,
    columns: Mapping[str, str] | None = None,
    force: bool = False,
    engine: str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> CountedLog:
    """Reduce a log to counts in the folder `out`; what was counted. `connection` says how the engine is reached.

    `feedback` is a column of weights from 0 to add up in the place of clicks. `columns` says theirs for
    ours, as for `ingest`.
    """
    out = Path(out)
    refuse_existing(out, force=force, ours=COUNTED)  # before minutes of counting
    needed = [*required(feedback), *serp]
    names = Names.of(columns)
    with connect(engine, **connection) as running, open_log(running, log, names, needed) as shown:
        rankings = count_rankings(running, shown, serp=serp, pairs=pairs, feedback=feedback)
        rankings.write(running, out, force=force)
    return CountedLog(str(out), **rankings.summary)


def name_rankings(pages: Table) -> Table:
    """One row per ranking: its name, and on how many pages it was shown."""
    return pages.group_by(RANKING).agg(ranking_id=pages.page_id.min(), pages=pages.count())


def count_pairs(log: Table, pages: Table) -> Table:
    """Pages with a click on both of two slots, for every ranking and pair of slots that has any."""
    clicked = log.filter(log.click == 1).select("page_id", "position")
    other = clicked.select("page_id", other_position="position")
    both = clicked.join(other, ["page_id", clicked.position < other.other_position]).join(pages, "page_id")
    counted = both.group_by([RANKING, "position", "other_position"]).agg(pages=both.count())
    return counted.join(name_rankings(pages).drop("pages"), RANKING).select(
        "ranking_id", "position", "other_position", "pages"
    )


def summarise(engine: Engine, slots: Table, pages: Table) -> dict[str, Any]:
    """The numbers of a reduced log, after a check that no position is taken twice; all from reduced tables."""
    unlike = (slots.impressions != slots.pages).cast("int64").sum()
    sums = {"impressions": slots.impressions.sum(), "clicks": slots.clicks.sum(), "slots": slots.count()}
    found = engine.rows(slots.agg(**sums, unlike=unlike))[0]
    if not found["unlike"]:
        taken = slots.group_by(RANKING, "position").agg(rows=slots.count(), ranking_id=slots.ranking_id.min())
        refuse_taken(engine, taken, "ranking_id")
    sizes = engine.rows(pages.agg(pages=pages.count(), rankings=pages[RANKING].nunique()))[0]
    return found | sizes


def refuse_taken(engine: Engine, taken: Table, page: str) -> None:
    """Refuse pages with two rows at one position; `taken` has the rows of each."""
    for first in engine.rows(taken.filter(taken.rows > 1).order_by(page, "position").limit(1)):
        raise DataError(
            (Column("position"), f" {first['position']} is taken twice in page {first[page]}"),
            hint=("keep one document per position, and give each result page its own ", Column("page_id")),
        )


# ---- read back ----


def read_counts(
    folder: Path | str,
    lists: Lists,
    reduction: Literal["counts", "pairs"] = "counts",
    *,
    presentation: Presentation = NO_COLUMNS,
) -> Counts:
    """Counts from a folder, joined to their lists; what `reduce_log` would have made of the whole log."""
    folder = restore(Path(folder))
    slots = _open(folder / "slots", [*COUNTED_SLOT, *presentation.names])
    return counts_of(slots, lists, folder, reduction, presentation)


def _open(place: Path, columns: Sequence[str]) -> Any:
    if not place.is_dir():
        raise DataError("there is no such folder of counts", path=place, hint="write one with `unskew counts`")
    check_below(place)
    with damage_named(place):
        data = pq.ParquetDataset(place)
        require_columns(columns, data.schema.names, path=place, hint="count again with them")
        return data.read(columns=list(columns))


def counts_of(
    table: Any, lists: Lists, folder: Path, reduction: Literal["counts", "pairs"], presentation: Presentation
) -> Counts:
    """Counts from slots of a folder, as Arrow: all of them, or those of some rankings.

    Rankings that differ in no column of the presentation become one.
    """
    place = folder / "slots"
    if len(table) == 0:
        raise DataError("there are no rankings", path=place, hint="check filters and splits")
    query, row = join_lists(table, lists, place)
    ranking, names = page_codes(table, place, "ranking_id")
    columns = {name: to_array(table[name]) for name in ("position", "impressions", "clicks", *presentation.names)}
    columns |= presentation.encode(columns) | {"row": row, "click": np.zeros(len(row), np.uint8)}
    pages, ranking = in_order(lists, ranking, query, columns, names, place)
    carried = dict(pages.columns)
    shown = carried.pop("clicks"), carried.pop("impressions")
    pages = replace(pages, columns=carried)
    slot = np.arange(len(ranking)) - pages.offsets[ranking]
    first, group = same_page(pages, ranking, slot)
    counts = lay_out(pages, first, group[ranking], slot, shown)
    if reduction == "counts":
        return counts
    both = _clicked_both(folder / "pairs", counts, names, group, ranking, pages.position, slot)
    return with_pairs(counts, both)


def _clicked_both(
    place: Path, counts: Counts, names: Array, group: Array, ranking: Array, position: Array, slot: Array
) -> Array:
    """For each ranking and pair of slots, pages with a click on both, [R, K, K]; on the diagonal the clicks."""
    table = _open(place, ["ranking_id", "position", "other_position", "pages"])
    rows, width = counts.clicks.shape
    of = match(table["ranking_id"], names)
    known = of >= 0  # others belong to rankings that were left out
    longest = int(position.max()) + 1
    places = ranking * longest + position  # ascending
    i, j = (
        slot[np.searchsorted(places, of[known] * longest + to_array(table[name])[known])]
        for name in ("position", "other_position")
    )
    pages = to_array(table["pages"])[known]
    row = group[of[known]]
    cell = np.concatenate([(row * width + i) * width + j, (row * width + j) * width + i])
    both = np.bincount(cell, weights=np.tile(pages, 2), minlength=rows * width**2).reshape(rows, width, width)
    diagonal = np.arange(width)
    both[:, diagonal, diagonal] = counts.clicks
    return both
