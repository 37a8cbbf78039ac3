"""Ingest a log in one call: options from arguments and a mapping file, then the engine, then the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from unskew.errors import ConfigError
from unskew.options.base import EngineConnection
from unskew.settings import checked, read_toml
from unskew.tables.reading.options import IngestOptions

ARGUMENTS = {
    "columns": "columns",
    "keep": "keep",
    "page_columns": "page",
    "time_zone": "time.zone",
    "positions_from": "positions.base",
    "by": "pages.by",
    "page_gap": "pages.gap",
    "page_number": "positions.page_number",
    "page_size": "positions.page_size",
    "off": "rules.off",
    "max_rejected": "max_rejected",
    "max_removed": "max_removed",
}
"""Which key of a mapping file an argument says."""


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
    **connection: Unpack[EngineConnection],
) -> dict[str, Any]:
    """Read a click log into impressions in the folder `out`, whole or not at all; its summary.

    `columns` says theirs for ours, {"position": "rank"}. `connection` goes to `connect`: spark_master, memory,
    threads, scratch.
    """
    given = locals()
    options = ingest_options(mapping, {name: given[name] for name in ARGUMENTS})
    from unskew.logs.ingest.run import ingest as read_in
    from unskew.tables.engine.engine import connect

    with connect(engine, **connection) as opened:
        return read_in(source, out, opened, options, kind=format, clicks=clicks, force=force)


def ingest_table(
    source: object,
    *,
    mapping: Path | str | None = None,
    clicks: Sequence[str | Path] = (),
    engine: str = "duckdb",
    **options: Any,
) -> tuple[Any, dict[str, Any]]:
    """Impressions of a table (pandas, polars, Arrow, a dict of columns) as an Arrow table, and their summary.

    The same checks and rules as for files; `options` are those of `ingest`.
    """
    from unskew.logs.ingest.run import ingest_arrow
    from unskew.tables.engine.engine import connect
    from unskew.tables.frames import arrow_table, storable

    asked = ingest_options(mapping, {name: options.pop(name, None) for name in ARGUMENTS})
    with connect(engine, **options) as opened:
        return ingest_arrow(storable(arrow_table(source)), opened, asked, clicks)


def ingest_options(mapping: Path | str | None, arguments: Mapping[str, Any]) -> IngestOptions:
    """The options of a mapping file, with the arguments over them that say something."""
    content = {} if mapping is None else read_toml(Path(mapping))
    for name, value in arguments.items():
        *tables, key = ARGUMENTS[name].split(".")
        if value is None or value == () or value == [] or value == {}:
            continue
        place = content
        for table in tables:
            place = place.setdefault(table, {})
        if isinstance(value, Mapping):
            place[key] = {**place.get(key, {}), **value}
        else:
            place[key] = value if isinstance(value, str | int | float) else tuple(value)
    try:
        options: IngestOptions = checked(IngestOptions, content, "")
    except ConfigError as error:
        error.path = mapping
        said = {key: name for name, key in ARGUMENTS.items()}
        if mapping is None and error.argument is not None:
            error.argument = said.get(error.argument, error.argument)
        raise
    return options
