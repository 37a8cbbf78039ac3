"""The journey of docs/your_log.md: from a shop's own tables to ranked products, judged by a truth no file has."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unskew
from tests.journeys.test_quick_start import Reader, blocks_of, commands_of
from tests.journeys.test_shop import shop_module
from unskew.types import Lists

torch.set_num_threads(1)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "your_log.md"
FEATURES = [f"examples/shop/{name}.csv" for name in ("products", "queries", "matches")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a reader has done all that the page says."""
    place = tmp_path_factory.mktemp("journey")
    shutil.copytree(ROOT / "examples" / "shop", place / "examples" / "shop")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        with pytest.warns(UserWarning, match="rows were left out"):  # of the frame; of the file, ingest says it
            Reader(place).follow(PAGE)
        yield place


@pytest.fixture(scope="module")
def truth() -> Lists:
    """The shop's tables as a matrix that somebody prepared, with the grades that nobody has."""
    shop: Any = shop_module().make_shop()
    rating = np.where(np.isnan(shop.rating), np.nanmean(shop.rating), shop.rating)
    columns = np.column_stack([shop.price, rating, np.isnan(shop.rating), shop.reviews, shop.margin])
    products = np.hstack([columns, np.eye(10)[shop.brand]])
    lists = [shop.found(query) for query in range(len(shop.queries))]
    rows = np.concatenate(lists)
    query = np.repeat(np.arange(len(lists)), [len(found) for found in lists])
    pairs = np.column_stack([shop.match[query, rows], np.eye(2)[shop.kind[query]]])
    return Lists(
        np.hstack([products[rows], pairs]).astype(np.float32),
        np.concatenate([[0], np.cumsum([len(found) for found in lists])]),
        shop.grades[query, rows].astype(np.int16),
        np.array(shop.queries),
        doc_ids=np.array(shop.sku)[rows],
    )


def quality(scores: Any, truth: Lists) -> float:
    """nDCG@10 by what people want."""
    return unskew.measure_ranking(np.asarray(scores), truth, ("ndcg@10",)).means["ndcg@10"]


def said(before: str) -> float:
    """The number that stands behind these words of the page."""
    found = re.search(rf"{re.escape(before)}\s+(0\.\d+)", PAGE.read_text())
    assert found is not None
    return float(found[1])


def predicted(path: Path, truth: Lists) -> list[float]:
    """Scores of a file by query and SKU, in the order of the truth."""
    with path.open(newline="") as file:
        scores = {(row["query"], row["sku"]): float(row["score"]) for row in csv.DictReader(file)}
    return [scores[pair] for pair in zip(np.repeat(truth.query_ids, truth.sizes), truth.doc_ids, strict=True)]


def test_the_ranker_is_as_good_as_one_prepared_by_hand_and_better_than_a_naive_one(
    folder: Path, truth: Lists
) -> None:
    lists = replace(truth, labels=np.zeros_like(truth.labels))
    hand = unskew.learn(
        unskew.read_log(folder / "parts/train", lists),
        "dla",
        validation=unskew.read_log(folder / "parts/validation", lists),
    )
    unskew.learn("parts", features=FEATURES, method="naive", out="runs/naive")
    unskew.predict("runs/naive", FEATURES, out="naive.csv")
    found = quality(predicted(folder / "scores.csv", truth), truth)
    assert found == pytest.approx(quality(hand.score(lists), truth), abs=0.02)
    naive = quality(predicted(folder / "naive.csv", truth), truth)
    assert found > naive + 0.03
    assert [said("training on the same clicks"), said("this run")] == pytest.approx([naive, found], abs=0.02)


def test_the_page_says_how_good_the_order_shown_is(folder: Path, truth: Lists) -> None:
    log = unskew.read_log(folder / "log/impressions", replace(truth, labels=np.zeros_like(truth.labels)))
    place = np.full(len(truth.features), 1e3)
    usual = ~log.randomized
    shown = np.bincount(log.row[usual], minlength=len(place))
    total = np.bincount(log.row[usual], log.position[usual], minlength=len(place))
    place[shown > 0] = total[shown > 0] / shown[shown > 0]
    assert said("the order shown has nDCG@10") == pytest.approx(quality(-place, truth), abs=0.01)


def test_a_dozen_commands_at_most() -> None:
    blocks = list(blocks_of(PAGE.read_text()))
    commands = [line for block in blocks if block.language == "bash" for line in commands_of(block.text)]
    assert 5 <= len(commands) <= 12
    memory = [block for block in blocks if block.language == "python"][-1]
    assert len(memory.text.splitlines()) <= 12


def test_a_fresh_process_ranks_what_it_has_never_seen(folder: Path) -> None:
    code = """
import csv, unskew
rows = list(csv.DictReader(open("examples/shop/products.csv")))[:30]
number = lambda text: float(text or "nan")
table = {name: [number(row[name]) for row in rows] for name in ("price", "rating", "reviews", "margin")}
table |= {"text_match": [3.0] * 30, "kind": ["bargain"] * 30, "brand": ["New"] * 30}
print(*unskew.load("runs/dla").rank(table))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True, timeout=120
    )
    assert sorted(map(int, done.stdout.split())) == list(range(30))


def test_names_are_said_once(folder: Path) -> None:
    written = tomllib.loads((folder / "runs/dla/run.toml").read_text())
    assert written["data"]["columns"] == {"query_id": "query", "doc_id": "sku"}
    assert (folder / "scores.csv").read_text().splitlines()[0] == '"query","sku","score","rank"'
