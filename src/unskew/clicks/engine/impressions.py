"""The impressions of a log on an engine, under our names, whatever its files call them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.clicks.engine.engine import Engine
from unskew.clicks.engine.parquet import impressions_in
from unskew.clicks.naming import Columns, their_columns
from unskew.clicks.schema import OURS

if TYPE_CHECKING:
    from ibis.expr.types import Table


def read_impressions(engine: Engine, path: Path | str, columns: Columns | None = None) -> Table:
    """The impressions of a log; `columns` says theirs for ours, {"position": "rank"}."""
    table = engine.read_parquet(impressions_in(path))
    return under_our_names(table, columns, path)


def under_our_names(
    table: Table, columns: Columns | None, path: Path | str, known: Collection[str] = OURS
) -> Table:
    """The table with their columns renamed to ours; a column of theirs that has one of our names gives way."""
    named = their_columns(columns, table.columns, path, known)
    hidden = [ours for ours, theirs in named.items() if ours in table.columns and ours != theirs]
    given = {theirs: ours for ours, theirs in named.items()}
    kept = [name for name in table.columns if name in given or name not in hidden]
    return table.select(**{given.get(name, name): table[name] for name in kept}) if named else table
