"""The examination model on an engine: learned from a log, added to a log, and seen by position.

Pages are dealt out by a hash of page_id: 70 % to train on, 15 % to calibrate on, 15 % to test on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from unskew.errors import DataError
from unskew.files import refuse_existing
from unskew.logs.reader import open_log
from unskew.names import Names
from unskew.options.base import EngineConnection
from unskew.settings import checked, require_columns
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.engine.functions import finite
from unskew.tracking.display_times import (
    EXAMINATION,
    DisplayTimeModel,
    DisplayTimes,
    TraceCounts,
    fit_examination,
)
from unskew.tracking.traces import TRACE, with_traces

if TYPE_CHECKING:
    from ibis.expr.types import Table

PARTS = {"training": (0, 70), "calibration": (70, 85), "test": (85, 100)}
"""Per cent of the pages."""
NEEDED = ("page_id", "position", "click")
KEYS = [f"trace_{name}" for name in TRACE]


def display_times(
    log: Path | str,
    out: Path | str,
    *,
    seen: float = 5.0,
    unseen: float = 1.0,
    own_click: bool = False,
    trees: int = 100,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    force: bool = False,
    engine: str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> dict[str, Any]:
    """Learn examination from a log with display times, into the folder `out`; what was measured.

    A result that was displayed for more than `seen` seconds was examined, one for less than `unseen` was not.
    `columns` says theirs for ours, as for `ingest`; `connection` says how the engine is reached.
    """
    said = {"seen": seen, "unseen": unseen, "own_click": own_click, "trees": trees, "seed": seed}
    asked = checked(DisplayTimes, said, None)
    refuse_existing(Path(out), force=force, ours=EXAMINATION)
    place = Path(log)
    needed = [*NEEDED, "display_time"]
    with (
        connect(engine, **connection) as running,
        open_log(running, place, Names.of(columns), needed) as shown,
    ):
        model = learn_examination(running, shown, asked, place)
        model.facts |= examination_curves(running, add_examination(running, shown, model))
    model.save(out, force=force)
    return {"out": str(out), **model.facts}


def learn_examination(
    engine: Engine, impressions: Table, settings: DisplayTimes, place: Path | str | None = None
) -> DisplayTimeModel:
    """The model of a log, which needs page_id, position, click and display_time, and uses dwell_time."""
    require_columns([*NEEDED, "display_time"], impressions.columns, path=place, hint="it is what is learned from")
    traced = with_traces(clean(engine, impressions))
    part = ((traced.page_id.hash() % 100 + 100) % 100).cast("int64")
    labelled = traced.mutate(part=part, label=shown_label(traced, settings))
    labelled = labelled.filter(labelled.label.notnull())
    found = engine.to_arrow(labelled.group_by([*KEYS, "part", "label"]).agg(count=labelled.count()))
    columns = {name: found[name].to_numpy(zero_copy_only=False) for name in found.column_names}
    traces = {name: columns[f"trace_{name}"] for name in TRACE}
    counts = TraceCounts(traces, columns["label"].astype(int), columns["count"])
    parts = {
        name: counts.where((columns["part"] >= low) & (columns["part"] < high))
        for name, (low, high) in PARTS.items()
    }
    try:
        return fit_examination(settings, **parts)
    except DataError as error:
        error.path = place
        raise


def clean(engine: Engine, impressions: Table) -> Table:
    """The columns that traces are made of, in plain types; times that are no numbers are null."""
    import ibis

    kept = [name for name in ("display_time", "dwell_time") if name in impressions.columns]
    seconds = {}
    for name in kept:
        number = finite(impressions[name], engine.name)
        seconds[name] = ibis.ifelse(number >= 0, number, ibis.null("float64"))
    plain = {"position": impressions.position.cast("int32"), "click": impressions.click.cast("int32")}
    return impressions.mutate(**plain, **seconds)


def shown_label(rows: Table, settings: DisplayTimes) -> Any:
    """1 where the display time says examined, 0 where it says not, else null."""
    import ibis

    t = rows.display_time
    return ibis.cases((t > settings.seen, 1), (t < settings.unseen, 0), else_=ibis.null("int64")).cast("int64")


def add_examination(engine: Engine, impressions: Table, model: DisplayTimeModel) -> Table:
    """The impressions with a column `examination`, ê of every result; distinct traces are predicted once."""
    import ibis

    require_columns(NEEDED, impressions.columns, hint="examination is judged by them")
    rows = clean(engine, impressions.drop("examination") if "examination" in impressions.columns else impressions)
    traced = with_traces(rows)
    found = engine.to_arrow(traced.select(*KEYS).distinct())
    traces = {name: found[key].to_numpy(zero_copy_only=False) for name, key in zip(TRACE, KEYS, strict=True)}
    said = pa.table({f"{key}_of": found[key] for key in KEYS} | {"examination": pa.array(model(traces))})
    predicted = engine.from_arrow(said)
    joined = traced.left_join(predicted, [traced[key] == predicted[f"{key}_of"] for key in KEYS])
    if model.settings.observed and "display_time" in joined.columns:
        word = shown_label(joined, model.settings).cast("float64")
        joined = joined.mutate(examination=ibis.coalesce(word, joined.examination))
    return joined.drop(*KEYS, *(f"{key}_of" for key in KEYS))


def examination_curves(engine: Engine, rows: Table, ranks: int = 10) -> dict[str, Any]:
    """Mean examination by position, and by ranks below the last click of the page (the paper's Figure 4)."""
    import ibis

    by_rank = rows.group_by("position").agg(mean=rows.examination.mean(), n=rows.count())
    clicked = ibis.ifelse(rows.click == 1, rows.position, ibis.null("int32"))
    pages = rows.group_by(page="page_id").agg(last=clicked.max())
    joined = rows.join(pages, rows.page_id == pages.page)
    below = joined.mutate(below=joined.position - joined["last"])
    below = below.filter(below.below >= 0)
    by_distance = below.group_by("below").agg(mean=below.examination.mean(), n=below.count())
    made = {}
    for name, table, key in (("by_position", by_rank, "position"), ("below_last_click", by_distance, "below")):
        found = sorted(engine.rows(table), key=lambda row: row[key])[:ranks]
        made[name] = [
            {key: int(row[key]), "mean": float(row["mean"]), "impressions": int(row["n"])} for row in found
        ]
    return made
