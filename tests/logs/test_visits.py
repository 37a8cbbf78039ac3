"""Visits and splits by time against plain Python, on both engines."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import unskew
from unskew.errors import ConfigError, DataError
from unskew.logs.ingest.visits import add_visits, find_visits
from unskew.logs.split import find_boundaries, split_by_time
from unskew.tables.engine.engine import Engine, connect
from unskew.terminal.main import app

START = datetime(2024, 3, 30, 23, 0, tzinfo=UTC)
MICRO = pa.timestamp("us", "UTC")


def name_visits(events: Any, by: tuple[str, ...] = ("user_id",), gap: int = 1800) -> Any:
    """The events with visit_id."""
    return add_visits(events, find_visits(events, by=by, gap=gap))


def make_pages(pages: int = 200, people: int = 12, seed: int = 0) -> list[dict[str, Any]]:
    """Impressions of pages at random times, in any order; several pages begin in the same second."""
    rng = np.random.default_rng(seed)
    rows = []
    for page in range(pages):
        person = int(rng.integers(people))
        at = START + timedelta(seconds=int(rng.integers(0, 90_000)) // 300 * 300)
        for position in range(1, int(rng.integers(1, 4)) + 1):
            rows.append(
                {
                    "page_id": f"p{page:03d}",
                    "query_id": int(rng.integers(5)),
                    "doc_id": position,
                    "position": position,
                    "click": int(rng.integers(2)),
                    "timestamp": at + timedelta(microseconds=position),
                    "user_id": None if person == 0 else f"u{person}",
                }
            )
    order = rng.permutation(len(rows))
    return [rows[index] for index in order]


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    table = pa.Table.from_pylist(rows)
    at = table.schema.get_field_index("timestamp")
    return table.set_column(at, "timestamp", table["timestamp"].cast(MICRO))


def visits_of(rows: list[dict[str, Any]], gap: int) -> dict[str, str]:
    """The visit of each page, one person after another."""
    starts: dict[str, datetime] = {}
    person: dict[str, str | None] = {}
    for row in rows:
        starts[row["page_id"]] = min(starts.get(row["page_id"], row["timestamp"]), row["timestamp"])
        person[row["page_id"]] = row["user_id"]
    found, last, number = {}, {}, {}
    for page in sorted(starts, key=lambda page: (starts[page], page)):
        who = person[page]
        if who is None:
            found[page] = f"//{page}"
            continue
        if who not in last or starts[page] - last[who] > timedelta(seconds=gap):
            number[who] = number.get(who, 0) + 1
        last[who] = starts[page]
        found[page] = f"{who}/{number[who]}"
    return found


@pytest.mark.parametrize("gap", [300, 1800, 86_400])
def test_visits_end_with_a_pause(engine: Engine, gap: int) -> None:
    rows = make_pages()
    table = name_visits(engine.from_arrow(as_table(rows)), gap=gap)
    found = engine.to_arrow(table)
    assert set(found.column_names) == {*rows[0], "visit_id"}
    assert len(found) == len(rows)
    expected = visits_of(rows, gap)
    pairs = zip(found["page_id"].to_pylist(), found["visit_id"].to_pylist(), strict=True)
    assert dict(pairs) == expected
    assert len(set(expected.values())) < len(expected)


def test_people_named_by_several_columns_do_not_meet(engine: Engine) -> None:
    rows = [
        {"page_id": page, "timestamp": START, "site": site, "user_id": user}
        for page, (site, user) in enumerate([("a/", "b"), ("a", "/b"), ("a/", "b")])
    ]
    found = engine.to_arrow(name_visits(engine.from_arrow(as_table(rows)), by=("site", "user_id"))).to_pylist()
    visit = {row["page_id"]: row["visit_id"] for row in found}
    assert visit[0] == visit[2] != visit[1]


def test_pages_of_one_moment_are_one_visit_that_one_page_opens(engine: Engine) -> None:
    """Five pages at noon and four after a pause: whichever comes first, all four are in the second visit."""
    moments = [0] * 5 + [3600] * 4
    rows = [
        {"page_id": f"p{page}", "timestamp": START + timedelta(seconds=at), "user_id": "u"}
        for page, at in enumerate(moments)
    ]
    nobody = [{"page_id": f"n{page}", "timestamp": START, "user_id": None} for page in range(3)]
    found = find_visits(engine.from_arrow(as_table(rows + nobody)), by=["user_id"], gap=1800)
    pages = {row["page_id"]: row for row in engine.to_arrow(found).to_pylist()}
    assert {page: row["visit_id"] for page, row in pages.items()} == {
        **{f"p{page}": "u/1" if page < 5 else "u/2" for page in range(9)},
        **{f"n{page}": f"//n{page}" for page in range(3)},
    }
    assert all(pages[f"p{page}"]["began"] == START + timedelta(seconds=at) for page, at in enumerate(moments))
    opening = sorted(row["visit_id"] for row in pages.values() if row["opens"])
    assert opening == ["//n0", "//n1", "//n2", "u/1", "u/2"]


def expected_parts(rows: list[dict[str, Any]], unit: str, validation: float, test: float) -> dict[str, set[str]]:
    """Pages of each part, from the sorted seconds in which units begin."""
    begun: dict[str, datetime] = {}
    for row in rows:
        begun[row[unit]] = min(begun.get(row[unit], row["timestamp"]), row["timestamp"])
    ordered = sorted(at.replace(microsecond=0) for at in begun.values())
    edges = [
        ordered[rank] if rank < len(ordered) else ordered[-1] + timedelta(seconds=1)
        for rank in (round((1 - validation - test) * len(ordered)), round((1 - test) * len(ordered)))
    ]
    parts: dict[str, set[str]] = {"train": set(), "validation": set(), "test": set()}
    for row in rows:
        at = begun[row[unit]].replace(microsecond=0)
        name = "train" if at < edges[0] else "validation" if at < edges[1] else "test"
        parts[name].add(row["page_id"])
    return parts


@pytest.mark.parametrize("unit", ["visit_id", "page_id"])
@pytest.mark.parametrize(("validation", "test"), [(0.1, 0.1), (0.0, 0.25), (0.3, 0.0)])
def test_split_by_time(engine: Engine, unit: str, validation: float, test: float) -> None:
    rows = make_pages()
    visits = visits_of(rows, 1800)
    if unit == "visit_id":
        rows = [row | {"visit_id": visits[row["page_id"]]} for row in rows]
    split = split_by_time(engine, engine.from_arrow(as_table(rows)), validation=validation, test=test)
    found = {name: engine.to_arrow(part) for name, part in split.parts.items()}
    pages = {name: set(part["page_id"].to_pylist()) for name, part in found.items()}
    assert pages == expected_parts(rows, unit, validation, test)
    assert sum(len(part) for part in found.values()) == len(rows)
    units = {name: {row[unit] for row in rows if row["page_id"] in part} for name, part in pages.items()}
    assert sum(map(len, units.values())) == len(set().union(*units.values())), "a unit is in two parts"
    assert split.units == {name: len(part) for name, part in units.items()}
    assert split.unit == unit
    assert units["train"]


def test_boundaries_are_those_of_a_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through days of fifty seconds, for every rank, also where most units begin in one second."""
    monkeypatch.setattr("unskew.logs.split.DAY", 50)
    rng = np.random.default_rng(0)
    seconds_begun = np.concatenate([rng.integers(0, 500, 12), np.full(9, 77)])
    ordered = sorted(seconds_begun.tolist())
    with connect(threads=1) as engine:
        units = engine.from_arrow(pa.table({"second": seconds_begun}))
        ranks = {str(rank): rank for rank in range(len(ordered) + 2)}
        edges, before = find_boundaries(engine, units, ranks, len(ordered))
    for name, rank in ranks.items():
        expected = ordered[rank] if rank < len(ordered) else ordered[-1] + 1
        assert edges[name] == expected
        assert before[name] == sum(second < expected for second in ordered)


def test_what_begins_in_one_second_stays_together(engine: Engine) -> None:
    rows = [
        {"page_id": page, "timestamp": START + timedelta(seconds=int(page >= 2), microseconds=900_000 - page)}
        for page in range(10)
    ]
    split = split_by_time(engine, engine.from_arrow(as_table(rows)), validation=0.2, test=0.2)
    assert split.units == {"train": 2, "validation": 0, "test": 8}
    assert split.boundaries == {"validation": "2024-03-30T23:00:01Z", "test": "2024-03-30T23:00:01Z"}


def test_split_refuses(engine: Engine) -> None:
    rows = make_pages(5)
    table = engine.from_arrow(as_table(rows))
    with pytest.raises(ConfigError, match="less than 1 together"):
        split_by_time(engine, table, validation=0.5, test=0.5)
    with pytest.raises(DataError, match="missing columns: timestamp"):
        split_by_time(engine, table.drop("timestamp"))
    torn = [row | {"visit_id": f"v{row['position']}"} for row in rows]
    with pytest.raises(DataError, match="is in two visits"):
        split_by_time(engine, engine.from_arrow(as_table(torn)))
    late = [row | {"timestamp": None if row["page_id"] == "p001" else row["timestamp"]} for row in rows]
    with pytest.raises(DataError, match="1 pages have no timestamp"):
        split_by_time(engine, engine.from_arrow(as_table(late)))


def test_command(tmp_path: Path) -> None:
    rows = make_pages()
    pq.write_table(as_table(rows), tmp_path / "log.parquet")
    summary = unskew.split(tmp_path / "log.parquet", tmp_path / "out", threads=1)
    visits = visits_of(rows, 1800)
    expected = expected_parts([row | {"visit_id": visits[row["page_id"]]} for row in rows], "visit_id", 0.1, 0.1)
    for name, pages in expected.items():
        part = pq.read_table(tmp_path / "out" / name)
        assert set(part["page_id"].to_pylist()) == pages
        assert {visits[page] for page in pages} == set(part["visit_id"].to_pylist())
    told = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert set(told.pop("files")) == {f"{name}/data_0.parquet" for name in expected}
    assert told.pop("sealed")
    assert told == {**summary.to_dict(), "names": {}}
    assert summary.split_by == "visit_id"


def test_command_without_people_splits_by_page_and_says_what_is_missing(tmp_path: Path) -> None:
    table = as_table(make_pages()).drop(["user_id"])
    pq.write_table(table, tmp_path / "log.parquet")
    summary = unskew.split(tmp_path / "log.parquet", tmp_path / "out", threads=1)
    assert summary.split_by == "page_id"
    assert "visit_id" not in pq.read_table(tmp_path / "out" / "train").column_names
    with pytest.raises(DataError, match="missing columns: cookie"):
        unskew.split(tmp_path / "log.parquet", tmp_path / "other", by=["cookie"], threads=1)
    pq.write_table(table.drop(["page_id"]), tmp_path / "log.parquet")
    with pytest.raises(DataError, match="missing columns: page_id"):
        unskew.split(tmp_path / "log.parquet", tmp_path / "other", threads=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.parquet", "out"]


def test_the_command_says_that_nothing_is_left_to_learn_from(tmp_path: Path) -> None:
    row = {"query_id": 1, "doc_id": 1, "position": 1, "click": 0, "timestamp": "2024-01-01T00:00:00Z"}
    pq.write_table(pa.Table.from_pylist([row | {"page_id": page} for page in range(5)]), tmp_path / "log.parquet")
    done = CliRunner().invoke(app, ["split", str(tmp_path / "log.parquet"), "--out", str(tmp_path / "parts")])
    assert (done.exit_code, "train has no pages: too few" in done.stderr) == (0, True)


def test_a_pause_as_long_as_the_gap_ends_no_visit() -> None:
    rows = [
        {"page_id": page, "timestamp": START + timedelta(seconds=at), "user_id": "u"}
        for page, at in enumerate((0, 1800, 3601))
    ]
    with connect(threads=1) as engine:
        found = engine.to_arrow(find_visits(engine.from_arrow(as_table(rows)), by=["user_id"], gap=1800))
    visits = dict(zip(found["page_id"].to_pylist(), found["visit_id"].to_pylist(), strict=True))
    assert visits == {0: "u/1", 1: "u/1", 2: "u/2"}


@pytest.mark.parametrize("known", [False, True])
def test_a_visit_goes_whole_where_it_began(known: bool) -> None:
    """A person whose second page comes after the boundary, among ten who come once."""
    seen = [("u", 0), ("u", 1700), *((f"v{number}", 100 * number) for number in range(1, 11))]
    rows = [
        {"page_id": page, "timestamp": START + timedelta(seconds=at), "user_id": user}
        | ({"visit_id": user} if known else {})
        for page, (user, at) in enumerate(seen)
    ]
    with connect(threads=1) as engine:
        table = engine.from_arrow(as_table(rows))
        pages = None if known else find_visits(table, by=["user_id"], gap=1800)
        split = split_by_time(engine, table, validation=0.0, test=0.5, pages=pages)
        parts = {name: set(engine.to_arrow(part)["user_id"].to_pylist()) for name, part in split.parts.items()}
    assert "u" in parts["train"]
    assert "u" not in parts["test"]
    assert len(parts["test"]) == 5
