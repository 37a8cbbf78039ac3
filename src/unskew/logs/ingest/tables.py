"""Ingest a table in memory: the same reading, checks and rules as for files, and the same summary."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from unskew.errors import Part, UnskewError, parts_of
from unskew.files import scratch_folder
from unskew.logs.ingest.logs import ingest
from unskew.tables.frames import arrow_table, storable

FILE = "table.parquet"


def ingest_table(
    source: object, *, columns: Mapping[str, str] | None = None, keep: Sequence[str] = (), **options: Any
) -> tuple[Any, dict[str, Any]]:
    """Impressions of a table (pandas, polars, Arrow, a dict of columns) as an Arrow table, and their summary.

    `columns` says theirs for ours, `keep` names further columns; `options` are those of `ingest`. The table passes
    through a scratch folder, so that it is read as a file would be.
    """
    with scratch_folder() as folder:
        pq.write_table(storable(arrow_table(source)), folder / FILE)
        try:
            summary = ingest(folder / FILE, folder / "log", columns=columns, keep=keep, **options)
        except UnskewError as error:
            if error.path is not None and folder in Path(error.path).parents:
                error.path = None if error.line is None else f"row {error.line}"
                error.line = None
            told = [[_said(part, folder) for part in parts_of(words)] for words in (error.message, error.hint)]
            error.message, error.hint = tuple(told[0]), tuple(told[1]) or None
            raise
        return pq.read_table(folder / "log" / "impressions"), summary


def _said(part: Part, folder: Path) -> Part:
    return of_a_table(part, folder) if isinstance(part, str) else part


def of_a_table(message: str, folder: Path) -> str:
    r"""What is said of the file, said of the table.

    >>> of_a_table("broken: /s/table.parquet:7: click=x\nThey are kept in /s/a; repair them", Path("/s"))
    'broken: row 7: click=x\nRepair them'
    """
    place = re.escape(str(folder))
    message = re.sub(rf"{place}/{FILE}:(\d+)", r"row \1", message)
    message = re.sub(rf"They are kept in {place}\S*; (\w)", lambda found: found[1].upper(), message)
    message = re.sub(rf"{place}/{FILE}: ", "", message)
    return re.sub(rf"{place}\S*", "the table", message)
