"""Click tracking: any window equals a full recomputation, whatever came late, twice, broken or in pieces."""

from __future__ import annotations

import json
import math
import re
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from ibis import _
from typer.testing import CliRunner

from unskew.errors import ConfigError, DataError, LimitError, RunError
from unskew.tables.engine.engine import Engine
from unskew.terminal.main import app
from unskew.tracking.delivery import SUMS
from unskew.tracking.features import FEATURES, click_features, feature_vector
from unskew.tracking.store import KEPT_DAYS, TrackingStore, open_tracking, writing
from unskew.tracking.track import deliver, track
from unskew.tracking.windows import WINDOWS, Lookup, read_window, window_sums

START = 1_700_000_000 // 3600 + 1
"""An hour, since 1970."""
Row = dict[str, Any]
FIELDS = {
    "page_id": pa.string(),
    "query_id": pa.string(),
    "doc_id": pa.int64(),
    "position": pa.int32(),
    "click": pa.int8(),
    "timestamp": pa.timestamp("us", "UTC"),
    "display_time": pa.float64(),
    "dwell_time": pa.float64(),
    "randomized": pa.bool_(),
    "examination": pa.float64(),
}


def page(name: str, hour: float, clicks: Sequence[int], query: str = "q", **columns: Any) -> list[Row]:
    """A page at so many hours after the start, documents 10, 11, ... from the top; columns may be lists."""
    rows = []
    for index, click in enumerate(clicks):
        row = {"page_id": name, "query_id": query, "doc_id": 10 + index, "position": index + 1, "click": click}
        row["timestamp"] = datetime.fromtimestamp((START + hour) * 3600, UTC)
        rows.append(row | {key: v[index] if isinstance(v, list) else v for key, v in columns.items()})
    return rows


def table_of(rows: Sequence[Row]) -> pa.Table:
    return pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in FIELDS.items()})


def put(engine: Engine, store: TrackingStore, rows: Sequence[Row], **asked: Any) -> dict[str, Any]:
    given = {"end": None, "refresh": "none", "max_rejected": 1.0, "place": None} | asked
    return deliver(engine, store, engine.from_arrow(table_of(rows)), **given)


def fetched(engine: Engine, table: Any) -> dict[tuple[Any, ...], Row]:
    if table is None:
        return {}
    rows = engine.rows(table)
    return {(row["query_id"], row["doc_id"], row["position"]): {name: row[name] for name in SUMS} for row in rows}


def fetched_features(engine: Engine, store: Path) -> dict[tuple[Any, ...], list[float]]:
    rows = engine.rows(click_features(engine, open_tracking(store)))
    return {(row["query_id"], row["doc_id"]): [row[name] for name in FEATURES] for row in rows}


def recomputed(pages: dict[str, list[Row]], since: int, until: int) -> dict[tuple[Any, ...], Row]:
    """The same sums in plain Python, from whole pages; shares no code with the source."""
    sums: dict[tuple[Any, ...], Counter[str]] = {}
    for rows in pages.values():
        hour = min(row["timestamp"] for row in rows).timestamp() // 3600
        clicked = [row["position"] for row in rows if row["click"]]
        if not since <= hour < until:
            continue
        for row in rows:
            total = sums.setdefault((row["query_id"], row["doc_id"], row["position"]), Counter())
            add(total, row, clicked)
    return {key: {name: total[name] for name in SUMS} for key, total in sums.items()}


def add(total: Counter[str], row: Row, clicked: list[int]) -> None:
    c, k = row["click"], row["position"]
    total["displays"] += 1
    total["clicks"] += c
    total["first_clicks"] += c and k == min(clicked)
    total["last_clicks"] += c and k == max(clicked)
    total["only_clicks"] += c and len(clicked) == 1
    total["skips"] += not c and any(other > k for other in clicked)
    random = bool(row.get("randomized"))
    total["random_displays"] += random
    total["random_clicks"] += random and c
    shown, dwell, seen = row.get("display_time"), row.get("dwell_time"), row.get("examination")
    if shown is not None and math.isfinite(shown) and shown >= 0:
        total["timed"] += 1
        total["display_ms"] += math.floor(shown * 1000 + 0.5)
    if c and dwell is not None and math.isfinite(dwell) and dwell >= 0:
        total["dwelt"] += 1
        total["dwell_ms"] += math.floor(dwell * 1000 + 0.5)
        total["long_dwells"] += dwell >= 30
    if seen is not None:
        milli = math.floor(seen * 1000 + 0.5)
        total["estimated"] += 1
        total["examined"] += milli
        total["examined_squared"] += milli * milli
        total["examined_clicks"] += c * milli


MILLI = st.integers(0, 60_000).map(lambda n: n / 1000)
TIME = st.one_of(st.none(), st.just(-1.0), st.just(float("nan")), MILLI)


@st.composite
def logs(draw: st.DrawFn) -> tuple[dict[str, list[Row]], list[list[str]]]:
    """Pages of two months, and deliveries of them in any order, some of them twice."""
    pages = {}
    for number in range(draw(st.integers(1, 8))):
        clicks = draw(st.lists(st.integers(0, 1), min_size=1, max_size=4))
        size = len(clicks)
        columns = {
            name: draw(st.lists(values, min_size=size, max_size=size))
            for name, values in {
                "display_time": TIME,
                "dwell_time": TIME,
                "randomized": st.booleans(),
                "examination": st.one_of(st.none(), st.integers(0, 1000).map(lambda n: n / 1000)),
            }.items()
        }
        hour = draw(st.one_of(st.floats(0, 30), st.floats(0, 1400)))
        pages[f"p{number}"] = page(f"p{number}", hour, clicks, draw(st.sampled_from(["q", "r"])), **columns)
    names = list(pages)
    order = draw(st.lists(st.lists(st.sampled_from(names), min_size=1, max_size=5), max_size=4))
    return pages, [*order, draw(st.permutations(names))]


ONE_PAGE = page("p0", 5, [1, 0], display_time=[1.0, 2.0], dwell_time=[3.0, 4.0], examination=[0.5, 0.25])


@example(({"p0": ONE_PAGE}, [["p0"]]), 0, 1)
@given(logs(), st.integers(0, 700), st.integers(1, 700))
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_window_equals_a_full_recomputation(
    duckdb: Engine, tmp_path_factory: pytest.TempPathFactory, log: Any, back: int, length: int
) -> None:
    pages, deliveries = log
    with writing(tmp_path_factory.mktemp("track") / "store") as store:
        for names in deliveries:
            put(duckdb, store, [row for name in names for row in pages[name]])
        clock = store.manifest.clock
        assert clock == max(min(r["timestamp"] for r in rows).timestamp() // 3600 for rows in pages.values()) + 1
        for since, until in ((clock - 28 * 24, clock), (clock - min(back + length, 28 * 24), clock - back)):
            if since < until:
                assert fetched(duckdb, window_sums(duckdb, store, since, until)) == recomputed(pages, since, until)


def test_the_rules_and_their_counts(engine: Engine, tmp_path: Path) -> None:
    """Every kind of bad input, on both engines."""
    first = page("a", 700, [1, 0], display_time=[2.0, None], dwell_time=[31.0, None])
    strange = page("b", 700, [0, 1], display_time=[-3.0, float("nan")], dwell_time=[None, -2.0])
    back = page("c", 700.5, [0, 0])
    back[1]["timestamp"] = datetime.fromtimestamp((START + 699.9) * 3600, UTC)
    doubled = page("d", 700, [0, 1]) + page("d", 700, [1, 1])
    broken = [
        *page("e", 700, [0], timestamp=None),
        *page("f", 700, [0], doc_id=None),
        *page("g", 700, [2]),
        *page("h", 700, [0], position=0),
        *page("i", 700, [0, 0], query_id=["q", "r"]),
        *page("m", 699, [0, 1]),
        *page("m", 699.6, [0, 1]),
    ]
    rest = page("j", 0, [1]) + page("k", 10_000, [1])
    with writing(tmp_path / "store") as store:
        counts = put(engine, store, first + strange + back + doubled + broken + rest, end=START + 701)
        assert {name: number for name, number in counts.items() if number} == {
            "delivered": 12,
            "counted": 4,
            "no_time": 1,
            "no_id": 1,
            "bad_click": 1,
            "bad_position": 1,
            "two_queries": 1,
            "returns": 1,
            "future": 1,
            "too_old": 1,
            "display_time_missing": 8,
            "display_time_negative": 1,
            "dwell_time_negative": 1,
            "clock_back": 1,
            "rows": 10,
            "twice": 1,
        }
        again = put(engine, store, first + back + page("l", 650, [1]), end=START + 702)
        assert {name: number for name, number in again.items() if number} == {
            "delivered": 3,
            "counted": 1,
            "repeated": 2,
            "late": 1,
            "display_time_missing": 1,
            "rows": 1,
        }
        assert sum(each.pages for each in store.manifest.deliveries) == 5
        doubled = page("d", 700, [1, 1])  # a rank said twice counts once, clicked if one of them is
        whole = {"a": first, "b": strange, "c": back, "d": doubled, "l": page("l", 650, [1])}
        kept = fetched(engine, window_sums(engine, store, START, START + 702))
        assert kept == recomputed(whole, START, START + 702)
        hours = engine.rows(window_sums(engine, store, START + 699, START + 700).agg(n=_.displays.sum()))
        assert hours == [{"n": 2}], "the page whose clock went back counts in its earliest hour"


def test_ids_of_pages_that_come_back_are_refused_and_not_merged(tmp_path: Path) -> None:
    """Who takes the query for the page: day by day these are pages, in one file they would be one."""
    days = [[row for name in "abc" for row in page(name, 24 * day, [0, 1, 0])] for day in range(3)]
    pq.write_table(table_of([row for rows in days for row in rows]), tmp_path / "all.parquet")
    with pytest.raises(LimitError, match=r"3 of 3 pages are broken \(3 returns\)"):
        track(tmp_path / "all.parquet", tmp_path / "store")
    for number, rows in enumerate(days):
        pq.write_table(table_of(rows), tmp_path / f"{number}.parquet")
        assert track(tmp_path / f"{number}.parquet", tmp_path / "store").counted == 3


def test_a_page_in_two_deliveries_stays_as_it_first_came(engine: Engine, tmp_path: Path) -> None:
    """Its further ranks are left out and counted; a page of the same name in another hour is another page."""
    whole = page("a", 9.99, [1, 0, 1, 0])
    later = [row | {"timestamp": row["timestamp"] + timedelta(minutes=5)} for row in whole[2:]]
    with writing(tmp_path / "store") as store:
        put(engine, store, whole[:2] + page("b", 10.2, [0, 1]))
        told = [
            put(
                engine, store, later + page("b", 11.2, [1, 0])
            ),  # b begins with the first rank again: another page
            put(engine, store, page("a", 12.5, [1, 1])),  # hours later
            put(engine, store, whole + page("b", 10.2, [0])),  # all of a is more than was counted, of b less
        ]
        found = [tuple(each[name] for name in ("counted", "split", "repeated")) for each in told]
        assert found == [(1, 1, 0), (1, 0, 0), (0, 1, 1)]
        sums = fetched(engine, window_sums(engine, store, 0, 10**7))
    assert {key[2]: row["displays"] for key, row in sums.items()} == {1: 4, 2: 4}
    assert {key[2]: row["only_clicks"] for key, row in sums.items()} == {1: 2, 2: 1}


def test_both_engines_track_the_same_and_publish_sorted(engine: Engine, tmp_path: Path) -> None:
    rows = [
        row
        for n in range(60)
        for row in page(
            f"p{n}", 11.7 * n, [n % 2, int(n % 3 == 0), int(n % 5 == 0)], f"q{n % 7}", examination=n / 60
        )
    ]
    with writing(tmp_path / "store") as store:
        put(engine, store, rows[: len(rows) // 2], refresh="all")
        put(engine, store, rows[len(rows) // 3 :], refresh="all")
        pages = {row["page_id"]: [each for each in rows if each["page_id"] == row["page_id"]] for row in rows}
        for name, span in WINDOWS.items():
            published = store.manifest.windows[name]
            assert published.until - published.since == span.hours
            expected = recomputed(pages, published.since, published.until)
            assert fetched(engine, read_window(engine, store, name)) == expected
            written = pq.read_table(store.window(name))
            keys = [(key, "ascending") for key in ("query_id", "doc_id", "position")]
            assert written.equals(written.sort_by(keys))
    lookup = Lookup(tmp_path / "store")
    month = recomputed(pages, lookup.until["month"] - 28 * 24, lookup.until["month"])
    found = lookup("q3", 11)["month"]
    expected = [sums for (query, document, _), sums in month.items() if (query, document) == ("q3", 11)]
    assert found["displays"] == sum(sums["displays"] for sums in expected) > 0
    assert found["ranks"] == 2 * found["displays"]
    assert lookup.positions("q3", 11)[0]["examined"] == month["q3", 11, 2]["examined"]
    features = fetched_features(engine, tmp_path / "store")
    assert len(features) == 21
    for pair, values in features.items():
        assert values == pytest.approx(feature_vector(lookup(*pair)).tolist())
    by_hand = found["clicks"] / (found["examined"] / 1000 + 1)
    assert features["q3", 11][FEATURES.index("month_clicks_per_examined")] == pytest.approx(by_hand)
    assert features["q3", 11][FEATURES.index("month_log_displays")] == pytest.approx(
        math.log(found["displays"] + 1)
    )
    mean = found["examined"] / 1000 / (found["estimated"] + 1)
    assert features["q3", 11][FEATURES.index("month_examined_rate")] == pytest.approx(mean)
    assert not feature_vector(lookup("q3", 999)).any()
    assert lookup("q3", 999)["month"]["displays"] == 0
    assert lookup("nobody", 11)["day"]["displays"] == 0


def test_windows_are_written_when_they_are_due(duckdb: Engine, tmp_path: Path) -> None:
    until = {}
    for hour in (0, 1, 24, 25, 7 * 24, 7 * 24 + 1):
        with writing(tmp_path / "store") as store:
            put(duckdb, store, page(f"p{hour}", hour, [1]), refresh="due")
            until[hour] = {name: window.until - START for name, window in store.manifest.windows.items()}
    assert until[1] == {"day": 2, "week": 1, "month": 1}
    assert until[24] == {"day": 25, "week": 25, "month": 1}
    assert until[25] == {"day": 26, "week": 25, "month": 1}
    assert until[168] == {"day": 169, "week": 169, "month": 169}
    assert until[169]["month"] == 169
    left = sorted(path.name for path in (tmp_path / "store" / "windows").iterdir())
    named = [window.folder for window in open_tracking(tmp_path / "store").manifest.windows.values()]
    assert left == sorted([*named, "day-000005"]), "and what the last run replaced, for who still reads it"


def test_a_month_delivered_late(duckdb: Engine, tmp_path: Path) -> None:
    """A day first, then the month before it, of which the windows reach all but the first pages."""
    pages = {f"p{n}": page(f"p{n}", 12 * n, [n % 2, 1]) for n in range(58)}
    new, month = ([row for n in numbers for row in pages[f"p{n}"]] for numbers in ((56, 57), range(56)))
    with writing(tmp_path / "store") as store:
        put(duckdb, store, new, refresh="all")
        counts = put(duckdb, store, month, refresh="due")
        # the clock is at hour 57 * 12 + 1 = 685, so that hours 0 and 12 are before 685 - 672 = 13
        assert (counts["late"], counts["too_old"], counts["counted"]) == (54, 2, 54)
        clock = store.manifest.clock
        assert clock is not None
        assert fetched(duckdb, window_sums(duckdb, store, clock - 672, clock)) == recomputed(
            pages, clock - 672, clock
        )
        assert len(fetched(duckdb, read_window(duckdb, store, "month"))) == 2, "the month was not due"
        put(duckdb, store, [], refresh="all")
        assert fetched(duckdb, read_window(duckdb, store, "month")) == recomputed(pages, clock - 672, clock)


def test_what_no_window_reaches_is_removed(duckdb: Engine, tmp_path: Path) -> None:
    with writing(tmp_path / "store") as store:
        put(duckdb, store, page("a", 0, [1]) + page("b", 30, [1]))
        put(duckdb, store, page("c", 28 * 24 + 20, [1]))
        assert [len(each.days) for each in store.manifest.deliveries] == [2, 1], "few days have pages"
        for days in (range(100, 120), range(120, 100 + KEPT_DAYS)):
            put(duckdb, store, [row for day in days for row in page(f"d{day}", 24 * day, [1])])
        assert [len(each.days) for each in store.manifest.deliveries] == [20, KEPT_DAYS - 20]
    with writing(tmp_path / "store") as store:
        left = sorted(path.name for path in (store.path / "partials").iterdir())
        assert left == [each.name for each in store.manifest.deliveries]


def test_the_command(tmp_path: Path) -> None:
    log, out = tmp_path / "log.parquet", tmp_path / "store"
    pq.write_table(table_of(page("a", 0, [1, 0]) + page("b", 1, [0, 1])), log)
    ended = CliRunner().invoke(app, ["track", str(log), "--out", str(out), "--json", "--refresh", "all"])
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert (told["delivered"], told["counted"], set(told["windows"])) == (2, 2, {"day", "week", "month"})
    assert track(log, out).left_out["repeated"] == 2
    assert open_tracking(out).manifest.clock == START + 2
    ended = CliRunner().invoke(app, ["track", str(log), "--out", str(out), "--until", "2001-01-01T00:00:00Z"])
    assert isinstance(ended.exception, ConfigError)
    assert "the store has counted up to 2023-11-15T01:00:00Z already" in str(ended.exception)


def test_errors_say_what_and_where(duckdb: Engine, tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    with pytest.raises(DataError, match=r"log\.parquet: there is no such log"):
        track(log, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    pq.write_table(table_of(page("a", 0, [1])).drop_columns(["timestamp"]), log)
    with pytest.raises(DataError, match="missing columns: timestamp"):
        track(log, tmp_path / "store")
    pq.write_table(table_of(page("a", 0, [3]) + page("b", 0, [1])), log)
    with pytest.raises(DataError, match=r"1 of 2 pages are broken \(1 bad_click\); .* raise max_rejected="):
        track(log, tmp_path / "store")
    assert track(log, tmp_path / "store", max_rejected=0.5).counted == 1
    other = table_of(page("z", 5, [1]))
    pq.write_table(other.set_column(2, "doc_id", other["doc_id"].cast(pa.string())), log)
    with pytest.raises(DataError, match="doc_id is of type string, and the store's is int64"):
        track(log, tmp_path / "store")
    with pytest.raises(ConfigError, match="write it like 2024"):
        track(log, tmp_path / "store", until="yesterday")
    with pytest.raises(ConfigError, match="refresh"):
        track(log, tmp_path / "store", refresh="al")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(RunError, match="not a tracking store"):
        track(log, tmp_path / "mine")
    with pytest.raises(RunError, match="no tracking store"):
        Lookup(tmp_path / "mine")
    (tmp_path / "store" / "store.json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        Lookup(tmp_path / "store")


def test_an_empty_delivery_changes_nothing(duckdb: Engine, tmp_path: Path) -> None:
    with writing(tmp_path / "store") as store:
        assert put(duckdb, store, [], refresh="all")["delivered"] == 0
        assert store.manifest.clock is None
        put(duckdb, store, page("a", 3, [1]), refresh="all")
        before = store.manifest.windows
        assert put(duckdb, store, [], refresh="due")["delivered"] == 0
        assert store.manifest.windows == before


def test_thousandths_are_rounded_half_up(duckdb: Engine, tmp_path: Path) -> None:
    with writing(tmp_path / "store") as store:
        put(duckdb, store, page("a", 0, [1, 0], display_time=[0.0016, 0.0014], examination=[0.1236, 0.9994]))
        found = fetched(duckdb, window_sums(duckdb, store, START, START + 1))
    assert [found["q", doc, rank]["display_ms"] for doc, rank in ((10, 1), (11, 2))] == [2, 1]
    assert [found["q", doc, rank]["examined"] for doc, rank in ((10, 1), (11, 2))] == [124, 999]


def test_a_page_of_the_oldest_hour_counts_and_one_before_does_not(duckdb: Engine, tmp_path: Path) -> None:
    with writing(tmp_path / "store") as store:
        rows = page("new", 28 * 24, [1]) + page("oldest", 1, [1]) + page("older", 0.9, [1])
        counts = put(duckdb, store, rows, end=START + 28 * 24 + 1)
        assert (counts["counted"], counts["too_old"]) == (2, 1)
        clock = store.manifest.clock
        assert clock is not None
        found = fetched(duckdb, window_sums(duckdb, store, clock - 28 * 24, clock))
    assert found["q", 10, 1]["displays"] == 2


def test_pages_from_until_on_wait_for_the_next_delivery(duckdb: Engine, tmp_path: Path) -> None:
    rows = page("before", 4.9, [1]) + page("at", 5, [1])
    with writing(tmp_path / "store") as store:
        counts = put(duckdb, store, rows, end=START + 5)
        assert (counts["counted"], counts["future"]) == (1, 1)
        assert store.manifest.clock == START + 5
        again = put(duckdb, store, rows, end=START + 6)
        assert (again["counted"], again["repeated"]) == (1, 1)


def test_a_window_ends_before_its_last_hour(duckdb: Engine, tmp_path: Path) -> None:
    with writing(tmp_path / "store") as store:
        put(duckdb, store, page("a", 0.5, [1]) + page("b", 1.5, [0]) + page("c", 2.5, [0]))
        for since, until, displays, clicks in ((0, 1, 1, 1), (1, 2, 1, 0), (0, 2, 2, 1), (1, 3, 2, 0)):
            found = fetched(duckdb, window_sums(duckdb, store, START + since, START + until))["q", 10, 1]
            assert (found["displays"], found["clicks"]) == (displays, clicks)


def busy_days(*days: int) -> dict[str, list[Row]]:
    """Pages of some days, ten a day."""
    return {f"{day}-{n}": page(f"{day}-{n}", 24 * day + n, [n % 2, 1]) for day in days for n in range(10)}


def test_a_page_of_a_wrong_clock_is_set_aside(duckdb: Engine, tmp_path: Path) -> None:
    """It moves neither clock nor windows; the next day counts as ever; --until takes it at its word."""
    old, strange = busy_days(*range(12)), page("today", 24 * 300, [1])
    with writing(tmp_path / "store") as store:
        counts = put(duckdb, store, [row for rows in old.values() for row in rows] + strange, refresh="all")
        assert (counts["counted"], counts["far_ahead"]) == (120, 1)
        assert store.manifest.clock == START + 24 * 11 + 10
        assert fetched(duckdb, read_window(duckdb, store)) == recomputed(old, START, START + 24 * 12)
        # a small delivery, one of whose clocks is wrong: what was counted before says so
        next_day = busy_days(12)
        counts = put(duckdb, store, [row for rows in next_day.values() for row in rows] + strange)
        assert (counts["counted"], counts["far_ahead"], counts["too_old"]) == (10, 1, 0)
        # six days without pages are no wrong clock, nor are months after which all pages come
        assert put(duckdb, store, [*page("18", 24 * 18, [1]), *page("z", 24 * 12 + 9.5, [1])])["counted"] == 2
        assert put(duckdb, store, strange, end=START + 24 * 300 + 1)["counted"] == 1
        assert store.manifest.clock == START + 24 * 300 + 1
    with writing(tmp_path / "other") as store:
        counts = put(
            duckdb, store, [row for rows in old.values() for row in rows] + strange, end=START + 24 * 300 + 1
        )
        assert (counts["counted"], counts["far_ahead"], counts["too_old"]) == (1, 0, 120)


def test_wrong_clocks_are_told_by_the_command(tmp_path: Path) -> None:
    log, out = tmp_path / "log.parquet", tmp_path / "store"
    rows = [row for rows in busy_days(*range(11)).values() for row in rows]
    pq.write_table(table_of(rows + page("today", 24 * 300, [1])), log)
    with pytest.warns(UserWarning, match="1 pages are a week or more past nearly all others"):
        ended = CliRunner().invoke(app, ["track", str(log), "--out", str(out)])
    assert re.search(r"left out far ahead +1\n", ended.output), ended.output


def test_a_store_that_a_wrong_clock_ruined_is_rewound(duckdb: Engine, tmp_path: Path) -> None:
    before, after, log = busy_days(*range(20)), busy_days(20), tmp_path / "log.parquet"
    with writing(tmp_path / "store") as store:
        put(duckdb, store, [row for rows in before.values() for row in rows], refresh="all")
        put(duckdb, store, page("today", 24 * 300, [1]), refresh="all")  # alone it cannot be told
        ruined = fetched(duckdb, read_window(duckdb, store))
        assert sum(row["displays"] for row in ruined.values()) == 1
    pq.write_table(table_of([row for rows in after.values() for row in rows]), log)
    with pytest.warns(UserWarning, match=r"10 pages are too old: .* go back with `unskew track --rewind --until`"):
        assert track(log, tmp_path / "store").counted == 0
    right = datetime.fromtimestamp((START + 24 * 20 - 5) * 3600, UTC).isoformat()
    with pytest.raises(ConfigError, match="if a wrong clock took it there, rewind=True goes back"):
        track(log, tmp_path / "store", until=right)
    with pytest.raises(ConfigError, match="rewind=True: goes with until="):
        track(log, tmp_path / "store", rewind=True)
    end = datetime.fromtimestamp((START + 24 * 21) * 3600, UTC).isoformat()
    found = track(log, tmp_path / "store", until=end, rewind=True)
    assert (found.counted, found.left_out["too_old"]) == (10, 0)
    month = fetched(duckdb, read_window(duckdb, open_tracking(tmp_path / "store")))
    assert month == recomputed(before | after, START - 7 * 24, START + 24 * 21)
    assert track(log, tmp_path / "store").left_out["repeated"] == 10


def test_a_page_that_is_sent_again_across_the_hour_counts_once(engine: Engine, tmp_path: Path) -> None:
    """Within half an hour it is the same page, whatever hour its rows say; later it is another one of that id."""
    with writing(tmp_path / "store") as store:
        put(engine, store, page("a", 9.9, [1, 0]) + page("b", 9.9, [1, 0]) + page("c", 10.1, [0, 1]))
        counts = put(engine, store, page("a", 10.2, [1, 0]) + page("b", 10.6, [1, 0]) + page("c", 9.8, [0, 1, 1]))
        assert (counts["repeated"], counts["counted"], counts["split"]) == (1, 1, 1)
        assert put(engine, store, page("a", 10.45, [1, 0]))["counted"] == 1, "half an hour after it was counted"


def test_what_is_after_the_present_hour_waits(duckdb: Engine, tmp_path: Path) -> None:
    now = time.time() // 3600 - START
    with writing(tmp_path / "store") as store:
        soon = page("next", now + 1, [1]) + page("day", now + 20, [1])
        counts = put(duckdb, store, page("now", now, [1]) + soon)
    assert (counts["counted"], counts["future"]) == (1, 2)


def test_nothing_is_examined_more_than_once(duckdb: Engine, tmp_path: Path) -> None:
    with writing(tmp_path / "store") as store:
        put(duckdb, store, page("a", 0, [1, 0], examination=[1.5, 1.0]))
        found = fetched(duckdb, window_sums(duckdb, store, START, START + 1))
    assert [found["q", doc, rank]["examined"] for doc, rank in ((10, 1), (11, 2))] == [1000, 1000]
    assert found["q", 10, 1]["examined_squared"] == 10**6
