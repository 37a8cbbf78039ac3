"""Judgments from a store: the estimators' numbers, curves from the log itself, files, and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from unskew.errors import ConfigError, DataError
from unskew.logs.log import write_log
from unskew.names import Names
from unskew.simulation import Traffic
from unskew.simulation.search_engine import SCREEN
from unskew.simulation.synthetic import make_lists
from unskew.tables.engine.engine import Engine
from unskew.terminal.main import app
from unskew.tracking.judgments import judge, read_imputation, with_imputation
from unskew.tracking.store import open_tracking
from unskew.tracking.track import track
from unskew.tracking.windows import read_window
from unskew.types import Array, Log


@pytest.fixture(scope="module")
def log() -> Log:
    lists = make_lists(30, documents=(10, 14), seed=5)
    return Traffic(pages=12_000, days=20, seed=5, shuffled=0.5).draw(lists)


@pytest.fixture(scope="module")
def folder(log: Log, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose examination is what happened, true curves, and imputations for all documents."""
    place = tmp_path_factory.mktemp("judge")
    columns = dict(log.columns) | {"examination": log.columns["true_examined"].astype(float)}
    write_log(
        Log(log.lists, log.query, log.offsets, log.row, log.position, log.click, log.randomized, columns),
        place / "log.parquet",
    )
    track(place / "log.parquet", place / "store", threads=1, refresh="all")
    alpha, beta = SCREEN.affine(10)
    theta = SCREEN.examination(10).tolist()
    curves = {"alpha": alpha.tolist(), "beta": beta.tolist(), "theta": [round(each, 6) for each in theta]}
    (place / "curves.json").write_text(json.dumps(curves))
    guess = truth(log) + 0.15 * np.random.default_rng(0).standard_normal(len(log.lists.labels))
    table = {"query_id": queries(log), "doc_id": log.lists.document_ids(), "relevance": guess}
    pq.write_table(pa.table(table), place / "imputation.parquet")
    pacsv.write_csv(pa.table(table), place / "imputation.csv")
    return place


def truth(log: Log) -> Array:
    """Relevance of every document; those never shown have that of their grade."""
    return SCREEN.relevance(type("Shown", (), {"labels": log.lists.labels})).astype(float)


def queries(log: Log) -> Array:
    return np.repeat(log.lists.query_ids, log.lists.sizes)


def error(judged: Any, log: Log) -> float:
    """Mean squared error over what was shown."""
    row = log.lists.offsets[:-1][judged["query_id"].to_numpy()] + judged["doc_id"].to_numpy()
    shown = judged["displays"].to_numpy() > 0
    return float(((judged["relevance"].to_numpy() - truth(log)[row])[shown] ** 2).mean())


def test_estimates_are_those_of_the_log(folder: Path, log: Log) -> None:
    curves = str(folder / "curves.json")
    told = judge(folder / "store", folder / "a.parquet", curves=curves, shrink=False, force=True, threads=1)
    judged = pq.read_table(folder / "a.parquet")
    assert judged.column_names[:6] == ["query_id", "doc_id", "relevance", "standard_error", "displays", "clicks"]
    assert judged.column_names[6:] == ["click_rate", "coec", "mean_rank"]
    alpha, beta = SCREEN.affine(10)
    row = log.row == log.lists.offsets[3] + 2
    value = np.mean((log.click[row] - beta[log.position[row] - 1]) / alpha[log.position[row] - 1])
    (found,) = (each for each in judged.to_pylist() if (each["query_id"], each["doc_id"]) == (3, 2))
    assert found["relevance"] == pytest.approx(value, abs=1e-9)
    assert (found["displays"], found["clicks"]) == (row.sum(), log.click[row].sum())
    rates = np.array([log.click[log.position == rank].mean() for rank in range(1, 11)])
    assert found["click_rate"] == pytest.approx(log.click[row].mean())
    assert found["coec"] == pytest.approx(log.click[row].sum() / rates[log.position[row] - 1].sum())
    assert found["mean_rank"] == pytest.approx(log.position[row].mean())
    assert told.pairs == len(np.unique(log.row))


def test_doubly_robust_and_shrunken_are_nearer(folder: Path, log: Log) -> None:
    errors = {}
    for name, asked in {
        "ipw": {"estimator": "ipw"},
        "affine": {"estimator": "affine", "shrink": False},
        "order": {"estimator": "affine"},
        "dr": {"imputation": folder / "imputation.parquet", "shrink": False},
        "shrunken": {"imputation": folder / "imputation.csv"},
    }.items():
        curves = str(folder / "curves.json")
        judge(folder / "store", folder / f"{name}.parquet", curves=curves, force=True, threads=1, **asked)
        errors[name] = error(pq.read_table(folder / f"{name}.parquet"), log)
    assert errors["shrunken"] < errors["dr"] < errors["affine"]
    assert errors["order"] < errors["affine"]  # what the order shown says stands for an imputation
    assert errors["shrunken"] < 0.15**2
    judged = pq.read_table(folder / "shrunken.parquet")
    assert len(judged) == len(log.lists.labels)
    never = judged.filter(pc.equal(judged["displays"], 0))
    assert never["relevance"].equals(never["imputation"])


@pytest.mark.parametrize("shrink", [True, False])
def test_one_wrong_input_is_forgiven(folder: Path, log: Log, shrink: bool, tmp_path: Path) -> None:
    """Right on average where α is wrong and the imputation right, and the other way round; not where both are."""
    true = json.loads((folder / "curves.json").read_text())
    trust = (np.array(true["alpha"]) / true["theta"]).tolist()
    table = {"query_id": queries(log), "doc_id": log.lists.document_ids()}
    right, wrong = tmp_path / "right.parquet", tmp_path / "wrong.parquet"
    pq.write_table(pa.table(table | {"relevance": truth(log)}), right)
    pq.write_table(pa.table(table | {"relevance": 0.9 - 0.5 * truth(log)}), wrong)

    def off(alpha: float, imputation: Path, **more: Any) -> float:
        """How far relevance is from the truth, averaged over displays."""
        curves = true | {"alpha": [alpha * each for each in true["alpha"]]} | more
        (tmp_path / "curves.json").write_text(json.dumps(curves))
        asked = {"curves": str(tmp_path / "curves.json"), "imputation": imputation, "shrink": shrink}
        judge(folder / "store", tmp_path / "j.parquet", force=True, threads=1, **asked)
        judged = pq.read_table(tmp_path / "j.parquet")
        row = log.lists.offsets[:-1][judged["query_id"].to_numpy()] + judged["doc_id"].to_numpy()
        missed = judged["relevance"].to_numpy() - truth(log)[row]
        return float(abs(np.average(missed, weights=judged["displays"].to_numpy())))

    assert off(0.7, right, trust=trust) < 0.01
    assert off(1.4, right, trust=trust) < 0.01
    assert off(0.7, right) > 0.03, "without a trust of its own a wrong alpha is not forgiven"
    assert off(1.0, wrong, trust=trust) < (0.03 if shrink else 0.01)  # rare pairs are pulled to what is imputed
    assert off(0.7, wrong, trust=trust) > 0.05


def test_curves_come_from_the_log_itself(folder: Path) -> None:
    alpha, beta = SCREEN.affine(10)
    told = judge(
        folder / "store", folder / "c.csv", first=(alpha[0], beta[0]), force=True, threads=1, window="month"
    )
    assert told.alpha == pytest.approx(alpha.tolist(), abs=0.12)
    assert told.theta == pytest.approx(SCREEN.examination(10).tolist(), abs=0.02)
    imputed = folder / "imputation.csv"
    by_em = judge(folder / "store", folder / "d.csv", curves="em", imputation=imputed, force=True, threads=1)
    assert np.corrcoef(by_em.alpha, alpha)[0, 1] > 0.9
    assert pacsv.read_csv(folder / "c.csv").num_rows == told.pairs


def test_both_engines_join_the_same(folder: Path, engine: Engine) -> None:
    window = read_window(engine, open_tracking(folder / "store"), "day")
    guesses = read_imputation(engine, folder / "imputation.csv", window, Names())
    joined = engine.to_arrow(with_imputation(window, guesses))
    assert joined["imputation"].null_count == joined["query_id"].null_count == 0
    assert sum(joined["displays"].to_pylist()) == engine.rows(window.agg(n=window.displays.sum()))[0]["n"]
    assert len(set(zip(joined["query_id"].to_pylist(), joined["doc_id"].to_pylist(), strict=True))) == len(
        engine.rows(guesses)
    )


def test_the_command(folder: Path, tmp_path: Path) -> None:
    words = [
        "judge",
        str(folder / "store"),
        "--out",
        str(tmp_path / "j.csv"),
        "--curves",
        str(folder / "curves.json"),
    ]
    ended = CliRunner().invoke(app, [*words, "--imputation", str(folder / "imputation.parquet"), "--json"])
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["estimator"] == "doubly_robust"
    assert pacsv.read_csv(tmp_path / "j.csv").column_names[-1] == "imputation"


def test_errors(folder: Path, tmp_path: Path) -> None:
    store = folder / "store"
    with pytest.raises(ConfigError, match="needs imputation="):
        judge(store, tmp_path / "a.csv", estimator="doubly_robust")
    with pytest.raises(ConfigError, match='curves="em" needs imputation='):
        judge(store, tmp_path / "a.csv", curves="em")
    with pytest.raises(ConfigError, match="Did you mean"):
        judge(store, tmp_path / "a.csv", estimator="afine")
    with pytest.raises(ConfigError, match=r"\.csv, \.parquet"):
        judge(store, tmp_path / "a.xls")
    (tmp_path / "curves.json").write_text('{"alpha": [1]}')
    with pytest.raises(DataError, match="no curves"):
        judge(store, tmp_path / "a.csv", curves=str(tmp_path / "curves.json"))
    twice = pa.table({"query_id": [1, 1], "doc_id": [2, 2], "relevance": [0.1, 0.2]})
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(DataError, match="has a query and document twice"):
        judge(store, tmp_path / "a.csv", imputation=tmp_path / "twice.parquet")
    pq.write_table(twice.drop_columns(["relevance"]), tmp_path / "twice.parquet")
    with pytest.raises(DataError, match="missing columns: relevance"):
        judge(store, tmp_path / "a.csv", imputation=tmp_path / "twice.parquet")
