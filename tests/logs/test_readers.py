"""Every reader turns its sample, made up in the real format, into the rows that a person reads out of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from unskew.logs.ingest.formats import READERS as NAMED
from unskew.logs.ingest.formats.stage import Stage
from unskew.tables.reading.options import IngestOptions
from unskew_reproductions.formats import READERS as BESIDE

READERS = {**NAMED, **BESIDE}

SAMPLES = Path(__file__).resolve().parents[1] / "samples"
Rows = list[dict[str, Any]]


def stage(folder: Path, reader: str, /, *names: str, **options: Any) -> Stage:
    """Read samples by name into a folder."""
    target = Stage(folder)
    READERS[reader](target, IngestOptions(**options)).read([SAMPLES / reader / name for name in names])
    target.close()
    return target


def rows(folder: Path | None) -> Rows:
    """Rows of the part files, without empty cells."""
    table = [] if folder is None else pq.read_table(folder).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in table]


def pick(found: Rows, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row.get(name) for name in names) for row in found]


def at(hour: int, minute: int, second: int) -> datetime:
    return datetime(2025, 2, 18, hour, minute, second, tzinfo=UTC)


def test_ubi_spec(tmp_path: Path) -> None:
    staged = stage(tmp_path, "ubi", "events.ndjson", "queries.ndjson")
    impressions = rows(staged.folders.get("impressions"))
    assert impressions[1] == {
        "page_id": "q-1",
        "user_id": "c-1",
        "query_id": "red shoes",
        "query_text": "red shoes",
        "doc_id": "s2",
        "position": 2,
        "timestamp": at(10, 0, 0),
        "propensity": 0.5,
        "policy_id": "bm25",
    }
    assert pick(impressions, "page_id", "doc_id", "position", "propensity", "timestamp") == [
        ("q-1", "s1", 1, 1.0, at(10, 0, 0)),
        ("q-1", "s2", 2, 0.5, at(10, 0, 0)),
        ("q-1", "s3", 3, 0.25, at(10, 0, 0)),
        ("q-2", "h1", 1, 1.0, at(10, 0, 30)),  # 12:00:30 in a zone two hours ahead
        ("q-2", "h2", 2, 1.0, at(10, 0, 30)),
    ]
    clicks = rows(staged.folders.get("clicks"))
    assert pick(clicks, "page_id", "doc_id", "ordinal", "serp_x", "serp_y", "visit_id", "timestamp") == [
        ("q-1", "s2", 2, None, None, "v-1", at(10, 0, 5)),
        ("q-1", "s1", None, 120.5, 640.0, "v-1", at(10, 0, 9)),
        ("q-2", None, 1, None, None, None, at(10, 0, 40)),
    ]
    assert staged.ignored == {"query_without_hits": 1, "other_event": 1, "click_without_query": 1}
    assert (staged.rows_read, staged.folders.get("rejected")) == (8, None)


def test_ubi_as_the_plugin_writes_it(tmp_path: Path) -> None:
    staged = stage(tmp_path, "ubi", "plugin.ndjson")
    assert pick(
        rows(staged.folders.get("impressions")), "page_id", "doc_id", "position", "propensity", "policy_id"
    ) == [
        ("p-1", "l1", 1, 0.5, "ltr"),
        ("p-1", "l2", 2, 0.25, "ltr"),
        ("p-2", "d1", 1, None, None),
        ("p-2", "d2", 2, None, None),
        ("p-2", "d3", 3, None, None),
    ]
    assert rows(staged.folders.get("impressions"))[0]["timestamp"] == at(10, 0, 0)
    # ordinals 0 and 2, and rank 1: they count from 0, and are made ranks when all of the log is there
    assert pick(rows(staged.folders.get("clicks")), "page_id", "doc_id", "ordinal", "serp_x") == [
        ("p-1", "l1", 0, 10.0),
        ("p-2", "d3", 2, None),
        ("p-2", None, 1, None),
    ]
    assert staged.ignored == {"bulk_action": 2}


@pytest.mark.parametrize("name", ["answer.json", "array.json"])
def test_ubi_values_that_go_over_several_lines(tmp_path: Path, name: str) -> None:
    staged = stage(tmp_path, "ubi", name, time={"zone": "Europe/Paris"})
    shown, clicked = (
        pick(rows(staged.folders.get("impressions")), "page_id", "doc_id"),
        rows(staged.folders.get("clicks")),
    )
    expected = {"answer.json": [("a-1", "11"), ("a-1", "12")], "array.json": [("b-1", "x")]}
    assert shown == expected[name]
    assert pick(clicked, "page_id", "doc_id") == [shown[-1]]
    if name == "answer.json":
        assert rows(staged.folders.get("impressions"))[0]["timestamp"] == at(9, 0, 0)  # ten o'clock in Paris
        assert rows(staged.folders.get("impressions"))[0]["query_text"] == 'braces } ] in " a text'
    assert staged.rows_read == 2


def test_baidu(tmp_path: Path) -> None:
    staged = stage(tmp_path, "baidu", "part-00000.tsv", "annotations.txt")
    first, second, third = rows(staged.folders.get("impressions"))
    assert first == {
        "page_id": "41-1",
        "query_id": "12 7 903",
        "query_text": "12 7 903",
        "doc_id": "0cc175b9c0f1b6a831c399e269772661",
        "position": 1,
        "click": 1,
        "title": "5 6",
        "abstract": "5 6 8",
        "serp_media_type": "14",
        "display_time": 9.5,
        "dwell_time": 41.0,
        "serp_height": 312.0,
        "serp_max_show_height": 1200.0,
        "serp_to_top": 150.0,
        "serp_display_count": 2.0,
        "serp_display_count_again": 2.0,
        "serp_display_count_top": 1.0,
        "serp_display_count_middle": 1.0,
        "serp_display_count_bottom": 0.0,
        "serp_display_count_reverse": 0.0,
        "serp_display_time_top": 4.0,
        "serp_display_time_middle": 3.0,
        "serp_display_time_bottom": 2.5,
        "serp_slipoff_count": 2.0,
        "after_skip": 0.0,
        "after_first_click": 1.0,
        "after_final_click": 1.0,
        "after_last_click": 1.0,
        "after_click_count": 1.0,
        "after_slipoff_count": 1.0,
    }
    assert pick([second, third], "page_id", "query_id", "position", "click", "after_skip") == [
        ("41-1", "12 7 903", 2, 0, 1.0),
        ("58-4", "44", 1, 0, 0.0),
    ]
    # two queries share the qid 9; their texts tell them apart and are those of the pages
    assert rows(staged.folders["labels"]) == [
        {
            "query_id": "12 7 903",
            "query_text": "12 7 903",
            "title": "5 6",
            "abstract": "5 6 8",
            "label": 3,
            "bucket": 0,
            "group": "9",
        },
        {
            "query_id": "44",
            "query_text": "44",
            "title": "44 2",
            "abstract": "1",
            "label": 0,
            "bucket": 7,
            "group": "9",
        },
    ]
    assert (staged.rows_read, staged.records_taken, staged.ignored) == (7, 5, {"query_line": 2})
    assert (staged.folders.get("rejected"), staged.folders.get("clicks")) == (None, None)


def test_tiangong(tmp_path: Path) -> None:
    staged = stage(tmp_path, "tiangong", "sessions.xml", "human_labels.txt")
    names = ("page_id", "visit_id", "query_id", "query_text", "doc_id", "position", "title", "serp_media_type")
    assert pick(rows(staged.folders.get("impressions")), *names) == [
        ("7-1", "7", "q12", "天气", "d1", 1, "one & all", "30000201"),
        ("7-1", "7", "q12", "天气", "d2", 2, "two", "-1"),
        ("7-2", "7", "q13", "天气 预报", "d3", 1, "three", "0"),
    ]
    assert rows(staged.folders.get("clicks")) == [
        {
            "page_id": "7-1",
            "visit_id": "7",
            "doc_id": "d2",
            "position": 2,
            "timestamp": datetime(2015, 4, 1, 4, 10, 14, tzinfo=UTC),
        }
    ]
    assert pick(rows(staged.folders["labels"]), "visit_id", "query_id", "doc_id", "label") == [
        ("7", "q13", "d3", 4),
        ("7", "q13", "d1", 0),
    ]
    assert (staged.rows_read, staged.folders.get("rejected")) == (4, None)


def test_yandex(tmp_path: Path) -> None:
    staged = stage(tmp_path, "yandex", "log.tsv", "labels.tsv")
    shown = rows(staged.folders.get("impressions"))
    assert len(shown) == 30
    assert shown[10] == {
        "page_id": "10-3",
        "visit_id": "10",
        "query_id": "9_1",
        "doc_id": "103",
        "position": 1,
        "time_offset": 30,
    }
    assert pick(rows(staged.folders.get("clicks")), "page_id", "doc_id", "time_offset") == [
        ("10-1", "103", 12),
        ("10-3", "103", 35),  # shown by both pages: the latest one counts
        ("10-1", "102", 39),  # only the first page showed it
        ("10-3", "999", 41),  # never shown: left to the rule for clicks without an impression
        ("12-0", "101", 5),  # a session without a page
    ]
    labels = pick(rows(staged.folders["labels"]), "query_id", "doc_id", "label")
    assert labels == [("8_1", "101", 1), ("8_2", "110", 0)]
    assert (staged.rows_read, staged.folders.get("rejected")) == (10, None)


def test_metarank(tmp_path: Path) -> None:
    staged = stage(tmp_path, "metarank", "events.jsonl", reader={"randomized": True})
    names = ("page_id", "visit_id", "user_id", "query_id", "doc_id", "position", "logging_score", "randomized")
    assert pick(rows(staged.folders.get("impressions")), *names) == [
        ("r1", "v1", "u1", "all", "m1", 1, 0.5, True),
        ("r1", "v1", "u1", "all", "m2", 2, 0.25, True),
        ("r1", "v1", "u1", "all", "m3", 3, None, True),
        ("r2", None, None, "cats", "m3", 1, None, True),
    ]
    assert pick(rows(staged.folders.get("clicks")), "page_id", "doc_id", "timestamp") == [
        ("r1", "m2", datetime(2021, 11, 15, 16, 30, 39, tzinfo=UTC))
    ]
    assert pick(rows(staged.folders["item_fields"]), "doc_id", "name", "number", "text", "place") == [
        ("m1", "title", None, "A film", None),
        ("m1", "vote_avg", 6.5, None, None),
        ("m1", "genres", None, "drama", 0),
        ("m1", "genres", None, "comedy", 1),
        ("m1", "is_new", 1.0, None, None),
    ]
    assert staged.ignored == {"other_interaction": 1, "click_without_ranking": 1, "user_event": 1}
    plain = stage(tmp_path / "plain", "metarank", "events.jsonl")
    assert "randomized" not in rows(plain.folders.get("impressions"))[0]


@pytest.mark.slow
def test_ranklens_real_data_has_the_click_rates_that_it_is_known_for(tmp_path: Path, data_folder: Path) -> None:
    path = data_folder / "ranklens" / "events.jsonl.gz"
    if not path.exists():
        pytest.skip("no RankLens data")
    target = Stage(tmp_path)
    READERS["metarank"](target, IngestOptions()).read([path])
    staged = target
    staged.close()
    assert (staged.rows("impressions"), staged.rows("clicks"), staged.rows("rejected")) == (9_800 * 24, 46_125, 0)
    shown = pq.read_table(staged.folders.get("impressions"), columns=["page_id", "doc_id", "position"]).to_pydict()
    clicked = pq.read_table(staged.folders.get("clicks"), columns=["page_id", "doc_id"]).to_pydict()
    clicks = set(zip(clicked["page_id"], clicked["doc_id"], strict=True))
    pages = zip(shown["page_id"], shown["doc_id"], strict=True)
    hit = np.array([page in clicks for page in pages]).reshape(9_800, 24)
    assert np.array_equal(np.array(shown["position"]).reshape(9_800, 24)[77], np.arange(1, 25))
    known = [0.2485, 0.2356, 0.2244, 0.2110, 0.2046, 0.2049, 0.2010, 0.2044, 0.1929, 0.1964, 0.1972, 0.1885]
    known += [0.1844, 0.1814, 0.1827, 0.1817, 0.1823, 0.1814, 0.1748, 0.1819, 0.1781, 0.1826, 0.1828, 0.2032]
    assert hit.mean(0) == pytest.approx(np.array(known), abs=5e-5)
    assert int(hit.all(1).sum()) == 111
