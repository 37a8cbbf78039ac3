"""Features of items, queries and pairs, as they are: joined by name, from files or frames, the same lists."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.errors import DataError
from unskew.types import Lists

NAN = np.nan
ITEMS = {
    "doc_id": ["d1", "d2", "d3"],
    "price": [1.5, None, 4.0],
    "brand": ["acme", "bolt", None],
    "in_stock": [True, False, None],
    "released": [datetime.date(1970, 1, 2), None, datetime.date(1970, 1, 11)],
}
QUERIES = {"query_id": [1, 2], "words": [3, 1]}
PAIRS = {"query_id": [1, 2, 1], "doc_id": ["d2", "d1", "d1"], "bm25": [0.5, 1.5, 2.5], "label": [2, 0, 1]}
SHOWN = {"query_id": [2, 1, 1, 1], "doc_id": ["d1", "d1", "d2", "d1"], "click": [0, 1, 0, 0]}


def rows(lists: Lists) -> dict[tuple[str, str], dict[str, float]]:
    """Each document's features by name."""
    assert lists.columns is not None
    queries = np.repeat(lists.query_ids, lists.sizes)
    return {
        (str(query), str(document)): dict(zip(lists.columns.names, values.tolist(), strict=True))
        for query, document, values in zip(queries, lists.document_ids(), lists.features, strict=True)
    }


def test_items_queries_and_pairs_are_joined() -> None:
    lists = unskew.read_features([PAIRS, ITEMS, QUERIES])
    assert lists.columns is not None
    assert lists.columns.names == ("bm25", "price", "brand", "in_stock", "released", "words")
    assert lists.columns.categories == {"brand": ("acme", "bolt")}
    assert lists.query_ids.tolist() == [1, 2]
    assert lists.labels.tolist() == [2, 1, 0]
    expected = [[0.5, NAN, 1, 0, NAN, 3], [2.5, 1.5, 0, 1, 1, 3], [1.5, 1.5, 0, 1, 1, 1]]
    np.testing.assert_array_equal(lists.features, np.array(expected, np.float32))


def write(folder: Path, kind: str) -> list[Any]:
    tables = {"pairs": PAIRS, "items": ITEMS, "queries": QUERIES}
    if kind == "pandas":
        return [pd.DataFrame(table) for table in tables.values()]
    if kind == "polars":
        return [pl.DataFrame(table) for table in tables.values()]
    paths = []
    for name, content in tables.items():
        table = pa.table(content)
        if kind == "parts":
            (folder / name).mkdir()
            for part in range(2):
                pq.write_table(table.slice(part, 1 if part == 0 else None), folder / name / f"{part}.parquet")
            paths.append(folder / name)
            continue
        paths.append(folder / f"{name}.{kind}")
        if kind == "parquet":
            pq.write_table(table, paths[-1])
        elif kind == "csv":
            pacsv.write_csv(table, paths[-1])
        else:
            pacsv.write_csv(table, folder / "plain", pacsv.WriteOptions(delimiter="\t"))
            paths[-1].write_bytes(gzip.compress((folder / "plain").read_bytes()))
    return paths


@pytest.mark.parametrize("kind", ["parquet", "csv", "tsv.gz", "parts", "pandas", "polars"])
def test_every_form_gives_the_same_lists(kind: str, tmp_path: Path) -> None:
    expected = rows(unskew.read_features([PAIRS, ITEMS, QUERIES]))
    lists = unskew.read_features(write(tmp_path, kind))
    assert str(rows(lists)) == str(expected)  # as text, where nan is nan
    assert isinstance(lists.features, np.memmap) == (kind not in ("pandas", "polars"))
    again = unskew.read_features(write(tmp_path, kind)) if kind == "csv" else lists  # from the cache
    assert again.columns == lists.columns


def test_the_log_says_which_documents_a_query_has(tmp_path: Path) -> None:
    pq.write_table(pa.table(SHOWN), tmp_path / "log.parquet")
    pacsv.write_csv(pa.table(SHOWN), tmp_path / "log.csv")
    pacsv.write_csv(pa.table(ITEMS), tmp_path / "items.csv")
    for candidates in (SHOWN, tmp_path / "log.parquet", tmp_path / "log.csv"):
        lists = unskew.read_features([tmp_path / "items.csv", QUERIES], candidates=candidates)
        assert list(rows(lists)) == [("1", "d1"), ("1", "d2"), ("2", "d1")]
        assert rows(lists)["2", "d1"]["words"] == 1.0


def test_their_names() -> None:
    items = {"sku": ITEMS["doc_id"], "price": ITEMS["price"]}
    shown = {"query": SHOWN["query_id"], "sku": SHOWN["doc_id"]}
    names = {"doc_id": "sku", "query_id": "query"}
    lists = unskew.read_features([items, {"query": [1, 2], "words": [3, 1]}], columns=names, candidates=shown)
    assert rows(lists)["1", "d1"] == {"price": 1.5, "words": 3.0}
    with pytest.raises(DataError, match=r"has neither query_id nor doc_id; there are sku, price; name them"):
        unskew.read_features(items, columns={"doc_id": "skuu"}, candidates=shown)
    with pytest.raises(DataError, match=r"there is no column skuu; there are sku, price"):
        unskew.read_features(items, columns={"doc_id": "skuu"})
    both = [{"query": [2], "sku": ["d3"]}, shown]  # pairs of several logs
    lists = unskew.read_features(items, columns=names, candidates=both)
    assert list(rows(lists)) == [("1", "d1"), ("1", "d2"), ("2", "d1"), ("2", "d3")]


def test_a_pair_without_an_item_is_left_out_and_a_query_without_a_row_has_gaps() -> None:
    shown = {"query_id": [1, 1, 3], "doc_id": ["d1", "d9", "d2"]}
    with pytest.warns(UserWarning, match=".") as told:
        lists = unskew.read_features([ITEMS, QUERIES], candidates=shown)
    said = " ".join(str(each.message) for each in told)
    assert "dict: 1 of 2 queries have no row, first 3; their values are missing" in said
    assert "dict: 1 of 3 documents of queries have no row, first (query 1, document d9); they are left out" in said
    assert list(rows(lists)) == [("1", "d1"), ("3", "d2")]
    assert np.isnan(rows(lists)["3", "d2"]["words"])
    with pytest.raises(DataError, match=r"none of 1 documents has a row, first \(query 1, document x\).*ids"):
        unskew.read_features(ITEMS, candidates={"query_id": [1], "doc_id": ["x"]})


def test_pairs_in_two_tables_are_those_of_either() -> None:
    other = {"query_id": [2, 2], "doc_id": ["d1", "d3"], "popularity": [7, 9]}
    lists = unskew.read_features([PAIRS, other])
    assert list(rows(lists)) == [("1", "d2"), ("1", "d1"), ("2", "d1"), ("2", "d3")]
    assert str(rows(lists)["2", "d3"]) == "{'bm25': nan, 'popularity': 9.0}"
    assert rows(lists)["2", "d1"] == {"bm25": 1.5, "popularity": 7.0}
    assert lists.labels.tolist() == [2, 1, 0, 0]


def test_an_id_in_disguise_is_left_out_and_told() -> None:
    count = 300
    items = {
        "doc_id": np.arange(count),
        "title_long": [f"the product number {at}" for at in range(count)],
        "shop": [f"shop {at % 40}" for at in range(count)],
        "empty": [None] * count,
    }
    with pytest.warns(UserWarning, match=".") as told:
        lists = unskew.read_features(
            items, candidates={"query_id": np.zeros(count, int), "doc_id": np.arange(count)}
        )
    said = " ".join(str(each.message) for each in told)
    assert "title_long has 300 values over 300 documents, an id or a text and no category; it is left out" in said
    assert "empty has no values, and is left out" in said
    assert lists.columns is not None
    assert lists.columns.names == ("shop",)
    assert len(lists.columns.categories["shop"]) == 40


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (
            [ITEMS | {"doc_id": ["a", "b", "a"]}, PAIRS],
            r"1 rows repeat a document, first document a; keep one row",
        ),
        (
            [QUERIES | {"query_id": [2, 2]}, PAIRS],
            r"1 rows repeat a query, first query 2; keep one row for each qu",
        ),
        ([PAIRS, ITEMS | {"bm25": [1, 2, 3]}], r"bm25 is a feature here and in dict; rename or remove the one in"),
        (
            [PAIRS, {"query_id": [1], "doc_id": ["d2"], "bm25": [1.0], "x": [2]}],
            "has other columns than the first",
        ),
        ([], "no features were named"),
        ([{"x": [1.0]}], "has neither query_id nor doc_id; there are x"),
        ([{"query_id": [1], "doc_id": ["a"], "label": [1]}], "has no features"),
    ],
)
def test_what_is_wrong_is_named(sources: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        unskew.read_features(sources)


def test_named_features_can_be_simulated_on() -> None:
    """The ranker that orders simulated pages sees categories and gaps as numbers too."""
    rng = np.random.default_rng(0)
    table = {"query_id": np.repeat(np.arange(20), 10), "doc_id": np.arange(200), "label": rng.integers(0, 3, 200)}
    price = np.where(rng.random(200) < 0.2, NAN, table["label"] + rng.random(200))
    lists = unskew.read_features(table | {"price": price, "brand": rng.choice(["a", "b"], 200).tolist()})
    log = unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=100, seed=0)
    assert log.lists.columns == lists.columns


def test_a_file_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "items.json").write_text("{}")
    with pytest.raises(DataError, match=r"items\.json: not a table of features; features are read from \.parquet"):
        unskew.read_features(tmp_path / "items.json")


def test_a_changed_item_table_is_never_read_stale(tmp_path: Path) -> None:
    pacsv.write_csv(pa.table(PAIRS), tmp_path / "pairs.csv")
    for price in (1.0, 2.0):
        pacsv.write_csv(pa.table({"doc_id": ["d1", "d2"], "price": [price, price]}), tmp_path / "items.csv")
        lists = unskew.read_features([tmp_path / "pairs.csv", tmp_path / "items.csv"])
        assert rows(lists)["1", "d1"]["price"] == price
