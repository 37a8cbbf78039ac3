"""The rules, each on a log with one page that breaks it among pages that do not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.clicks.engine.engine import Engine, connect
from unskew.clicks.ingest.clean import PageFacts
from unskew.clicks.ingest.ingest import ingest
from unskew.clicks.ingest.options import RULES, IngestOptions

NOON = datetime(2024, 1, 1, 12)
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with connect("duckdb", threads=1) as opened:
        yield opened


def page(name: str, positions: Any = (1, 2, 3), clicks: Any = (1, 0, 0), **further: Any) -> Rows:
    """A page whose document at position k is dk."""
    fixed = {"page_id": name, "query_id": "q", "timestamp": NOON, "user_id": name} | further
    cells = zip(positions, clicks, strict=True)
    return [{**fixed, "doc_id": f"d{at}", "position": at, "click": click} for at, click in cells]


GOOD = [*page("g1"), *page("g2", range(1, 60), [0] * 59), *page("g3", (11, 12, 13)), *page("g4", (1, 2), (1, 1))]
"""Among them a page of 59 results, one that begins at 11, and one of two results that were both clicked."""


def busy(pages: int, clicks: int, minutes: int = 1) -> Rows:
    """Somebody's pages, spread over so many minutes, with so many clicks on the first."""
    rows: Rows = []
    for at in range(pages):
        when = NOON + timedelta(seconds=60 * minutes * at / pages)
        clicked = [int(at == 0 and k < clicks) for k in range(40)]
        rows += page(f"busy{at}", range(1, 41), clicked, user_id="busy", timestamp=when)
    return rows


TWICE = [*page("x"), {**page("x")[0], "click": 0}]
TWO_DOCUMENTS = [*page("x"), {**page("x")[0], "doc_id": "other"}]
TWO_QUERIES = [*page("x"), {**page("x", (4,), (0,))[0], "query_id": "p"}]
CASES: dict[str, tuple[Rows, int]] = {
    "duplicate_events": (TWICE, 1),
    "two_documents_at_one_position": (TWO_DOCUMENTS, 4),
    "two_queries_on_one_page": (TWO_QUERIES, 4),
    "gaps_in_positions": (page("x", (1, 2, 4)), 3),
    "everything_clicked": (page("x", clicks=(1, 1, 1)), 3),
    "robots": (busy(pages=3, clicks=31), 120),
}
"""Rows that break a rule and no other, and how many of them go."""


def run(engine: Engine, tmp_path: Path, rows: Rows, **rules: Any) -> tuple[dict[str, Any], pa.Table, pa.Table]:
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    options = IngestOptions.model_validate({"rules": rules})
    made = ingest(tmp_path / "log.parquet", tmp_path / "out", engine, options, force=True)
    out = tmp_path / "out"
    return made, pq.read_table(out / "impressions"), pq.read_table(out / "rejected.parquet")


def test_good_pages_break_no_rule(engine: Engine, tmp_path: Path) -> None:
    made, rows, gone = run(engine, tmp_path, GOOD)
    assert (len(rows), len(gone)) == (len(GOOD), 0)
    assert {name: rule.get("rows") for name, rule in made["rules"].items() if rule["asked"]} == {
        name: 0 for name in RULES if not name.startswith("clicks_")
    }


@pytest.mark.parametrize("name", CASES)
def test_a_rule_removes_what_breaks_it_and_nothing_else(engine: Engine, tmp_path: Path, name: str) -> None:
    bad, count = CASES[name]
    made, rows, gone = run(engine, tmp_path, [*GOOD, *bad])
    assert len(rows) == len(GOOD) + len(bad) - count
    assert gone["reason"].to_pylist() == [name] * count
    assert {str(tmp_path / "log.parquet")} == set(gone["file"].to_pylist())
    assert made["rules"][name]["rows"] == count
    assert sum(rule.get("rows", 0) for rule in made["rules"].values()) == count
    assert made["impressions"] == len(rows)
    assert made["rejected"]["rows"] == 0  # rules do not count as broken


@pytest.mark.parametrize("name", CASES)
def test_a_rule_that_is_off_counts_but_keeps(engine: Engine, tmp_path: Path, name: str) -> None:
    bad, count = CASES[name]
    made, rows, gone = run(engine, tmp_path, [*GOOD, *bad], off=[name])
    assert (len(rows), len(gone)) == (len(GOOD) + len(bad), 0)
    assert made["rules"][name]["rows"] == count
    assert made["rules"][name]["on"] is False


def test_of_duplicates_the_clicked_one_stays(engine: Engine, tmp_path: Path) -> None:
    _, rows, _ = run(engine, tmp_path, TWICE[::-1])
    assert sorted(zip(rows["doc_id"].to_pylist(), rows["click"].to_pylist(), strict=True)) == [
        ("d1", 1),
        ("d2", 0),
        ("d3", 0),
    ]


def test_robots_are_counted_by_the_minute(engine: Engine, tmp_path: Path) -> None:
    for rows, robots in ((busy(25, 0), 1000), (busy(25, 0, minutes=5), 0), (busy(20, 30), 0)):
        assert run(engine, tmp_path, [*GOOD, *rows])[0]["rules"]["robots"]["rows"] == robots
    limits = {"clicks_per_minute": 5, "queries_per_minute": 100}
    assert run(engine, tmp_path, [*GOOD, *busy(3, 6)], robots=limits)[0]["rules"]["robots"]["rows"] == 120


def test_people_without_a_name_are_not_one_person(engine: Engine, tmp_path: Path) -> None:
    nobody = [{**row, "user_id": None} for row in busy(30, 31)]
    assert run(engine, tmp_path, [*GOOD, *nobody])[0]["rules"]["robots"]["rows"] == 0


def test_robots_cannot_be_asked_for_without_times(engine: Engine, tmp_path: Path) -> None:
    rows = [{key: value for key, value in row.items() if key != "timestamp"} for row in GOOD]
    assert run(engine, tmp_path, rows)[0]["rules"]["robots"]["asked"] is False


def test_the_first_rule_that_fits_is_the_reason(engine: Engine, tmp_path: Path) -> None:
    both = page("x", (1, 2, 4), (1, 1, 1))
    made, _, gone = run(engine, tmp_path, [*GOOD, *both])
    assert set(gone["reason"].to_pylist()) == {"gaps_in_positions"}
    assert made["rules"]["everything_clicked"]["rows"] == 3
    _, _, gone = run(engine, tmp_path, [*GOOD, *both], off=["gaps_in_positions"])
    assert set(gone["reason"].to_pylist()) == {"everything_clicked"}


def test_duplicates_among_deep_positions_are_found(engine: Engine, tmp_path: Path) -> None:
    deep = page("x", range(1, 50), [0] * 49)
    made, rows, _ = run(engine, tmp_path, [*GOOD, *deep, deep[-1], {**deep[-2], "doc_id": "other"}])
    assert made["rules"]["duplicate_events"]["rows"] == 1
    assert made["rules"]["two_documents_at_one_position"]["rows"] == 50
    assert len(rows) == len(GOOD)


def test_a_limit_is_what_a_person_may_do(engine: Engine, tmp_path: Path) -> None:
    """As many as the limit stay, one more goes; clicks and queries have limits of their own."""
    for limits, stay, go in (
        ({"clicks_per_minute": 5, "queries_per_minute": 100}, busy(3, 5), busy(3, 6)),
        ({"clicks_per_minute": 100, "queries_per_minute": 5}, busy(5, 6), busy(6, 0)),
        ({"clicks_per_minute": 100, "queries_per_minute": 5}, busy(10, 0, minutes=2), busy(12, 0, minutes=2)),
    ):
        assert run(engine, tmp_path, [*GOOD, *stay], robots=limits)[0]["rules"]["robots"]["rows"] == 0
        assert run(engine, tmp_path, [*GOOD, *go], robots=limits)[0]["rules"]["robots"]["rows"] == len(go)


def test_robots_are_counted_by_visit_where_there_are_visits(engine: Engine, tmp_path: Path) -> None:
    """People behind one name, such as a proxy, are told apart by their visits; a robot's other visits stay."""
    apart = [{**row, "visit_id": row["page_id"]} for row in [*GOOD, *busy(30, 0)]]
    assert run(engine, tmp_path, apart)[0]["rules"]["robots"]["rows"] == 0
    later = [{**row, "page_id": f"later{row['page_id']}", "visit_id": "late"} for row in busy(1, 0)]
    one = [{**row, "visit_id": "busy"} for row in busy(30, 0)]
    calm = [{**row, "visit_id": row["page_id"]} for row in GOOD]
    assert run(engine, tmp_path, [*calm, *one, *later])[0]["rules"]["robots"]["rows"] == 30 * 40


def test_a_position_that_is_there_twice_fills_no_gap(engine: Engine, tmp_path: Path) -> None:
    gap = [*page("x", (1, 2, 4)), {**page("x", (2,), (0,))[0], "doc_id": "other"}]
    made, rows, gone = run(engine, tmp_path, [*GOOD, *gap], off=["two_documents_at_one_position"])
    assert set(gone["reason"].to_pylist()) == {"gaps_in_positions"}
    assert made["rules"]["gaps_in_positions"]["rows"] == 4
    assert len(rows) == len(GOOD)


@pytest.mark.parametrize(("zero", "one", "base"), [(3, 3, 0), (2, 3, 1), (3, 2, 0), (0, 0, 1), (0, 5, 1)])
def test_positions_count_from_what_most_pages_begin_with(zero: int, one: int, base: int) -> None:
    """As many pages that begin with 0 as with 1: from 0, for a page from 1 may have lost its first result."""
    assert PageFacts(None, 0, zero, one).base == base  # type: ignore[arg-type]
