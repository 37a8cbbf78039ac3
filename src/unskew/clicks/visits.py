"""Visits and splits: which pages a person saw in one go, and training data that never sees the future.

A page (page_id) is one list of results; a visit (visit_id) is a run of pages of one person with no pause longer
than a gap. A split by time cuts between visits: what came before the first boundary is for training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from unskew.errors import ConfigError, DataError

if TYPE_CHECKING:
    from ibis.expr.types import Column, Table

    from unskew.clicks.engine.engine import Engine

PARTS = ("train", "validation", "test")
BUCKETS = 4096
"""Cells of one histogram while a boundary is searched."""


def name_visits(events: Table, *, by: Sequence[str] = ("user_id",), gap: int = 1800) -> Table:
    """Add visit_id, and page_id where there is none, to a table with `timestamp` and the columns `by`.

    A visit ends with a pause of more than `gap` seconds between the starts of two pages; a page without a person
    is a visit of its own. Ids are the person's name and a number, and do not depend on the order of rows.
    """
    events = with_pages(events, by=by, gap=gap)
    return add_visits(events, find_visits(events, by=by, gap=gap))


def add_visits(events: Table, pages: Table) -> Table:
    """The impressions of these pages, with their visit_id."""
    kept = [name for name in events.columns if name != "visit_id"]
    return events.select(kept).join(pages.select("page_id", "visit_id"), "page_id")


def with_pages(events: Table, *, by: Sequence[str] = ("user_id",), gap: int = 1800) -> Table:
    """The events with a page_id: their own, or one found from their times."""
    if gap < 1:
        raise ConfigError(f"--gap {gap}: must be at least 1 second")
    require(events, ["timestamp", *by])
    return events if "page_id" in events.columns else number_pages(events, by=by, gap=gap)


def number_pages(events: Table, *, by: Sequence[str] = ("user_id",), gap: int = 1800) -> Table:
    """Add page_id: a new page begins where the query changes, the position does not grow, or after a gap.

    Rows are taken in the order of a person's timestamps; those of one moment by query and position.
    """
    import ibis

    require(events, ["timestamp", "query_id", "position", *by])
    keys = ["timestamp", "query_id", "position", *(["doc_id"] if "doc_id" in events.columns else [])]
    order = ibis.window(group_by=list(by), order_by=keys)
    before = events.mutate(
        page_before=events.timestamp.lag().over(order),
        query_before=events.query_id.lag().over(order),
        position_before=events.position.lag().over(order),
    )
    new = (
        before.page_before.isnull()
        | (before.query_before != before.query_id)
        | (before.position_before >= before.position)
        | (before.timestamp > before.page_before + ibis.interval(seconds=gap))
    )
    started = before.mutate(page_new=new.cast("int32"))
    running = ibis.window(group_by=list(by), order_by=keys, preceding=None, following=0)
    numbered = started.mutate(page_number=started.page_new.sum().over(running))
    named = numbered.mutate(page_id=_person(numbered, by) + "-" + numbered.page_number.cast("string"))
    return named.drop("page_before", "query_before", "position_before", "page_new", "page_number")


def find_visits(events: Table, *, by: Sequence[str], gap: int) -> Table:
    """One row per page: page_id, `start`, visit_id, when the visit `began`, and whether the page `opens` it.

    Pages of one moment are peers in the running window, so that their order never matters. A visit began with the
    last page until then that came after a pause.
    """
    import ibis

    require(events, ["timestamp", *by])
    people = {name: events[name].min() for name in by}
    pages = events.group_by("page_id").agg(start=events.timestamp.min(), **people)
    order = ibis.window(group_by=list(by), order_by="start")
    before = pages.mutate(before=pages.start.lag().over(order))
    pause = before.before.isnull() | (before.start > before.before + ibis.interval(seconds=gap))
    opened = before.mutate(opens=pause)
    running = ibis.range_window(group_by=list(by), order_by="start", preceding=None, following=0)
    numbered = opened.mutate(
        number=opened.opens.cast("int32").sum().over(running),
        began=opened.opens.ifelse(opened.start, ibis.null(opened.start.type())).max().over(running),
    )
    known = reduce(lambda left, right: left & right, [numbered[name].notnull() for name in by])
    person = _person(numbered, by) + "/" + numbered.number.cast("string")
    own = "//" + numbered.page_id.cast("string")
    return numbered.select(
        "page_id",
        "start",
        visit_id=known.ifelse(person, own),
        began=known.ifelse(numbered.began, numbered.start),
        opens=numbered.opens | ~known,
    )


def _person(table: Table, by: Sequence[str]) -> Column:
    """The columns as one string; several are escaped, so that no two people get one name."""
    texts = [table[name].cast("string") for name in by]
    if len(texts) > 1:
        texts = [text.replace("~", "~0").replace("/", "~1") for text in texts]
    return reduce(lambda left, right: left + "/" + right, texts)


def require(table: Table, names: Sequence[str]) -> None:
    """The table has these columns."""
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise DataError(
            f"missing columns: {', '.join(missing)}; there are {', '.join(table.columns)}",
            hint="ingest the log with them, or name others",
        )


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
    if validation < 0 or test < 0 or validation + test >= 1:
        raise ConfigError(f"--validation {validation} and --test {test}: not negative, and less than 1 together")
    unit = "visit_id" if pages is not None or "visit_id" in impressions.columns else "page_id"
    require(impressions, ["timestamp", "page_id"])
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
    return Split(parts, {name: _clock(edge) for name, edge in edges.items()}, sizes, unit)


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
    import ibis

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
    found = _fetch(engine, pages.agg(**asked))[0]
    if found["late"]:
        raise DataError(f"{found['late']:,} pages have no timestamp", hint="remove or repair them")
    if found.get("torn"):
        torn = pages.filter(pages.visit_id != pages.other).order_by("page_id").limit(1)
        page = _fetch(engine, torn)[0]
        raise DataError(f"page {page['page_id']} is in two visits", hint=f"repair {unit}")
    return int(found["units"] or 0)


def find_boundaries(
    engine: Engine, units: Table, ranks: Mapping[str, int], total: int
) -> tuple[dict[str, int], dict[str, int]]:
    """For each name the second in which the unit of its rank (from 0, by time) began, and how many began before.

    Past the last one for a rank beyond. By histograms of ever smaller cells, which any engine can make of any
    number of rows and which need no sort; the first is the same for every rank.
    """
    ends = _fetch(engine, units.agg(low=units.second.min(), high=units.second.max()))[0]
    first, last = int(ends["low"]), int(ends["high"]) + 1
    made: dict[tuple[int, int], list[tuple[int, int]]] = {}
    edges: dict[str, int] = {}
    before: dict[str, int] = {}
    for name, rank in ranks.items():
        low, high, left = (first, last, rank) if rank < total else (last, last, 0)
        while high - low > 1:
            if (low, high) not in made:
                made[low, high] = _histogram(engine, units, low, high)
            for cell, number in made[low, high]:
                if left < number:
                    low, high = cell, min(high, cell + _width(low, high))
                    break
                left -= number
        edges[name], before[name] = low, min(rank, total) - left
    return edges, before


def _histogram(engine: Engine, units: Table, low: int, high: int) -> list[tuple[int, int]]:
    """First second and number of units of every cell that has any, in order."""
    width = _width(low, high)
    inside = units.filter((units.second >= low) & (units.second < high))
    cells = inside.mutate(cell=((inside.second - low) / width).floor().cast("int64"))
    counted = _fetch(engine, cells.group_by("cell").agg(n=cells.count()).order_by("cell"))
    return [(low + row["cell"] * width, row["n"]) for row in counted]


def _width(low: int, high: int) -> int:
    return -(-(high - low) // BUCKETS)


def _clock(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat().replace("+00:00", "Z")


def _fetch(engine: Engine, table: Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = engine.to_arrow(table).to_pylist()
    return rows
