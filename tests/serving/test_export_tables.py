"""Judgments as grades, and propensities that LightGBM and XGBoost train with."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.errors import UnskewError
from unskew.types import Lists, Log

lightgbm = pytest.importorskip("lightgbm")
JUDGED = """query_id,doc_id,relevance,standard_error,displays
q1,"a,b",0.95,0.1,40
q1,d2,0.3,0.05,40
q1,d3,0.5,0.3,40
q2,d1,,,40
q2,d2,-0.1,0,40
q2,d3,0.9,0.01,4
q2,d4,0.7,,40
"""


@pytest.fixture(scope="module")
def log() -> Log:
    lists: Lists = unskew.make_lists(queries=60, features=6, documents=(6, 6), seed=1)
    return unskew.simulate(lists, "position", pages=6000, seed=2, randomized=0.3)


@pytest.fixture(scope="module")
def place(log: Log, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("log") / "log.parquet"
    unskew.write_log(log, made)
    return made


@pytest.fixture(scope="module")
def run(log: Log) -> Any:
    return unskew.learn(log, "dla", steps=20, threads=1, validate_on="nothing")


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


# ---- judgments ----


def phi(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def test_judgments_as_grades(tmp_path: Path) -> None:
    source = tmp_path / "judged.csv"
    source.write_text(JUDGED)
    told = unskew.export(source, "quepid", tmp_path / "quepid.csv", top=1.0)
    lines = list(csv.reader((tmp_path / "quepid.csv").read_text().splitlines()))
    assert lines == [["query", "docid", "rating"], ["q1", "a,b", "3"], ["q1", "d2", "1"], ["q2", "d2", "0"]]
    assert told.left_out == {
        "no relevance": 1,
        "shown too rarely": 1,
        "too uncertain": 2,
    }
    found = rows_of(tmp_path / "quepid.csv.confidence.csv")
    assert [float(row["confidence"]) for row in found] == pytest.approx(
        [1 - phi(-2), phi(4) - phi(-1), 1], abs=1e-5
    )
    assert float(found[0]["low"]) == pytest.approx(0.95 - 1.6449 * 0.1)
    assert [(row["rating_low"], row["rating_high"]) for row in found] == [("3", "3"), ("0", "1"), ("0", "0")]
    unskew.export(source, "quepid", tmp_path / "all.csv", top=1.0, confidence=0)
    assert [row["rating"] for row in rows_of(tmp_path / "all.csv")] == ["3", "1", "2", "0", "3", "2"]


def test_the_workbench_takes_json_and_csv(tmp_path: Path) -> None:
    source = tmp_path / "judged.csv"
    source.write_text(JUDGED)
    unskew.export(source, "workbench", tmp_path / "out.json", top=1.0)
    body = json.loads((tmp_path / "out.json").read_text())
    assert body["type"] == "IMPORT_JUDGMENT"
    assert {"name", "description", "type", "judgmentRatings"} == set(body)
    first = {"query": "q1", "ratings": [{"docId": "a,b", "rating": "3"}, {"docId": "d2", "rating": "1"}]}
    assert body["judgmentRatings"] == [first, {"query": "q2", "ratings": [{"docId": "d2", "rating": "0"}]}]
    unskew.export(source, "workbench", tmp_path / "out.csv", top=1.0)
    unskew.export(source, "quepid", tmp_path / "quepid.csv", top=1.0)
    assert (tmp_path / "out.csv").read_text() == (tmp_path / "quepid.csv").read_text()
    with pytest.raises(UnskewError, match=r"\.csv, \.json"):
        unskew.export(source, "workbench", tmp_path / "out.txt")


def test_grades_end_at_the_usual_relevance(tmp_path: Path) -> None:
    relevance = np.linspace(0, 0.2, 101)
    table = {"query_id": ["q"] * 101, "doc_id": range(101), "relevance": relevance, "standard_error": [1e-9] * 101}
    pq.write_table(pa.table(table), tmp_path / "judged.parquet")
    told = unskew.export(tmp_path / "judged.parquet", "quepid", tmp_path / "out.csv")
    assert told.top_relevance == pytest.approx(0.19)
    counts = np.bincount([int(row["rating"]) for row in rows_of(tmp_path / "out.csv")])
    assert counts.tolist() == [24, 24, 24, 29]  # edges at 23.75, 47.5 and 71.25 steps of 0.002


def test_grades_of_a_log_follow_relevance_and_not_rank(log: Log, place: Path, tmp_path: Path) -> None:
    told = unskew.export(place, "quepid", tmp_path / "quepid.csv", confidence=0.0)
    found = rows_of(tmp_path / "quepid.csv.confidence.csv")
    assert told.judgments == len(found) == len(np.unique(log.row))
    judged = unskew.click_models.fit(place, "pbm").relevance()
    ids = zip(judged["query_id"].to_pylist(), judged["doc_id"].to_pylist(), strict=True)
    mine = dict(zip(((str(q), str(d)) for q, d in ids), judged["relevance"].to_pylist(), strict=True))
    assert [float(row["relevance"]) for row in found] == pytest.approx(
        [mine[row["query"], row["docid"]] for row in found]
    )
    one = found[17]
    documents, queries = log.lists.document_ids(), np.repeat(log.lists.query_ids, log.lists.sizes)
    row = int(np.flatnonzero((documents.astype(str) == one["docid"]) & (queries.astype(str) == one["query"]))[0])
    looked = float(unskew.propensity(place).values[log.position[log.row == row] - 1].sum())
    assert log.click[log.row == row].sum() / looked == pytest.approx(float(one["relevance"]), abs=0.1)
    thin = unskew.export(place, "quepid", tmp_path / "sure.csv", confidence=0.8)
    assert 0 < thin.judgments < told.judgments
    assert thin.judgments + sum(thin.left_out.values()) == len(found)


def test_judgments_of_click_models_go_too(log: Log, tmp_path: Path) -> None:
    judged = unskew.click_models.fit(log, "pbm").relevance()
    pq.write_table(judged, tmp_path / "judged.parquet")
    told = unskew.export(tmp_path / "judged.parquet", "workbench", tmp_path / "out.json")
    assert told.judgments > 100


# ---- propensities ----


def test_propensities_of_a_run(run: Any, tmp_path: Path) -> None:
    unskew.export(run, "propensities", tmp_path / "seen.csv")
    rows = rows_of(tmp_path / "seen.csv")
    assert [row["position"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    for row in rows:
        assert float(row["weight"]) == pytest.approx(1 / float(row["examination"]), rel=1e-4)


@pytest.fixture(scope="module")
def data(log: Log, place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data file of their own, and what export writes beside it."""
    made = tmp_path_factory.mktemp("data") / "train.csv"
    label = np.asarray(log.click, float)
    np.savetxt(made, np.column_stack([label, log.lists.features[log.row]]), delimiter=",", fmt="%.9g")
    told = unskew.export(place, "propensities", made, rows=place)
    assert told.rows == len(log.row)
    assert told.pages == len(log)
    return made


def column(data: Path, end: str) -> np.ndarray[Any, Any]:
    return np.loadtxt(data.with_name(f"{data.name}.{end}"))


def test_each_row_has_its_weight_and_start(log: Log, place: Path, data: Path) -> None:
    seen = unskew.propensity(place).values
    expected = [1 / seen[rank - 1] if click else 1.0 for rank, click in zip(log.position, log.click, strict=True)]
    np.testing.assert_allclose(column(data, "weight"), expected, rtol=1e-6)
    np.testing.assert_allclose(np.exp(column(data, "init")), seen[log.position - 1], rtol=1e-6)
    np.testing.assert_array_equal(column(data, "base_margin"), column(data, "init"))
    np.testing.assert_array_equal(column(data, "position"), log.position)
    np.testing.assert_array_equal(column(data, "group"), log.sizes)


def agreement(scores: np.ndarray[Any, Any], log: Log) -> float:
    return float(unskew.measure_ranking(scores, log.lists).means["ndcg@10"])


POISSON = {"objective": "poisson", "num_leaves": 7, "num_threads": 1, "verbosity": -1, "seed": 0}


def test_lightgbm_reads_them_beside_its_data(log: Log, data: Path) -> None:
    read = lightgbm.Dataset(str(data), params={"header": False, "label_column": 0, "verbosity": -1}).construct()
    np.testing.assert_allclose(read.get_weight(), column(data, "weight"), rtol=1e-6)
    np.testing.assert_allclose(read.get_init_score(), column(data, "init"), rtol=1e-6)
    np.testing.assert_array_equal(read.get_group(), log.sizes)
    assert len(np.unique(read.get_position())) == 6


def test_a_start_at_log_examination_recovers_relevance(log: Log, data: Path) -> None:
    features, start = log.lists.features[log.row], column(data, "init")
    scores = {}
    for name, given in {"none": None, "init": start}.items():
        read = lightgbm.Dataset(features, log.click, init_score=given, params={"verbosity": -1})
        scores[name] = lightgbm.train(POISSON, read, 30).predict(log.lists.features, raw_score=True)
    assert agreement(scores["init"], log) > agreement(scores["none"], log)


def test_xgboost_takes_a_margin_and_weights_of_rows_but_not_to_rank(log: Log, data: Path) -> None:
    xgboost = pytest.importorskip("xgboost")
    features = log.lists.features[log.row]
    settings = {"objective": "count:poisson", "max_depth": 3, "nthread": 1, "seed": 0, "base_score": 1.0}
    scores = {}
    for name, given in {"none": None, "margin": column(data, "base_margin")}.items():
        matrix = xgboost.DMatrix(features, log.click, base_margin=given)
        booster = xgboost.train(settings, matrix, 30)
        scores[name] = booster.predict(xgboost.DMatrix(log.lists.features), output_margin=True)
    assert agreement(scores["margin"], log) > agreement(scores["none"], log)
    ranked = xgboost.DMatrix(features, log.click, group=column(data, "group").astype(int))
    ranked.set_weight(column(data, "weight"))
    with pytest.raises(xgboost.core.XGBoostError, match=r"(?i)weight"):
        xgboost.train({"objective": "rank:ndcg", "nthread": 1}, ranked, 1)


def test_pages_in_pieces_are_refused(run: Any, tmp_path: Path) -> None:
    table = {
        "page_id": [1, 2, 1],
        "query_id": [1, 2, 1],
        "doc_id": [1, 2, 3],
        "position": [1, 1, 2],
        "click": [1, 0, 0],
    }
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    with pytest.raises(UnskewError, match="not together"):
        unskew.export(run, "propensities", tmp_path / "train.csv", rows=tmp_path / "log.parquet")
    assert not list(tmp_path.glob("train*"))
