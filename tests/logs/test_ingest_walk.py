"""The walk of `ingest`: how often a source is opened, how often a row is written, and what goes through files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from unskew.logs.ingest.ingest import ingest, ingest_table
from unskew.tables.engine.engine import DuckEngine

PAGES, RESULTS = 200, 5
ROWS = [
    {
        "page_id": f"p{page}",
        "query_id": f"q{page % 7}",
        "doc_id": f"d{page % 7}-{place}",
        "position": place + 1,
        "click": int(place == page % RESULTS),
        "timestamp": f"2026-01-{1 + page // 10:02d}T{page % 10:02d}:00:{place:02d}Z",
        "user_id": f"u{page % 50}",
        "device": ("phone", "desk")[page % 2],
    }
    for page in range(PAGES)
    for place in range(RESULTS)
]
_opened: list[str] | None = None


def _hear(event: str, given: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open":
        _opened.append(str(given[0]))


sys.addaudithook(_hear)


@contextmanager
def listening() -> Iterator[list[str]]:
    """All names that are opened within the block."""
    global _opened
    _opened = heard = []
    try:
        yield heard
    finally:
        _opened = None


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Rows that were written as Parquet, by the name of the folder that they went to."""
    counts: dict[str, int] = {}
    engine_write, file_write = DuckEngine._write, pq.ParquetWriter.write_table

    def by_engine(self: DuckEngine, table: Any, folder: str, *given: Any) -> None:
        engine_write(self, table, folder, *given)
        name = Path(folder).name.split(".")[1]
        counts[name] = sum(pq.read_metadata(path).num_rows for path in Path(folder).rglob("*.parquet"))

    def by_arrow(self: Any, table: Any, *given: Any, **more: Any) -> None:
        if len(table):
            counts["arrow"] = counts.get("arrow", 0) + len(table)
        file_write(self, table, *given, **more)

    monkeypatch.setattr(DuckEngine, "_write", by_engine)
    monkeypatch.setattr(pq.ParquetWriter, "write_table", by_arrow)
    return counts


def text_of(rows: list[dict[str, Any]], kind: str) -> str:
    if kind == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows)
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    return "\n".join(lines) + "\n"


def without(rows: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("case", ["plain", "found", "clicks", "found and clicks"])
def test_a_source_is_opened_three_times_and_a_row_written_twice(
    tmp_path: Path, written: dict[str, int], case: str, kind: str
) -> None:
    source, clicks, options = tmp_path / f"log.{kind}", tmp_path / f"clicks.{kind}", {}
    rows = without(ROWS, "page_id") if "found" in case else ROWS
    if "clicks" in case:
        clicks.write_text(text_of([row for row in without(rows, "position", "device") if row["click"]], kind))
        rows, options = without(rows, "click"), {"clicks": [clicks]}
    source.write_text(text_of(rows, kind))
    with listening() as opened:
        made = ingest(source, tmp_path / "out", **options)
    assert made.impressions == len(ROWS)
    assert made.clicks == PAGES
    assert opened.count(str(source)) <= 3
    assert opened.count(str(clicks)) <= 3
    assert sum(written.values()) <= 2 * len(ROWS)
    assert written == {"typed": len(ROWS), "impressions": len(ROWS)}
    assert made.source_columns["device"].values == 2


def test_events_go_through_no_files_and_results_are_written_twice(tmp_path: Path, written: dict[str, int]) -> None:
    shown = [{**row, "event": "impression"} for row in without(ROWS, "click")]
    clicked = [{**row, "event": "click"} for row in without([row for row in ROWS if row["click"]], "click")]
    (tmp_path / "log.csv").write_text(text_of(shown + clicked, "csv"))
    made = ingest(tmp_path / "log.csv", tmp_path / "out")
    assert (made.impressions, made.clicks) == (len(ROWS), PAGES)
    assert written == {"typed": len(ROWS), "impressions": len(ROWS)}


def test_a_table_in_memory_does_not_travel_through_files(
    tmp_path: Path, written: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    ingest_table(columns)  # what is imported is opened now
    with listening() as opened:
        table, summary = ingest_table(columns)
    assert [name for name in opened if name.endswith((".parquet", ".json"))] == []
    assert written == {}
    assert len(table) == summary.impressions == len(ROWS)
    assert summary.source_columns["device"].values == 2


def test_what_is_broken_in_a_table_is_told_by_its_row() -> None:
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    columns["click"] = [9 if at % 2 else each for at, each in enumerate(columns["click"])]
    with pytest.raises(Exception, match=r"500 of 1,000 rows are broken.*\n.*\n +row 1: page_id=p0") as error:
        ingest_table(columns)
    assert str(error.value).endswith("\nRepair them, or raise max_rejected=")
