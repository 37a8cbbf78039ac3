"""The impressions table: round trip, any order, any kind of id, and an error for all that can be wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unskew.errors import DataError
from unskew.logs.log import write_log
from unskew.logs.reader import read_log
from unskew.names import REQUIRED
from unskew.simulation import simulate
from unskew.simulation.synthetic import make_lists
from unskew.types import Lists, Log


def with_names(lists: Lists) -> Lists:
    """The same lists with string ids; documents of different queries share names."""
    index = lists.document_ids()
    return replace(
        lists,
        query_ids=np.array([f"query {q}" for q in range(len(lists))]),
        doc_ids=np.array([f"doc-{i * 7 % 101}" for i in index]),
    )


@pytest.fixture(scope="module")
def lists() -> Lists:
    return make_lists(queries=30, features=5, documents=(2, 14), seed=1)


@pytest.fixture(scope="module")
def log(lists: Lists) -> Log:
    return simulate(lists, "position", pages=200, logger="random", randomized=0.2, truth=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.parquet"


def small(**changes: Any) -> pa.Table:
    """Two pages over the lists of `two_lists`; a change of None drops the column."""
    columns = {
        "page_id": [0, 0, 1, 1],
        "query_id": [10, 10, 20, 20],
        "doc_id": [0, 1, 2, 0],
        "position": [1, 2, 1, 2],
        "click": [0, 1, 1, 0],
    } | changes
    return pa.table({name: column for name, column in columns.items() if column is not None})


def two_lists() -> Lists:
    return Lists(np.zeros((5, 2), np.float32), np.array([0, 2, 5]), np.zeros(5, np.int16), np.array([10, 20]))


def read_small(path: Path, **changes: Any) -> Log:
    pq.write_table(small(**changes), path)
    return read_log(path, two_lists())


def assert_same(first: Log, second: Log) -> None:
    for name in ("query", "offsets", "row", "position", "click", "randomized"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
        if getattr(first, name) is not None:
            assert getattr(first, name).dtype == getattr(second, name).dtype, name
    assert set(first.columns) == set(second.columns)
    for name, column in first.columns.items():
        np.testing.assert_array_equal(column, second.columns[name], err_msg=name)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("row_group", [17, 1_000_000])
def test_round_trip(log: Log, path: Path, named: bool, row_group: int) -> None:
    log = replace(log, lists=with_names(log.lists)) if named else log
    write_log(log, path, row_group=row_group)
    assert_same(log, read_log(path, log.lists))
    assert [file.name for file in path.parent.iterdir()] == ["log.parquet"]
    assert pq.read_schema(path).names[:6] == [*REQUIRED, "randomized"]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1), pages=st.integers(0, 30), named=st.booleans())
def test_round_trip_in_any_order(lists: Lists, path: Path, seed: int, pages: int, named: bool) -> None:
    lists = with_names(lists) if named else lists
    log = simulate(lists, "position", pages=pages, seed=seed, logger="random", truth=True)
    write_log(log, path)
    table = pq.read_table(path)
    pq.write_table(table.take(pa.array(np.random.default_rng(seed).permutation(len(table)))), path)
    assert_same(log, read_log(path, lists))


def test_further_columns_of_any_type(log: Log, path: Path) -> None:
    count = len(log.row)
    columns = {
        "timestamp": np.datetime64("2024-01-01", "us") + np.arange(count),
        "serp_kind": np.array(["video", "news"], object)[np.arange(count) % 2],
        "serp_height": np.arange(count, dtype=np.int32),
        "display_time": np.linspace(0, 1, count),
        "page_id": np.repeat(np.array([f"s{i:04}" for i in range(len(log))], object), log.sizes),
    }
    log = replace(log, columns=columns, randomized=None)
    write_log(log, path)
    assert_same(log, read_log(path, log.lists))
    few = read_log(path, log.lists, keep=["serp_height"])
    assert set(few.columns) == {"serp_height", "page_id"}


def test_labels_are_never_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, asked = pq.read_table, []

    def watched(source: Path, columns: list[str], **more: object) -> pa.Table:
        asked.extend(columns)
        return read(source, columns=columns, **more)

    monkeypatch.setattr(pq, "read_table", watched)
    log = read_small(path, label=["not", "a", "number", None])
    assert "label" not in log.columns
    assert "label" not in asked
    assert "click" in asked


def test_ids_may_be_numbers_or_strings_on_either_side(path: Path) -> None:
    expected = read_small(path).row.tolist()
    assert expected == [0, 1, 4, 2]
    assert (
        read_small(path, query_id=["10", "10", "20", "20"], doc_id=["0", "1", "2", "0"]).row.tolist() == expected
    )
    pq.write_table(small(), path)
    named = replace(two_lists(), query_ids=np.array(["10", "20"]), doc_ids=np.array(["0", "1", "0", "1", "2"]))
    assert read_log(path, named).row.tolist() == expected
    far = replace(two_lists(), query_ids=np.array([10, 2**60]))
    pq.write_table(small(query_id=[10, 10, 2**60, 2**60]), path)
    assert read_log(path, far).row.tolist() == expected


def test_reads_booleans_whole_floats_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    clicks, ranks = [False, True, True, False], [1.0, 2.0, 1.0, 2.0]
    pq.write_table(small(click=clicks, position=ranks)[:2], folder / "a.parquet")
    pq.write_table(small(click=clicks, position=ranks)[2:], folder / "b.parquet")
    log = read_log(folder, two_lists())
    assert log.click.tolist() == [0, 1, 1, 0]
    assert log.row.tolist() == [0, 1, 4, 2]


def test_other_page_ids_are_kept(path: Path) -> None:
    log = read_small(path, page_id=["b", "a", "a", "b"], query_id=[10, 20, 20, 10], doc_id=[0, 2, 0, 1])
    assert log.columns["page_id"].tolist() == ["a", "a", "b", "b"]
    assert log.query.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"click": None, "position": None, "rank": [1, 2, 1, 2]},
            "missing columns: position, click; there .*rank",
        ),
        ({"click": [0, 2, 1, 0]}, "1 rows have a click that is not 0 or 1, first row 2 with 2"),
        ({"click": [0, 0.5, 1, 0]}, "1 rows have a click that is not a whole number, first row 2 with 0.5"),
        ({"click": ["0", "no", "1", "0"]}, "1 rows have a click that is no number, first row 2 with no"),
        ({"click": [0, None, 1, 0]}, "1 of 4 rows have no click"),
        ({"doc_id": [0, None, 1, 0]}, "1 of 4 rows have no doc_id"),
        ({"position": [0, 1, 0, 1]}, "2 rows have a position below 1.*add 1 if they count from 0"),
        ({"position": [1, 1, 1, 2]}, "1 positions are taken twice, first 1 in page 0"),
        ({"query_id": [10, 20, 20, 20]}, "1 pages have more than one query, first page 0"),
        ({"doc_id": [0, 2, 2, 0]}, r"1 of 4 impressions have no features \(0 .*first \(query 10, document 2\)"),
        ({"query_id": [10, 10, 30, 30]}, r"2 of 4 impressions have no features \(2 of them of unknown"),
        ({"doc_id": ["0", "x", "2", "0"]}, r"1 of 4 impressions .*\(query 10, document x\)"),
    ],
)
def test_what_is_wrong_is_said(path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_small(path, **changes)


def test_files_that_cannot_be_read(tmp_path: Path, log: Log) -> None:
    with pytest.raises(DataError, match="no such log"):
        read_log(tmp_path / "none.parquet", log.lists)
    (tmp_path / "text.parquet").write_text("page_id,query_id\n")
    with pytest.raises(DataError, match="not a Parquet file"):
        read_log(tmp_path / "text.parquet", log.lists)
    with pytest.raises(DataError, match="folder does not exist"):
        write_log(log, tmp_path / "none" / "log.parquet")


def test_a_failed_write_leaves_the_old_file(log: Log, path: Path) -> None:
    write_log(log, path)
    before = path.read_bytes()
    broken = replace(log, columns={"serp_x": np.array([1, "a"] * len(log.row), object)[: len(log.row)]})
    with pytest.raises(pa.ArrowException):
        write_log(broken, path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["log.parquet"]


def test_lists_with_one_query_id_twice_cannot_be_joined(path: Path) -> None:
    pq.write_table(small(), path)
    with pytest.raises(DataError, match="two queries have one id"):
        read_log(path, replace(two_lists(), query_ids=np.array([10, 10])))
