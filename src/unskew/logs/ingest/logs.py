"""Ingest a log in one call: options from arguments and a mapping file, then the engine, then the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unskew.errors import ConfigError
from unskew.settings import checked, read_toml
from unskew.tables.reading.options import IngestOptions

ARGUMENTS = {"columns": "columns", "keep": "keep", "page": "page_columns", "time.zone": "time_zone"}
ARGUMENTS |= {"pages.by": "by", "pages.gap": "page_gap", "positions.base": "positions_from", "rules.off": "off"}
ARGUMENTS |= {f"positions.{name}": name for name in ("page_number", "page_size")}
ARGUMENTS |= {name: name for name in ("max_rejected", "max_removed")}
"""Which argument says a key of a mapping file."""


def ingest(
    source: str | Path | Sequence[str | Path],
    out: Path | str,
    *,
    format: str | None = None,
    mapping: Path | str | None = None,
    columns: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    clicks: Sequence[str | Path] = (),
    page_columns: Sequence[str] = (),
    time_zone: str | None = None,
    positions_from: int | None = None,
    by: Sequence[str] = (),
    page_gap: str | None = None,
    page_number: str | None = None,
    page_size: int | None = None,
    off: Sequence[str] = (),
    max_rejected: float | None = None,
    max_removed: float | None = None,
    force: bool = False,
    engine: str = "duckdb",
    **connection: Any,
) -> dict[str, Any]:
    """Read a click log into impressions in the folder `out`, whole or not at all; its summary.

    `columns` says theirs for ours, {"position": "rank"}. `connection` goes to `connect`: spark_master, memory,
    threads, scratch.
    """
    from unskew.logs.ingest.ingest import ingest as read_in
    from unskew.tables.engine.engine import connect

    over = {
        "columns": dict(columns or {}),
        "keep": tuple(keep),
        "page": tuple(page_columns),
        "time": {} if time_zone is None else {"zone": time_zone},
        "pages": _said(by=tuple(by) or None, gap=page_gap),
        "positions": _said(base=positions_from, page_number=page_number, page_size=page_size),
        "rules": {"off": tuple(off)} if off else {},
        "max_rejected": max_rejected,
        "max_removed": max_removed,
    }
    options = ingest_options(None if mapping is None else Path(mapping), over)
    with connect(engine, **connection) as opened:
        return read_in(source, out, opened, options, kind=format, clicks=clicks, force=force)


def _said(**settings: Any) -> dict[str, Any]:
    """The settings that say something."""
    return {name: value for name, value in settings.items() if value is not None}


def ingest_options(mapping: Path | None, over: Mapping[str, Any]) -> IngestOptions:
    """The options of a mapping file, with those over them that say something."""
    content = {} if mapping is None else read_toml(mapping)
    for key, value in over.items():
        there = content.get(key)
        if value not in (None, {}, ()):
            content[key] = {**there, **value} if isinstance(there, dict) else value
    try:
        options: IngestOptions = checked(IngestOptions, content, "")
    except ConfigError as error:
        error.path = mapping
        if mapping is None and error.argument in ARGUMENTS:
            error.argument = ARGUMENTS[error.argument]
        raise
    return options
