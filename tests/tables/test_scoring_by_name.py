"""Learned from named features with categories and gaps, every ranker scores tables by name, loaded or not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import unskew
from unskew.errors import DataError, RunError
from unskew.files import read_json
from unskew.learning.methods import PACKAGES
from unskew.learning.scoring.scorer import load_scorer
from unskew.tables.features.encoding import EncodingRules
from unskew.types import Log

torch.set_num_threads(1)
NAN = float("nan")


def shop(seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Items with gaps and categories, and a log of them in which the brand and the price are what is liked."""
    rng = np.random.default_rng(seed)
    count = 40
    items = {
        "doc_id": [f"d{at}" for at in range(count)],
        "price": np.where(rng.random(count) < 0.2, NAN, rng.random(count) * 10).round(2),
        "brand": rng.choice(np.array(["acme", "bolt", "core", None], object), count).tolist(),
        "stock": rng.random(count) < 0.5,
    }
    liked = 0.08 * np.nan_to_num(items["price"], nan=3.0) + 0.2 * (np.array(items["brand"]) == "acme")
    rows: dict[str, list[Any]] = {name: [] for name in ("page_id", "query_id", "doc_id", "position", "click")}
    for page in range(400):
        query = page % 20
        shown = np.random.default_rng(query).choice(count, 8, replace=False)
        shown = shown[np.argsort(rng.random(8))][:6]
        for rank, document in enumerate(shown):
            values = (
                page,
                f"q{query}",
                f"d{document}",
                rank + 1,
                int(rng.random() < liked[document] / (rank + 1)),
            )
            for name, value in zip(rows, values, strict=True):
                rows[name].append(value)
    return items, rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    items, rows = shop()
    place = tmp_path_factory.mktemp("shop")
    pacsv.write_csv(pa.table(items), place / "items.csv")
    pq.write_table(pa.table(rows), place / "log.parquet")
    return place


@pytest.fixture(scope="module")
def log(folder: Path) -> Log:
    lists = unskew.read_features(folder / "items.csv", candidates=folder / "log.parquet")
    return unskew.read_log(folder / "log.parquet", lists)


LEARNERS: dict[str, dict[str, Any]] = {
    "linear": {"method": "naive", "ranker": "linear", "steps": 30},
    "mlp": {"method": "dla", "ranker": "mlp", "steps": 30},
    "trees": {"method": "naive", "ranker": unskew.rankers.Trees(rounds=5, min_data_in_leaf=2)},
    "lightgbm": {"method": PACKAGES["lightgbm"](name="lightgbm", rounds=5, min_data_in_leaf=2)},
    "xgboost": {"method": PACKAGES["xgboost"](name="xgboost", rounds=5)},
}


@pytest.fixture(scope="module")
def runs(log: Log) -> dict[str, unskew.Run]:
    return {name: unskew.learn(log, validation=None, engine="none", **asked) for name, asked in LEARNERS.items()}


TABLE = {
    "brand": ["acme", "never seen", None, "bolt", "core"],
    "price": [1.5, NAN, 2.0, 9.0, 0.0],
    "stock": [True, False, True, True, False],
}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_table_goes_by_name(name: str, runs: dict[str, unskew.Run], tmp_path: Path) -> None:
    run = runs[name]
    assert run.model.names == ("price", "brand", "stock")
    scores = run.score(TABLE)
    assert np.isfinite(scores).all()
    mixed: dict[str, Any] = {"title": list("abcde"), "stock": TABLE["stock"], "price": TABLE["price"]}
    for table in (
        mixed | {"brand": TABLE["brand"]},
        pd.DataFrame(TABLE).astype({"brand": "category"}),
        pl.DataFrame(TABLE),
        pa.table(TABLE),
    ):
        np.testing.assert_array_equal(run.score(table), scores)
    assert run.rank(pd.DataFrame(TABLE)).tolist() == np.argsort(-scores, kind="stable").tolist()
    run.save(tmp_path / "model")
    for loaded in (unskew.load(tmp_path / "model"), load_scorer(tmp_path / "model")):
        assert loaded.names == run.model.names
        np.testing.assert_allclose(loaded.score(TABLE), scores, atol=1e-6)


def test_a_table_with_query_id_is_several_lists(runs: dict[str, unskew.Run]) -> None:
    run = runs["linear"]
    queries = ["b", "a", "b", "a", "b"]
    table = TABLE | {"query_id": queries}
    scores = run.score(table)
    np.testing.assert_allclose(scores, run.score(TABLE), atol=1e-6)
    order = run.rank(table)
    assert [queries[at] for at in order] == ["b", "b", "b", "a", "a"]
    assert (np.diff(scores[order[:3]]) <= 0).all()


def test_the_lists_of_training_score_as_they_did(runs: dict[str, unskew.Run], log: Log) -> None:
    lists = log.lists
    assert lists.columns is not None
    table: dict[str, Any] = {"query_id": np.repeat(lists.query_ids, lists.sizes)}
    for at, feature in enumerate(lists.columns.names):
        values = lists.features[:, at]
        names = lists.columns.categories.get(feature)
        missing = np.isnan(values)
        coded = np.where(missing, 0, values).astype(int)
        named = values if names is None else np.where(missing, None, np.array(names, object)[coded])
        table[feature] = named if names is None else list(named)
    for run in runs.values():
        np.testing.assert_allclose(run.score(table), run.score(lists), atol=1e-6)


def test_what_cannot_be_scored_is_told(runs: dict[str, unskew.Run]) -> None:
    model = runs["linear"].model
    with pytest.raises(DataError, match=r"missing features: brand, stock; there are price; give the features"):
        model.score({"price": [1.0]})
    with pytest.raises(
        DataError, match=r"missing features: brand \(did you mean brend for brand\?\); there are brend,"
    ):
        model.score({"brend": ["acme"], "stock": [True], "price": [1.0]})
    with pytest.raises(DataError, match="brand is a category, and these features have no names"):
        model.score(np.ones((2, 3)))
    with pytest.raises(DataError, match="row 0: price is infinite"):
        model.score({name: values[:1] for name, values in TABLE.items()} | {"price": [np.inf]})
    with pytest.raises(DataError, match="price is text here, such as 'dear'"):
        model.score({name: values[:1] for name, values in TABLE.items()} | {"price": ["dear"]})
    assert len(model.score({name: values[:0] for name, values in pa.table(TABLE).to_pydict().items()})) == 0
    lists = unskew.make_lists(queries=20, features=4, seed=0)
    nameless = unskew.learn(
        unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=200, seed=0),
        "naive",
        ranker="linear",
        steps=3,
    )
    with pytest.raises(DataError, match=r"features without names; give an array \[n, D\]"):
        nameless.score({"a": [1.0]})
    with pytest.raises(DataError, match="document 0: feature 2 is missing or not finite"):
        nameless.score(np.array([[1.0, NAN, 1.0, 1.0]]))


def test_a_damaged_encoding_is_told(runs: dict[str, unskew.Run], tmp_path: Path) -> None:
    runs["trees"].save(tmp_path / "model")
    place = tmp_path / "model" / "model.json"
    whole = read_json(place)
    fewer = whole["encoding"] | {"features": whole["encoding"]["features"][:1]}
    for encoding, message in (
        ({}, "cannot be read"),
        (fewer, "the encoding gives 2 features, not 7"),
        ([1], "read"),
    ):
        place.write_text(json.dumps(whole | {"encoding": encoding}))
        with pytest.raises(RunError, match=message):
            load_scorer(tmp_path / "model")


def test_numbers_alone_may_go_by_place(log: Log, folder: Path) -> None:
    items, _ = shop()
    numbers = {name: items[name] for name in ("doc_id", "price", "stock")}
    lists = unskew.read_features(numbers, candidates=folder / "log.parquet")
    run = unskew.learn(unskew.read_log(folder / "log.parquet", lists), "naive", ranker="linear", steps=10)
    table = {"stock": [1.0, 0.0], "price": [2.0, NAN]}
    np.testing.assert_array_equal(run.score(table), run.score(np.array([[2.0, 1.0], [NAN, 0.0]])))
    refuse = unskew.learn(log, "naive", ranker="linear", steps=3, encoding=EncodingRules(missing_values="mean"))
    assert refuse.model.card.features == 5  # price, three brands, stock


def test_trees_score_a_table_without_torch(runs: dict[str, unskew.Run], tmp_path: Path) -> None:
    runs["trees"].save(tmp_path / "model")
    code = (
        "import sys; from unskew.learning.scoring.scorer import load_scorer\n"
        f"scores = load_scorer({str(tmp_path / 'model')!r}).score("
        "{'brand': ['acme', None], 'stock': [True, False], 'price': [1.5, float('nan')]})\n"
        "assert 'torch' not in sys.modules\n"
        "print(*scores)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = runs["trees"].score({"brand": ["acme", None], "stock": [True, False], "price": [1.5, NAN]})
    np.testing.assert_allclose([float(each) for each in done.stdout.split()], expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["items", "pairs"])
def test_shards_have_the_features_that_memory_has(kind: str, folder: Path, log: Log, tmp_path: Path) -> None:
    features = folder / "items.csv"
    if kind == "pairs":
        assert log.lists.columns is not None
        raw, brands = log.lists.features, np.array([*log.lists.columns.categories["brand"], None], object)
        codes = np.where(np.isnan(raw[:, 1]), -1, raw[:, 1]).astype(int)
        ids = {"query_id": np.repeat(log.lists.query_ids, log.lists.sizes), "doc_id": log.lists.document_ids()}
        features = tmp_path / "pairs.parquet"
        pq.write_table(
            pa.table(ids | {"price": raw[:, 0], "brand": list(brands[codes]), "stock": raw[:, 2]}), features
        )
    asked: dict[str, Any] = {"ranker": "linear", "steps": 40, "validate_on": "nothing", "seed": 1}
    one = unskew.learn(folder / "log.parquet", "naive", features=features, out=tmp_path / "one", **asked)
    from unskew.workflows.runs.learn import learn_request
    from unskew.workflows.runs.request import ask

    request = ask(
        folder / "log.parquet", features=features, method="naive", ranker="linear",
        options={name: value for name, value in asked.items() if name != "ranker"},
        settings={"data.shards": 2} if kind == "pairs" else {"data.memory": "1MB"},
    )  # fmt: skip
    two = learn_request(request, tmp_path / "two")
    first, second = (run.model.card.encoding for run in (one, two))
    assert first is not None
    assert second is not None
    assert first.columns == second.columns
    for field, other in zip(first.to_dict()["features"], second.to_dict()["features"], strict=True):
        numbers, others = ([value for value in each.values() if type(value) is float] for each in (field, other))
        assert numbers == pytest.approx(others, rel=1e-6)
        assert {**field, "mean": 0, "spread": 0, "missing": 0} == {**other, "mean": 0, "spread": 0, "missing": 0}
    for name, values in one.model.scaler.statistics.items():
        np.testing.assert_allclose(two.model.scaler.statistics[name], values, rtol=1e-6)
    assert np.corrcoef(one.score(TABLE), two.score(TABLE))[0, 1] > 0.9


def test_grades_alone_take_the_features_of_the_log(folder: Path, tmp_path: Path) -> None:
    """A table of grades names documents; their features are those of the same items."""
    graded = {"q": ["x", "x", "y", "y"], "doc_id": ["d1", "d2", "d3", "d4"], "label": [2, 0, 1, 0]}
    pacsv.write_csv(pa.table(graded), tmp_path / "graded.csv")
    run = unskew.learn(
        folder / "log.parquet", "naive", features=folder / "items.csv", test=tmp_path / "graded.csv",
        columns={"query_id": "q"}, ranker="linear", steps=5, out=tmp_path / "run",
    )  # fmt: skip
    assert run.metrics.test.queries == 2


VALUE = st.one_of(st.none(), st.floats(-1e6, 1e6, width=32))
WORD = st.one_of(st.none(), st.sampled_from(["acme", "bolt", "core", "new", ""]))


@given(
    rows=st.lists(st.tuples(VALUE, WORD, st.one_of(st.none(), st.booleans())), min_size=1, max_size=6),
    order=st.permutations(["price", "brand", "stock", "extra"]),
    name=st.sampled_from(["linear", "mlp", "trees", "lightgbm"]),
)
@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.filterwarnings("ignore:.*missing where training had no gaps")
def test_any_table_has_finite_scores(rows: Any, order: Any, name: str, runs: dict[str, unskew.Run]) -> None:
    columns: dict[str, Any] = dict(
        zip(["price", "brand", "stock"], map(list, zip(*rows, strict=True)), strict=True)
    )
    columns["price"] = np.array([NAN if value is None else value for value in columns["price"]])
    columns["extra"] = list(range(len(rows)))
    scores = runs[name].score({each: columns[each] for each in ("price", "brand", "stock")})
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(runs[name].score({each: columns[each] for each in order}), scores)
