"""Tables of pandas, polars, Arrow, dicts and files are the same table."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.errors import DataError
from unskew.names import NO_NAMES, Names
from unskew.tables.frames import arrow_table, is_frame

ROWS: dict[str, list[Any]] = {"sku": ["a", "b", "c"], "price": [1.5, None, 2.0], "brand": ["x", None, "y"]}


def write_csv(path: Path) -> Path:
    path.write_text("sku,price,brand\na,1.5,x\nb,,\nc,2.0,y\n")
    return path


@pytest.mark.parametrize("kind", ["dict", "arrow", "reader", "pandas", "polars", "csv", "gz", "parquet", "folder"])
def test_all_are_one_table(kind: str, tmp_path: Path) -> None:
    table = pa.table(ROWS)
    pq.write_table(table, tmp_path / "items.parquet")
    (tmp_path / "parts").mkdir()
    pq.write_table(table.slice(0, 1), tmp_path / "parts" / "0.parquet")
    pq.write_table(table.slice(1), tmp_path / "parts" / "1.parquet")
    with gzip.open(tmp_path / "packed.csv.gz", "wt") as file:
        file.write(write_csv(tmp_path / "items.csv").read_text())
    source: Any = {
        "dict": ROWS,
        "arrow": table,
        "reader": pa.RecordBatchReader.from_batches(table.schema, table.to_batches()),
        "pandas": pd.DataFrame(ROWS, index=["p", "q", "r"]),
        "polars": pl.DataFrame(ROWS),
        "csv": tmp_path / "items.csv",
        "gz": str(tmp_path / "packed.csv.gz"),
        "parquet": tmp_path / "items.parquet",
        "folder": tmp_path / "parts",
    }[kind]
    found = arrow_table(source, Names({"doc_id": "sku"}))
    assert found.to_pydict() == {"doc_id": ROWS["sku"], "price": ROWS["price"], "brand": ROWS["brand"]}
    assert is_frame(source) == (kind in ("dict", "arrow", "reader", "pandas", "polars"))


def test_columns_of_text_have_the_type_of_all_their_values(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "id,whole,real,flag,day,mixed,gap\n"
        "007,1,1,true,2024-05-01,1,NA\n"
        "8,-2,2.5e3,false,2024-05-02 12:30:00,x,4\n"
    )
    kinds = [str(field.type) for field in arrow_table(path).schema]
    assert kinds == ["string", "int64", "double", "bool", "timestamp[us]", "string", "int64"]


def test_ids_are_whole_numbers_or_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("sku,query_id,page_id,price\n12345678901234567890,NA,7,12345678901234567890\n1e5,nan,8,1\n")
    found = arrow_table(path, Names({"doc_id": "sku"}))
    assert found["doc_id"].to_pylist() == ["12345678901234567890", "1e5"]
    assert found["query_id"].to_pylist() == ["NA", "nan"]
    assert found["page_id"].to_pylist() == [7, 8]
    assert str(found["price"].type) == "double"


def test_a_matrix_is_a_column_of_lists() -> None:
    found = arrow_table({"doc_id": [1, 2], "vector": np.array([[1.0, 2.0], [3.0, 4.0]])})
    assert found["vector"].to_pylist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("source", "columns", "message"),
    [
        (
            ROWS,
            Names({"doc_id": "skuu"}),
            r"dict: there is no column skuu\. Did you mean sku\? Known: brand, price, sku",
        ),
        (ROWS, Names({"brand": "sku"}), r"both brand and sku would be brand; rename or remove the column brand"),
        (7, None, "cannot take a table from int; give a data frame of pandas or polars"),
        ([1, 2], None, "cannot take a table from list"),
        ({"a": [1, "x"]}, None, "dict: cannot be read as a table"),
        ({"a": [1], "b": [1, 2]}, None, "dict: cannot be read as a table"),
    ],
)
def test_what_is_wrong_is_named(source: Any, columns: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        arrow_table(source, columns or NO_NAMES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a,b\n1,2\n3\n", r"t\.csv:3: wrong number of fields"),
        (b"a,b\n1,\xff\xfe\n", "b has bytes that are no UTF-8"),
        (b"", "the file is empty"),
    ],
)
def test_a_broken_csv_is_refused_with_its_place(text: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(text)
    with pytest.raises(DataError, match=message):
        arrow_table(tmp_path / "t.csv")


def test_two_names_may_be_exchanged() -> None:
    found = arrow_table({"doc_id": [1], "sku": ["a"]}, Names({"doc_id": "sku", "sku": "doc_id"}))
    assert found.to_pydict() == {"sku": [1], "doc_id": ["a"]}
