"""Tables in memory as logs that the rules of `ingest` have not touched, for what those would leave out."""

from __future__ import annotations

from typing import Any

from unskew.diagnosis.evidence import tables
from unskew.logs.reader import TableLog
from unskew.names import NO_NAMES, Names
from unskew.tables.frames import arrow_table, is_frame


def uncleaned(table: Any, names: Names = NO_NAMES) -> TableLog:
    """A table as a log that was opened, row for row."""
    summary: Any = None
    return TableLog(arrow_table(table, names), names, None, summary)


def open_tables(source: Any, names: Names = NO_NAMES, **how: Any) -> tables.LogTables:
    """Any log on an engine; of a table in memory every row."""
    opened = uncleaned(source, names) if is_frame(source) else source
    return tables.open_tables(opened, names=names, **how)
