"""Pages whose results look different: probabilities by hand, the graph behind them, columns in the log."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from unskew.errors import DataError
from unskew.logs.log import write_log
from unskew.logs.reader import read_log
from unskew.simulation import Shown, WholePage, simulate
from unskew.simulation.behaviours.page import COLUMNS
from unskew.simulation.synthetic import make_lists
from unskew.types import Array, Lists, Log
from unskew_reproductions.experiments.random_page import random_page

ALONE = {"by_feature": 0.0, "by_relevance": 0.0, "by_rank": 0.0, "tall": 0.0, "grows": 0.0}


def one_page(grades: list[int]) -> Shown:
    lists = Lists(np.ones((len(grades), 2)), np.array([0, len(grades)]), np.array(grades), np.array([1]))
    rows = np.arange(len(grades))[None]
    return Shown(lists, rows, lists.labels[rows], rows >= 0)


@pytest.fixture(scope="module")
def lists() -> Lists:
    return make_lists(queries=200, features=8, documents=12, seed=3)


@pytest.fixture(scope="module")
def log(lists: Lists) -> Log:
    return simulate(lists, WholePage(), pages=20_000, seed=1, truth=True)


def test_clicks_by_hand() -> None:
    page = WholePage(curve=(1.0, 0.5), lure=(0.0, 0.5), media=("text", "video"), sees=0.0, start=0.0, **ALONE)
    seen, g1, g4 = 1 / (1 + math.exp(-1)), 0.16, 1.0
    expected = [seen * (g1 + (1 - g1) * 0.25), 0.5 * seen * g4]
    np.testing.assert_allclose(page.click_probability(one_page([1, 4]))[0], expected, rtol=1e-6)


def test_media_shares_by_hand() -> None:
    page = WholePage(start=0.2, **(ALONE | {"by_relevance": 1.0, "by_rank": 0.5}))
    for rank, gamma in ((1, 0.16), (2, 1.0)):
        s = 0.2 + (2 * gamma - 1) + 0.5 * (5.5 - rank) / 4.5
        odds = [math.exp(j * s) for j in range(3)]
        found = page.media_shares(one_page([1, 4]))[0, rank - 1]
        np.testing.assert_allclose(found, [o / sum(odds) for o in odds], rtol=1e-6)


def test_what_is_drawn_is_what_was_said(lists: Lists, log: Log) -> None:
    media, height, highest = (log.columns[name] for name in COLUMNS)
    assert set(media) == {"text", "image", "video"}
    assert (highest >= height).all()
    assert (height >= 20).all()
    assert abs((highest - height).mean() - 80) < 1
    kind = np.array([WholePage().media.index(name) for name in media])
    assert abs(np.polyfit(kind, height, 1)[0] - 40) < 1  # a richer kind is a deviation taller


def test_media_lures_to_what_is_irrelevant(log: Log) -> None:
    def rate(kind: str) -> float:
        grade = log.lists.labels[log.row]
        some = (log.columns["serp_media"] == kind) & (log.position == 1) & (grade == 0)
        return float(log.click[some].mean())

    assert rate("text") < rate("image") < rate("video")


def test_a_feature_that_relevance_does_not_know_makes_media_rich(lists: Lists, log: Log) -> None:
    assert lists.confounder is not None
    rich, feature = log.columns["serp_media"] == "video", lists.features[log.row, lists.confounder]
    assert np.corrcoef(rich, feature)[0, 1] > 0.2
    plain = simulate(lists, WholePage(by_feature=0.0), pages=5_000, logger="random", seed=1)
    rich, feature = plain.columns["serp_media"] == "video", lists.features[plain.row, lists.confounder]
    assert abs(np.corrcoef(rich, feature)[0, 1]) < 0.1


def test_a_strength_of_zero_takes_an_edge_out() -> None:
    full = WholePage(by_rank=1.0, grows=1.0)
    assert len(full.edges()) == 10
    for edge, off in {
        ("serp_media", "click"): {"lure": (0.3,)},
        ("serp_height", "click"): {"sees": 0.0},
        ("position", "click"): {"severity": 0.0},
        ("relevance", "serp_media"): {"by_relevance": 0.0},
        ("position", "serp_media"): {"by_rank": 0.0},
        ("serp_media", "serp_height"): {"tall": 0.0},
        ("relevance", "serp_height"): {"grows": 0.0},
    }.items():
        assert full.edges() - full.model_copy(update=off).edges() == {edge}


def test_without_lure_and_sight_looks_do_not_matter(lists: Lists) -> None:
    log = simulate(lists, WholePage(lure=(0.0,), sees=0.0), pages=20_000, seed=1, truth=True)
    expected = log.columns["true_examination"] * log.columns["true_relevance"]
    for kind in WholePage().media:
        some = log.columns["serp_media"] == kind
        assert abs(log.click[some].mean() - expected[some].mean()) < 0.01


def test_random_pages_differ_and_always_have_a_cause() -> None:
    worlds = [random_page(seed) for seed in range(30)]
    assert worlds == [random_page(seed) for seed in range(30)]
    causes = [{cause for cause, effect in world.edges() if effect == "click"} for world in worlds]
    assert all(len(found) >= 2 for found in causes)  # relevance, and something of the page
    assert len({frozenset(found) for found in causes}) >= 5


def test_columns_survive_the_file(tmp_path: Path, lists: Lists, log: Log) -> None:
    small = log.take(np.arange(50))
    write_log(small, tmp_path / "log.parquet")
    again = read_log(tmp_path / "log.parquet", lists)
    for name in COLUMNS:
        column: Array = again.columns[name]
        assert column.tolist() == small.columns[name].tolist()


def test_a_feature_that_is_not_there(lists: Lists) -> None:
    with pytest.raises(DataError, match="no feature 99 among 8"):
        simulate(lists, WholePage(feature=99), pages=1)
