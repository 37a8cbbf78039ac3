"""Cells and pages of a log, counted on both engines; what is no log, and no segment, is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew
from tests.helpers.uncleaned import open_tables
from unskew.errors import ConfigError, DataError
from unskew.names import Names
from unskew.tables.engine.engine import Engine

PAGES = {
    "page_id": [1, 1, 1, 2, 2, 2, 3, 3],
    "query_id": ["q", "q", "q", "q", "q", "q", "r", "r"],
    "doc_id": ["a", "b", "c", "b", "a", "c", "a", "b"],
    "position": [1, 2, 3, 1, 2, 3, 1, 2],
    "click": [0, 1, 1, 1, 0, 0, 0, 0],
    "randomized": [False, False, False, True, True, False, True, True],
    "device": ["phone", "phone", "phone", "desk", "desk", "desk", None, None],
}


def digits(query: str, first: int) -> int:
    """By hand: three hexadecimal digits of MD5, the first one least."""
    told = hashlib.md5(query.encode()).hexdigest()[first : first + 3]
    return sum(int(digit, 16) * 16**place for place, digit in enumerate(told))


def bucket(query: str) -> int:
    return digits(query, 0) % 100


def test_cells_and_pages_are_counted_by_hand(engine: Engine) -> None:
    tables = open_tables(PAGES, segments=["device"], engine=engine)
    keys = ("query_id", "doc_id", "position", "shuffled", "device")
    cells = {tuple(row[key] for key in keys): row for row in engine.rows(tables.cells)}
    assert len(cells) == 8
    assert cells["q", "b", 1, True, "desk"]["clicks"] == cells["q", "b", 2, False, "phone"]["clicks"] == 1
    assert cells["q", "c", 3, False, "desk"] | {"clicks": 1} == cells["q", "c", 3, False, "phone"] | {
        "device": "desk"
    }
    pages = {row["page_id"]: row for row in engine.rows(tables.pages)}
    first = pages[1]
    assert [first[name] for name in ("results", "clicks", "last_click", "clicked_positions")] == [3, 2, 3, 5]
    assert [pages[3][name] for name in ("clicks", "last_click")] == [0, None]
    assert [pages[page]["shuffled"] for page in (1, 2, 3)] == [False, False, True]
    assert [pages[page]["device"] for page in (1, 2, 3)] == ["phone", "desk", "(missing)"]
    assert {row["query_id"]: row["bucket"] for row in cells.values()} == {query: bucket(query) for query in "qr"}
    turns = {row["query_id"]: row["turn"] for row in engine.rows(tables.queries)}
    assert turns == {query: digits(query, 3) for query in "qr"}
    assert tables.size == 7  # one of them on two devices
    assert tables.shuffled == "some"
    assert tables.facts == {
        "impressions": 8,
        "clicks": 3,
        "ranks": 3,
        "pages": 3,
        "shuffled_pages": 1,
        "queries": 2,
        "query_documents": 5,
    }


def test_a_log_its_file_and_its_table_are_one(tmp_path: Path) -> None:
    lists = unskew.make_lists(queries=10, documents=12, features=4, seed=0)
    log = unskew.simulate(lists, "position", pages=200, seed=0)
    unskew.write_log(log, tmp_path / "log.parquet")
    table = pq.read_table(tmp_path / "log.parquet")
    renamed = table.rename_columns(["rank" if name == "position" else name for name in table.column_names])
    found = []
    for source, columns in ((log, None), (tmp_path / "log.parquet", None), (renamed, {"position": "rank"})):
        with open_tables(source, names=Names(columns or {})) as tables:
            order = ["query_id", "doc_id", "position"]
            found.append((tables.facts, tables.engine.rows(tables.cells.order_by(order))))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"click": [0, 1, 2, 0, 0, 0, 0, 0]}, DataError, "1 rows have a click that is not 0 or 1"),
        ({"position": [0, 1, 2, 1, 2, 3, 1, 2]}, DataError, "there is a position 0"),
        ({"doc_id": [None, *"bcdabcd"]}, DataError, "1 of 8 rows have no doc_id"),
        ({name: pa.array(values[:0]) for name, values in PAGES.items()}, DataError, "no impressions"),
    ],
)
def test_rows_that_cannot_be_counted_are_told(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        open_tables({**PAGES, **change})


def test_segments_of_many_values_and_strange_sources_are_refused() -> None:
    many = {name: values * 10 for name, values in PAGES.items()} | {"sku": [f"s{n}" for n in range(80)]}
    with pytest.raises(ConfigError, match=r"sku.*has 80 values, and 50 is the most"):
        open_tables(many, segments=["sku"])
    with pytest.raises(DataError, match="devise"):
        open_tables(PAGES, segments=["devise"])
    with pytest.raises(DataError, match="cannot take a log from int"):
        open_tables(7)
