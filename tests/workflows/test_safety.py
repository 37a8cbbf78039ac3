"""Safe learning: the loss that imitates, the order that moves within a reach, and what held-out clicks allow."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import unskew
from unskew.learning.methods import IPW, DoublyRobust
from unskew.learning.methods.safety import REACHES, UNLIMITED, guarded, imitation_loss, ranks_of, shown_rank
from unskew.learning.scoring.model import Model
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.reduction import by_query, reduce_log
from unskew.simulation import FeatureLogger, Logger, PositionBias, SvmLogger, logging_scores, simulate
from unskew.simulation.synthetic import make_lists
from unskew.types import Array, Lists, Log
from unskew.workflows.runs.safety import Gains, agreement, choose

torch.set_num_threads(1)
BRIEF = unskew.Training(steps=250)
THETA = (1.0, 0.5, 0.33, 0.25, 0.2)
LOGGER = SvmLogger(share=0.05)


def world(seed: int, pages: int, shuffled: float, logger: Logger = LOGGER) -> tuple[Lists, Log, Array]:
    lists = make_lists(queries=150, features=6, documents=(5, 9), seed=seed)
    log = simulate(lists, PositionBias(), pages=pages, seed=seed, cutoff=5, randomized=shuffled, logger=logger)
    return lists, log, logging_scores(lists, logger, seed)


def order(scores: Array, lists: Lists) -> Array:
    """Ranks within lists, [N]."""
    query = np.repeat(np.arange(len(lists)), lists.sizes)
    rank = np.empty(len(scores), np.int64)
    rank[np.lexsort((-scores, query))] = np.arange(len(scores)) - np.repeat(lists.offsets[:-1], lists.sizes)
    return rank


# ---- the loss


def test_the_imitation_loss_is_the_likelihood_of_the_order_shown() -> None:
    lists = make_lists(queries=1, features=4, documents=3, seed=0)
    log = Log(
        lists, np.array([0]), np.array([0, 3]), np.array([2, 0, 1]), np.array([1, 2, 3]), np.zeros(3, np.uint8)
    )
    batch = Batches(reduce_log(log, "pages")).rows(torch.arange(1))
    m = torch.tensor([[0.01, 0.03, -0.02]])
    one, two, three = (30 * value for value in (0.01, 0.03, -0.02))
    first = math.log(math.exp(one) + math.exp(two) + math.exp(three)) - one
    second = math.log(math.exp(two) + math.exp(three)) - two
    assert imitation_loss(m, batch).item() == pytest.approx((first + second) / 3 / 30, rel=1e-5)


@pytest.mark.parametrize("rows", ["rankings", "queries"])
def test_its_gradient_is_that_of_finite_differences(rows: str) -> None:
    _, log, _ = world(1, 60, 0.3)
    counts = reduce_log(log) if rows == "rankings" else by_query(reduce_log(log), 1000)
    batch = Batches(counts).rows(torch.arange(2))
    assert (shown_rank(batch).isinf() & batch.where).any() == (rows == "queries")
    double = {"clicks", "impressions", "stands_for", "shown_at"}
    changed = {name: value.double() for name in double if (value := getattr(batch, name)) is not None}
    batch = replace(batch, **changed)
    m = 0.05 * torch.randn(batch.where.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(lambda x: imitation_loss(x, batch), m.requires_grad_())


# ---- the order


def test_the_order_moves_within_its_reach() -> None:
    draw = torch.Generator().manual_seed(1)
    s, m = torch.randn(2, 50, 12, generator=draw)
    mask = torch.rand(50, 12, generator=draw) < 0.8
    old, free = ranks_of(m, mask), ranks_of(s, mask & (ranks_of(m, mask) <= 8))
    kept, moved = (ranks_of(guarded(s, m, mask, reach, 8), mask) for reach in (1.0, UNLIMITED))
    assert torch.equal(kept[mask], old[mask])
    first = mask & (old <= 8)
    assert torch.equal(moved[first], free[first])
    assert torch.equal(moved[mask & ~first], old[mask & ~first])
    half = ranks_of(guarded(s, m, mask, 2.0, 8), mask)
    far = [((rank - old).abs() * mask).sum() for rank in (kept, half, moved)]
    assert far[0] == 0 < far[1] < far[2]
    apart = (2 * old[:, :, None] < old[:, None, :] / 2) & first[:, :, None] & first[:, None, :]
    assert apart.any()
    assert (half[:, :, None] < half[:, None, :])[apart].all()  # nobody passes who stood four times as high


# ---- what clicks allow


def gains(means: tuple[float, ...], spread: float = 0.01, queries: int = 40) -> Gains:
    noise = np.random.default_rng(0).normal(0, spread, (len(means), queries))
    return Gains(np.ones(queries), np.array(means)[:, None] + np.where(np.array(means)[:, None] == 0, 0, noise))


def test_a_reach_is_chosen_only_where_its_gain_is_beyond_chance() -> None:
    none, some = (0.0,) * 6, (0.0, 0.01, 0.02, 0.04, 0.03, -0.02)
    assert choose({"shown": gains(none)}, 0.05)[:2] == (1.0, "none")
    assert choose({"shown": gains(some)}, 0.05)[:2] == (REACHES[3], "shown")
    assert choose({"shown": gains(some, spread=1.0)}, 0.05)[0] == 1.0
    assert choose({"shown": gains(some, queries=9)}, 0.05)[0] == 1.0


def test_a_gain_by_raw_clicks_does_not_count_where_shuffled_pages_speak_against_it() -> None:
    some = (0.0, 0.01, 0.02, 0.04, 0.03, -0.02)
    against = gains((0.0, -0.02, -0.02, -0.02, 0.0, 0.0))
    assert choose({"shown": gains(some), "shuffled": gains((0.0,) * 6)}, 0.05)[:2] == (REACHES[3], "shown")
    assert choose({"shown": gains(some), "shuffled": against}, 0.05)[:2] == (REACHES[4], "shown")
    assert choose({"shown": gains((0.0, *(-1.0,) * 5)), "shuffled": gains(some)}, 0.05)[1] == "shuffled"


# ---- runs


@pytest.mark.parametrize("method", [IPW, DoublyRobust])
def test_with_few_clicks_a_safe_run_ranks_as_was_shown(method: type[IPW | DoublyRobust]) -> None:
    lists, log, shown = world(2, 400, 0.0)
    made = unskew.learn(log, method=method(propensity=THETA, safe=True), ranker="linear", training=BRIEF)
    safety = made.metrics.safety
    assert (safety.reach, safety.by) == (1.0, "none")
    assert safety.agreement > 0.95
    assert "ranks as was shown" in safety.sentence
    assert safety.sentence in made.page().sections[0].text
    assert (order(made.score(lists), lists) == order(shown, lists)).mean() > 0.8


def test_with_many_a_safe_run_moves_and_without_limit_is_the_unsafe_one(tmp_path: Path) -> None:
    lists, log, _ = world(3, 10_000, 0.5, FeatureLogger(column=3))  # a wrong favourite
    half = np.arange(len(log)) % 2 == 0
    given = {"validation": log.take(half), "ranker": "linear", "training": BRIEF}
    safe, unsafe = (unskew.learn(log.take(~half), method=IPW(safe=on), **given) for on in (True, False))
    safety = safe.metrics.safety
    assert safety.by == "shuffled"
    assert safety.bound > 0
    safe.save(tmp_path / "kept")
    assert np.array_equal(unskew.load(tmp_path / "kept").score(lists), safe.score(lists))
    assert isinstance(safe.model, Model)
    safe.model.method.reach.fill_(UNLIMITED)  # type: ignore[operator, union-attr]
    short = np.repeat(lists.sizes <= 5, lists.sizes)
    assert short.any()
    same = order(safe.score(lists), lists) == order(unsafe.score(lists), lists)
    assert same[short].mean() > 0.98


def test_a_run_says_that_it_cannot_imitate() -> None:
    lists, log, _ = world(4, 400, 0.0)
    noise = np.random.default_rng(0).random((len(lists.features), 2)).astype(np.float32)
    blind = replace(log, lists=replace(lists, features=noise))
    with pytest.warns(UserWarning, match="features do not tell that order"):
        made = unskew.learn(blind, method=IPW(propensity=THETA, safe=True), ranker="linear", training=BRIEF)
    assert made.metrics.safety.agreement < 0.7


def test_agreement_counts_pairs() -> None:
    _, log, _ = world(1, 30, 0.0)
    part = reduce_log(log)
    assert agreement(part, -part.position) == 1
    assert agreement(part, part.position) == 0
    assert agreement(part, np.zeros(part.position.shape)) == 0.5
