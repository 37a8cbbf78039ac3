"""Scores and ranks written for every document, from files and from tables, under their own names."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

import unskew
from unskew.errors import UnskewError
from unskew.terminal.main import app

torch.set_num_threads(1)
NAMES = {"query_id": "term", "doc_id": "sku"}


@dataclass(frozen=True)
class Shop:
    """A run on items and pairs, and their files."""

    folder: Path
    run: unskew.Run

    def path(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    folder, rng = tmp_path_factory.mktemp("shop"), np.random.default_rng(0)
    brands = np.array([f"brand {each % 4}" for each in range(200)])
    items = pa.table({"sku": [f"s{each}" for each in range(200)], "price": rng.random(200), "brand": brands})
    pacsv.write_csv(items, folder / "items.csv")
    query, document = rng.integers(8, size=600), np.argsort(rng.random((600, 200)), axis=1)[:, :4]
    want = items["price"].to_numpy() * (0.5 + 0.5 * (brands == "brand 1"))
    click = rng.random((600, 4)) < 0.8 * want[document] / np.arange(1, 5)
    log = pa.table(
        {
            "page_id": np.repeat(np.arange(600), 4),
            "term": [f"q{each}" for each in np.repeat(query, 4)],
            "sku": [f"s{each}" for each in document.ravel()],
            "position": np.tile(np.arange(1, 5), 600),
            "click": click.ravel().astype(int),
        }
    )
    pq.write_table(log, folder / "shown.parquet")
    how = {"ranker": "linear", "steps": 80, "engine": "none", "out": folder / "run"}
    run = unskew.learn(log, "naive", features=items, columns=NAMES, **how)
    return Shop(folder, run)


def command(*words: object) -> tuple[int, str, str]:
    ended = CliRunner().invoke(app, ["predict", *map(str, words)])
    if isinstance(ended.exception, UnskewError):
        return ended.exception.status, ended.stdout, str(ended.exception)
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return ended.exit_code, ended.stdout, ended.stderr


NAMED = ("--column", "query_id=term", "--column", "doc_id=sku")


def test_every_pair_once_under_their_names(shop: Shop, tmp_path: Path) -> None:
    base = (shop.path("run"), "--features", shop.path("items.csv"), "--candidates", shop.path("shown.parquet"))
    status, printed, told = command(*base, *NAMED, "--out", tmp_path / "scores.parquet")
    assert (status, printed) == (0, "")
    found = pq.read_table(tmp_path / "scores.parquet")
    assert found.column_names == ["term", "sku", "score", "rank"]
    shown = pq.read_table(shop.path("shown.parquet")).group_by(["term", "sku"]).aggregate([])
    assert len(found) == len(shown)
    assert f"Scored {len(found):,} documents of 8 queries" in told
    for query in ("q0", "q7"):
        rows = [row for row in found.to_pylist() if row["term"] == query]
        best = sorted(rows, key=lambda row: -row["score"])
        assert [row["rank"] for row in best] == list(range(1, len(rows) + 1))
    # as the model scores them by itself
    items = {row["sku"]: row for row in pacsv.read_csv(shop.path("items.csv")).to_pylist()}
    some = [row for row in found.to_pylist() if row["term"] == "q3"]
    table = pa.Table.from_pylist([items[row["sku"]] for row in some])
    assert shop.run.score(table) == pytest.approx([row["score"] for row in some], abs=1e-6)


def test_standard_output_csv_and_json(shop: Shop, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("term,sku\nq1,s3\nq1,s4\nq2,s5\n")
    base = (shop.path("run"), "--features", shop.path("items.csv"), "--candidates", pairs, *NAMED)
    status, printed, told = command(*base)
    assert status == 0
    assert "Scored 3 documents of 2 queries." in told
    read = pacsv.read_csv(io.BytesIO(printed.encode()))
    assert read.column_names == ["term", "sku", "score", "rank"]
    assert command(*base, "--out", tmp_path / "scores.csv")[0] == 0
    assert (tmp_path / "scores.csv").read_text() == printed
    rows = json.loads(command(*base, "--json")[1])
    assert [row["sku"] for row in rows] == read["sku"].to_pylist()
    about = json.loads(command(*base, "--json", "--out", tmp_path / "again.csv")[1])
    assert about == {"out": str(tmp_path / "again.csv"), "queries": 2, "documents": 3}


def test_what_training_knew_is_known_of_a_few_rows(shop: Shop) -> None:
    """A category with a value for every row, and one that is empty, are still the category."""
    pairs = {"query_id": ["q"] * 60, "doc_id": np.arange(60), "price": np.arange(60) / 60}
    new = [f"new {each}" for each in range(60)]
    found = unskew.predict(shop.run, pairs | {"brand": new, "colour": new}).table
    assert found["rank"].to_pylist() == list(range(60, 0, -1))
    with pytest.warns(UserWarning, match="missing where training had no gaps: brand"):
        found = unskew.predict(shop.run, pairs | {"brand": [None] * 60}).table
    assert found["rank"].to_pylist() == list(range(60, 0, -1))


def test_blocks_are_one_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"candidates": shop.path("shown.parquet"), "columns": NAMES}
    whole = unskew.predict(shop.run, shop.path("items.csv"), **asked).table
    monkeypatch.setattr("unskew.learning.scoring.scorer._CHUNK", 100)
    parts = unskew.predict(shop.run, shop.path("items.csv"), **asked).table
    assert parts["score"].num_chunks > 1
    assert parts["rank"].to_pylist() == whole["rank"].to_pylist()
    assert parts["score"].to_numpy() == pytest.approx(whole["score"].to_numpy(), abs=1e-6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "scores.xlsx"], "--out: unknown name '.xlsx'"),
        ([], "--candidates"),
        (
            ["--column", "query_id=tern", "--candidates", "{shown}"],
            "missing columns: query_id; there are page_id, term, sku",
        ),
    ],
)
def test_refused(shop: Shop, words: list[str], message: str) -> None:
    words = [shop.path("shown.parquet") if word == "{shown}" else word for word in words]
    status, printed, told = command(shop.path("run"), "--features", shop.path("items.csv"), *NAMED[2:], *words)
    assert status in (1, 2)
    assert printed == ""
    assert message in told


def test_a_file_that_is_there_stays(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("mine")
    base: tuple[Any, ...] = (shop.path("run"), "--features", shop.path("items.csv"), *NAMED)
    base += ("--candidates", shop.path("shown.parquet"), "--out", tmp_path / "scores.csv")
    assert "--force" in command(*base)[2]
    assert command(*base, "--force")[0] == 0
    status, _, told = command(*base[:1], "--features", shop.path("nothing.csv"))
    assert status == 1
    assert "nothing.csv" in told
