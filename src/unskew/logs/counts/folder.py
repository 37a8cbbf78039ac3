"""Counts on disk: a folder that the engine writes and that training reads.

    slots/        Parquet, one row per slot: ranking_id, query_id, position, doc_id, serp_*, impressions, clicks
    pairs/        Parquet, pages with two clicks: ranking_id, position, other_position, pages; where asked for
    summary.json  what it was made from, in numbers

Legend: N slots, G rankings in the folder, R rows of Counts, K results of the longest page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow.parquet as pq

from unskew.errors import DataError
from unskew.files import Ours, complete_folder, parts, restore, write_json
from unskew.logs.counts.reduction import Counts, encoded_columns, lay_out, same_page, with_pairs
from unskew.logs.log import in_order, page_codes
from unskew.logs.presentation import Presentation
from unskew.settings import require_columns
from unskew.tables.joins import join_lists, match
from unskew.tables.schema import to_array
from unskew.types import Array, Lists

if TYPE_CHECKING:
    from unskew.logs.counts.rankings import Rankings
    from unskew.tables.engine.engine import Engine


SLOT = ("ranking_id", "query_id", "doc_id", "position", "impressions", "clicks")
"""Columns of slots."""
COUNTED = Ours("summary.json", parts("slots", "pairs"))
"""What lies in a folder of counts."""


def write_counts(engine: Engine, rankings: Rankings, folder: Path, *, force: bool = False) -> None:
    """Write a reduced log; the folder appears whole or not at all."""
    with complete_folder(folder, force=force, ours=COUNTED) as working:
        engine.write_parquet(rankings.slots, working / "slots")
        if rankings.pairs is not None:
            engine.write_parquet(rankings.pairs, working / "pairs")
        write_json(working / "summary.json", rankings.summary)


def read_counts(
    folder: Path | str,
    lists: Lists,
    reduction: Literal["counts", "pairs"] = "counts",
    *,
    serp: Sequence[str] = (),
    presentation: Presentation | None = None,
    randomized: bool | None = None,
) -> Counts:
    """Counts from a folder, joined to their lists; what `reduce_log` would have made of the whole log.

    `serp` and `presentation` are those of `reduce_log`; rankings that differ in no column asked for become one.
    `randomized` keeps the pages with slots that were filled at random (True), or those without (False).
    """
    folder = restore(Path(folder))
    serp = serp if presentation is None else presentation.names
    table = _open(folder / "slots", [*SLOT, *serp])
    if randomized is not None:
        table = _only(table, randomized, folder / "slots")
    return counts_of(table, lists, folder, reduction, serp=serp, presentation=presentation)


def counts_of(
    table: Any,
    lists: Lists,
    folder: Path,
    reduction: Literal["counts", "pairs"] = "counts",
    *,
    serp: Sequence[str] = (),
    presentation: Presentation | None = None,
) -> Counts:
    """Counts from slots of a folder, as Arrow: all of them, or those of some rankings."""
    place = folder / "slots"
    if len(table) == 0:
        raise DataError("there are no rankings", path=place, hint="check filters and splits")
    serp = serp if presentation is None else presentation.names
    query, row = join_lists(table, lists, place)
    ranking, names = page_codes(table, place, "ranking_id")
    columns = {name: to_array(table[name]) for name in ("position", "impressions", "clicks", *serp)}
    columns |= encoded_columns(columns, serp, presentation) | {"row": row, "click": np.zeros(len(row), np.uint8)}
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


def _open(place: Path, columns: Sequence[str]) -> Any:
    """The table of a folder, after a check that it has the columns."""
    if not place.is_dir():
        raise DataError("there is no such folder of counts", path=place, hint="write one with `unskew counts`")
    data = pq.ParquetDataset(place)
    require_columns(columns, data.schema.names, path=place, hint="count again with them")
    further = [name for name in ("randomized",) if name in data.schema.names]
    return data.read(columns=[*columns, *further])


def _only(table: Any, randomized: bool, place: Path) -> Any:
    """The rankings with, or without, slots that were filled at random."""
    if "randomized" not in table.column_names:
        raise DataError("there is no column randomized", path=place, hint="the log did not have it")
    codes, names = page_codes(table, place, "ranking_id")
    random = np.zeros(len(names), bool)
    random[codes[to_array(table["randomized"]).astype(bool)]] = True
    return table.filter(random[codes] == randomized)


def _clicked_both(
    place: Path, counts: Counts, names: Array, group: Array, ranking: Array, position: Array, slot: Array
) -> Array:
    """[R, K, K] pages with a click on both; on the diagonal the clicks."""
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
