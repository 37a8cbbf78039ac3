"""Feedback that is a weight: read, counted, put into shards and learned from as clicks are, or refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import unskew
from tests.helpers.every_method import CALLED, METHODS
from unskew.errors import ConfigError, DataError
from unskew.learning.methods import MethodConfig
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.rankings import read_counts
from unskew.logs.counts.reduction import Facts, reduce_log
from unskew.logs.counts.shard_writer import ShardSource
from unskew.logs.counts.shards import open_shards
from unskew.logs.log import write_log
from unskew.logs.reader import read_log
from unskew.simulation import PositionBias, simulate
from unskew.simulation.synthetic import make_lists
from unskew.types import Array, Log
from unskew.workflows.runs.data import LogData

torch.set_num_threads(1)
WIDE = ("upe", "lbd", "lbd_lips", "lbd_released", "vectorization", "vectorization_projected")
LINEAR = ("naive", "ipw", "dla", "lbd_ber", "unlimited", "affine_list", *WIDE)


@pytest.fixture(scope="module")
def log() -> Log:
    lists = make_lists(queries=6, features=4, documents=(3, 6), seed=0)
    return simulate(lists, PositionBias(), pages=120, seed=0, cutoff=5, randomized=0.3)


def weighted(log: Log, weights: Array) -> Log:
    return replace(log, click=(log.click * weights).astype(np.float32), feedback="spent")


def repeated(log: Log, times: Array) -> Log:
    """Every page as often as `times` [N] is at its most; a result is clicked on as many of them as it weighs."""
    pages, clicks = [], []
    for page in range(len(log)):
        span = slice(log.offsets[page], log.offsets[page + 1])
        for copy in range(max(int(times[span].max()), 1)):
            pages.append(page)
            clicks.append(times[span] > copy)
    found = log.take(np.array(pages))
    return replace(found, click=np.concatenate(clicks).astype(np.uint8))


def gradient(config: MethodConfig, log: Log, context_of: Log) -> tuple[float, torch.Tensor]:
    """Loss and gradient of every document's outputs, over all rows at once."""
    torch.manual_seed(0)
    method = config.build(LogData(context_of).context(config)).eval()
    counts = config.table(log)
    batch = Batches(counts).rows(torch.arange(len(counts)))
    width = method.outputs + (0 if method.side is None else method.side.width)
    outputs = torch.randn(len(log.lists.features), width, generator=torch.Generator().manual_seed(1))
    outputs.requires_grad_()
    loss = method(batch.pad(outputs[batch.rows]), batch)
    loss.backward()
    assert outputs.grad is not None
    return loss.item(), outputs.grad


def test_methods_that_take_weights_are_those_with_a_list_softmax() -> None:
    able = {name for name, config in METHODS.items() if config().takes_weights and config.target == "clicks"}
    assert able == set(LINEAR)
    assert METHODS["additive"](loss="softmax").takes_weights
    for loss in ("sigmoid", "pairwise", "lambda"):
        assert not METHODS["naive"](loss=loss).takes_weights


@pytest.mark.parametrize("name", [name for name in LINEAR if name not in WIDE])
@pytest.mark.filterwarnings("ignore:examination from rank")
def test_whole_weights_are_worth_as_many_pages(name: str, log: Log) -> None:
    """Clicks alone enter the loss; what follows impressions (base model, logging ranker) is another matter."""
    times = log.click * np.random.default_rng(0).integers(1, 4, len(log.click))
    config = METHODS[name]()
    one = gradient(config, weighted(log, times), log)
    other = gradient(config, repeated(log, times), log)
    assert one[0] == pytest.approx(other[0], rel=1e-5)
    torch.testing.assert_close(one[1], other[1], rtol=1e-4, atol=1e-7)
    assert one[0] != pytest.approx(gradient(config, log, log)[0], rel=1e-3)


def test_weights_of_0_and_1_learn_what_clicks_do(log: Log) -> None:
    runs = [
        unskew.learn(each, "dla", ranker="linear", steps=20, seed=0)
        for each in (log, replace(log, click=log.click.astype(np.float32), feedback="bought"))
    ]
    assert np.array_equal(runs[0].score(log.lists), runs[1].score(log.lists))


@pytest.mark.parametrize("method", ["regression_em", "doubly_robust", "pair_debias", "mixem", "lightgbm"])
def test_methods_that_count_say_no(method: str, log: Log) -> None:
    paid = weighted(log, np.full(len(log.click), 2.5))
    with pytest.raises(
        ConfigError, match=f"{method} as it is set counts clicks, and spent has weights.*naive, ipw, dla"
    ):
        unskew.learn(paid, CALLED.get(method, method))
    with pytest.raises(ConfigError, match="naive as it is set counts clicks"):
        unskew.learn(paid, unskew.methods.Naive(loss="sigmoid"), steps=1)


def table_of(log: Log, path: Path, spent: Array) -> None:
    write_log(log, path)
    table = pq.read_table(path)
    pq.write_table(table.append_column("spent", pa.array(spent, from_pandas=True)), path)


def test_a_column_is_read_in_the_place_of_clicks(log: Log, tmp_path: Path) -> None:
    spent = np.where(log.click, 2.5, np.nan)  # nothing bought, nothing said
    table_of(log, tmp_path / "log.parquet", spent)
    found = read_log(tmp_path / "log.parquet", log.lists, feedback="spent")
    assert found.weighted
    assert found.feedback == "spent"
    assert np.array_equal(found.click, 2.5 * log.click)
    assert "spent" not in found.columns
    assert Facts.of(found).weighted == "spent"
    write_log(found, tmp_path / "again.parquet")
    again = read_log(tmp_path / "again.parquet", log.lists, feedback="spent")
    assert np.array_equal(again.click, found.click)
    assert np.array_equal(read_log(tmp_path / "again.parquet", log.lists).click, log.click)
    table_of(log, tmp_path / "whole.parquet", log.click.astype(float))
    assert not read_log(tmp_path / "whole.parquet", log.lists, feedback="spent").weighted


@pytest.mark.parametrize("wrong", [-1.0, np.inf])
def test_what_is_no_weight_is_refused(log: Log, tmp_path: Path, wrong: float) -> None:
    spent = log.click.astype(float)
    spent[7] = wrong
    table_of(log, tmp_path / "log.parquet", spent)
    with pytest.raises(DataError, match="1 rows have a spent that is no weight, first row 8"):
        read_log(tmp_path / "log.parquet", log.lists, feedback="spent")
    with pytest.raises(DataError, match="1 rows have a spent that is no weight"):
        unskew.counts(tmp_path / "log.parquet", tmp_path / "counts", feedback="spent")
    with pytest.raises(ConfigError, match="query_id has a meaning of its own"):
        unskew.counts(tmp_path / "log.parquet", tmp_path / "counts", feedback="query_id")


def test_counts_and_shards_add_weights_up(log: Log, tmp_path: Path) -> None:
    spent = log.click * np.random.default_rng(1).gamma(2.0, size=len(log.click))
    table_of(log, tmp_path / "log.parquet", spent)
    unskew.write_letor(log.lists, tmp_path / "lists.txt")
    whole = reduce_log(read_log(tmp_path / "log.parquet", log.lists, feedback="spent"))
    facts = unskew.counts(tmp_path / "log.parquet", tmp_path / "counts", feedback="spent")
    assert facts.feedback == "spent"
    counted = read_counts(tmp_path / "counts", log.lists)
    assert np.sort(counted.clicks.sum(1)) == pytest.approx(np.sort(whole.clicks.sum(1)), rel=1e-5)
    common = {"lists": (str(tmp_path / "lists.txt"),), "shards": 2}
    for source in (
        ShardSource(log=str(tmp_path / "log.parquet"), counts=None, feedback="spent", **common),
        ShardSource(log=None, counts=str(tmp_path / "counts"), **common),
    ):
        shards = open_shards(source, cache=tmp_path / "cache")
        assert shards.weighted == "spent"
        total = sum(shards.load(shard).clicks.sum() for shard in range(2) if shards.pages[shard])
        assert total == pytest.approx(spent.sum(), rel=1e-5)


@pytest.mark.parametrize("extra", ["", "shards = 2\n"])
def test_a_run_file_names_the_column(log: Log, tmp_path: Path, extra: str) -> None:
    table_of(log, tmp_path / "log.parquet", 3.0 * log.click)
    unskew.write_letor(log.lists, tmp_path / "lists.txt")
    run_file = tmp_path / "run.toml"
    run_file.write_text(
        f'out = "run"\n[data]\nlog = "log.parquet"\nfeatures = "lists.txt"\nfeedback = "spent"\n{extra}'
        '[method]\nname = "dla"\n[training]\nsteps = 3\nvalidate_on = "nothing"\n'
    )
    assert unskew.learn(run_file).fit.step == 3
    run_file.write_text(run_file.read_text().replace('"dla"', '"regression_em"').replace('"run"', '"other"'))
    with pytest.raises(ConfigError, match="regression_em as it is set counts clicks, and spent has weights"):
        unskew.learn(run_file)


def test_pairs_of_weights_are_refused(log: Log) -> None:
    with pytest.raises(DataError, match="spent has weights"):
        reduce_log(weighted(log, np.full(len(log.click), 2.5)), "pairs")
