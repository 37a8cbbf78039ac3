"""Trees on raw features give the scores of the model, row for row, whatever is missing or new."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import torch

import unskew
from unskew.errors import ConfigError, UnskewError
from unskew.files.trees import check_lightgbm
from unskew.learning.methods import PACKAGES
from unskew.learning.scoring.raw_trees import RawTrees, TreeColumn
from unskew.learning.scoring.scorer import Scorer, load_scorer
from unskew.tables.features.encoding import EncodingRules
from unskew.tables.lists.scaling import Scaler
from unskew.types import Log

torch.set_num_threads(1)
NAN = float("nan")
BRANDS = [f"brand {at}" for at in range(40)]


def items(count: int, seed: int) -> dict[str, Any]:
    """Numbers with gaps and of many sizes, and categories, some of them rare."""
    rng = np.random.default_rng(seed)
    brand = rng.choice(np.array([*BRANDS, None], object), count, p=[*(np.arange(40, 0, -1) / 900), 80 / 900])
    return {
        "price": np.where(rng.random(count) < 0.2, NAN, np.exp(rng.normal(3, 2, count))).round(2),
        "unit price": rng.normal(0, 1e-4, count),
        "brand": brand.tolist(),
        "size": rng.choice(["s", "m", "l"], count).tolist(),
        "views": rng.integers(0, 1000, count),
    }


@pytest.fixture(scope="module")
def log() -> Log:
    rng = np.random.default_rng(1)
    table = items(300, seed=0)
    liked = np.nan_to_num(np.log1p(table["price"]), nan=4.0) / 10 + 0.3 * (np.array(table["size"]) == "m")
    liked = liked + 0.3 * np.isin(table["brand"], BRANDS[::5]) + 0.2 * (table["views"] > 400)
    page = np.repeat(np.arange(200), 6)
    shown = np.concatenate([rng.choice(300, 6, replace=False) for _ in range(200)])
    clicks = (rng.random(1200) < 0.4 * liked[shown].clip(0, 0.9)).astype(int)
    pairs = {"query_id": page, "doc_id": shown}
    lists = unskew.read_features({"doc_id": np.arange(300), **table}, candidates=pairs)
    rows = pairs | {"page_id": page, "position": np.tile(np.arange(1, 7), 200), "click": clicks}
    return unskew.log_from_table(rows, lists)


def learned(log: Log, kind: str, scaling: str, **more: Any) -> Scorer:
    rules = EncodingRules(most_categories=20, least_share=0.01, **more)
    if kind == "package":
        method = PACKAGES["lightgbm"](name="lightgbm", rounds=8, min_data_in_leaf=5)
        return unskew.learn(log, method, scaling=scaling, encoding=rules, validate_on="nothing").model
    trees = unskew.rankers.Trees(rounds=8, min_data_in_leaf=5)
    several = "einter" if kind == "several" else "naive"
    return unskew.learn(log, several, ranker=trees, scaling=scaling, encoding=rules).model


def coded(raw: RawTrees, table: dict[str, Any]) -> np.ndarray[Any, Any]:
    """A table as the text takes it, in double precision, by what the JSON says."""
    columns = []
    for feature in json.loads(json.dumps(raw.features)):
        values = table[feature["name"]]
        if "codes" in feature:
            codes, other = feature["codes"], feature["other"]
            values = [NAN if value is None else codes.get(value, other) for value in values]
        columns.append(np.asarray(values, np.float64))
    return np.column_stack(columns)


def raw_scores(raw: RawTrees, table: dict[str, Any]) -> Any:
    check_lightgbm(raw.text)
    booster = lightgbm.Booster(model_str=raw.text)
    return booster.predict(coded(raw, table), num_threads=1)


def fresh(seed: int) -> dict[str, Any]:
    """Other items: with gaps everywhere and brands that training did not have."""
    table = items(500, seed)
    rng = np.random.default_rng(seed)
    table["views"] = np.where(rng.random(500) < 0.1, NAN, table["views"])
    table["brand"] = [value if rng.random() < 0.8 else "never seen" for value in table["brand"]]
    table["size"] = [value if rng.random() < 0.8 else rng.choice(["xl", None]) for value in table["size"]]
    return table


@pytest.mark.filterwarnings("ignore:.*missing where training had no gaps")
@pytest.mark.parametrize(
    ("kind", "scaling", "more"),
    [
        ("one", "standard", {}),
        ("one", "log1p", {"missing_values": "mean"}),
        ("several", "minmax", {}),
        ("package", "none", {}),
    ],
)
def test_raw_trees_score_as_the_model_does(kind: str, scaling: str, more: Any, log: Log, tmp_path: Path) -> None:
    model = learned(log, kind, scaling, **more)
    raw = model.raw_trees()
    model.save(tmp_path / "model")
    scorer = load_scorer(tmp_path / "model")  # as served: without the constant that a method may add
    assert scorer.raw_trees() == raw
    assert lightgbm.Booster(model_str=raw.text).feature_name() == ["price", "unit_price", "brand", "size", "views"]
    for table in (items(300, seed=0), fresh(5)):
        expected = scorer.score(table)
        shift = model.score(table) - expected
        np.testing.assert_allclose(shift, shift.mean(), atol=1e-5)
        assert len(np.unique(expected)) > 20
        np.testing.assert_allclose(raw_scores(raw, table), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scaling", ["none", "standard", "minmax", "log1p"])
def test_no_value_flips_at_a_threshold(scaling: str, log: Log) -> None:
    """On both sides of every raw threshold, 64-bit numbers go where their 32-bit rounding goes when scaled."""
    model = learned(log, "package", scaling)
    encoding = model.card.encoding
    assert encoding is not None
    column = TreeColumn(encoding, Scaler(scaling, model.scaler.width, model.scaler.statistics), 0)
    values = np.sort(items(300, seed=0)["price"][~np.isnan(items(300, seed=0)["price"])])[::7]
    for value in values.astype(np.float32):
        seen = float(column.scaled(np.array([value]))[0])
        for threshold in (seen, math.nextafter(seen, -math.inf)):
            raw = column.raw(threshold)
            for near in (
                raw,
                math.nextafter(raw, math.inf),
                float(value),
                float(np.nextafter(value, np.float32(9e9))),
            ):
                goes = float(column.scaled(np.array([near], np.float32))[0]) <= threshold
                assert (near <= raw) == goes


def test_what_cannot_be_exported_says_why(log: Log) -> None:
    with pytest.raises(
        ConfigError, match="query_minmax cannot be worked into trees: it scales within a query, and a"
    ):
        learned(log, "package", "query_minmax").raw_trees()
    with pytest.raises(ConfigError, match="its score is not a sum of trees; learn with ranker trees"):
        unskew.learn(log, "naive", ranker="linear", steps=2).model.raw_trees()
    forest = unskew.learn(log, PACKAGES["xgboost"](name="xgboost", rounds=2), validate_on="nothing").model
    with pytest.raises(ConfigError, match="its trees are XGBoost's"):
        forest.raw_trees()


def test_features_without_names() -> None:
    lists = unskew.make_lists(queries=30, features=4, seed=0)
    shown = unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=500, seed=0)
    model = unskew.learn(shown, "naive", ranker=unskew.rankers.Trees(rounds=4)).model
    booster = lightgbm.Booster(model_str=model.raw_trees().text)
    assert booster.feature_name() == ["feature_1", "feature_2", "feature_3", "feature_4"]
    np.testing.assert_allclose(booster.predict(lists.features), model.score(lists), rtol=1e-5, atol=1e-6)


def test_export_writes_text_and_codes(log: Log, tmp_path: Path) -> None:
    learned(log, "one", "standard").save(tmp_path / "run")
    told = unskew.export(tmp_path / "run", "lightgbm", tmp_path / "out" / "trees.txt")
    booster = lightgbm.Booster(model_file=str(tmp_path / "out" / "trees.txt"))
    assert told.trees == booster.num_trees() > 0
    about = json.loads((tmp_path / "out" / "trees.txt.features.json").read_text())
    raw = RawTrees("", about["features"])
    table = items(300, seed=0)
    expected = load_scorer(tmp_path / "run").score(table)
    np.testing.assert_allclose(booster.predict(coded(raw, table)), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(UnskewError, match=r"trees\.txt.*exists|exists.*trees\.txt|already"):
        unskew.export(tmp_path / "run", "lightgbm", tmp_path / "out" / "trees.txt")
    with pytest.raises(ConfigError, match=r"to=: unknown name 'onnxx'\. .*lightgbm"):
        unskew.export(tmp_path / "run", "onnxx", tmp_path / "x")
