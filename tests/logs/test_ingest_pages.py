"""Pages found by person, query and pause: in a shop's own log, on every format, with clicks beside it."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.helpers.shop_log import NAMES as ALL_NAMES
from tests.helpers.shop_log import NOON, SIZE, Rows, shop_log
from unskew.errors import DataError
from unskew.logs.ingest.ingest import ingest_files
from unskew.logs.ingest.rejected import TooMuchAside
from unskew.logs.ingest.summary import IngestedLog
from unskew.logs.ingest.visits import add_page_ids
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.reading.options import IngestOptions
from unskew.terminal.main import app

NAMES = {**ALL_NAMES, "click": "clicked"}
BARE = ("truth", "page_number")


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with connect("duckdb", threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def shop() -> Rows:
    return shop_log()


def write(path: Path, rows: Rows, but: Sequence[str] = ()) -> Path:
    """The rows as a file of the format that its name says."""
    rows = [{name: value for name, value in row.items() if name not in but} for row in rows]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return path


def read_in(engine: Engine, source: Any, out: Path, clicks: Any = (), **options: Any) -> tuple[IngestedLog, Rows]:
    options = {"columns": NAMES, **options}
    made = ingest_files(source, out, engine, IngestOptions.model_validate(options), clicks=clicks, force=True)
    rows: Rows = pq.read_table(out / "impressions").to_pylist()
    return made, rows


def same_pages(found: Rows, truth: Rows) -> bool:
    """Whether rows are grouped as they should be, each at its rank."""

    def groups(rows: Rows, page: str, doc: str, rank: str, add: int) -> set[frozenset[tuple[str, int]]]:
        made: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        for row in rows:
            made[row[page]].add((row[doc], row[rank] + add))
        return {frozenset(page) for page in made.values()}

    return groups(found, "page_id", "doc_id", "position", 0) == groups(truth, "truth", "sku", "rank", 1)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_pages_of_a_shop_are_found_in_one_go(engine: Engine, shop: Rows, tmp_path: Path, ending: str) -> None:
    made, rows = read_in(engine, write(tmp_path / f"log{ending}", shop, BARE), tmp_path / "out")
    assert same_pages(rows, shop)
    assert made.pages == len({row["truth"] for row in shop})
    assert (made.positions_from, made.impressions) == (0, len(shop))
    assert max(row["position"] for row in rows) == 2 * SIZE  # leafing on keeps the rank
    assert any("one cookie and search, until a pause of more than 30 min" in note for note in made.notes)
    assert made.warnings == []


def test_what_rules_remove_of_found_pages_is_told_in_words(engine: Engine, shop: Rows, tmp_path: Path) -> None:
    twice = [*shop, *shop[:50]]
    made, rows = read_in(engine, write(tmp_path / "log.csv", twice, BARE), tmp_path / "out")
    assert same_pages(rows, shop)
    assert made.rules["duplicate_events"].rows == 50
    gone = pq.read_table(tmp_path / "out" / "rejected.parquet")["detail"].to_pylist()
    assert all("search=" in detail and "cookie=c" in detail for detail in gone)


def test_clicks_without_a_page_go_to_the_page_that_showed_it_last(engine: Engine, tmp_path: Path) -> None:
    def shown(at: int, ranks: range, query: str = "a") -> Rows:
        fixed = {"cookie": "c", "search": query}
        return [{**fixed, "sku": f"d{k}", "rank": k, "epoch_ms": NOON + 1000 * (at + k)} for k in ranks]

    results = [*shown(0, range(1, 4)), *shown(100, range(1, 4)), *shown(110, range(1, 4), "b")]
    places = [("a", "d1", 50), ("a", "d1", 150), ("a", "d3", 160), ("b", "d2", 170), ("a", "d2", -5)]
    late = [("a", "d2", 5000), ("a", "d9", 150)]
    clicked = [
        {"cookie": "c", "search": query, "sku": sku, "epoch_ms": NOON + 1000 * at}
        for query, sku, at in places + late
    ]
    expected = {("a", 0, "d1"), ("a", 1, "d1"), ("a", 1, "d3"), ("b", 0, "d2")}
    write(tmp_path / "shown.csv", results)
    write(tmp_path / "clicks.csv", clicked)
    mixed = [{**row, "event": "impression"} for row in results] + [
        {**row, "rank": "", "event": "click"} for row in clicked
    ]
    write(tmp_path / "mixed.csv", mixed)
    for source, clicks in (("shown.csv", [tmp_path / "clicks.csv"]), ("mixed.csv", [])):
        made, rows = read_in(engine, tmp_path / source, tmp_path / "out", clicks, columns=ALL_NAMES)
        starts = sorted({(row["query_id"], row["page_id"]) for row in rows})
        nth = {page: sum(query == other and page > before for other, before in starts) for query, page in starts}
        found = {(row["query_id"], nth[row["page_id"]], row["doc_id"]) for row in rows if row["click"]}
        assert found == expected
        rules = made.rules
        assert rules["clicks_without_impression"].rows == 2  # long after the page, and never shown
        assert rules["clicks_before_query"].rows == 1


def test_what_is_missing_is_said(engine: Engine, shop: Rows, tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", shop, BARE)
    nobody = {ours: theirs for ours, theirs in NAMES.items() if ours != "user_id"}
    with pytest.raises(
        DataError, match=r"no page_id, and no user_id or visit_id.*there are cookie, .*\"user_id\": "
    ):
        read_in(engine, path, tmp_path / "out", columns=nobody)
    timeless = {ours: theirs for ours, theirs in NAMES.items() if ours != "timestamp"}
    with pytest.raises(DataError, match="no page_id, and no timestamp"):
        read_in(engine, path, tmp_path / "out", columns=timeless)
    made, rows = read_in(engine, path, tmp_path / "out", columns=nobody, pages={"by": ["cookie"], "gap": "45m"})
    assert same_pages(rows, shop)
    assert "cookie" in rows[0]
    with pytest.raises(DataError, match=r"there is no column 'cooky' to read. Did you mean cookie"):
        read_in(engine, path, tmp_path / "out", columns=nobody, pages={"by": ["cooky"]})
    rows = [{**row, "cookie": "" if at % 200 == 0 else row["cookie"]} for at, row in enumerate(shop)]
    made, _ = read_in(engine, write(tmp_path / "log.csv", rows, BARE), tmp_path / "out")
    assert made.rejected.reasons == {"missing_user_id": len(shop[::200])}


def test_an_id_of_rows_is_said_to_be_one_and_can_be_passed_over(
    engine: Engine, shop: Rows, tmp_path: Path
) -> None:
    rows = [{**row, "page_id": f"p{at}"} for at, row in enumerate(shop)]
    path = write(tmp_path / "log.csv", rows, BARE)
    said = "100% of the pages hold one row: page_id names a row"
    with pytest.raises(TooMuchAside, match=f"robots(.|\n)*{said}|{said}(.|\n)*robots"):
        read_in(engine, path, tmp_path / "out")
    made, _ = read_in(engine, path, tmp_path / "out", rules={"off": ["robots"]})
    assert said in made.warnings[0]
    made, found = read_in(engine, path, tmp_path / "out", pages={"gap": "30m"})
    assert same_pages(found, shop)
    assert made.warnings == []


def test_an_id_of_visits_is_refused_and_a_log_is_never_eaten(engine: Engine, shop: Rows, tmp_path: Path) -> None:
    """The id of a person for that of a page: rows of many pages at one position."""
    path = write(tmp_path / "log.csv", shop, BARE)
    with pytest.raises(TooMuchAside) as caught:
        read_in(engine, path, tmp_path / "out", columns={**NAMES, "page_id": "cookie"})
    said = str(caught.value)
    assert caught.value.status == 3
    for part in ("two_queries_on_one_page", "cookie c0", "clicked=", "rank=", "log.csv:", 'page_gap="30m"'):
        assert part in said
    assert not (tmp_path / "out").exists()
    assert len(pq.read_table(tmp_path / "out.rejected.parquet"))


def test_ranks_that_begin_again_are_counted_on(engine: Engine, shop: Rows, tmp_path: Path) -> None:
    rows = [{**row, "rank": row["rank"] % SIZE} for row in shop]
    path = write(tmp_path / "log.csv", rows, ["truth"])
    made, found = read_in(engine, path, tmp_path / "out", positions={"page_number": "page_number"})
    assert same_pages(found, shop)
    assert f"rank was counted on by {SIZE} for every page_number" in made.notes
    assert "page_number" not in found[0]
    offset = [{**row, "page_number": (row["page_number"] - 1) * SIZE} for row in rows]
    path = write(tmp_path / "log.csv", offset, ["truth"])
    positions = {"page_number": "page_number", "page_size": 1}
    _, found = read_in(engine, path, tmp_path / "out", positions=positions, keep=["page_number"])
    assert same_pages(found, shop)
    assert {row["page_number"] for row in found} == {0, SIZE}


def test_the_command_finds_pages_and_says_how(shop: Rows, tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", shop, BARE)
    words = ["ingest", str(path), "--out", str(tmp_path / "out"), "--threads", "1", "--json", "--page-gap", "20m"]
    for ours, theirs in NAMES.items():
        words += ["--column", f"{ours}={theirs}"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0
    made = json.loads(ended.stdout)
    assert made["pages"] == len({row["truth"] for row in shop})
    assert any("20 min" in note for note in made["notes"])


# ---- what a page is, case by case ----


Look = tuple[float, Sequence[int], str]


def found_pages(engine: Engine, looks: Sequence[Look], step: float = 1.0, gap: int = 1800) -> set[str]:
    """The pages that are found, each as the letters of the looks that it holds."""
    rows = [
        {
            "user_id": "u",
            "query_id": "q",
            "doc_id": f"d{rank}",
            "position": rank,
            "look": name,
            "at": at + step * nth,
        }
        for at, ranks, name in looks
        for nth, rank in enumerate(ranks)
    ]
    table = pa.Table.from_pylist(rows[::-1])
    times = pa.array([int(row["at"] * 1e6) for row in rows[::-1]], pa.timestamp("us", "UTC"))
    table = table.append_column("timestamp", times)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for row in engine.to_arrow(
        add_page_ids(engine.from_arrow(table), engine, by=["user_id"], gap=gap)
    ).to_pylist():
        found[row["page_id"]].add(row["look"])
    return {"".join(sorted(looks)) for looks in found.values()}


CASES: dict[str, tuple[list[Look], set[str]]] = {
    "out of order": ([(0, [3, 1, 2, 6, 4, 5], "a")], {"a"}),
    "reload": ([(0, [1, 2, 3], "a"), (60, [1, 2, 3, 4, 5], "b")], {"a", "b"}),
    "reload, out of order": ([(0, [1, 2, 3], "a"), (60, [2, 4, 1, 5, 3], "b")], {"a", "b"}),
    "three times": ([(0, [1, 2], "a"), (60, [1, 2], "b"), (120, [1, 2], "c")], {"a", "b", "c"}),
    "leafs on": ([(0, [1, 2, 3], "a"), (60, [4, 5, 6], "b")], {"ab"}),
    "back and forth": (
        [(0, [1, 2], "a"), (60, [3, 4], "b"), (120, [3, 4], "c"), (180, [5, 6], "d"), (240, [5, 6], "e")],
        {"ab", "cd", "e"},
    ),
    "forth, each twice": (
        [(60 * at, [2 * (at // 2) + 1, 2 * (at // 2) + 2], "abcdefgh"[at]) for at in range(8)],
        {"a", "bc", "de", "fg", "h"},
    ),
    "back to the top": ([(0, [25, 26], "a"), (60, [1, 2], "b")], {"a", "b"}),
    "a beacon twice": ([(0, [1, 2, 3], "a"), (3, [3], "b"), (5, [4, 5], "c")], {"abc"}),
    "as long as a pause may be": ([(0, [1], "a"), (1800, [2], "b")], {"ab"}),
    "a moment longer": ([(0, [1], "a"), (1800.000001, [2], "b")], {"a", "b"}),
}


@pytest.mark.parametrize("name", CASES)
def test_where_a_page_begins(engine: Engine, name: str) -> None:
    looks, expected = CASES[name]
    assert found_pages(engine, looks) == expected


def test_results_of_one_moment_are_one_page(engine: Engine) -> None:
    assert found_pages(engine, [(0, [1, 2, 3], "a"), (5, [1, 2, 3], "b")], step=0) == {"a", "b"}
