"""Positions that begin again on every page of results, counted on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unskew.errors import DataError, Option
from unskew.logs.ingest.columns import DEEPEST
from unskew.tables.engine.engine import Engine
from unskew.tables.reading.options import IngestOptions

if TYPE_CHECKING:
    from ibis.expr.types import Table


def counted_on(rows: Table, options: IngestOptions, engine: Engine) -> tuple[Table, str]:
    """The rows with the rank among all results, and a note; the first page of results has the smallest number."""
    name = str(options.positions.page_number)
    page = rows[name]
    asked = {"low": page.min(), "high": page.max(), "least": rows.position.min(), "most": rows.position.max()}
    found = {key: int(value or 0) for key, value in engine.rows(rows.agg(**asked))[0].items()}
    size = options.positions.page_size or found["most"] - found["least"] + 1
    if found["most"] + (found["high"] - found["low"]) * size > DEEPEST:
        what = f"{name} goes up to {found['high']:,}, so that positions go beyond {DEEPEST:,}"
        raise DataError(what, hint=(Option("page_size", 1), " is for a column that is an offset already"))
    moved = rows.mutate(position=(rows.position + (page - found["low"]) * size).cast("int32"))
    kept = name in (*options.keep, *options.columns.values()) or name.startswith("serp_")
    note = f"{options.source('position')} was counted on by {size} for every {name}"
    return (moved if kept else moved.drop(name)), note
