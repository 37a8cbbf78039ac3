"""Training without a number of steps: rounds, when it is enough, and what goes on around the steps."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

import unskew
from tests.helpers.asked import settings
from unskew.learning.fitting import runtime
from unskew.learning.fitting.runtime import seed_draws, threads_for
from unskew.learning.fitting.training import FIRST, MOST, UNCHOSEN, Training, decay_for, enough, no_worse
from unskew.simulation import PositionBias, simulate
from unskew.simulation.synthetic import make_lists
from unskew.types import Log
from unskew.workflows.runs.settings import settled

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def log() -> Log:
    lists = make_lists(queries=12, features=6, documents=(3, 8), seed=1)
    return simulate(lists, PositionBias(), pages=400, seed=2, cutoff=5, randomized=0.4)


# ---- rounds --------------------------------------------------------------------------------------------------


def test_every_round_doubles_the_steps_and_ends_with_a_step_size_of_nothing() -> None:
    config, at, lengths = Training(steps=None), 0, []
    while at < MOST:
        first, end = config.round_at(at)
        assert first == at
        assert {config.round_at(step) for step in range(first, end, 7)} == {(first, end)}
        middle = (first + end) // 2
        assert config.rate(first) == 1.0
        assert config.rate(middle) == pytest.approx(0.5)
        assert config.rate(end - 1) == pytest.approx((1 - math.cos(math.pi / (end - first))) / 2, abs=1e-9)
        lengths.append(end - first)
        at = end
    assert at == MOST
    assert lengths == [FIRST, *(FIRST * 2**number for number in range(len(lengths) - 1))]


def test_steps_that_are_given_are_one_round() -> None:
    assert Training(steps=40).round_at(39) == (0, 40)
    assert not Training(steps=40).in_rounds
    nothing = Training(steps=None, validate_on="nothing")
    assert (nothing.in_rounds, nothing.most, nothing.round_at(5)) == (False, UNCHOSEN, (0, UNCHOSEN))


def test_a_warm_up_belongs_to_the_first_round() -> None:
    config = Training(steps=None, warmup=20, schedule="linear")
    assert [config.rate(0), config.rate(19)] == pytest.approx([1 / 21, 20 / 21])
    assert [config.rate(20), config.rate((FIRST + 20) // 2), config.rate(FIRST)] == pytest.approx([1.0, 0.5, 1.0])


@pytest.mark.parametrize(
    ("ends", "stop", "take"),
    [
        ([0.0], False, True),  # the first round has none before it
        ([0.0, 1.0], False, True),
        ([1.0, 0.5], True, False),  # it has only got worse
        ([0.0, 1.0, 2.0, 1.0], True, False),
        ([0.0, 1.0, 2.0, 1.7], True, True),  # worse by less than a quarter of what was gained
        ([0.0, 1.0, 1.9], False, True),
        ([0.0, 1.0, 1.5], True, True),  # a third of all that was gained is not enough
        ([0.0, 2.0, 1.0, 1.9], True, True),  # more than the round before, and nothing beyond the best
        ([math.nan, 1.0, 2.0], False, True),
        ([0.0, 1.0, math.nan], False, False),
        ([math.nan], True, False),  # nothing is known, so nothing is to be gained
        ([None], True, False),
    ],
)
def test_when_it_is_enough_and_which_round_counts(ends: list[float | None], stop: bool, take: bool) -> None:
    other = [None if value is None else 7 + 3 * value for value in ends]  # in another unit
    assert (enough(ends), no_worse(ends)) == (enough(other), no_worse(other)) == (stop, take)


def test_weight_decay_follows_the_number_of_queries(log: Log) -> None:
    assert decay_for(400) == pytest.approx(0.005)
    asked = settings("dla", None, None, None, {}, None)
    assert asked.training.weight_decay is None
    assert settled(asked, 400).training.weight_decay == pytest.approx(0.005)
    given = settings("dla", None, None, None, {"weight_decay": 0.0}, None)
    assert settled(given, 400) == given
    assert settled(settings("dla", "trees", None, None, {}, None), 400).training.weight_decay == 0.0


def test_the_run_folder_says_the_weight_decay(log: Log, tmp_path: Path) -> None:
    unskew.learn(log, "naive", steps=2, out=tmp_path / "run", validate_on="nothing")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["training"]["weight_decay"] == pytest.approx(0.1 / math.sqrt(len(set(log.query.tolist()))))


# ---- around the steps ----------------------------------------------------------------------------------------


def test_a_seed_reaches_the_processor_and_any_other_device(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(torch, "manual_seed", told.append)
    with torch.random.fork_rng():
        seed_draws(7, torch.device("cpu"))
        first = torch.rand(3)
        assert told == []
        seed_draws(7, torch.device("meta"))
        assert torch.equal(torch.rand(3), first)
    assert told == [7]


def test_small_work_takes_one_thread() -> None:
    small, large = 2560 * (40 * 64 + 64 * 32 + 32), 2560 * (136 * 512 + 512 * 256 + 256 * 128 + 128)
    assert [threads_for(work, 4) for work in (0, small, large)] == [1, 1, 4]
    assert threads_for(large, 1) == 1


@pytest.mark.parametrize(("given", "limit", "used"), [(None, 1e18, 1), (None, 0, 2), (2, 1e18, 2), (1, 0, 1)])
def test_learn_takes_the_threads_that_the_work_is_worth(
    log: Log, monkeypatch: pytest.MonkeyPatch, given: int | None, limit: float, used: int
) -> None:
    monkeypatch.setattr(runtime, "WORTHWHILE", limit)
    seen: list[int] = []
    torch.set_num_threads(2)
    try:
        unskew.learn(log, "naive", steps=2, threads=given, report=lambda _: seen.append(torch.get_num_threads()))
        assert (seen, torch.get_num_threads()) == ([used], 2)
    finally:
        torch.set_num_threads(1)
