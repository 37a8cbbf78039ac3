"""The rules, each on a log with one page that breaks it among pages that do not."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.errors import spelled
from unskew.logs.ingest.ingest import ingest_files
from unskew.logs.ingest.rejected import CAUSES, TooMuchAside, over_limits
from unskew.logs.ingest.rules import PageFacts
from unskew.logs.ingest.summary import IngestedLog
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.reading.options import RULES, IngestOptions

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
    "gaps_in_positions": (page("x", (1, 2, 5)), 3),
    "everything_clicked": (page("x", clicks=(1, 1, 1)), 3),
    "robots": (busy(pages=3, clicks=31), 120),
}
"""Rows that break a rule and no other, and how many of them go."""


def run(engine: Engine, tmp_path: Path, rows: Rows, **rules: Any) -> tuple[IngestedLog, pa.Table, pa.Table]:
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    options = IngestOptions.model_validate({"rules": rules, "max_removed": 1})
    made = ingest_files(tmp_path / "log.parquet", tmp_path / "out", engine, options, force=True)
    out = tmp_path / "out"
    return made, pq.read_table(out / "impressions"), pq.read_table(out / "rejected.parquet")


def test_good_pages_break_no_rule(engine: Engine, tmp_path: Path) -> None:
    made, rows, gone = run(engine, tmp_path, GOOD)
    assert (len(rows), len(gone)) == (len(GOOD), 0)
    assert {name: rule.rows for name, rule in made.rules.items() if rule.asked} == {
        name: 0 for name in RULES if not name.startswith("clicks_")
    }


@pytest.mark.parametrize("name", CASES)
def test_a_rule_removes_what_breaks_it_and_nothing_else(engine: Engine, tmp_path: Path, name: str) -> None:
    bad, count = CASES[name]
    made, rows, gone = run(engine, tmp_path, [*GOOD, *bad])
    assert len(rows) == len(GOOD) + len(bad) - count
    assert gone["reason"].to_pylist() == [name] * count
    assert {str(tmp_path / "log.parquet")} == set(gone["file"].to_pylist())
    assert made.rules[name].rows == count
    assert sum(rule.rows or 0 for rule in made.rules.values()) == count
    assert made.impressions == len(rows)
    assert made.rejected.rows == 0  # rules do not count as broken


@pytest.mark.parametrize("name", CASES)
def test_a_rule_that_is_off_counts_but_keeps(engine: Engine, tmp_path: Path, name: str) -> None:
    bad, count = CASES[name]
    made, rows, gone = run(engine, tmp_path, [*GOOD, *bad], off=[name])
    assert (len(rows), len(gone)) == (len(GOOD) + len(bad), 0)
    assert made.rules[name].rows == count
    assert made.rules[name].on is False


def test_of_duplicates_the_clicked_one_stays(engine: Engine, tmp_path: Path) -> None:
    _, rows, _ = run(engine, tmp_path, TWICE[::-1])
    assert sorted(zip(rows["doc_id"].to_pylist(), rows["click"].to_pylist(), strict=True)) == [
        ("d1", 1),
        ("d2", 0),
        ("d3", 0),
    ]


def test_robots_are_counted_by_the_minute(engine: Engine, tmp_path: Path) -> None:
    for rows, robots in ((busy(25, 0), 1000), (busy(25, 0, minutes=5), 0), (busy(20, 30), 0)):
        assert run(engine, tmp_path, [*GOOD, *rows])[0].rules["robots"].rows == robots
    limits = {"clicks_per_minute": 5, "queries_per_minute": 100}
    assert run(engine, tmp_path, [*GOOD, *busy(3, 6)], robots=limits)[0].rules["robots"].rows == 120


def test_people_without_a_name_are_not_one_person(engine: Engine, tmp_path: Path) -> None:
    nobody = [{**row, "user_id": None} for row in busy(30, 31)]
    assert run(engine, tmp_path, [*GOOD, *nobody])[0].rules["robots"].rows == 0


def test_robots_cannot_be_asked_for_without_times(engine: Engine, tmp_path: Path) -> None:
    rows = [{key: value for key, value in row.items() if key != "timestamp"} for row in GOOD]
    assert run(engine, tmp_path, rows)[0].rules["robots"].asked is False


def test_the_first_rule_that_fits_is_the_reason(engine: Engine, tmp_path: Path) -> None:
    both = page("x", (1, 2, 5), (1, 1, 1))
    made, _, gone = run(engine, tmp_path, [*GOOD, *both])
    assert set(gone["reason"].to_pylist()) == {"gaps_in_positions"}
    assert made.rules["everything_clicked"].rows == 3
    _, _, gone = run(engine, tmp_path, [*GOOD, *both], off=["gaps_in_positions"])
    assert set(gone["reason"].to_pylist()) == {"everything_clicked"}


def test_duplicates_among_deep_positions_are_found(engine: Engine, tmp_path: Path) -> None:
    deep = page("x", range(1, 50), [0] * 49)
    made, rows, _ = run(engine, tmp_path, [*GOOD, *deep, deep[-1], {**deep[-2], "doc_id": "other"}])
    assert made.rules["duplicate_events"].rows == 1
    assert made.rules["two_documents_at_one_position"].rows == 50
    assert len(rows) == len(GOOD)


def test_a_limit_is_what_a_person_may_do(engine: Engine, tmp_path: Path) -> None:
    """As many as the limit stay, one more goes; clicks and queries have limits of their own."""
    for limits, stay, go in (
        ({"clicks_per_minute": 5, "queries_per_minute": 100}, busy(3, 5), busy(3, 6)),
        ({"clicks_per_minute": 100, "queries_per_minute": 5}, busy(5, 6), busy(6, 0)),
        ({"clicks_per_minute": 100, "queries_per_minute": 5}, busy(10, 0, minutes=2), busy(12, 0, minutes=2)),
    ):
        assert run(engine, tmp_path, [*GOOD, *stay], robots=limits)[0].rules["robots"].rows == 0
        assert run(engine, tmp_path, [*GOOD, *go], robots=limits)[0].rules["robots"].rows == len(go)


def test_robots_are_counted_by_visit_where_there_are_visits(engine: Engine, tmp_path: Path) -> None:
    """People behind one name, such as a proxy, are told apart by their visits; a robot's other visits stay."""
    apart = [{**row, "visit_id": row["page_id"]} for row in [*GOOD, *busy(30, 0)]]
    assert run(engine, tmp_path, apart)[0].rules["robots"].rows == 0
    later = [{**row, "page_id": f"later{row['page_id']}", "visit_id": "late"} for row in busy(1, 0)]
    one = [{**row, "visit_id": "busy"} for row in busy(30, 0)]
    calm = [{**row, "visit_id": row["page_id"]} for row in GOOD]
    assert run(engine, tmp_path, [*calm, *one, *later])[0].rules["robots"].rows == 30 * 40


def test_a_position_that_is_there_twice_fills_no_gap(engine: Engine, tmp_path: Path) -> None:
    gap = [*page("x", (1, 2, 5)), {**page("x", (2,), (0,))[0], "doc_id": "other"}]
    made, rows, gone = run(engine, tmp_path, [*GOOD, *gap], off=["two_documents_at_one_position"])
    assert set(gone["reason"].to_pylist()) == {"gaps_in_positions"}
    assert made.rules["gaps_in_positions"].rows == 4
    assert len(rows) == len(GOOD)


@pytest.mark.parametrize(("zero", "one", "base"), [(3, 3, 0), (2, 3, 1), (3, 2, 0), (0, 0, 1), (0, 5, 1)])
def test_positions_count_from_what_most_pages_begin_with(zero: int, one: int, base: int) -> None:
    """As many pages that begin with 0 as with 1: from 0, for a page from 1 may have lost its first result."""
    assert PageFacts(None, 0, zero, one).base == base  # type: ignore[arg-type]


# ---- holes ----


def test_a_page_may_lack_one_result_and_a_tenth_of_its_places(engine: Engine, tmp_path: Path) -> None:
    ranks = [rank for rank in range(1, 41) if rank % 10 != 5]
    few, many = page("x", ranks, [0] * 36), page("y", [*ranks[:-2], 40], [0] * 35)
    made, _, gone = run(engine, tmp_path, [*GOOD, *few, *many, *page("z", (1, 3), (0, 0))])
    assert made.rules["gaps_in_positions"].rows == 35
    assert all("page_id=y" in detail for detail in gone["detail"].to_pylist())


def test_a_broken_row_takes_no_page_along(engine: Engine, tmp_path: Path) -> None:
    """Three of nine results broken, in each of twenty pages: they are put aside and their pages stay."""
    rows = [row for at in range(20) for row in page(f"p{at}", range(1, 10), [0] * 9)]
    broken = [{**row, "doc_id": None} if row["position"] in (3, 5, 6) else row for row in rows]
    pq.write_table(pa.Table.from_pylist(broken), tmp_path / "log.parquet")
    options = IngestOptions(max_rejected=0.5)
    made = ingest_files(tmp_path / "log.parquet", tmp_path / "out", engine, options)
    assert (made.pages, made.impressions) == (20, 120)
    assert made.rejected.reasons == {"missing_doc_id": 60}
    assert made.rules["gaps_in_positions"].rows == 0


def test_holes_in_most_pages_are_a_trait_of_the_log(engine: Engine, tmp_path: Path) -> None:
    ads = [row for at in range(30) for row in page(f"p{at}", (1, 2, 4, 5, 7, 8, 10), [0] * 7)]
    made, rows, _ = run(engine, tmp_path, [*ads, *page("g")])
    assert len(rows) == len(ads) + 3
    assert made.rules["gaps_in_positions"].on is False
    assert made.notes == [
        "97% of the pages have holes between their positions: taken for places of something else, and kept"
    ]


# ---- limits ----


def limited(engine: Engine, tmp_path: Path, rows: Rows, **options: Any) -> str | None:
    """What is said where rules remove too much."""
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    try:
        ingest_files(tmp_path / "log.parquet", tmp_path / "out", engine, IngestOptions(**options), force=True)
    except TooMuchAside as error:
        assert not (tmp_path / "out").exists()
        return str(error)
    finally:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
    return None


def sound(pages: int) -> Rows:
    return [row for at in range(pages) for row in page(f"s{at}", range(1, 11), [1] + [0] * 9)]


def bad(name: str, pages: int) -> Rows:
    """Pages of ten rows that break one rule."""
    made: Rows = []
    for at in range(pages):
        rows = page(f"b{at}", range(1, 11), [0] * 10)
        if name == "two_queries_on_one_page":
            rows[-1]["query_id"] = "p"
        elif name == "two_documents_at_one_position":
            rows[-1]["position"] = 9
        elif name == "gaps_in_positions":
            rows[-1]["position"] = 30
        elif name == "everything_clicked":
            rows = [{**row, "click": 1} for row in rows]
        elif name == "robots":
            rows = [{**row, "user_id": "robot"} for row in rows]
        elif name == "duplicate_events":
            rows = [*rows[:5], *rows[:5]]
        made += rows
    return made


PAGE_RULES = [name for name in RULES if not name.startswith("clicks_")]


@pytest.mark.parametrize("name", PAGE_RULES)
def test_a_rule_that_removes_too_much_stops_the_run(engine: Engine, tmp_path: Path, name: str) -> None:
    often = name in ("robots", "duplicate_events")
    rows = [*sound(50), *bad(name, 70 if often else 15)]
    if name == "duplicate_events":
        rows = [*sound(10), *bad(name, 10), *bad(name, 10), *bad(name, 10)]
    said = limited(engine, tmp_path, rows) or ""
    assert said.startswith("rules would remove")
    assert f" {name}: {RULES[name]}" in said
    assert "log.parquet:" in said
    assert spelled(CAUSES[name]) in said


def over(removed: dict[str, int], shown: int = 1000, clicked: int = 0, **options: Any) -> list[str]:
    return over_limits(Counter(removed), shown, clicked, IngestOptions(**options))


@pytest.mark.parametrize("name", PAGE_RULES)
def test_the_limit_of_a_rule(name: str) -> None:
    most = 500 if name in ("robots", "duplicate_events") else 200
    assert over({name: most}) == []
    assert over({name: most + 1}) == [name]
    assert over({name: most + 1}, max_removed=0.9) == []
    assert over({name: most + 1}, rules={"limits": {name: 0.9}}) == []
    assert over({name: most + 1}, rules={"off": [name]}) == []
    assert over({name: 11}, rules={"limits": {name: 0.01}}) == [name]
    assert over({name: 50}, shown=99) == []  # a handful of rows is not judged by shares


def test_rules_have_a_limit_together_which_robots_do_not_use_up() -> None:
    three = dict.fromkeys(PAGE_RULES[1:4], 70)
    assert over(three) == PAGE_RULES[1:4]
    assert over(dict.fromkeys(PAGE_RULES[1:3], 70) | {"robots": 400, "duplicate_events": 400}) == []


def test_click_events_have_a_share_of_their_own(engine: Engine, tmp_path: Path) -> None:
    """Half of the clicks fit no page: few of all rows, and still the end."""
    rows = [{key: row[key] for key in ("page_id", "query_id", "doc_id", "position")} for row in sound(50)]
    clicks = [{"page_id": f"s{at if at % 2 else -1}", "doc_id": f"d{at % 7 + 1}"} for at in range(20)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    pq.write_table(pa.Table.from_pylist(clicks), tmp_path / "clicks.parquet")
    with pytest.raises(TooMuchAside, match="clicks_without_impression"):
        ingest_files(tmp_path / "log.parquet", tmp_path / "out", engine, clicks=[tmp_path / "clicks.parquet"])
