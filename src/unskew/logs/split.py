"""What `unskew split` does: a log cut by time, between visits, so that training never sees the future.

What began before the first boundary is for training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from unskew.errors import Column, ConfigError, DataError, Option
from unskew.files import Ours, complete_folder, parts, write_manifest
from unskew.logs.ingest.visits import LACKING, add_page_ids, add_visits, clock, find_visits
from unskew.logs.reader import AnyLog, open_log
from unskew.names import Names
from unskew.options.base import EngineConnection
from unskew.options.logs import SplitArguments
from unskew.results import Result
from unskew.settings import require_columns, second_count
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.engine.expressions import Table, ibis

DAY = 86_400
"""Seconds of the cells in which a boundary is searched first."""
CUT = Ours("summary.json", parts("train", "validation", "test"))
"""What lies in a folder of a log that was cut."""


@dataclass(frozen=True)
class SplitLog(Result):
    """A log that was cut into parts, in numbers."""

    out: str
    split_by: str
    """What stays in one part: visit_id, or page_id where there are no visits."""
    parts: dict[str, int]
    """Visits, or pages, in train, validation and test."""
    validation_from: str
    test_from: str
    """Where the parts begin, in UTC."""


@SplitArguments.checks
def split(
    log: AnyLog,
    out: Path | str,
    *,
    gap: str = "30m",
    by: Sequence[str] = (),
    validation: float = 0.1,
    test: float = 0.1,
    columns: Mapping[str, str] | None = None,
    force: bool = False,
    engine: str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> SplitLog:
    """Find visits and split a log by time into OUT/train, OUT/validation and OUT/test; what was found.

    Visits are found from the columns `by`; without them those of the log stay, else they come from user_id, and a
    log with neither is split by page. `columns` says theirs for ours, as for `ingest`. `connection` says
    how the engine is reached.
    """
    out = Path(out)
    with (
        complete_folder(out, force=force, ours=CUT) as working,
        connect(engine, **connection) as running,
        open_log(running, log, Names.of(columns), ["timestamp", *by]) as shown,
    ):
        if "page_id" in by:
            raise ConfigError("page_id is what visits are made of; leave it out to split by page", argument="by")
        pages, pause = None, second_count("gap", gap)
        known = not by and ("visit_id" in shown.columns or "user_id" not in shown.columns)
        people = list(by) or ["user_id"]
        refuse_nameless(running, shown, ["page_id"] if known or "page_id" in shown.columns else people)
        if not known:
            if "page_id" not in shown.columns:
                shown = running.keep(add_page_ids(shown, running, by=people, gap=pause))
            pages = find_visits(shown, by=people, gap=pause)
        cut = split_by_time(running, shown, validation=validation, test=test, pages=pages)
        for name, part in cut.parts.items():
            running.write_parquet(part, working / name)
        starts = {f"{name}_from": edge for name, edge in cut.boundaries.items()}
        found = SplitLog(str(out), cut.unit, cut.units, **starts)
        told = found.to_dict() | {"names": Names.of(None, log)}
        write_manifest(working / CUT.marker, told, CUT.files(working))
    return found


def refuse_nameless(engine: Engine, log: Any, names: Sequence[str]) -> None:
    """The columns are there and have no empty cells."""
    require_columns(names, log.columns, hint="ingest the log with them")
    empty = {name: log[name].isnull().cast("int64").sum() for name in names}
    for name, number in engine.rows(log.agg(**empty))[0].items():
        if number:
            raise DataError((f"{number:,} rows have no ", Column(name)), hint="remove or repair them")


@dataclass(frozen=True)
class Split:
    """Impressions cut by time."""

    parts: dict[str, Table]
    """train, validation, test; lazy."""
    boundaries: dict[str, str]
    """Where validation and test begin, in UTC."""
    units: dict[str, int]
    """Visits, or pages where there are no visits, in each part."""
    unit: str
    """visit_id or page_id."""


def split_by_time(
    engine: Engine, impressions: Table, *, validation: float = 0.1, test: float = 0.1, pages: Table | None = None
) -> Split:
    """Cut impressions into training, validation and test by the time at which visits begin.

    The shares are of visits (of pages where there is no visit_id). Boundaries are whole seconds, and what begins
    in the same second stays together, so the result depends neither on the engine nor on the order of rows.
    `pages` is what `find_visits` gave; the parts then have its visit_id.
    """
    SplitArguments.check(validation=validation, test=test)
    if validation + test >= 1:
        both = (Option("validation", validation), " and ", Option("test", test))
        raise ConfigError((*both, ": less than 1 together"))
    unit = "visit_id" if pages is not None or "visit_id" in impressions.columns else "page_id"
    require_columns(["timestamp", "page_id"], impressions.columns, hint=LACKING)
    begun = engine.keep(unit_starts(known_pages(impressions, unit) if pages is None else pages, unit))
    total = refuse_undatable(engine, begun, unit)
    if not total:
        raise DataError("there are no impressions to split")
    ranks = {"validation": round((1 - validation - test) * total), "test": round((1 - test) * total)}
    edges, before = find_boundaries(engine, begun.filter(begun.opens), ranks, total)
    early, late = begun.second < edges["validation"], begun.second >= edges["test"]
    chosen = {"train": early, "validation": ~early & ~late, "test": late & ~early}
    sizes = {
        "train": before["validation"],
        "validation": before["test"] - before["validation"],
        "test": total - before["test"],
    }
    parts = {
        name: impressions.semi_join(begun.filter(where), "page_id")
        if pages is None
        else add_visits(impressions, begun.filter(where))
        for name, where in chosen.items()
    }
    return Split(parts, {name: clock(edge) for name, edge in edges.items()}, sizes, unit)


def known_pages(impressions: Table, unit: str) -> Table:
    """One row per page of a log that has its visits: page_id, start, its unit, and the last other unit."""
    shown = impressions.group_by("page_id")
    times = {"start": impressions.timestamp.min()}
    if unit == "page_id":
        return shown.agg(**times)
    pages = shown.agg(**times, visit_id=impressions[unit].min(), other=impressions[unit].max())
    own = "//" + pages.page_id.cast("string")
    return pages.mutate(visit_id=pages.visit_id.cast("string").fill_null(own), other=pages.other.cast("string"))


def unit_starts(pages: Table, unit: str) -> Table:
    """The pages, the `second` in which the visit of each began, and one page of every visit that `opens` it."""
    if unit == "page_id":
        pages = pages.mutate(began=pages.start, opens=ibis.literal(True))
    elif "began" not in pages.columns:
        named = pages.group_by(unit).agg(began=pages.start.min(), opening=pages.page_id.min())
        pages = pages.join(named, unit)
        pages = pages.mutate(opens=pages.page_id == pages.opening).drop("opening")
    return pages.mutate(second=pages.began.truncate("s").epoch_seconds()).drop("began")


def refuse_undatable(engine: Engine, pages: Table, unit: str) -> int:
    """Every page has a time, and belongs to one visit; how many units there are."""
    asked = {"late": pages.start.isnull().cast("int64").sum(), "units": pages.opens.cast("int64").sum()}
    if "other" in pages.columns:
        asked["torn"] = (pages.visit_id != pages.other).cast("int64").sum()
    found = engine.rows(pages.agg(**asked))[0]
    if found["late"]:
        raise DataError((f"{found['late']:,} pages have no ", Column("timestamp")), hint="remove or repair them")
    if found.get("torn"):
        torn = pages.filter(pages.visit_id != pages.other).order_by("page_id").limit(1)
        page = engine.rows(torn)[0]
        raise DataError(f"page {page['page_id']} is in two visits", hint=("repair ", Column(unit)))
    return int(found["units"] or 0)


def find_boundaries(
    engine: Engine, units: Table, ranks: Mapping[str, int], total: int
) -> tuple[dict[str, int], dict[str, int]]:
    """For each name the second in which the unit of its rank (from 0, by time) began, and how many began before.

    Past the last one for a rank beyond. Units are counted by day, and by second in the day that is meant, which
    any engine can do with any number of rows and which needs no sort.
    """
    edges: dict[str, int] = {}
    before: dict[str, int] = {}
    for name, rank in ranks.items():
        if rank >= total:
            edges[name] = int(engine.rows(units.agg(last=units.second.max()))[0]["last"]) + 1
            before[name] = total
            continue
        day, earlier = _cell_of(engine, units, DAY, rank)
        inside = units.filter((units.second >= day) & (units.second < day + DAY))
        edges[name], later = _cell_of(engine, inside, 1, rank - earlier)
        before[name] = earlier + later
    return edges, before


def _cell_of(engine: Engine, units: Table, width: int, rank: int) -> tuple[int, int]:
    """Where the cell of so many seconds begins that has the unit of this rank, and how many began before it."""
    cells = units.group_by(cell=(units.second / width).floor().cast("int64")).agg(n=units.count())
    counted = engine.to_arrow(cells.order_by("cell"))
    first, sizes = (np.asarray(counted[name]) for name in ("cell", "n"))
    before = np.cumsum(sizes) - sizes
    at = np.searchsorted(before, rank, side="right") - 1
    return int(first[at]) * width, int(before[at])
