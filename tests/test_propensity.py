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
from unskew.learning.bias import read_propensities
from unskew.learning.swaps import swap_propensity
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
    assert found.examination == pytest.approx(THETA, rel=0.06)
    log = moving_log()
    rates = np.bincount(log["position"], log["click"])[1:]
    assert abs(rates[4] / rates[0] - THETA[4]) > 0.05
    assert found.weight == pytest.approx(1 / found.examination)


def test_ipw_takes_swaps(log_file: Path) -> None:
    features = {
        "query_id": np.repeat(np.arange(40), 8),
        "doc_id": np.tile(np.arange(8), 40),
        "x": np.arange(320) / 9,
    }
    method = unskew.methods.IPW(propensity="swaps")
    run = unskew.learn(log_file, method, features=features, ranker="linear", steps=2)
    assert run.propensity() == pytest.approx(
        unskew.propensity(log_file).examination, rel=0.1
    )  # nine in ten queries


def test_swaps_by_hand() -> None:
    """One document at two ranks: the ratio of its click rates."""
    position = np.array([1] * 40 + [2] * 40)
    click = np.array([1] * 30 + [0] * 10 + [1] * 12 + [0] * 28)
    assert swap_propensity(np.zeros(80), position, click) == pytest.approx([1, 12 / 30])


def test_ranks_count_as_far_as_swaps_tie_them() -> None:
    """Rank 3 has a document of its own, so nothing says how it compares."""
    two, alone = np.tile([1, 2], 40), np.full(40, 3)
    document = np.concatenate([np.zeros(80), np.ones(40)])
    clicks = np.ones(120)
    assert len(swap_propensity(document, np.concatenate([two, alone]), clicks)) == 2
    with pytest.raises(DataError, match="too few documents were shown at several ranks"):
        swap_propensity(np.arange(30), np.tile([1, 2, 3], 10), np.ones(30))


def test_shuffled_pages_are_taken_where_there_are_any(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    log = moving_log(20_000, noise=50)  # any order
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table(log | {"randomized": rng.random(20_000).repeat(5) < 0.9}), path)
    found = unskew.propensity(path)
    assert found.found_by == "shuffled pages of the log"
    assert found.examination == pytest.approx(THETA, rel=0.1)
    assert unskew.propensity(path, by="swaps").found_by != found.found_by


def test_names_of_theirs(tmp_path: Path, log_file: Path) -> None:
    theirs = {"position": "rank", "doc_id": "sku"}
    table = pq.read_table(log_file)
    pq.write_table(
        table.rename_columns([theirs.get(name, name) for name in table.column_names]), tmp_path / "a.parquet"
    )
    named = unskew.propensity(tmp_path / "a.parquet", columns=theirs)
    assert named.examination.tolist() == unskew.propensity(log_file).examination.tolist()


def test_of_a_run_and_clipped(tmp_path: Path) -> None:
    lists = unskew.make_lists(queries=20, features=4, documents=6, seed=0)
    log = unskew.simulate(lists, "position", pages=500, seed=0)
    run = unskew.learn(log, "dla", ranker="linear", steps=5, out=tmp_path / "run")
    found = unskew.propensity(tmp_path / "run", max_weight=1.2)
    assert found.examination == pytest.approx(run.propensity())
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
    assert printed.splitlines()[0].split() == ["position", "examination", "weight"]
    assert "several ranks" in told
    _, printed, _ = command(log_file, "--json")
    found = json.loads(printed)
    assert found["position"] == [1, 2, 3, 4, 5]
    assert command(log_file, "--csv", tmp_path / "p.csv")[0] == 0
    assert read_propensities(tmp_path / "p.csv") == pytest.approx(found["examination"], rel=1e-5)  # ipw takes it
    assert command(log_file, "--csv", "-")[1] == (tmp_path / "p.csv").read_text()


def test_the_command_refuses(log_file: Path, tmp_path: Path) -> None:
    assert command(tmp_path / "nothing")[2].startswith(str(tmp_path / "nothing"))
    assert command(log_file, "--by", "magic")[2].startswith("--by magic: unknown name")
    told = command(log_file, "--by", "shuffled")[2]
    assert "no randomized pages" in told
