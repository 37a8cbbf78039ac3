"""Rankers as scikit-learn has estimators: its own checks, grids over folds of groups, pipelines, data frames."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import unskew
from unskew.sklearn import Ranker
from unskew.sklearn.ranker import ShownRows
from unskew.types import Array

torch.set_num_threads(1)
CANNOT: dict[str, str] = {}
"""Checks of scikit-learn that cannot hold for a ranker, with the reason: none so far."""


class Data:
    """40 queries of six results; the first feature is wanted, the second is what the pages were ordered by."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.X = rng.normal(size=(240, 3)).astype(np.float32)
        self.query = np.repeat(np.arange(40), 6)
        place = np.lexsort((-self.X[:, 1], self.query))
        self.position = np.empty(240, int)
        self.position[place] = np.tile(np.arange(1, 7), 40)
        wanted = 1 / (1 + np.exp(-3 * self.X[:, 0]))
        self.click = (rng.random(240) < wanted / self.position**0.5).astype(int)
        self.grade = (self.X[:, 0] > 0.5).astype(int)


@pytest.fixture(scope="module")
def data() -> Data:
    return Data()


@pytest.mark.parametrize(
    ("estimator", "check"),
    list(
        estimator_checks_generator(Ranker("dla", "linear", steps=3), expected_failed_checks=CANNOT, mark="xfail")
    ),
    ids=lambda given: getattr(getattr(given, "func", None), "__name__", ""),
)
def test_scikit_learn_checks(estimator: Ranker, check: Any) -> None:
    check(estimator)


def test_it_is_learn(data: Data) -> None:
    """The same model as from a log that is put together by hand."""
    ranker = Ranker("dla", "linear", steps=20).fit(data.X, data.click, groups=data.query, position=data.position)
    order = np.lexsort((data.position, data.query))
    lists = unskew.Lists(data.X[order], np.arange(41) * 6, np.zeros(240, np.int16), np.arange(40))
    log = unskew.Log(
        lists,
        query=np.arange(40),
        offsets=np.arange(41) * 6,
        row=np.arange(240),
        position=data.position[order].astype(np.int16),
        click=data.click[order].astype(np.uint8),
    )
    run = unskew.learn(log, "dla", ranker="linear", steps=20, seed=0)
    assert ranker.predict(data.X[order]) == pytest.approx(run.score(lists), abs=1e-6)
    assert ranker.propensity_ == pytest.approx(run.propensity())


def test_the_order_of_rows_does_not_matter(data: Data) -> None:
    mixed = np.random.default_rng(1).permutation(240)
    given = {"groups": data.query, "position": data.position}
    one = Ranker("dla", "linear", steps=5).fit(data.X, data.click, **given)
    other = Ranker("dla", "linear", steps=5)
    other.fit(data.X[mixed], data.click[mixed], **{name: values[mixed] for name, values in given.items()})
    assert other.predict(data.X) == pytest.approx(one.predict(data.X), abs=1e-5)


def test_score_is_ndcg_over_groups(data: Data) -> None:
    ranker = Ranker("naive", "linear", steps=5).fit(data.X, data.click, groups=data.query)
    scores = ranker.predict(data.X)
    expected = []
    for query in range(40):
        grades = data.grade[data.query == query]
        if grades.any():
            gains = grades[np.argsort(-scores[data.query == query])] / np.log2(np.arange(2, 8))
            expected.append(gains.sum() / np.sort(1 / np.log2(np.arange(2, 8)))[::-1][: grades.sum()].sum())
    assert ranker.score(data.X, data.grade, groups=data.query) == pytest.approx(np.mean(expected))
    assert ranker.score(data.X, data.grade, qid=data.query) == ranker.score(data.X, data.grade, data.query)


def frame(data: Data) -> Any:
    pd = pytest.importorskip("pandas")
    made = pd.DataFrame(data.X, columns=["wanted", "shown_by", "noise"])
    return made.assign(query=[f"q{each}" for each in data.query], rank=data.position)


NAMED = {"query_column": "query", "position_column": "rank"}


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_grids_over_folds_of_queries(data: Data, kind: str) -> None:
    """Columns of X that name queries and ranks go through every fold."""
    table = frame(data) if kind == "pandas" else pytest.importorskip("polars").from_pandas(frame(data))
    grid = {"method": ["naive", "dla"], "ranker": ["linear"]}
    search = GridSearchCV(Ranker(steps=5, engine="none", **NAMED), grid, cv=GroupKFold(2), error_score="raise")
    search.fit(table, data.click, groups=data.query)
    best = search.best_estimator_
    assert best.feature_names_in_.tolist() == ["wanted", "shown_by", "noise"]
    assert best.n_features_in_ == 3
    features = table.drop(columns=["query", "rank"]) if kind == "pandas" else table.drop(["query", "rank"])
    assert best.predict(features) == pytest.approx(best.predict(table))  # as it is served
    assert (np.isfinite(search.cv_results_["mean_test_score"])).all()
    assert search.cv_results_["mean_test_score"].max() > 0.5


def test_metadata_routing(data: Data) -> None:
    with config_context(enable_metadata_routing=True):
        ranker = Ranker("naive", "linear", steps=5).set_fit_request(qid=True, position=True, groups=False)
        ranker = ranker.set_score_request(qid=True, groups=False)
        given = {"qid": data.query, "position": data.position, "groups": data.query}
        found = cross_val_score(ranker, data.X, data.click, params=given, cv=GroupKFold(2), error_score="raise")
    assert ((found > 0) & (found <= 1)).all()


def test_pipelines_and_clones(data: Data) -> None:
    config = unskew.methods.DLA(max_weight=3.0)
    ranker = Ranker(config, "linear", steps=5, training={"batch": 16})
    assert clone(ranker).get_params()["method"] == config
    assert ranker.set_params(steps=3).steps == 3
    pipe = make_pipeline(StandardScaler(), ranker)
    pipe.fit(data.X, data.click, ranker__groups=data.query)
    assert pipe.predict(data.X).shape == (240,)
    assert pickle.loads(pickle.dumps(pipe)).predict(data.X) == pytest.approx(pipe.predict(data.X))


def test_trees_and_packages_grow_so_many_rounds(data: Data) -> None:
    pytest.importorskip("lightgbm")
    grown = Ranker("naive", "trees", steps=4).fit(data.X, data.click, groups=data.query)
    assert grown.model_.card.ranker["rounds"] == 4
    package = Ranker("lightgbm", steps=4).fit(data.X, data.click, groups=data.query)
    assert package.model_.trees.kept == [4]


def test_categories_and_missing_values(data: Data) -> None:
    pd = pytest.importorskip("pandas")
    brand = np.where(data.X[:, 0] > 0, "acme", "bolt").astype(object)
    brand[:5] = None
    table = pd.DataFrame({"brand": brand, "price": np.where(data.X[:, 1] > 1, np.nan, data.X[:, 1])})
    ranker = Ranker("naive", "linear", steps=30).fit(table, data.click, groups=data.query)
    assert ranker.feature_names_in_.tolist() == ["brand", "price"]
    unseen = pd.DataFrame({"brand": ["acme", "bolt", "new", None], "price": [0.0, 0.0, 0.0, np.nan]})
    scores = ranker.predict(unseen)
    assert np.isfinite(scores).all()
    assert scores[0] > scores[1]
    with pytest.raises(ValueError, match="feature names"):
        ranker.predict(unseen.rename(columns={"price": "cost"}))


def test_pages_of_a_query(data: Data) -> None:
    """Two pages of one query may show two documents at one rank."""
    X, click = np.vstack([data.X, data.X]), np.concatenate([data.click, 1 - data.click])
    query, page = np.tile(data.query, 2), np.repeat([0, 1], 240)
    position = np.tile(data.position, 2)
    Ranker("dla", "linear", steps=3).fit(X, click, groups=query, position=position, page=page)
    with pytest.raises(ValueError, match="taken twice on a page, first in row"):
        Ranker("dla", "linear", steps=3).fit(X, click, groups=query, position=position)
    shown = ShownRows.of(4, query=np.array(["b", "a", "b", "b"]), page=np.array([0, 0, 1, 0]))
    assert shown.page.tolist() == [1, 0, 2, 1]
    assert shown.position.tolist() == [1, 1, 1, 2]
    assert shown.order.tolist() == [1, 0, 3, 2]
    assert shown.query_offsets.tolist() == [0, 1, 4]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": [0] * 3}, "groups must have one entry for each of 240 rows"),
        ({"position": np.zeros(240)}, "no ranks"),
        ({"groups": np.zeros(240), "qid": np.zeros(240)}, "groups is said twice"),
    ],
)
def test_what_is_wrong_is_a_value_error(data: Data, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ranker(steps=3).fit(data.X, data.click, **given)


def test_errors_of_learning_are_value_errors(data: Data) -> None:
    nothing: Array = np.zeros(240)
    with pytest.raises(ValueError, match="nothing is clicked"):
        Ranker(steps=3).fit(data.X, nothing, groups=data.query)
    with pytest.raises(ValueError, match="unknown name 'dlaa'"):
        Ranker("dlaa").fit(data.X, data.click, groups=data.query)
    with pytest.raises(ValueError, match="below 0"):
        Ranker().fit(data.X, data.click - 1, groups=data.query)
    with pytest.raises(ValueError, match="X has no names"):
        Ranker(query_column="q").fit(data.X, data.click)
