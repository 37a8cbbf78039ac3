"""UBI there and back, and the base of its ordinals."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.errors import DataError
from unskew.logs.ingest.formats import READERS
from unskew.logs.ingest.formats.stage import Stage
from unskew.logs.ingest.formats.ubi import ranked_clicks
from unskew.tables.engine.engine import connect
from unskew.tables.reading.options import IngestOptions
from unskew_reproductions.experiments.ubi_writer import write_ubi

Rows = list[dict[str, Any]]
NOON = datetime(2025, 5, 1, 12, tzinfo=UTC)


def read(folder: Path, *paths: Path, **options: Any) -> Stage:
    target = Stage(folder)
    READERS["ubi"](target, IngestOptions(**options)).read(paths)
    target.close()
    return target


def ranked(staged: Stage, base: int | None = None) -> tuple[Rows, str]:
    """Clicks with their ranks, in the order of the events, and what ordinals count from."""
    with connect("duckdb", threads=1) as engine:
        shown, clicked = (engine.read_parquet(staged.folders[name]) for name in ("impressions", "clicks"))
        found, note = ranked_clicks(shown, clicked, base, engine)
        return engine.rows(found), note


def joined(staged: Stage) -> Rows:
    """Impressions with their clicks, as the engine joins them: by page and document, or by position."""
    clicks = ranked(staged)[0]
    found = []
    for row in pq.read_table(staged.folders.get("impressions")).to_pylist():
        own = [
            one
            for one in clicks
            if one["page_id"] == row["page_id"]
            and (one["doc_id"] or row["doc_id"], one.get("position") or row["position"])
            == (row["doc_id"], row["position"])
        ]
        extra = {name: value for one in own for name, value in one.items() if name[:4] in ("serp", "dwel")}
        found.append(
            {name: value for name, value in (row | extra).items() if value is not None} | {"click": bool(own)}
        )
    return found


IMPRESSIONS: Rows = [
    {
        "page_id": f"s{page}",
        "query_id": f"query {page % 2}" if page else "q-0",
        "query_text": f"query {page % 2}",
        "doc_id": f"d{page}{at}",
        "position": at + (11 if page == 3 else 1) + (page == 4 and at > 1),
        "click": (page + at) % 3 == 0,
        "timestamp": NOON + timedelta(seconds=page, microseconds=250),
        "user_id": f"user {page % 3}",
        "visit_id": f"visit {page % 3}",
        "policy_id": "shuffled" if page == 2 else "bm25",
        "propensity": 0.125 if page == 1 else 1 / (at + 1),
        "logging_score": 3.5 - at,
        "randomized": page == 2 or at == 0,
        **({"serp_x": 10.0, "serp_y": 20.0 * at, "dwell_time": 7.5} if (page + at) % 3 == 0 else {}),
    }
    for page in range(5)
    for at in range(4)
]


@pytest.mark.parametrize("parquet", [True, False])
def test_a_round_trip_gives_the_same_impressions(tmp_path: Path, parquet: bool) -> None:
    table = pa.Table.from_pylist(IMPRESSIONS, schema(IMPRESSIONS))
    if parquet:
        clicks = table.set_column(5, "click", table["click"].cast(pa.int8()))
        pq.write_table(clicks.take(pa.array(np.random.default_rng(0).permutation(20))), tmp_path / "log.parquet")
    write_ubi(tmp_path / "log.parquet" if parquet else table, tmp_path / "out")
    staged = read(tmp_path / "staged", tmp_path / "out" / "events.ndjson", tmp_path / "out" / "queries.ndjson")
    assert joined(staged) == IMPRESSIONS
    assert staged.folders.get("rejected") is None
    assert staged.rows("clicks") == sum(row["click"] for row in IMPRESSIONS)
    first = json.loads((tmp_path / "out" / "queries.ndjson").read_text().splitlines()[1])
    assert first["query_attributes"]["policy_id"] == "bm25"
    assert first["query_attributes"]["propensity"] == 0.125
    assert first["query_response_hit_ids"] == ["d10", "d11", "d12", "d13"]
    assert first["timestamp"] == "2025-05-01T12:00:01.000250Z"


def schema(rows: Rows) -> pa.Schema:
    names = {name: value for row in rows for name, value in row.items()}
    kinds = {name: pa.array([value]).type for name, value in names.items()}
    return pa.schema([(name, pa.timestamp("us", "UTC") if name == "timestamp" else kinds[name]) for name in names])


def test_a_simulated_log_can_be_written(tmp_path: Path) -> None:
    lists = unskew.make_lists(queries=5, features=4, seed=0)
    log = unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=200, seed=0)
    write_ubi(log, tmp_path / "out")
    staged = read(tmp_path / "staged", tmp_path / "out" / "queries.ndjson", tmp_path / "out" / "events.ndjson")
    found = joined(staged)
    assert [row["click"] for row in found] == log.click.astype(bool).tolist()
    assert [row["position"] for row in found] == log.position.tolist()
    assert ranked(staged)[1].startswith("ordinals count from 1: so say")


def test_what_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="missing columns: query_id, doc_id, position, click"):
        write_ubi(pa.table({"page_id": ["s"]}), tmp_path)
    row = {"page_id": "s", "query_id": "q", "doc_id": "d", "position": 1, "click": 1, "query_text": b"bytes"}
    with pytest.raises(DataError, match="page s cannot be written"):
        write_ubi(pa.Table.from_pylist([row]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def page(at: int) -> str:
    return json.dumps({"query_id": f"q{at}", "user_query": "u", "query_response_hit_ids": ["a", "b", "c"]})


def click(at: int, ordinal: int, doc: str | None) -> str:
    where = {"object": {"object_id": doc}} if doc else {}
    attributes = where | {"position": {"ordinal": ordinal}}
    return json.dumps({"action_name": "click", "query_id": f"q{at}", "event_attributes": attributes})


def positions(folder: Path, lines: list[str], base: int | None = None) -> tuple[list[int | None], str]:
    (folder / "log").write_text("\n".join(lines))
    clicks, note = ranked(read(folder / "staged", folder / "log"), base)
    return [click.get("position") for click in clicks], note


@pytest.mark.parametrize(
    ("clicks", "expected", "note"),
    [
        ([click(1, 1, "b"), click(0, 2, None)], [2, 3], "from 0: so say 1 of 1"),
        ([click(1, 2, "b"), click(0, 2, None)], [2, 2], "from 1: so say 1 of 1"),
        ([click(1, 0, None), click(0, 2, None)], [1, 3], "from 0: so say 1 of 1"),
        ([click(1, 3, None), click(0, 2, None)], [3, 2], "from 1: so say 1 of 1"),
        ([click(1, 2, "b"), click(0, 1, "a"), click(0, 2, "c")], [2, 1, 2], "from 1: so say 2 of 3"),
        ([click(7, 0, "x")], [1], "there is an ordinal 0"),
        ([click(7, 1, "x")] * 100, [1] * 100, "100 clicks, and none on ordinal 0"),
        ([click(1, 2, "x")], [None], "not used: nothing says"),
    ],
)
def test_the_log_tells_what_ordinals_count_from(
    tmp_path: Path, clicks: list[str], expected: list[int | None], note: str
) -> None:
    found, said = positions(tmp_path, [page(0), *clicks, page(1)])
    assert found == expected
    assert note in said


def test_a_document_that_a_page_shows_twice_says_nothing_of_ordinals(tmp_path: Path) -> None:
    """Ordinal 2 of b, a, a is a document a, from 0 as from 1."""
    hits = json.dumps({"query_id": "q0", "user_query": "u", "query_response_hit_ids": ["b", "a", "a"]})
    assert positions(tmp_path, [hits, click(0, 2, "a")])[0] == [None]
    assert positions(tmp_path, [hits, click(0, 2, "a"), click(0, 1, "b")])[0] == [2, 1]


def test_ordinals_that_matter_and_tell_nothing_are_an_error_unless_the_base_is_given(tmp_path: Path) -> None:
    lines = [page(0), click(0, 1, None)]
    with pytest.raises(DataError, match=r"1 clicks have an ordinal and no object_id, .*; say which"):
        positions(tmp_path, lines)
    assert positions(tmp_path, lines, 0) == ([2], "ordinals count from 0 as told")
    assert positions(tmp_path, lines, 1) == ([1], "ordinals count from 1 as told")


def test_other_names_of_the_fields(tmp_path: Path) -> None:
    lines = [
        '[{"queryId":"p","userQuery":"u","clientId":"c","queryAttributes":{"policy_id":"x"},'
        '"queryResponse":{"queryResponseObjectIds":["a","b"]}}]',
        '{"query_id":"o","user_query":"","query_response_objects_ids":["a"]}',
        '{"action_name":"view","query_id":"p","event_attributes":{"object":{"object_id":"b"}}}',
        '{"action_name":"click","query_id":"p","event_attributes":{"position":{"ordinal":{"index":2}}}}',
    ]
    (tmp_path / "log").write_text("\n".join(lines))
    staged = read(tmp_path / "staged", tmp_path / "log", events={"click": ("view",)})
    shown = pq.read_table(staged.folders.get("impressions")).to_pylist()
    assert [(row["page_id"], row["query_id"], row["doc_id"], row["policy_id"]) for row in shown] == [
        ("p", "u", "a", "x"),
        ("p", "u", "b", "x"),
        ("o", "all", "a", None),
    ]
    assert pq.read_table(staged.folders.get("clicks"))["doc_id"].to_pylist() == ["b"]
    second = read(tmp_path / "second", tmp_path / "log")
    assert pq.read_table(second.folders.get("clicks"))["ordinal"].to_pylist() == [2]


def test_impression_events_without_hit_ids_are_noted(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"action_name":"impression","query_id":"p","event_attributes":{"rank":0}}\n')
    staged = read(tmp_path / "staged", tmp_path / "log")
    assert staged.notes[-1] == "no query has hit ids; impression events alone do not make pages"
