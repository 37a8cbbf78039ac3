"""How much documents differ in their curves: the likelihood by hand, derivatives, known values found again."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from unskew.diagnosis.curves.trust import WORTH, SlopeModel, slope_spread, strata
from unskew.diagnosis.evidence.pairs import SwapPairs

RANKS = np.arange(1, 7)
THETA = 1 / RANKS**0.8


def drawn(spread: float, *, trust: float = 0.0, pairs: int = 900, seed: int = 0) -> SwapPairs:
    """Pairs of known worth, shown most at a rank of their own that is higher the more they are worth."""
    rng = np.random.default_rng(seed)
    worth = rng.beta(1.0, 2.0, pairs)
    own = np.clip(6 - 6 * worth + rng.normal(0, 1, pairs), 0, 5).astype(int)
    shown = np.full((pairs, len(RANKS)), 12.0)
    shown[np.arange(pairs), own] += 60
    rate = THETA * (worth[:, None] + trust * (1 - worth[:, None]) / RANKS) * 0.6
    bend = spread * rng.normal(size=pairs)[:, None] * (np.log(RANKS) - np.log(2))
    clicks = rng.binomial(shown.astype(int), 1 / (1 + (1 / rate - 1) * np.exp(-bend))).astype(float)
    return SwapPairs(shown, clicks, np.arange(pairs) // 10, pairs // 10)


@pytest.fixture(scope="module")
def model() -> SlopeModel:
    some = drawn(0.4, trust=0.5, pairs=40)
    return SlopeModel(some.shown, some.clicks, strata(some.shown, RANKS, 2), RANKS)


def test_the_likelihood_of_a_pair_is_its_sum_over_worths_and_deviations(model: SlopeModel) -> None:
    at = model.start()
    at[12] = math.log(0.7)
    at[13:] = np.linspace(-1, 1, len(at) - 13)
    points, mass = np.polynomial.hermite_e.hermegauss(5)
    total, stratum, pair = model.clicks.sum(0), int(model.stratum[3]), 3
    middle = sum(math.log(k) * c for k, c in zip(RANKS, total, strict=True)) / total.sum()
    logs = at[13:].reshape(2, -1)[stratum]
    expected = 0.0
    for g, share in zip(WORTH, np.exp(logs) / np.exp(logs).sum(), strict=True):
        for point, weight in zip(points, mass / mass.sum(), strict=True):
            chance = share * weight
            for k in range(6):
                low, high = (1 / (1 + math.exp(-at[place])) for place in (k, 6 + k))
                p = low + (high - low) * g
                p = 1 / (1 + (1 / p - 1) * math.exp(-0.7 * point * (math.log(k + 1) - middle)))
                n, c = model.shown[pair, k], model.clicks[pair, k]
                chance *= p**c * (1 - p) ** (n - c)
            expected += chance
    assert model.fit(at).level[pair] == pytest.approx(math.log(expected))


def test_gradients_are_those_of_finite_differences(model: SlopeModel) -> None:
    at = model.start() + np.random.default_rng(0).normal(0, 0.2, len(model.start()))
    gradient, step = model.loss(at)[1], 1e-5
    for place in (0, 3, 6, 11, 12, 15, 30):
        away = np.eye(len(at))[place] * step
        slope = (model.loss(at + away)[0] - model.loss(at - away)[0]) / (2 * step)
        assert gradient[place] == pytest.approx(slope, rel=1e-4, abs=1e-9)


def test_the_score_of_each_pair_is_that_of_finite_differences(model: SlopeModel) -> None:
    at = model.start()
    score, others = model.scores(model.fit(at))
    levels = []
    for side in (-1, 1):
        moved = at.copy()
        moved[12] = math.log(math.exp(2 * at[12]) + side * 1e-5) / 2
        levels.append(model.fit(moved).level)
    assert score == pytest.approx((levels[1] - levels[0]) / 2e-5, rel=1e-3, abs=1e-5)
    low = np.eye(len(at))[2] * 1e-5
    slope = (model.fit(at + low).level - model.fit(at - low).level) / 2e-5
    assert np.corrcoef(slope, others[:, 4])[0, 1] == pytest.approx(1.0)


@pytest.mark.parametrize(("spread", "trust"), [(0.0, 0.0), (0.0, 0.6), (0.5, 0.0), (0.5, 0.6)])
def test_a_known_variance_is_found_again_with_trust_and_a_ranker_that_knows_worth(
    spread: float, trust: float
) -> None:
    found = slope_spread(drawn(spread, trust=trust), RANKS)
    assert found is not None
    assert found.error < 0.04
    assert abs(found.value - spread**2) < 3 * found.error


def test_pairs_of_one_query_count_as_one_observation() -> None:
    some = drawn(0.5, pairs=300)
    twice = replace(some, shown=np.repeat(some.shown, 2, 0), clicks=np.repeat(some.clicks, 2, 0))
    apart = slope_spread(replace(twice, cluster=np.arange(len(twice.shown))), RANKS)
    tied = slope_spread(replace(twice, cluster=np.repeat(np.arange(len(some)), 2)), RANKS)
    assert apart is not None
    assert tied is not None
    assert tied.error / apart.error == pytest.approx(math.sqrt(2), rel=0.05)


def test_the_error_counts_what_else_was_fitted() -> None:
    """It is that of v in the inverse of all scores' products, every other parameter free."""
    some = replace(neighbours(0), cluster=np.arange(800))
    found = slope_spread(some, RANKS)
    model = SlopeModel(some.shown, some.clicks, strata(some.shown, RANKS), RANKS)
    score, others = model.scores(model.fit(model.searched()))
    every = np.column_stack([score, others / np.maximum(others.std(0), 1e-12)])
    assert found is not None
    assert found.error == pytest.approx(np.linalg.pinv(every.T @ every, rcond=1e-14)[0, 0] ** 0.5, rel=0.05)
    assert found.error > 1.5 / math.sqrt(score @ score)


def neighbours(seed: int, pairs: int = 800) -> SwapPairs:
    """Pairs that a good ranker showed at a rank of their own, and a few times at the next; one curve for all."""
    rng = np.random.default_rng(seed)
    worth = np.sort(rng.beta(1.0, 2.0, pairs))[::-1]
    own = np.clip(np.arange(pairs) * 6 / pairs + rng.normal(0, 0.3, pairs), 0, 5).astype(int)
    shown = np.zeros((pairs, len(RANKS)))
    shown[np.arange(pairs), own] = 12
    shown[np.arange(pairs), np.where(own < 5, own + 1, 4)] = 3
    clicks = rng.binomial(shown.astype(int), 0.6 * worth[:, None] * THETA).astype(float)
    return SwapPairs(shown, clicks, np.arange(pairs) // 10, pairs // 10)


@pytest.mark.parametrize("seed", range(3))
def test_swaps_of_neighbours_by_a_good_ranker_are_not_taken_for_documents_that_differ(seed: int) -> None:
    found = slope_spread(neighbours(seed), RANKS)
    assert found is not None
    assert found.value < 2 * found.error
    assert found.value + 1.96 * found.error > 0.05  # nor can they rule it out


def test_few_pairs_or_a_rank_without_clicks_tell_nothing() -> None:
    some = drawn(0.5, pairs=100)
    assert slope_spread(some.take(np.arange(49)), RANKS) is None
    clicks = some.clicks.copy()
    clicks[:, 2] = 0.0
    assert slope_spread(replace(some, clicks=clicks), RANKS) is None
