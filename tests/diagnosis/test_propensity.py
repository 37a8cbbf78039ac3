"""Examination by rank, from a run or from a log alone, and what others learn with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

import unskew
from unskew.errors import ConfigError, DataError, UnskewError
from unskew.learning.methods.propensities import MEASURES
from unskew.terminal.main import app
from unskew.types import Array

torch.set_num_threads(1)
THETA = np.array([1.0, 0.6, 0.4, 0.25, 0.2])


def moving_log(pages: int = 40_000, seed: int = 0, noise: float = 0.4) -> dict[str, Array]:
    """Pages of five of eight documents, ordered by relevance and noise; clicks by examination and relevance."""
    rng = np.random.default_rng(seed)
    relevance = rng.uniform(0.05, 0.9, (40, 8))
    query = rng.integers(40, size=pages)
    order = np.argsort(-(relevance[query] + noise * rng.normal(size=(pages, 8))), axis=1)[:, :5]
    click = rng.random((pages, 5)) < THETA * relevance[query[:, None], order]
    return {
        "page_id": np.repeat(np.arange(pages), 5),
        "query_id": np.repeat(query, 5),
        "doc_id": order.ravel(),
        "position": np.tile(np.arange(1, 6), pages),
        "click": click.ravel().astype(np.int8),
    }


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("propensity") / "log.parquet"
    pq.write_table(pa.table(moving_log()), path)
    return path


def test_swaps_recover_examination(log_file: Path) -> None:
    """Where click rates by rank do not: better documents stand higher."""
    found = unskew.propensity(log_file)
    assert "several ranks" in found.found_by
    assert found.theta == pytest.approx(THETA, rel=0.06)
    log = moving_log()
    rates = np.bincount(log["position"], log["click"])[1:]
    assert abs(rates[4] / rates[0] - THETA[4]) > 0.05
    assert found.weight == pytest.approx(1 / found.values)


@pytest.mark.filterwarnings("ignore:Against what was shown")  # of two steps
def test_ipw_takes_swaps(log_file: Path) -> None:
    features = {
        "query_id": np.repeat(np.arange(40), 8),
        "doc_id": np.tile(np.arange(8), 40),
        "x": np.arange(320) / 9,
    }
    method = unskew.methods.IPW(propensity="swaps")
    run = unskew.learn(log_file, method, features=features, ranker="linear", steps=2)
    assert run.propensity() == pytest.approx(unskew.propensity(log_file).theta, rel=0.1)  # nine in ten queries


@pytest.mark.parametrize("shuffled", [False, True])
def test_diagnose_and_propensity_and_ipw_have_the_same_numbers(
    log_file: Path, tmp_path: Path, shuffled: bool
) -> None:
    log = moving_log(3000, noise=1.0)
    random = np.random.default_rng(1).random(3000).repeat(5) < 0.5
    pq.write_table(pa.table(log | ({"randomized": random} if shuffled else {})), tmp_path / "log.parquet")
    told = CliRunner().invoke(
        app, ["diagnose", str(tmp_path / "log.parquet"), "--propensities", str(tmp_path / "p.json")]
    )
    assert told.exit_code == 0, told.output
    diagnosed = json.loads((tmp_path / "p.json").read_text())["examination"]
    _, printed, _ = command(tmp_path / "log.parquet", "--json")
    assert json.loads(printed)["examination"] == pytest.approx(diagnosed)
    lists = unskew.Lists(np.zeros((320, 1), np.float32), np.arange(41) * 8, np.zeros(320, np.int16), np.arange(40))
    memory = unskew.read_log(tmp_path / "log.parquet", lists)
    measured = MEASURES["randomized" if shuffled else "swaps"](memory)
    assert measured.theta == pytest.approx(diagnosed)
    assert unskew.propensity(memory).theta == pytest.approx(diagnosed)


def test_a_guess_is_a_guess_and_nothing_is_an_error() -> None:
    """Methods need numbers from few clicks too; what hangs on no document has none."""
    log = moving_log(8, noise=2.0)
    lists = unskew.Lists(np.zeros((320, 1), np.float32), np.arange(41) * 8, np.zeros(320, np.int16), np.arange(40))
    few = unskew.simulate(lists, "position", pages=60, randomized=1.0, logger="random", seed=1)
    with pytest.warns(UserWarning, match="rank 2 on is a guess: [0-9]+ clicks below rank 1 on shuffled"):
        assert 0 < MEASURES["randomized"](few).values[1] < 2
    with pytest.raises(DataError, match="the log tells no examination"):
        unskew.propensity(pa.table(log | {"doc_id": log["position"]}))


def test_other_feedback_takes_the_place_of_clicks(tmp_path: Path) -> None:
    log = moving_log(2000)
    bought = log.pop("click").astype(float) * 3
    table = pa.table(log | {"click": np.zeros(len(bought), np.int8), "bought": bought})
    pq.write_table(table, tmp_path / "log.parquet")
    plain = tmp_path / "plain.parquet"
    pq.write_table(pa.table(log | {"click": (bought > 0).astype(np.int8)}), plain)
    found = unskew.propensity(tmp_path / "log.parquet", feedback="bought")
    assert found.theta == pytest.approx(unskew.propensity(plain).theta)


def test_shuffled_pages_are_taken_where_there_are_any(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    log = moving_log(20_000, noise=50)  # any order
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(log | {"randomized": rng.random(20_000).repeat(5) < 0.9}), path)
    found = unskew.propensity(path)
    assert found.found_by == "shuffled pages"
    assert found.theta == pytest.approx(THETA, rel=0.1)
    assert unskew.propensity(path, by="swaps").found_by != found.found_by


def test_names_of_theirs(tmp_path: Path, log_file: Path) -> None:
    theirs = {"position": "rank", "doc_id": "sku"}
    table = pq.read_table(log_file)
    pq.write_table(
        table.rename_columns([theirs.get(name, name) for name in table.column_names]), tmp_path / "a.parquet"
    )
    named = unskew.propensity(tmp_path / "a.parquet", columns=theirs)
    # sums of several threads may differ in their last digit
    np.testing.assert_allclose(named.values, unskew.propensity(log_file).values, rtol=1e-12)


def test_of_a_run_and_clipped(tmp_path: Path) -> None:
    lists = unskew.make_lists(queries=20, features=4, documents=6, seed=0)
    log = unskew.simulate(lists, "position", pages=500, seed=0)
    run = unskew.learn(log, "dla", ranker="linear", steps=5, out=tmp_path / "run")
    found = unskew.propensity(tmp_path / "run", max_weight=1.2)
    assert found.theta == pytest.approx(run.propensity())
    assert found.weight == pytest.approx(np.minimum(1 / run.propensity(), 1.2))
    assert unskew.propensity(run).to_dict()["found_by"] == "method dla"
    assert found.weights(np.array([1, 2, 99])).tolist() == [found.weight[0], found.weight[1], found.weight[-1]]
    naive = unskew.learn(log, "naive", ranker="linear", steps=5)
    with pytest.raises(DataError, match="naive learns no examination by rank; take a run of dla"):
        unskew.propensity(naive)
    with pytest.raises(ConfigError, match=r'by="swaps" is for logs'):
        unskew.propensity(run, by="swaps")


def command(*words: object) -> tuple[int, str, str]:
    ended = CliRunner().invoke(app, ["propensity", *map(str, words)])
    failed = isinstance(ended.exception, UnskewError)
    return (1, "", str(ended.exception)) if failed else (ended.exit_code, ended.stdout, ended.stderr)


def test_the_command(log_file: Path, tmp_path: Path) -> None:
    status, printed, told = command(log_file)
    assert status == 0
    assert printed.splitlines()[0].split()[:3] == ["position", "examination", "weight"]
    assert "several ranks" in told
    _, printed, _ = command(log_file, "--json")
    found = json.loads(printed)
    assert found["position"] == [1, 2, 3, 4, 5]
    assert command(log_file, "--csv", tmp_path / "p.csv")[0] == 0
    assert unskew.Examination.read(tmp_path / "p.csv").theta == pytest.approx(
        found["examination"], rel=1e-5
    )  # ipw takes it
    assert command(log_file, "--csv", "-")[1] == (tmp_path / "p.csv").read_text()


def test_the_command_refuses(log_file: Path, tmp_path: Path) -> None:
    assert command(tmp_path / "nothing")[2].startswith(str(tmp_path / "nothing"))
    assert command(log_file, "--by", "magic")[2].startswith("--by: unknown name 'magic'")
    told = command(log_file, "--by", "shuffled")[2]
    assert "no randomized pages" in told
