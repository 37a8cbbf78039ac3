"""What `unskew track` does: one delivery of a log, counted into a store.

    rows ──page_table──▶ pages ──with_reasons──▶ pages that count ──hourly_sums──▶ partials ──merged──▶ windows
                           ▲                          │
                  pages counted before ◀── ledger ────┘

A delivery may be an hour or months, and come late, twice, or in any order: a page counts once. The cost is that of
the delivery and of the days that it touches.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Unpack

from unskew.errors import ConfigError, DataError, LimitError, Option, warn
from unskew.logs.reader import AnyLog, open_log, place_of
from unskew.names import REQUIRED, Names
from unskew.options.base import EngineConnection
from unskew.options.logs import TrackArguments
from unskew.results import Result
from unskew.settings import known
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.engine.expressions import Table
from unskew.tracking.delivery import (
    BROKEN,
    HOUR,
    LEFT_OUT,
    counted_rows,
    delivered_rows,
    first_far_ahead,
    hourly_sums,
    page_table,
    with_reasons,
)
from unskew.tracking.display_times import add_examination, load_examination
from unskew.tracking.store import DAY, KEPT_DAYS, Delivery, TrackingStore, within, writing
from unskew.tracking.windows import LONGEST, due, publish_window

REFRESH = ("due", "all", "none")
STRANGE = ("display_time_missing", "display_time_negative", "dwell_time_negative", "clock_back")
"""What is counted although it is strange."""


@dataclass(frozen=True)
class Tracked(Result):
    """What was counted into a store, in pages but for the rows."""

    out: str
    delivered: int
    counted: int
    left_out: Mapping[str, int]
    """By reason."""
    late: int
    """Counted, of hours that windows had reached."""
    twice: int
    """Counted, with a result that stands there twice."""
    rows: int
    strange: Mapping[str, int]
    """Counted all the same."""
    windows: Mapping[str, str]
    """From when to when each goes."""


@TrackArguments.checks
def track(
    log: AnyLog,
    out: Path | str,
    *,
    examination: Path | str | None = None,
    until: str | None = None,
    rewind: bool = False,
    refresh: str = "due",
    max_rejected: float = 0.01,
    columns: Mapping[str, str] | None = None,
    engine: str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> Tracked:
    """Count a log into the store `out`; what was counted, and what was not and why.

    `examination` is the folder of an examination model, which judges every result; without one the log's column
    `examination` is taken, if there is one. `until` is the end of the log's last full hour, in ISO 8601 (UTC):
    pages from it on do not count yet, and windows end there. Without it they end with the last hour that has a
    page; pages from after the present hour do not count, nor a few that are a week or more past all others.
    `rewind` goes back to `until` where a wrong clock took the store beyond it: pages of later days are forgotten,
    to be delivered again. `refresh` is which windows to write: those that are due, all, or none. A delivery of
    which more than the share `max_rejected` is broken is refused as a whole. `columns` says theirs for ours, as
    for `ingest`; `connection` says how the engine is reached.
    """
    known("refresh", refresh, REFRESH)
    end = None if until is None else hour_of(until)
    if rewind and end is None:
        raise ConfigError(("goes with ", Option("until")), argument="rewind", value=True)
    model = None if examination is None else load_examination(examination)
    needed = [*REQUIRED, "timestamp"]
    # the log is opened before there is a store, so that a wrong name leaves none
    with connect(engine, **connection) as running, open_log(running, log, Names.of(columns), needed) as shown:
        judged = shown if model is None else add_examination(running, shown, model)
        with writing(Path(out)) as store:
            if rewind and end is not None:
                store.rewind(end)
            counts = deliver(running, store, judged, end, refresh, max_rejected, place_of(log))
            clock = store.manifest.clock or 0
    published = store.manifest.windows.items()
    windows = {name: f"{_clock(each.since)} to {_clock(each.until)}" for name, each in published}
    left_out, strange = (
        {name: counts.pop(name) for name in kind if name in counts} for kind in (LEFT_OUT, STRANGE)
    )
    _warn_of_clocks(left_out["far_ahead"], left_out["too_old"], counts["delivered"], clock)
    return Tracked(str(out), left_out=left_out, strange=strange, **counts, windows=windows)


def _warn_of_clocks(far: int, old: int, delivered: int, clock: int) -> None:
    """Say what to do about pages of wrong clocks, in this delivery or in one before."""
    if far:
        what = f"{far:,} pages are a week or more past nearly all others, as by a wrong clock, and do not count"
        warn(f"{what}; `unskew track --until` takes their times as they are")
    if 2 * old > delivered:
        what = f"{old:,} pages are too old: the store has counted up to {_clock(clock)}"
        warn(f"{what}; if a wrong clock took it there, go back with `unskew track --rewind --until`")


def deliver(
    engine: Engine,
    store: TrackingStore,
    impressions: Table,
    end: int | None,
    refresh: str,
    max_rejected: float,
    place: Path | str | None,
) -> dict[str, int]:
    """Count a delivery, write the windows that are due, and commit; `end` is the hour of `until`."""
    before = store.manifest
    if end is not None and before.clock is not None and end < before.clock:
        what = f"the store has counted up to {_clock(before.clock)} already; give a later time"
        hint = ("if a wrong clock took it there, ", Option("rewind", True), " goes back")
        raise ConfigError(what, argument="until", hint=hint)
    rows = delivered_rows(engine, impressions, place)
    kinds = {name: str(rows[name].type()) for name in ("page_id", "query_id", "doc_id")}
    for name, kind in before.kinds.items():
        if kinds[name] != kind:
            what = f"{name} is of type {kinds[name]}, and the store's is {kind}"
            raise DataError(what, path=place, hint="convert it")
    pages = engine.keep(page_table(rows))
    limit = end if end is not None else int(time.time()) // HOUR + 1
    sound = pages.filter(*(pages[name] == 0 for name in BROKEN), pages.hour < limit)
    found = engine.rows(sound.group_by("hour").agg(pages=sound.count()))
    by_hour = {int(row["hour"]): int(row["pages"]) for row in found}
    counted = sum(each.pages for each in before.deliveries)
    ahead = None if end is not None else first_far_ahead(by_hour, before.clock, counted)
    hours = sorted(hour for hour in by_hour if ahead is None or hour < ahead)
    clock = max(before.clock or 0, end or 0, *(hour + 1 for hour in hours[-1:]))
    seen = store.read(engine, "pages", hours[0] - 1, hours[-1] + 1) if hours else None
    judged = engine.keep(with_reasons(pages, seen=seen, until=limit, ahead=ahead, oldest=clock - LONGEST))
    counts = count_pages(engine, judged, before.clock)
    refuse_broken(counts, max_rejected, place)
    fresh = judged.filter(judged.reason.isnull())
    made = _write(engine, store, rows, fresh, counts) if counts["counted"] else None
    _commit(engine, store, kinds, clock, made, refresh)
    return counts


def count_pages(engine: Engine, pages: Table, clock: int | None) -> dict[str, int]:
    """How many pages were delivered, counted, and left out by reason; and what is strange about those counted."""
    counts = pages.reason.isnull()
    asked: dict[str, Any] = {"delivered": pages.count(), "counted": counts.cast("int64").sum()}
    asked |= {name: (pages.reason == name).fill_null(False).cast("int64").sum() for name in LEFT_OUT}
    late = counts if clock is None else counts & (pages.hour < clock)
    asked["late"] = (late.cast("int64") * (0 if clock is None else 1)).sum()
    present = [name for name in STRANGE if name in pages.columns]
    asked |= {name: (pages[name] * counts.cast("int64")).sum() for name in present}
    twice = counts & pages.twice
    asked |= {"rows": (pages.rows * counts.cast("int64")).sum(), "twice": twice.cast("int64").sum()}
    return {name: int(value or 0) for name, value in engine.rows(pages.agg(**asked))[0].items()}


def refuse_broken(counts: dict[str, int], most: float, place: Path | str | None) -> None:
    """A delivery that is broken past a share is refused."""
    broken = {name: counts[name] for name in BROKEN if counts[name]}
    if sum(broken.values()) > most * counts["delivered"]:
        said = ", ".join(f"{number:,} {name}" for name, number in broken.items())
        raise LimitError(
            f"{sum(broken.values()):,} of {counts['delivered']:,} pages are broken ({said})",
            path=place,
            hint=("repair them, or raise ", Option("max_rejected")),
        )


def _write(engine: Engine, store: TrackingStore, rows: Table, pages: Table, counts: dict[str, int]) -> Delivery:
    """Write what the pages add to the store, in folders that nobody knows of yet."""
    name = f"{store.manifest.number + 1:06d}"
    sums = hourly_sums(counted_rows(rows, pages, any_twice=counts["twice"] > 0))
    ledger = pages.select("hour", "page_id", ranks="bits", start=pages.start.epoch_seconds())
    for kind, table in (("partials", sums), ("pages", ledger)):
        by_day = table.mutate(day=(table.hour / DAY).floor().cast("int64"))
        engine.write_parquet(by_day, store.path / kind / name, by="day")
    days = sorted(int(each.name[4:]) for each in (store.path / "pages" / name).glob("day=*"))
    return Delivery(name=name, days=tuple(days), pages=counts["counted"])


def _commit(
    engine: Engine, store: TrackingStore, kinds: dict[str, str], clock: int, made: Delivery | None, refresh: str
) -> None:
    before = store.manifest
    deliveries = (*before.deliveries, *([made] if made else []))
    days = sorted({day for each in deliveries for day in each.days})
    oldest = min([(clock - LONGEST) // DAY, *days[-KEPT_DAYS:]])
    made_now = {"number": before.number + 1, "clock": clock or None, "kinds": before.kinds or kinds}
    manifest = before.model_copy(update=made_now | {"deliveries": within(deliveries, oldest)})
    new = TrackingStore(store.path, manifest)
    for name in due(before, clock, refresh):
        if (published := publish_window(engine, new, name, clock, manifest.number)) is not None:
            new.manifest = new.manifest.model_copy(update={"windows": new.manifest.windows | {name: published}})
    store.commit(new.manifest)


def hour_of(moment: str) -> int:
    """The hour since 1970 that a time of ISO 8601 lies in; UTC unless it says another zone.

    >>> hour_of("1970-01-02T01:30:00"), hour_of("1970-01-01T02:00+01:00")
    (25, 1)
    """
    try:
        read = datetime.fromisoformat(moment)
    except ValueError:
        raise ConfigError("write it like 2024-03-01T14:00:00Z", argument="until", value=moment) from None
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()) // HOUR


def _clock(hour: int) -> str:
    return datetime.fromtimestamp(hour * HOUR, UTC).isoformat().replace("+00:00", "Z")
