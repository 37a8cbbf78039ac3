"""nDCG of logged pages by clicks and other outcomes, raw and corrected for rank, and `measure` with them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import unskew
from unskew.errors import ConfigError, DataError
from unskew.logs.log import write_log
from unskew.measuring import ndcg_metric, page_ndcg_metric, rank_weights
from unskew.terminal.main import app

torch.set_num_threads(1)


def test_a_page_by_hand() -> None:
    """Clicks at ranks 1 and 3 with weights 1 and 4, put in the order (rank 2, rank 3, rank 1) by the scores."""
    found = page_ndcg_metric([1, 3, 2], [1, 0, 1], offsets=[0, 3], weights=[1, 2, 4], at=None)
    log = math.log2
    assert found.values[0] == pytest.approx((4 / log(3) + 1 / log(4)) / (4 / log(2) + 1 / log(3)))
    assert found.weights[0] == pytest.approx((1 + 4) / 2)
    assert found.mean == found.values[0]


def test_pages_count_by_the_weight_of_their_outcomes() -> None:
    """Three pages of two: a click that the scores put first, one that they put last, and none."""
    scores, clicks, offsets = [2, 1, 2, 1, 2, 1], [1, 0, 0, 1, 0, 0], [0, 2, 4, 6]
    last = 1 / math.log2(3)
    plain = page_ndcg_metric(scores, clicks, offsets=offsets)
    assert plain.values[:2].tolist() == pytest.approx([1, last])
    assert np.isnan(plain.values[2])
    assert plain.mean == pytest.approx((1 + last) / 2)
    weighted = page_ndcg_metric(scores, clicks, offsets=offsets, weights=[1, 5, 1, 5, 1, 5])
    assert weighted.values[:2].tolist() == pytest.approx([1, last])  # one click a page: its weight cancels there
    assert weighted.mean == pytest.approx((1 + 5 * last) / 6)
    assert np.nanmean(weighted.shares) == pytest.approx(weighted.mean)


def test_weight_one_is_the_plain_metric() -> None:
    rng = np.random.default_rng(0)
    scores, clicks, offsets = rng.random(40), rng.random(40) < 0.3, np.arange(0, 41, 8)
    expected = ndcg_metric(scores, clicks, offsets=offsets, at=5)
    found = page_ndcg_metric(scores, clicks, offsets=offsets, at=5)
    np.testing.assert_allclose(found.values, expected)
    scaled = page_ndcg_metric(scores, clicks, offsets=offsets, at=5, weights=np.full(40, 7.0))
    assert scaled.mean == pytest.approx(found.mean) == pytest.approx(np.nanmean(expected))


def test_weights_of_ranks_by_hand() -> None:
    assert rank_weights([1, 0, 0, 1, 0, 0], [1, 1, 2, 2, 2, 3]).tolist() == [2, 2, 3, 3, 3, 0]
    for wrong in ([0, 1], [1.0, 2.0], [1]):
        with pytest.raises(DataError, match="positions"):
            rank_weights([1, 0], wrong)


def test_wrong_outcomes_are_refused() -> None:
    with pytest.raises(DataError, match="not below 0"):
        page_ndcg_metric([1, 2], [-1, 0], offsets=[0, 2])
    with pytest.raises(DataError, match="same length"):
        page_ndcg_metric([1, 2], [1, 0], offsets=[0, 2], weights=[1])
    assert math.isnan(page_ndcg_metric([1, 2], [0, 0], offsets=[0, 2]).mean)
    assert math.isnan(page_ndcg_metric([], [], offsets=[0]).mean)


def test_the_correction_undoes_position_bias() -> None:
    """Shuffled pages: by raw clicks the order that was shown looks good, corrected it is like any order."""
    rng, pages, k = np.random.default_rng(1), 20_000, 10
    seen = 1 / np.arange(1, k + 1)
    relevant = np.eye(k)[rng.integers(0, k, pages)]
    clicks = (rng.random((pages, k)) < seen * relevant).reshape(-1)
    position, offsets = np.tile(np.arange(1, k + 1), pages), np.arange(0, pages * k + 1, k)
    any_order, shown = rng.random(pages * k), -position
    weights = rank_weights(clicks, position)
    mean = {
        (name, by): page_ndcg_metric(scores, clicks, offsets=offsets, weights=w, at=5).mean
        for name, scores in (("any", any_order), ("shown", shown))
        for by, w in (("raw", None), ("ips", weights))
    }
    assert mean["shown", "raw"] > mean["any", "raw"] + 0.2
    assert mean["shown", "ips"] == pytest.approx(mean["any", "ips"], abs=0.02)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Two runs, their lists and a log with installs in files."""
    folder = tmp_path_factory.mktemp("pages")
    lists = unskew.make_lists(30, 6, seed=0)
    log = unskew.simulate(lists, pages=400, seed=0)
    bought = log.click * (np.random.default_rng(0).random(len(log.click)) < 0.5)
    log = replace(log, columns={"install": bought.astype(np.int8)})
    unskew.write_letor(lists, folder / "lists.txt")
    write_log(log, folder / "log.parquet")
    for name in ("naive", "dla"):
        unskew.learn(log, method=name, ranker="linear", steps=5, out=folder / name)
    return folder / "dla", folder / "lists.txt", folder / "log.parquet"


def test_measure_has_outcomes_of_pages(world: tuple[Path, Path, Path]) -> None:
    run, lists, log = world
    found = unskew.measure(run, lists, log=log, outcomes=["install"], against=run.parent / "naive")
    names = [f"{kind}@{at} of {what}" for what in ("clicks", "install") for at in (5, 10) for kind in KINDS]
    assert list(found.pages) == names == list(found.against.pages)
    assert all(0 < value < 1 for value in found.pages.values())
    other = unskew.measure(run.parent / "naive", lists, log=log, outcomes=["install"]).pages
    for name in names:
        difference = found.against.pages[name].difference
        assert difference == pytest.approx(found.pages[name] - other[name])
    with pytest.raises(ConfigError, match="install"):
        unskew.measure(run, lists, log=log, outcomes=["instal"])
    with pytest.raises(ConfigError, match="give log="):
        unskew.measure(run, lists, outcomes=["install"])


KINDS = ("nDCG", "IPS-nDCG")


def test_the_command_prints_them(world: tuple[Path, Path, Path]) -> None:
    run, lists, log = map(str, world)
    done = CliRunner().invoke(app, ["measure", run, "--lists", lists, "--log", log, "--outcome", "install"])
    assert done.exit_code == 0, done.output
    assert "IPS-nDCG@5 of install" in done.output
