"""The formats with a reader of their own, from the samples to what `unskew ingest` writes, worked out by hand."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import unskew
from unskew.errors import ConfigError, DataError
from unskew.terminal.main import app

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
Cells = tuple[str, str, int, int]


@dataclass(frozen=True)
class Case:
    """A sample, and what a person reads out of it."""

    kind: str
    pattern: str
    rows: list[Cells]
    """page_id, doc_id, position, click."""
    records: int
    mapping: str = ""
    removed: dict[str, int] = field(default_factory=dict)
    """Rows that rules put aside."""
    sides: dict[str, int] = field(default_factory=dict)
    further: dict[str, list[Any]] = field(default_factory=dict)
    """Values of further columns, in the order of the rows."""


def yandex_page(page: str, docs: list[int], clicked: set[int]) -> list[Cells]:
    return [(page, str(doc), at, int(doc in clicked)) for at, doc in enumerate(docs, 1)]


BAIDU, YANDEX = "unskew_reproductions.formats.baidu:Baidu", "unskew_reproductions.formats.yandex:Yandex"
CASES = {
    # ordinals from 1; the click on h1 has nothing but an ordinal
    "ubi-spec": Case(
        "ubi",
        "[eq]*.ndjson",
        [("q-1", "s1", 1, 1), ("q-1", "s2", 2, 1), ("q-1", "s3", 3, 0), ("q-2", "h1", 1, 1), ("q-2", "h2", 2, 0)],
        records=8,
        further={
            "serp_x": [120.5, None, None, None, None],
            "serp_y": [640.0, None, None, None, None],
            "propensity": [1.0, 0.5, 0.25, 1.0, 1.0],
            "policy_id": ["bm25"] * 5,
        },
    ),
    # ordinals from 0; the click on d2 has nothing but a rank, and no time
    "ubi-plugin": Case(
        "ubi",
        "plugin.ndjson",
        [("p-1", "l1", 1, 1), ("p-1", "l2", 2, 0), ("p-2", "d1", 1, 0), ("p-2", "d2", 2, 1), ("p-2", "d3", 3, 1)],
        records=7,
        further={"serp_x": [10.0, None, None, None, None], "serp_y": [20.0, None, None, None, None]},
    ),
    "ubi-arrays": Case(
        "ubi", "a*.json", [("a-1", "11", 1, 0), ("a-1", "12", 2, 1), ("b-1", "x", 1, 1)], records=4
    ),
    "baidu": Case(
        BAIDU,
        "",
        [  # the number of the line counts over all files, and the two annotations come first
            ("41-3", "0cc175b9c0f1b6a831c399e269772661", 1, 1),
            ("41-3", "92eb5ffee6ae2fec3ad71c777531578f", 2, 0),
            ("58-6", "4a8a08f09d37b73795649038408b5f33", 1, 0),
        ],
        records=7,
        mapping='keep = ["after_skip"]',
        sides={"labels": 2},
        further={
            "serp_height": [312.0, 188.0, 290.0],
            "after_skip": [0.0, 1.0, 0.0],
            "title": ["5 6", "7 7", "44 2"],
        },
    ),
    "tiangong": Case(
        "unskew_reproductions.formats.tiangong:TianGong",
        "",
        [("7-1", "d1", 1, 0), ("7-1", "d2", 2, 1), ("7-2", "d3", 1, 0)],
        records=4,
        sides={"labels": 2},
        further={"visit_id": ["7"] * 3, "query_id": ["q12", "q12", "q13"]},
    ),
    "yandex": Case(
        YANDEX,
        "",
        [
            *yandex_page("10-3", list(range(101, 111)), {102, 103}),
            *yandex_page("10-5", [103, *range(201, 210)], {103}),
            *yandex_page("11-9", [110, *range(102, 110), 101], set()),
        ],
        records=10,
        removed={"clicks_without_impression": 2},
        sides={"labels": 2},
    ),
    "metarank": Case(
        "metarank",
        "",
        [("r1", "m1", 1, 0), ("r1", "m2", 2, 1), ("r1", "m3", 3, 0), ("r2", "m3", 1, 0)],
        records=7,
        mapping="[reader]\nitem_fields = true\nrandomized = true",
        sides={"items": 1, "item_fields": 5},
        further={"randomized": [True] * 4, "logging_score": [0.5, 0.25, None, None]},
    ),
}


def command(source: Path | str, out: Path, kind: str, mapping: str = "", *more: str) -> dict[str, Any]:
    """Run `unskew ingest`; what it prints as JSON."""
    words = ["ingest", str(source), "--out", str(out), "--format", kind, "--threads", "1", "--json", *more]
    if mapping:
        (out.parent / "mapping.toml").write_text(mapping)
        words += ["--mapping", str(out.parent / "mapping.toml")]
    ended = CliRunner().invoke(app, words)
    if ended.exception is not None:
        raise ended.exception
    made: dict[str, Any] = json.loads(ended.stdout)
    return made


def impressions(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(out / "impressions").to_pylist()
    return sorted(rows, key=lambda row: (row["page_id"], row["position"]))


def cells(rows: list[dict[str, Any]]) -> list[Cells]:
    return [(row["page_id"], row["doc_id"], row["position"], row["click"]) for row in rows]


@pytest.mark.parametrize("name", CASES)
def test_a_sample_from_end_to_end(tmp_path: Path, name: str) -> None:
    case, out = CASES[name], tmp_path / "out"
    home = case.kind.partition(":")[0].rpartition(".")[2]
    made = command(SAMPLES / home / case.pattern, out, case.kind, case.mapping)
    rows = impressions(out)
    assert cells(rows) == case.rows
    for column, values in case.further.items():
        assert [row[column] for row in rows] == values
    assert made["rejected"] == {"rows": 0, "share": 0.0, "reasons": {}}
    removed = {rule: counts["rows"] for rule, counts in made["rules"].items() if counts.get("rows")}
    assert removed == case.removed
    gone = pq.read_table(out / "rejected.parquet")["reason"].to_pylist()
    assert {reason: gone.count(reason) for reason in gone} == case.removed
    assert (made["rows_read"], made["clicks"]) == (case.records, sum(row[3] for row in case.rows))
    assert made["sides"] == case.sides
    assert {side: pq.read_table(out / side).num_rows for side in case.sides} == case.sides
    expected = {"impressions", "rejected.parquet", "summary.json", *case.sides}
    assert {path.name for path in out.iterdir()} == expected


def ubi(folder: Path, clicks: list[dict[str, Any]]) -> Path:
    """A page of three results at a time of 10, and clicks on it."""
    page = {"query_id": "p", "user_query": "q", "query_response_hit_ids": ["a", "b", "c"], "timestamp": 10}
    events = [
        {
            "action_name": click.get("action", "click"),
            "query_id": "p",
            "timestamp": click.get("at", 11),
            "event_attributes": {
                "object": {"object_id": click.get("doc")},
                "position": {"ordinal": click.get("place"), "x": click.get("x")},
            },
        }
        for click in clicks
    ]
    path = folder / "ubi.ndjson"
    path.write_text("\n".join(json.dumps(record) for record in [page, *events]))
    return path


def test_clicks_by_place_and_by_document_are_one_and_the_same(tmp_path: Path) -> None:
    clicks: list[dict[str, Any]] = [
        {"doc": "a", "place": 1, "at": 12, "x": 2},
        {"place": 1, "at": 11, "x": 1},  # the same result, earlier: this one counts
        {"place": 2, "at": 9},  # before the page, and again after it
        {"place": 2, "at": 13, "x": 3},
        {"place": 7},  # nothing was shown there
        {"place": 8},  # nor there
        {"doc": "z", "place": 3},  # the document counts, not the place
    ]
    made = command(ubi(tmp_path, clicks), tmp_path / "out", "ubi", "", "--positions-from", "1")
    rows = impressions(tmp_path / "out")
    assert cells(rows) == [("p", "a", 1, 1), ("p", "b", 2, 1), ("p", "c", 3, 0)]
    assert [row["serp_x"] for row in rows] == [1, 3, None]
    removed = {rule: counts["rows"] for rule, counts in made["rules"].items() if counts.get("rows")}
    assert removed == {"duplicate_events": 2, "clicks_without_impression": 3}


def test_what_readers_are_told(tmp_path: Path) -> None:
    path = ubi(tmp_path, [{"place": 1, "action": "tap"}, {"place": 2, "action": "click"}])
    with pytest.raises(DataError, match="say which, --positions-from"):
        command(path, tmp_path / "out", "ubi")
    command(path, tmp_path / "out", "ubi", '[positions]\nbase = 0\n[events]\nclick = ["tap"]')
    assert cells(impressions(tmp_path / "out")) == [("p", "a", 1, 0), ("p", "b", 2, 1), ("p", "c", 3, 0)]
    with pytest.raises(ConfigError, match=r"reader.item_field: unknown key. Did you mean item_fields"):
        command(path, tmp_path / "out", "ubi", "[reader]\nitem_field = true")
    with pytest.raises(ConfigError, match="there is no such time zone"):
        command(path, tmp_path / "out", "ubi", '[time]\nzone = "Mars"')
    with pytest.raises(ConfigError, match=r"\[reader\] is for formats"):
        command(path, tmp_path / "other", "jsonl", "[reader]\nitem_fields = true")


def test_labels_alone_are_no_log(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no impressions were found in 2 records.*with those of its labels"):
        command(SAMPLES / "baidu" / "annotations.txt", tmp_path / "out", BAIDU)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="the folder has no files"):
        command(tmp_path / "empty", tmp_path / "out", BAIDU)
    assert not (tmp_path / "out").exists()


def test_a_ranker_is_learned_from_the_folder_that_ingest_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(SAMPLES / "yandex", tmp_path / "yandex")
    command(tmp_path / "yandex", folder, YANDEX)
    pairs = {(row["query_id"], row["doc_id"]): None for row in impressions(folder)}
    columns: dict[str, Any] = {
        "query_id": [query for query, _ in pairs],
        "doc_id": [doc for _, doc in pairs],
        "f0": pa.array([float(doc) for _, doc in pairs], pa.float32()),
        "label": [0.0] * len(pairs),
    }
    pq.write_table(pa.table(columns), tmp_path / "features.parquet")
    (tmp_path / "run.toml").write_text(
        'out = "run"\n[data]\nlog = "log"\nfeatures = "features.parquet"\n[method]\nname = "naive"\n'
        "[ranker]\nname = 'linear'\n[training]\nsteps = 2\nbatch = 2\nvalidate_on = 'nothing'\n"
    )
    ended = CliRunner().invoke(app, ["learn", str(tmp_path / "run.toml"), "--quiet"])
    assert ended.exception is None, ended.exception
    assert (tmp_path / "run" / "metrics.json").is_file()


def test_items_of_metarank_are_a_table_of_features(tmp_path: Path) -> None:
    """The latest values; few texts of a list have a column each, of many the first one counts."""

    def item(doc: str, at: int, **fields: Any) -> dict[str, Any]:
        named = [{"name": name, "value": value} for name, value in fields.items()]
        return {
            "event": "item",
            "id": f"{doc}{at}",
            "item": doc,
            "timestamp": f"{1636907100000 + at}",
            "fields": named,
        }

    many = [f"tag {at}" for at in range(60)]
    events = [
        item("m1", 0, price=3, brand="acme", genres=["drama", "comedy"], tags=many, new=True),
        item("m1", 9, price=4.5, genres=["drama"]),
        item("m2", 0, Brand="bolt", genres="comedy", price=[7, 8], doc_id="own"),
        {"event": "ranking", "id": "r1", "timestamp": 1636993834000, "items": [{"id": "m1"}, {"id": "m2"}]},
        {
            "event": "interaction",
            "id": "i",
            "ranking": "r1",
            "timestamp": 1636993835000,
            "type": "click",
            "item": "m1",
        },
    ]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    made = command(tmp_path / "events.jsonl", tmp_path / "out", "metarank")
    assert made["sides"] == {"items": 2}
    rows = {row.pop("doc_id"): row for row in pq.read_table(tmp_path / "out" / "items").to_pylist()}
    assert rows["m1"] == {
        "Brand": None,
        "brand 2": "acme",
        "item_doc_id": None,
        "genres=comedy": 0,
        "genres=drama": 1,
        "genres count": 1,
        "new": 1,
        "price": 4.5,
        "price count": 1,
        "tags": "tag 0",
        "tags count": 60,
    }
    assert {
        name: rows["m2"][name] for name in ("Brand", "item_doc_id", "genres=comedy", "price", "price count")
    } == {
        "Brand": "bolt",
        "item_doc_id": "own",
        "genres=comedy": 1,
        "price": 7,
        "price count": 2,
    }
    lists = unskew.read_features(
        tmp_path / "out" / "items", candidates=tmp_path / "out" / "impressions", cache=False
    )
    assert len(lists.features) == 2


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("nowhere.at_all:Reader", "cannot be imported: No module named 'nowhere'"),
        ("json:Reader", "cannot be imported: module 'json' has no attribute 'Reader'"),
        (".formats:Reader", "cannot be imported: "),
        (":Reader", "cannot be imported: "),
        ("json:JSONDecoder", "no subclass of unskew.logs.ingest.formats.records.Reader"),
        ("ubu", "Did you mean ubi?"),
    ],
)
def test_a_reader_that_is_none_is_told(tmp_path: Path, kind: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        command(SAMPLES / "ubi", tmp_path / "out", kind)
    assert not (tmp_path / "out").exists()
