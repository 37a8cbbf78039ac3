"""Training without a number of steps: rounds, when it is enough, and what goes on around the steps."""

from __future__ import annotations

import math

import pytest
import torch

import unskew
from unskew.clicks.lists.synthetic import make_lists
from unskew.clicks.simulate import PositionBias, simulate
from unskew.learning.fitting import runtime
from unskew.learning.fitting.runtime import seed_draws, threads_for
from unskew.learning.fitting.training import FIRST, MOST, UNCHOSEN, Training, enough
from unskew.types import Log

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def log() -> Log:
    lists = make_lists(queries=12, features=6, documents=(3, 8), seed=1)
    return simulate(lists, PositionBias(), pages=400, seed=2, cutoff=5, randomized=0.4)


# ---- rounds --------------------------------------------------------------------------------------------------


def test_every_round_is_twice_as_long_and_ends_with_a_step_size_of_nothing() -> None:
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
    assert lengths == [FIRST * 2**number for number in range(len(lengths))]


def test_steps_that_are_given_are_one_round() -> None:
    assert Training(steps=40).round_at(39) == (0, 40)
    assert not Training(steps=40).in_rounds
    nothing = Training(steps=None, validate_on="nothing")
    assert (nothing.in_rounds, nothing.most, nothing.round_at(5)) == (False, UNCHOSEN, (0, UNCHOSEN))


def test_a_warm_up_belongs_to_the_first_round() -> None:
    config = Training(steps=None, warmup=20, schedule="linear")
    assert [config.rate(0), config.rate(19)] == pytest.approx([1 / 21, 20 / 21])
    assert [config.rate(20), config.rate(60), config.rate(FIRST)] == pytest.approx([1.0, 0.5, 1.0])


@pytest.mark.parametrize(
    ("curve", "first", "stop"),
    [
        ([(50, 0.0), (100, 1.0)], 0, False),  # the first round has none before it
        ([(50, 0.0), (100, 1.0), (200, 0.7), (300, 1.0)], 100, True),
        ([(50, 0.0), (100, 1.0), (200, 0.7), (300, 2.0)], 100, False),
        ([(50, 0.0), (100, 1.0), (200, 1.5), (300, 1.2)], 100, False),  # the best of a round counts
        ([(50, 0.0), (100, 1.0), (300, 1.0 + 1e-6)], 100, True),  # next to nothing is not enough
        ([(50, 5.0), (100, 1.0), (300, 4.0)], 100, True),  # it has only got worse
        ([(50, math.nan), (100, 1.0), (300, 2.0)], 100, False),
        ([(50, math.nan), (100, math.nan)], 0, True),  # nothing is known, so nothing is to be gained
        ([(50, None), (100, None)], 0, True),
    ],
)
def test_when_it_is_enough(curve: list[tuple[int, float | None]], first: int, stop: bool) -> None:
    assert enough(curve, first) == stop
    known = [(step, None if value is None else 7 + 3 * value) for step, value in curve]
    assert enough(known, first) == stop  # whatever the unit of the metric


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
