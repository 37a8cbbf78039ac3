"""What `unskew split` and `unskew counts` do: impressions in, folders of Parquet and plain numbers out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unskew.clicks.counts.counting import count_rankings
from unskew.clicks.counts.folder import write_counts
from unskew.clicks.engine.engine import Engine, connect
from unskew.clicks.engine.parquet import complete_folder, impressions_in, refuse_existing
from unskew.clicks.visits import Split, find_visits, split_by_time, with_pages
from unskew.errors import ConfigError, DataError

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def split(
    impressions: Path | str,
    out: Path | str,
    *,
    gap: str = "30m",
    by: Sequence[str] = (),
    validation: float = 0.1,
    test: float = 0.1,
    force: bool = False,
    engine: str = "duckdb",
    **options: Any,
) -> dict[str, Any]:
    """Find visits and split a log by time into OUT/train, OUT/validation and OUT/test; what was found.

    Visits are found from the columns `by`; without them those of the log stay, else they come from user_id, and a
    log with neither is split by page. `options` go to `connect`.
    """
    impressions, out = Path(impressions), Path(out)
    with complete_folder(out, force=force) as working, connect(engine, **options) as running:
        split = find_and_split(running, impressions, seconds(gap), by, validation, test)
        for name, part in split.parts.items():
            running.write_parquet(part, working / name)
        summary = {"out": str(out), "split by": split.unit, split.unit.replace("_id", "s"): split.units}
        summary |= {f"{name} from": edge for name, edge in split.boundaries.items()}
        (working / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return summary


def find_and_split(
    engine: Engine, path: Path, gap: int, by: Sequence[str], validation: float, test: float
) -> Split:
    """The split of a log, with visits where they can be found."""
    log = engine.read_parquet(impressions_in(path))
    if not by and ("visit_id" in log.columns or "user_id" not in log.columns):
        refuse_nameless(engine, log, ["page_id"], path)
        return split_by_time(engine, log, validation=validation, test=test)
    people = list(by) or ["user_id"]
    refuse_nameless(engine, log, ["page_id"] if "page_id" in log.columns else people, path)
    if "page_id" not in log.columns:
        log = engine.keep(with_pages(log, by=people, gap=gap))
    pages = find_visits(log, by=people, gap=gap)
    return split_by_time(engine, log, validation=validation, test=test, pages=pages)


def refuse_nameless(engine: Engine, log: Any, names: Sequence[str], path: Path) -> None:
    """The columns are there and have no empty cells."""
    missing = [name for name in names if name not in log.columns]
    if missing:
        raise DataError(f"missing columns: {', '.join(missing)}", path=path, hint="ingest the log with them")
    empty = {name: log[name].isnull().cast("int64").sum() for name in names}
    for name, number in engine.to_arrow(log.agg(**empty)).to_pylist()[0].items():
        if number:
            raise DataError(f"{number:,} rows have no {name}", path=path, hint="remove or repair them")


def counts(
    impressions: Path | str,
    out: Path | str,
    *,
    serp: Sequence[str] = (),
    pairs: bool = False,
    force: bool = False,
    engine: str = "duckdb",
    **options: Any,
) -> dict[str, Any]:
    """Reduce a log to counts in the folder `out`; what was counted. `options` go to `connect`."""
    impressions, out = Path(impressions), Path(out)
    refuse_existing(out, force)  # before minutes of counting
    with connect(engine, **options) as running:
        rankings = count_rankings(
            running, running.read_parquet(impressions_in(impressions)), serp=serp, pairs=pairs, place=impressions
        )
        write_counts(running, rankings, out, force=force)
    return {"out": str(out), **rankings.summary}


def seconds(text: str) -> int:
    """A length of time in seconds.

    >>> seconds("30m"), seconds("1h"), seconds("90")
    (1800, 3600, 90)
    """
    found = re.fullmatch(r"(\d{1,9})\s*([smhd]?)", text.strip())
    if found is None or int(found[1]) == 0:
        raise ConfigError(f"--gap {text}: write it like 30m, 90s or 1h")
    return int(found[1]) * SECONDS[found[2]]
