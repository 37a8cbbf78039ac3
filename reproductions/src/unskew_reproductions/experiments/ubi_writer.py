"""Write a log as UBI 1.3: `queries.ndjson` and `events.ndjson`, which read_ubi reads back to the same impressions.

A page is a query, its results in order are the hit ids, and a click is an event with its object_id and its
ordinal, from 1. What UBI has no field for goes to query_attributes: policy_id, propensity, logging_score,
randomized, query_id (where it is not the text of the query), visit_id, and positions where they are not 1, 2, ...
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from unskew.errors import DataError
from unskew.files import complete_file
from unskew.logs.log import log_tables
from unskew.logs.reader import StoredLog
from unskew.names import REQUIRED
from unskew.settings import require_columns
from unskew.types import Log

APPLICATION = "unskew"
PER_SLOT = ("propensity", "logging_score", "randomized")
"""Columns with a value for each result."""
BATCH = 50_000
Row = Mapping[str, Any]


def write_ubi(source: Log | pa.Table | Path | str, folder: Path | str) -> None:
    """Write a log, a table of impressions or a Parquet file of them to a folder, as two files of JSON lines.

    Ids become text. A file appears under its name when it is complete.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        complete_file(folder / "queries.ndjson") as first,
        complete_file(folder / "events.ndjson") as second,
        first.open("w", encoding="utf-8") as queries,
        second.open("w", encoding="utf-8") as events,
    ):
        for _, rows in groupby(_rows(source), key=lambda row: row["page_id"]):
            _write_page(list(rows), queries, events)


def _rows(source: Log | pa.Table | Path | str) -> Iterator[Row]:
    """Impressions, page by page and from the top."""
    if isinstance(source, Log):
        tables = log_tables(source, BATCH)
    else:
        table = source if isinstance(source, pa.Table) else StoredLog.open(source).table(texts=True)
        require_columns(REQUIRED, table.column_names, hint="write_ubi takes impressions")
        tables = iter([table.sort_by([("page_id", "ascending"), ("position", "ascending")])])
    for table in tables:
        for batch in _plain(table).to_batches(max_chunksize=BATCH):
            for row in batch.to_pylist():
                yield {name: None if value != value else value for name, value in row.items()}  # NaN is missing


def _plain(table: pa.Table) -> pa.Table:
    """Times in microseconds, which Python can hold."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            column = table[field.name].cast(pa.timestamp("us", field.type.tz), safe=False)
            table = table.set_column(at, field.name, column)
    return table


def _write_page(rows: list[Row], queries: IO[str], events: IO[str]) -> None:
    top, page = rows[0], str(rows[0]["page_id"])
    words = top.get("query_text")
    shared = {"application": APPLICATION, "query_id": page, "client_id": _text(top.get("user_id"))}
    query = {
        **shared,
        "user_query": str(top["query_id"]) if words is None else words,
        "query_attributes": _attributes(rows),
        "query_response_id": page,
        "query_response_hit_ids": [str(row["doc_id"]) for row in rows],
        "timestamp": _moment(top.get("timestamp")),
    }
    _line(queries, query)
    for row in rows:
        if row["click"]:
            _line(events, {**shared, **_event(row)})


def _event(row: Row) -> dict[str, Any]:
    position: dict[str, Any] = {"ordinal": row["position"]}
    if row.get("serp_x") is not None and row.get("serp_y") is not None:
        position["xy"] = {"x": row["serp_x"], "y": row["serp_y"]}
    attributes = {"object": {"object_id": str(row["doc_id"])}, "position": position}
    return {
        "action_name": "click",
        "session_id": _text(row.get("visit_id")),
        "timestamp": _moment(row.get("click_time") or row.get("timestamp")),
        "event_attributes": _present(attributes | {"dwell_time": row.get("dwell_time")}),
    }


def _attributes(rows: list[Row]) -> dict[str, Any]:
    """What the page and its results have beyond the fields of UBI; one value where all results have the same."""
    top = rows[0]
    found: dict[str, Any] = {"policy_id": _text(top.get("policy_id")), "visit_id": _text(top.get("visit_id"))}
    if top.get("query_text") is not None and top["query_text"] != str(top["query_id"]):
        found["query_id"] = str(top["query_id"])
    for name in PER_SLOT:
        values = [row.get(name) for row in rows]
        found[name] = values[0] if all(value == values[0] for value in values) else values
    positions = [row["position"] for row in rows]
    if positions != list(range(1, len(rows) + 1)):
        found["positions"] = positions
    return _present(found)


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _moment(value: datetime | None) -> str | None:
    if value is None:
        return None
    zoned = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return zoned.isoformat().replace("+00:00", "Z")


def _line(file: IO[str], record: Mapping[str, Any]) -> None:
    try:
        file.write(json.dumps(_present(record), ensure_ascii=False, allow_nan=False) + "\n")
    except (TypeError, ValueError) as error:
        raise DataError(
            f"page {record['query_id']} cannot be written ({error})", hint="repair its values"
        ) from error
