"""`unskew drift`: two logs compared, and a page of what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from unskew.diagnosis.drift.drift import Drift
from unskew.diagnosis.drift.drift import drift as compare
from unskew.logs.reader import StoredLog
from unskew.names import Names
from unskew.options.base import EngineConnection
from unskew.pages.documents.drift import drift_page
from unskew.pages.page_files import page_place, write_found
from unskew.settings import no_such


def drift(
    old: Any,
    new: Any,
    *,
    segments: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    out: Path | str | None = None,
    command: str = "",
    force: bool = False,
    engine: str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> Drift:
    """Say what changed from an old log to a new one, and whether propensities of the old one still hold.

    Logs are Parquet files, folders of them, tables in memory or `Log`s. `out` is a page (.html) to write; it is
    overwritten by `force` alone. `segments` are columns to compare the mix of, serp_* unless given; `columns` says
    theirs for ours; `connection` says how the engine is reached.
    """
    place = page_place(out, force=force)
    for each in (old, new):
        if isinstance(each, str | Path) and "://" not in str(each):
            if not Path(each).exists():
                raise no_such(Path(each), "log")
            StoredLog.open(each, Names.of(columns), shared=True)
    found = compare(old, new, segments=segments, columns=columns, engine=engine, **connection)
    if place is not None:
        write_found(place, drift_page(found, command))
    return found
