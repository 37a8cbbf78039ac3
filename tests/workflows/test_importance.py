"""What a run looks at comes back by the names of its features, and is what they do."""

from __future__ import annotations

import csv
import io
import json
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
from unskew.errors import ConfigError
from unskew.learning.methods import PACKAGES
from unskew.tables.features.encoding import fit_encoding
from unskew.terminal.main import app
from unskew.types import Log
from unskew.workflows.inspections.importance import importance

torch.set_num_threads(1)
NAN = float("nan")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Items of which the brand matters most, then the price; views are noise; words are of the query."""
    rng = np.random.default_rng(0)
    count = 120
    items = {
        "doc_id": np.arange(count),
        "views": rng.normal(size=count).round(4),
        "price": np.where(rng.random(count) < 0.2, NAN, rng.random(count).round(4)),
        "brand": rng.choice(["acme", "bolt", "core", "dyne"], count).tolist(),
    }
    liked = 0.05 + 0.5 * (np.array(items["brand"]) == "core") + 0.2 * np.nan_to_num(items["price"], nan=0.5)
    page = np.repeat(np.arange(600), 5)
    query = page % 60
    shown = np.concatenate([rng.choice(count, 5, replace=False) for _ in range(600)])
    position = np.tile(np.arange(1, 6), 600)
    clicks = (rng.random(3000) < liked[shown] / np.sqrt(position)).astype(int)
    rows = {"page_id": page, "query_id": query, "doc_id": shown, "position": position, "click": clicks}
    place = tmp_path_factory.mktemp("importance")
    pacsv.write_csv(pa.table(items), place / "items.csv")
    pacsv.write_csv(pa.table({"query_id": np.arange(60), "words": np.arange(60) % 4}), place / "queries.csv")
    table = pa.table(rows | {"randomized": np.ones(3000, bool)})
    pq.write_table(table.slice(0, 2000), place / "train.parquet")
    pq.write_table(table.slice(2000), place / "test.parquet")
    return place


FILES = ("items.csv", "queries.csv")


def read(folder: Path, name: str) -> Log:
    lists = unskew.read_features([folder / file for file in FILES], candidates=folder / name)
    return unskew.read_log(folder / name, lists)


@pytest.fixture(scope="module")
def log(folder: Path) -> Log:
    return read(folder, "train.parquet")


@pytest.fixture(scope="module")
def runs(log: Log) -> dict[str, unskew.Run]:
    trees = unskew.rankers.Trees(rounds=10, min_data_in_leaf=5)
    return {
        "linear": unskew.learn(log, "naive", ranker="linear", steps=150),
        "mlp": unskew.learn(log, "naive", ranker="mlp", steps=150),
        "trees": unskew.learn(log, "naive", ranker=trees),
        "xgboost": unskew.learn(log, PACKAGES["xgboost"](name="xgboost", rounds=8), validate_on="nothing"),
    }


def by_name(values: Any, names: tuple[str, ...]) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))


@pytest.mark.parametrize("name", ["trees", "xgboost"])
def test_gains_of_columns_of_one_feature_are_added(name: str, runs: dict[str, unskew.Run], tmp_path: Path) -> None:
    run = runs[name]
    found = importance(run)
    assert found.names == ("views", "price", "brand", "words")
    assert found.gain is not None
    assert found.gain.sum() == pytest.approx(1.0)
    assert found.rows()[0]["feature"] == "brand"
    if name == "trees":
        booster, kept = run.model.ranker.boosters[0], int(run.model.ranker.kept[0])  # type: ignore[attr-defined]
        gain = booster.feature_importance("gain", iteration=kept)
        brand = [at for at, each in enumerate(run.model.card.encoding.columns.names) if each.startswith("brand")]
        assert found.gain[2] == pytest.approx(gain[brand].sum() / gain.sum())
    run.save(tmp_path / "run")
    again = importance(tmp_path / "run")
    np.testing.assert_allclose(again.gain, found.gain)  # type: ignore[arg-type]


def test_weights_are_the_spread_of_what_a_feature_adds(runs: dict[str, unskew.Run], log: Log) -> None:
    run = runs["linear"]
    found = importance(run)
    assert found.weight is not None
    encoding = fit_encoding(log.lists)
    prepared = run.model.prepared(log.lists)
    weights = run.model.numbers()["ranker.0.weight"][0]
    for at in range(4):
        own = encoding.origins == at
        added = prepared[:, own] @ weights[own]
        assert found.weight[at] == pytest.approx(added.std(), rel=1e-3, abs=1e-7)
    assert found.rows()[0]["feature"] == "brand"


@pytest.mark.parametrize("name", ["linear", "mlp", "trees", "xgboost"])
def test_shuffling_tells_what_matters(name: str, runs: dict[str, unskew.Run], folder: Path) -> None:
    test = read(folder, "test.parquet")
    found = importance(runs[name], log=test, repeats=3)
    assert found.permutation is not None
    assert found.error is not None
    drops, errors = by_name(found.permutation, found.names), by_name(found.error, found.names)
    assert drops["brand"] > 4 * errors["brand"]
    assert abs(drops["views"]) < 0.3 * drops["brand"]
    assert drops["words"] == 0.0  # the same for all results of a page
    assert "shuffled pages" in found.measured
    assert found.rows()[0]["feature"] == "brand"
    again = importance(runs[name], log=test, repeats=3)
    np.testing.assert_array_equal(again.permutation, found.permutation)  # type: ignore[arg-type]


def test_what_a_click_counts_without_the_only_feature() -> None:
    """A ranker of one feature loses all that it knows: a click then counts the mean over all orders."""
    rng = np.random.default_rng(3)
    pages = np.repeat(np.arange(300), 4)
    x = rng.random(1200)
    rows = {"query_id": pages, "doc_id": np.arange(1200), "x": x}
    clicks = (rng.random(1200) < 0.3 * x).astype(int)
    lists = unskew.read_features(rows)
    offsets, ranks = np.arange(0, 1201, 4), np.tile(np.arange(1, 5), 300)
    log = Log(lists, np.arange(300), offsets, np.arange(1200), ranks, clicks.astype(np.uint8))
    run = unskew.learn(log, "naive", ranker="linear", steps=50)
    found = importance(run, log=log, repeats=20)
    ladder = 1 / np.log2(np.arange(2, 6))
    order = np.argsort(-x.reshape(300, 4), axis=1)
    ranked = np.take_along_axis(clicks.reshape(300, 4), order, 1)
    base = (ranked * ladder).sum() / clicks.sum()
    assert found.permutation is not None
    assert found.permutation[0] == pytest.approx(base - ladder.mean(), abs=0.02)
    assert f"a click counts {base:.4f}" in found.measured


def test_what_cannot_be_told(runs: dict[str, unskew.Run], folder: Path) -> None:
    with pytest.raises(
        ConfigError, match="neither trees nor one weight for each feature: give log= and features="
    ):
        importance(runs["mlp"])
    with pytest.raises(ConfigError, match="give their features= too"):
        importance(runs["mlp"], log=folder / "test.parquet")
    with pytest.raises(ConfigError, match="features= are those of a log"):
        importance(runs["mlp"], features=folder / "items.csv")


def test_the_command(runs: dict[str, unskew.Run], folder: Path, tmp_path: Path) -> None:
    runs["trees"].save(tmp_path / "run")
    told = CliRunner().invoke(app, ["importance", str(tmp_path / "run")])
    assert told.exit_code == 0, told.output
    assert told.stdout.splitlines()[1].startswith("brand")
    given = ["--log", str(folder / "test.parquet"), "--repeats", "1"]
    given += [word for file in FILES for word in ("--features", str(folder / file))]
    asked = CliRunner().invoke(app, ["importance", str(tmp_path / "run"), *given, "--json"])
    assert asked.exit_code == 0, asked.output
    first = json.loads(asked.stdout)["features"][0]
    assert first["feature"] == "brand"
    assert set(first) == {"feature", "permutation", "error", "gain"}
    renamed = CliRunner().invoke(app, ["importance", str(tmp_path / "run"), *given, "--column", "doc_id=sku"])
    assert renamed.exit_code == 0, renamed.output  # a name that no file has, where ours is there
    plain = CliRunner().invoke(app, ["importance", str(tmp_path / "run"), *given, "--csv", "-"])
    rows = list(csv.DictReader(io.StringIO(plain.stdout)))
    assert rows[0]["feature"] == "brand"
    assert float(rows[0]["permutation"]) == pytest.approx(first["permutation"])
