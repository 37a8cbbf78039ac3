"""The impressions of a log on an engine: under our names, numbers as numbers, times as times.

A log need not come from `unskew ingest`: any Parquet files with the columns will do. What cannot be read is told
with the file, the column and the first value that is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.errors import DataError
from unskew.names import OURS, Names
from unskew.tables.engine.engine import Engine
from unskew.tables.engine.parquet import impressions_in, parquet_files
from unskew.tables.engine.times import as_utc
from unskew.tables.reading.recognizing import refuse_other, require_log
from unskew.tables.unifying import alike, row_of, unified

if TYPE_CHECKING:
    from ibis.expr.types import Table

WHOLE = ("position", "click")
NUMBERS = (*WHOLE, "display_time", "dwell_time", "propensity", "logging_score")
TIMES = (
    "write them as 2024-03-01T14:00:00Z or as seconds since 1970; `unskew ingest` reads others, with time.format"
)


def read_impressions(
    engine: Engine, path: Path | str, columns: Mapping[str, str] | None = None, needed: Sequence[str] = ()
) -> Table:
    """The impressions of a log, which has the columns that are needed, in types that can be counted with.

    `columns` says theirs for ours, {"position": "rank"}.
    """
    refuse_other(path)
    files = parquet_files(str(path) if "://" in str(path) else impressions_in(path))
    table = under_our_names(read_all(engine, files), columns, path)
    require_log(needed, table.columns, path, columns)
    log = _Log(engine, path, files, columns or {})
    return log.timed(log.counted(table))


def read_all(engine: Engine, files: Sequence[Path | str]) -> Table:
    """Parquet files as one table: columns of any of them, in types that hold all."""
    import ibis

    groups = alike(files)
    tables = [engine.read_parquet(group) for group in groups]
    if len(groups) == 1:
        return tables[0]
    kinds = dict(ibis.Schema.from_pyarrow(unified(files)).items())

    def column(table: Table, name: str) -> Any:
        return (table[name] if name in table.columns else ibis.null()).cast(kinds[name])

    return ibis.union(*(table.select(**{name: column(table, name) for name in kinds}) for table in tables))


def under_our_names(
    table: Table, columns: Mapping[str, str] | None, path: Path | str, known: Collection[str] = OURS
) -> Table:
    """The table with their columns renamed to ours; a column of theirs that has one of our names gives way."""
    names = Names.of(columns).check(table.columns, path, known)
    read = names.renamed(table.columns)
    return table.select(**{ours: table[theirs] for theirs, ours in read.items()}) if names else table


@dataclass(frozen=True)
class _Log:
    """Where a table comes from, so that what is wrong in it can be shown."""

    engine: Engine
    path: Path | str
    files: Sequence[Path | str]
    columns: Mapping[str, str]

    def counted(self, table: Table) -> Table:
        """Numbers that are written as text, as numbers."""
        texts = [name for name in NUMBERS if name in table.columns and table[name].type().is_string()]
        made: dict[str, Any] = {name: table[name].strip().try_cast("float64") for name in texts}
        for name, number in made.items():
            unread = number.isnull() & table[name].notnull() & (table[name] != "")
            self._refuse(table, name, unread, f"make it {OURS[name]}")
        whole = {name: number.cast("int64") for name, number in made.items() if name in WHOLE}
        return table.mutate(**made | whole) if made else table

    def timed(self, table: Table) -> Table:
        """Times of any kind as UTC."""
        if "timestamp" not in table.columns or table.timestamp.type().is_timestamp():
            return table
        read: Any = as_utc(table.timestamp, "UTC", self.engine.name)
        given = table.timestamp.cast("string")
        self._refuse(table, "timestamp", read.isnull() & given.notnull() & (given != ""), TIMES)
        return table.mutate(timestamp=read)

    def _refuse(self, table: Table, name: str, wrong: Any, hint: str) -> None:
        """Refuse a column with values that cannot be read, and show the first of them."""
        asked = table.agg(rows=wrong.cast("int64").sum(), first=table[name].min(where=wrong))
        found = self.engine.rows(asked)[0]
        if not found["rows"]:
            return
        place = row_of(self.files, self.columns.get(name, name), found["first"])
        path, row = (self.path, "") if place is None else (place[0], f" in row {place[1]}")
        value = repr(str(found["first"])[:100])
        what = f"{found['rows']:,} rows have a {name} that cannot be read, such as {value}{row}"
        raise DataError(what, path=path, hint=hint)
