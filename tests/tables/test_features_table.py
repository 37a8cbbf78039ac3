"""Feature tables: Parquet in any layout and order gives the same lists, and what is wrong is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import unskew
from unskew.errors import ConfigError, DataError
from unskew.types import Lists
from unskew.workflows.inputs.lists import read_lists
from unskew.workflows.runs.learn import open_data
from unskew.workflows.runs.request import ask

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def lists() -> Lists:
    return unskew.make_lists(queries=12, features=5, documents=(2, 6), seed=3)


def columns_of(lists: Lists, *, single: bool = False) -> dict[str, Any]:
    table: dict[str, Any] = {
        "query_id": np.repeat(lists.query_ids, lists.sizes),
        "doc_id": lists.document_ids(),
        "label": lists.labels,
    }
    if single:
        return table | {"vector": pa.array(list(lists.features), pa.list_(pa.float32()))}
    return table | {f"f{index}": lists.features[:, index] for index in range(lists.dim)}


def same(one: Lists, other: Lists) -> bool:
    names = ("features", "offsets", "labels", "query_ids")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@pytest.mark.parametrize("single", [False, True])
def test_columns_or_one_list(lists: Lists, single: bool, tmp_path: Path) -> None:
    pq.write_table(pa.table(columns_of(lists, single=single)), tmp_path / "a.parquet", row_group_size=7)
    read = unskew.read_features(tmp_path / "a.parquet")
    assert same(read, lists)
    assert read.doc_ids is not None
    assert read.doc_ids.tolist() == lists.document_ids().tolist()
    assert isinstance(read.features, np.memmap)  # mapped from the cache
    assert same(unskew.read_features(tmp_path / "a.parquet", cache=False), lists)


def test_rows_in_any_order_and_in_part_files(lists: Lists, tmp_path: Path) -> None:
    table = pa.table(columns_of(lists))
    mixed = table.take(np.random.default_rng(0).permutation(len(table)))
    folder = tmp_path / "features"
    (folder / "_temporary").mkdir(parents=True)
    (folder / "_SUCCESS").touch()
    (folder / "_temporary" / "half.parquet").write_text("not whole")
    for part in range(3):
        pq.write_table(mixed.slice(part * 20, 20 if part < 2 else None), folder / f"part-{part}.parquet")
    read = unskew.read_features(folder)
    assert sorted(read.query_ids) == sorted(lists.query_ids)
    for index, name in enumerate(read.query_ids):
        rows = slice(*read.offsets[index : index + 2])
        at = int(np.flatnonzero(lists.query_ids == name)[0])
        original = lists.features[slice(*lists.offsets[at : at + 2])]
        assert np.array_equal(read.features[rows][np.argsort(read.doc_ids[rows])], original)


def test_a_changed_file_is_never_read_stale(lists: Lists, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns_of(lists)), path)
    unskew.read_features(path)
    pq.write_table(pa.table(columns_of(lists) | {"f0": lists.features[:, 0] + 1}), path)
    assert np.array_equal(unskew.read_features(path).features[:, 0], lists.features[:, 0] + 1)


def test_labels_are_optional(lists: Lists, tmp_path: Path) -> None:
    table = columns_of(lists)
    del table["label"]
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    assert not unskew.read_features(tmp_path / "a.parquet").labels.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_id": None}, "of items or queries, and nothing says which documents a query has; give the log"),
        (
            {"query_id": None, "doc_id": None},
            "has neither query_id nor doc_id; there are x; name them with columns=",
        ),
        ({"doc_id": ["a", "a", "b"]}, r"1 rows repeat a document of their query, first query 1, document a"),
        ({"doc_id": [1.5, 2.5, 3.5]}, "doc_id is of type double"),
        ({"doc_id": ["a", None, "b"]}, "1 of 3 rows have no doc_id"),
        ({"doc_id": ["a", "b" * 2000, "c"]}, "an id has 2,000 characters"),
        ({"x": None}, "has no features"),
        ({"x": [b"1", b"2", b"3"]}, "x is of type binary, neither a number, text, a date nor a list of numbers"),
        ({"x": [1.0, 2.0, np.inf]}, "row 2: x is infinite"),
        ({"x": [1.0, 2.0, 1e300]}, "row 2: x is infinite, or past 32-bit floats"),
        ({"x": [[1.0], [1.0, 2.0], [1.0]]}, "row 1: the list x is missing, empty or of another length"),
        ({"x": [[1.0], None, [1.0]]}, "row 1: the list x is missing, empty or of another length"),
        ({"label": [0, -1, 2]}, "a label is not a whole number from 0"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    table: dict[str, Any] = {"query_id": [1, 1, 2], "doc_id": ["a", "b", "a"], "x": [0.5, 1.0, 2.0]} | change
    table = {name: values for name, values in table.items() if values is not None}
    pq.write_table(pa.table(table), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=message):
        unskew.read_features(tmp_path / "bad.parquet")


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("1 qid:1 1:2")
    with pytest.raises(DataError, match=r"text\.parquet: not a readable Parquet file"):
        unskew.read_features(tmp_path / "text.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="folder"):
        unskew.read_features(tmp_path / "empty")


def test_the_ending_decides(lists: Lists, tmp_path: Path) -> None:
    pq.write_table(pa.table(columns_of(lists)), tmp_path / "a.parquet")
    unskew.write_letor(lists, tmp_path / "a.txt")
    assert same(read_lists(tmp_path / "a.parquet"), read_lists(tmp_path / "a.txt"))


# ---- in a run file ----


def run_file(folder: Path, data: str) -> Path:
    path = folder / "run.toml"
    training = '[ranker]\nname = "linear"\n[training]\nsteps = 3\nbatch = 8\n'
    path.write_text(f'out = "run"\n[data]\n{data}\n{training}')
    return path


@pytest.fixture
def folder(lists: Lists, tmp_path: Path) -> Path:
    """A log whose last query has no features, as `ingest` lays it out."""
    log = unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=300, seed=1)
    (tmp_path / "log" / "impressions").mkdir(parents=True)
    unskew.write_log(log, tmp_path / "log" / "impressions" / "part-0.parquet")
    (tmp_path / "log" / "summary.json").write_text("{}")
    pq.write_table(pa.table({"reason": ["broken"]}), tmp_path / "log" / "rejected.parquet")
    pq.write_table(pa.table(columns_of(lists)), tmp_path / "all.parquet")
    pq.write_table(pa.table(columns_of(lists.take(np.arange(11)))), tmp_path / "fewer.parquet")
    return tmp_path


@pytest.mark.parametrize("shards", ["", "shards = 2\n"])
def test_impressions_without_features(folder: Path, shards: str) -> None:
    given = f'{shards}log = "log"\nfeatures = "fewer.parquet"\n'
    request = ask(run_file(folder, given))
    with pytest.raises(
        DataError, match=r"\d+ of \d+ impressions have no features .* of them of unknown queries\).*drop"
    ):
        open_data(request)
    request = ask(run_file(folder, given + 'missing_features = "drop"'))
    with pytest.warns(UserWarning, match=r"impressions have no features.*were left out"):
        data, _ = open_data(request)
    whole = ask(run_file(folder, f'{shards}log = "log"\nfeatures = "all.parquet"'))
    complete, _ = open_data(whole)
    assert type(complete) is type(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('features = "a.parquet"', r"data\.log: missing"),
        ('log = "l"\ncounts = "c"\nfeatures = "a"', r"give data\.log or data\.counts, not both"),
        ('log = "l"\nfeatures = "a"\nshards = 2\nmemory = "2GB"', r"give data\.shards or data\.memory, not both"),
        ('log = "l"\nfeatures = "a"\nmemory = "much"', r'data\.memory = "much": write it like 4GB'),
        ('log = "l"\nfeatures = "a"\nshards = 0', r"data\.shards"),
        ('log = "l"\nfeatures = "a"\nmissing_features = "keep"', r"data\.missing_features"),
        (
            'log = "l"\nfeatures = "a"\nshards = 2\n[method]\nname = "labeled"',
            "labeled reads grades of a log in memory",
        ),
    ],
)
def test_settings_that_make_no_sense(data: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        ask(run_file(tmp_path, data))
