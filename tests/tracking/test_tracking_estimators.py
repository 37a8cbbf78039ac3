"""Relevance estimators: by hand, against Monte Carlo, the doubly robust property, and curves recovered."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from unskew.errors import DataError
from unskew.tracking.estimators import (
    OrderShown,
    Tallies,
    TrustCurves,
    estimate,
    terms,
)
from unskew.tracking.trust import ClicksByRelevance, RandomSlots, RankSums
from unskew.types import Array
from unskew_reproductions.experiments.theorems import (
    affine_bias,
    affine_variance,
    doubly_robust_bias,
    doubly_robust_variance,
    of_mean,
)

TRUE = TrustCurves([0.9, 0.6, 0.4], [0.6, 0.45, 0.35], [0.25, 0.1, 0.03])
WRONG = TrustCurves([0.8, 0.7, 0.3], [0.5, 0.5, 0.25], [0.2, 0.15, 0.05], [0.7, 0.6, 0.9])
POSITION = np.array([1, 1, 2, 3, 2, 1, 3, 3])


def tallied(position: Array, click: Array, examination: Array | None, pair: Array | None = None) -> Tallies:
    """Displays [..., D] as tallies, one row per display; leading axes are pairs."""
    pair = np.broadcast_to(np.arange(click.shape[0])[:, None], click.shape) if pair is None else pair
    flat = [np.broadcast_to(values, click.shape).ravel() for values in (pair, position)]
    c = click.ravel().astype(float)
    seen = np.ones_like(c) if examination is not None else np.zeros_like(c)
    e = np.zeros_like(c) if examination is None else examination.ravel().astype(float)
    return Tallies(*flat, np.ones_like(c), c, seen, e, e * e, c * e, pairs=int(pair.max()) + 1)


def drawn(relevance: float, times: int, seed: int, noise: float = 0.0) -> tuple[Array, Array]:
    """Clicks and ê [times, D]: examined by θ, clicked by trust; ê is what happened, or the like with E[ê] = θ."""
    rng = np.random.default_rng(seed)
    theta, alpha, beta = TRUE.at(POSITION)
    examined = rng.random((times, len(POSITION))) < theta
    click = examined & (rng.random(examined.shape) < (alpha * relevance + beta) / theta)
    e = (1 - noise) * examined + noise * theta
    return click, e


def test_by_hand() -> None:
    """Two displays at ranks 1 and 3, the second clicked; every formula spelled out."""
    made = tallied(np.array([1, 3]), np.array([[0, 1]]), np.array([[0.5, 1.0]]))
    assert estimate(made, TRUE, "ipw").relevance[0] == pytest.approx((0 / 0.9 + 1 / 0.4) / 2)
    affine = ((0 - 0.25) / 0.6 + (1 - 0.03) / 0.35) / 2
    assert estimate(made, TRUE, "affine").relevance[0] == pytest.approx(affine)
    imputed = 0.4
    terms = [
        (0 - 0.25 - 0.5 * (0.6 / 0.9) * imputed) / 0.6,
        (1 - 0.03 - 1.0 * (0.35 / 0.4) * imputed) / 0.35,
    ]
    found = estimate(made, TRUE, "doubly_robust", np.array([imputed]))
    assert found.relevance[0] == pytest.approx(imputed + sum(terms) / 2)
    zeta = ((1 - 0.5 / 0.9) + (1 - 1.0 / 0.4)) / 2
    assert found.relevance[0] == pytest.approx(zeta * imputed + affine)


@pytest.mark.parametrize("imputed", [None, 0.4])
def test_standard_errors_by_hand(imputed: float | None) -> None:
    """Of the mean of one value per display, and one display's worth of the model's own variance; one has no ê."""
    position, click = np.array([1, 1, 2, 3, 3]), np.array([1, 0, 1, 0, 1])
    seen = [0.5, 1.0, 0.25, 0.75, 1.0]
    alpha, beta, trust = ([float(row[k - 1]) for k in position] for row in (TRUE.alpha, TRUE.beta, TRUE.trust))
    guess = 0.0 if imputed is None else imputed
    displays = zip(click, alpha, beta, trust, seen, strict=True)
    values = [(c - b) / a + guess * (1 - e * t / a) for c, a, b, t, e in displays]
    mean = sum(values) / 5
    chances = [a * min(max(mean, 0), 1) + b for a, b in zip(alpha, beta, strict=True)]
    model = sum(p * (1 - p) / a**2 for p, a in zip(chances, alpha, strict=True)) / 5
    spread = sum((value - mean) ** 2 for value in values)
    made = tallied(position, click[None], np.array([seen]))
    estimator, guesses = ("affine", None) if imputed is None else ("doubly_robust", np.array([imputed]))
    found = estimate(made, TRUE, estimator, guesses)
    assert found.relevance[0] == pytest.approx(mean)
    assert found.standard_error[0] == pytest.approx(math.sqrt((spread + model) / 5**2))


def test_clicks_of_displays_without_an_estimate_are_shared_out() -> None:
    """A row of four displays, half of them with ê = 1: half of its clicks are taken for theirs."""
    half = Tallies(*(np.array([value]) for value in (0, 2, 4.0, 2.0, 2.0, 2.0, 2.0, 1.0)), pairs=1)
    known, usual = 1 - 1.0 * (0.45 / 0.6) / 0.45, 1 - 0.6 * (0.45 / 0.6) / 0.45  # 1 - ê τ/α, with ê or θ
    values = [(c - 0.1) / 0.45 + 0.4 * part for c, part in ((1, known), (0, known), (1, usual), (0, usual))]
    mean = sum(values) / 4
    found = terms(half, TRUE, "doubly_robust", np.array([0.4]))
    assert found.mean[0] == pytest.approx(mean)
    assert found.within[0] == pytest.approx(sum((value - mean) ** 2 for value in values))


def test_errors_of_what_begins_with_the_order_by_hand() -> None:
    """That of the expectation, and of clicks: Σ p (1 - p) with p = α y + β, over displays at two ranks."""
    n, alpha, beta, clicks, mean, worth = (30, 20), (0.6, 0.35), (0.25, 0.03), 12.0, 0.4, 5.0
    ranks = list(zip(n, alpha, beta, strict=True))
    sums = (
        clicks - sum(k * b for k, _, b in ranks),
        sum(k * a for k, a, _ in ranks),
        sum(k * a * a for k, a, _ in ranks),
        sum(k * b * (1 - b) for k, _, b in ranks),
        sum(k * a * b for k, a, b in ranks),
    )
    shown = OrderShown(*(np.array([value]) for value in sums), np.array([1.0]), np.array([0]))
    found = shown.estimate(SimpleNamespace(of=lambda *_: np.array([mean])), worth)  # type: ignore[arg-type]
    y = (worth * mean + sums[0]) / (worth + sums[1])
    chances = [a * y + b for _, a, b in ranks]
    spread = worth**2 * mean * (1 - mean) / (worth + 1) + sum(
        k * p * (1 - p) for k, p in zip(n, chances, strict=True)
    )
    assert found.relevance[0] == pytest.approx(y)
    assert found.standard_error[0] == pytest.approx(math.sqrt(spread) / (worth + sums[1]))


def test_rows_of_many_displays_are_worth_as_much_as_rows_of_one() -> None:
    click, e = drawn(0.5, 40, seed=3, noise=0.4)
    single = tallied(POSITION, click, e)
    cell = single.pair * 3 + single.position - 1
    sums = {name: np.bincount(cell, getattr(single, name)) for name in ("n", "c", "estimated", "e", "ee", "ce")}
    joined = Tallies(np.arange(120) // 3, np.arange(120) % 3 + 1, **sums, pairs=40)
    imputed = np.linspace(0, 1, 40)
    for found in (
        lambda t: estimate(t, TRUE, "ipw"),
        lambda t: estimate(t, TRUE, "affine"),
        lambda t: estimate(t, TRUE, "doubly_robust", imputed),
    ):
        for one, other in zip(found(single), found(joined), strict=True):
            assert one == pytest.approx(other)


def test_if_examination_is_theta_doubly_robust_is_affine() -> None:
    click, _ = drawn(0.5, 30, seed=1)
    imputed = np.random.default_rng(0).random(30)
    theta = np.broadcast_to(TRUE.at(POSITION)[0], click.shape)
    affine = estimate(tallied(POSITION, click, theta), TRUE, "affine")
    assert estimate(tallied(POSITION, click, theta), TRUE, "doubly_robust", imputed).relevance == pytest.approx(
        affine.relevance, abs=1e-12
    )
    unknown = estimate(tallied(POSITION, click, None), TRUE, "doubly_robust", imputed)
    assert unknown.relevance == pytest.approx(affine.relevance, abs=1e-12)


@pytest.mark.parametrize("relevance", [0.1, 0.7])
def test_doubly_robust(relevance: float) -> None:
    """Right curves with a wrong imputation, or wrong slopes with a right one: unbiased; both wrong: not."""
    times = 60_000
    click, e = drawn(relevance, times, seed=5, noise=0.3)
    made = tallied(POSITION, click, e)
    # slopes that are wrong while ê (ε⁺ - ε⁻) has the right mean and β is right, as Theorem 2 asks
    steep = TrustCurves(TRUE.theta, TRUE.alpha * 1.4, TRUE.beta, TRUE.trust)
    wrong, right = np.full(times, 0.95), np.full(times, relevance)

    def bias(found: Array) -> float:
        """In standard errors of the mean over all repeats."""
        return float(abs(found.mean() - relevance) / (found.std() / np.sqrt(times)))

    assert bias(estimate(made, TRUE, "doubly_robust", wrong).relevance) < 4
    assert bias(estimate(made, steep, "doubly_robust", right).relevance) < 4
    assert bias(estimate(made, steep, "doubly_robust", wrong).relevance) > 20
    assert bias(estimate(made, steep, "affine").relevance) > 10


def test_theorem_1_against_monte_carlo() -> None:
    times, relevance = 80_000, 0.6
    click, _ = drawn(relevance, times, seed=7)
    found = estimate(tallied(POSITION, click, None), WRONG, "affine").relevance
    assert found.mean() - relevance == pytest.approx(affine_bias(relevance, POSITION, TRUE, WRONG), abs=0.01)
    right = estimate(tallied(POSITION, click, None), TRUE, "affine").relevance
    printed = [of_mean(affine_variance(POSITION, one, TRUE), len(POSITION)) for one in click[:8000].astype(float)]
    assert right.mean() == pytest.approx(relevance, abs=0.01)
    assert np.mean(printed) == pytest.approx(right.var(), rel=0.05)
    assert of_mean(1.0, 1) == float("inf")


def test_theorem_2_against_monte_carlo() -> None:
    times, relevance, imputed = 80_000, 0.6, 0.3
    click, e = drawn(relevance, times, seed=8, noise=0.3)
    guess = np.full(times, imputed)
    found = estimate(tallied(POSITION, click, e), WRONG, "doubly_robust", guess).relevance
    expected = doubly_robust_bias(relevance, imputed, POSITION, e.mean(axis=0), TRUE, WRONG)
    assert found.mean() - relevance == pytest.approx(expected, abs=0.012)
    right = estimate(tallied(POSITION, click, e), TRUE, "doubly_robust", guess).relevance
    printed = [
        of_mean(doubly_robust_variance(imputed, POSITION, c, seen, TRUE), len(POSITION))
        for c, seen in zip(click[:8000].astype(float), e[:8000], strict=True)
    ]
    assert np.mean(printed) == pytest.approx(right.var(), rel=0.05)
    affine = estimate(tallied(POSITION, click, e), TRUE, "affine").relevance
    assert right.var() < 0.97 * affine.var(), "examination explains a part of the clicks"


def test_standard_errors_cover() -> None:
    relevance, times = 0.4, 4000
    rng = np.random.default_rng(2)
    position = rng.integers(1, 4, (times, 60))
    theta, alpha, beta = TRUE.at(position)
    examined = rng.random(position.shape) < theta
    click = examined & (rng.random(position.shape) < (alpha * relevance + beta) / theta)
    made = tallied(position, click, examined)
    for found in (estimate(made, TRUE, "affine"), estimate(made, TRUE, "doubly_robust", np.full(times, 0.5))):
        inside = np.abs(found.relevance - relevance) < 1.96 * found.standard_error
        assert inside.mean() == pytest.approx(0.95, abs=0.02)
    never = estimate(tallied(np.array([1, 1]), np.zeros((1, 2)), None), TRUE, "affine")
    assert never.standard_error[0] > 0.3, "two displays without a click are no certainty"


def test_nothing_shown_is_the_imputation() -> None:
    made = Tallies(*(np.array([v]) for v in (0, 1, 3.0, 1.0, 0.0, 0.0, 0.0, 0.0)), pairs=2)
    assert np.isnan(estimate(made, TRUE, "affine").relevance[1])
    found = estimate(made, TRUE, "doubly_robust", np.array([0.2, 0.7]))
    assert found.relevance[1] == 0.7
    assert np.isnan(found.standard_error[1])


def shuffled_curves(tallies: Tallies, ranks: int, first: tuple[float, float] = (1.0, 0.0)) -> TrustCurves:
    slots = RandomSlots(ranks)
    slots.add(tallies)
    return slots.curves(first)


def examination_by_rank(tallies: Tallies, ranks: int) -> Array | None:
    sums = RankSums(ranks)
    sums.add(tallies)
    return sums.theta()


def world(pairs: int, shows: int, seed: int) -> Tallies:
    """Pairs of uniform relevance, shown at ranks at random."""
    rng = np.random.default_rng(seed)
    relevance = rng.random((pairs, 1))
    position = rng.integers(1, 4, (pairs, shows))
    theta, alpha, beta = TRUE.at(position)
    examined = rng.random(position.shape) < theta
    click = examined & (rng.random(position.shape) < (alpha * relevance + beta) / theta)
    return tallied(position, click, examined)


def test_curves_from_shuffled_pages() -> None:
    found = shuffled_curves(world(20_000, 12, seed=1), 3, first=(0.6, 0.25))
    assert found.alpha == pytest.approx(TRUE.alpha, abs=0.02)
    assert found.beta == pytest.approx(TRUE.beta, abs=0.02)
    ratio = shuffled_curves(world(20_000, 12, seed=1), 3)
    assert ratio.alpha == pytest.approx(TRUE.alpha / 0.6, abs=0.045)  # sd 0.014 over ten seeds
    assert ratio.beta == pytest.approx(TRUE.beta - TRUE.alpha / 0.6 * 0.25, abs=0.03)  # 0, and below 0
    relevance = estimate(world(20_000, 12, seed=2), ratio, "affine").relevance
    assert relevance.mean() == pytest.approx(0.6 * 0.5 + 0.25, abs=0.01)  # the click rate at rank 1
    blind = replace(world(300, 6, seed=1), c=(np.random.default_rng(0).random(1800) < 0.3).astype(float))
    with pytest.raises(DataError, match="random slots tell nothing of rank"):
        shuffled_curves(blind, 3)
    with pytest.raises(DataError, match="no result of rank 4 was shown twice"):
        shuffled_curves(world(100, 5, seed=1), 4)


def test_examination_by_rank_is_theta() -> None:
    made = world(5_000, 10, seed=2)
    assert examination_by_rank(made, 3) == pytest.approx(TRUE.theta, abs=0.01)
    assert examination_by_rank(tallied(POSITION, np.zeros((1, 8)), None), 3) is None


def test_curves_by_em() -> None:
    """EM with the right relevance finds the click probabilities of both ends of [0, 1]."""
    rng = np.random.default_rng(3)
    relevance = rng.random((6_000, 1))
    position = rng.integers(1, 4, (6_000, 30))
    _, alpha, beta = TRUE.at(position)
    click = rng.random(position.shape) < alpha * relevance + beta
    graded = ClicksByRelevance(3)
    graded.add(tallied(position, click, None), relevance[:, 0])
    found = graded.curves()
    assert found.alpha == pytest.approx(TRUE.alpha, abs=0.02)
    assert found.beta == pytest.approx(TRUE.beta, abs=0.02)


def test_a_display_without_examination_counts_as_the_others_of_its_rank() -> None:
    """ê (ε⁺ - ε⁻) corrects a wrong α also where only some displays have an ê, by their mean m, or by θ."""
    steep = TrustCurves([0.9, 0.5], [1.2, 0.8], [0.1, 0.0], [0.7, 0.6])
    made = Tallies(*(np.array([v]) for v in (0, 2, 4.0, 1.0, 3.0, 1.2, 0.9, 0.4)), pairs=1)
    affine = (1 - 4 * 0.0) / 4 / 0.8
    by_mean = (4 - (1.2 + 1 * 0.45) * 0.6 / 0.8) / 4
    found = estimate(made, steep, "doubly_robust", np.array([0.3]), np.array([0.9, 0.45]))
    assert found.relevance[0] == pytest.approx(affine + 0.3 * by_mean)
    by_theta = (4 - (1.2 + 1 * 0.5) * 0.6 / 0.8) / 4
    found = estimate(made, steep, "doubly_robust", np.array([0.3]))
    assert found.relevance[0] == pytest.approx(affine + 0.3 * by_theta)


def test_curves_must_be_sound() -> None:
    with pytest.raises(DataError, match="same ranks"):
        TrustCurves([1.0], [1.0], [0.0], [0.5, 0.5])
    with pytest.raises(DataError, match="positive at every rank"):
        TrustCurves([1.0], [1.0], [0.0], [0.0])
    with pytest.raises(DataError, match="same ranks"):
        TrustCurves([1.0], [1.0, 0.5], [0.0, 0.0])
    with pytest.raises(DataError, match="positive at every rank"):
        TrustCurves([1.0, 0.5], [1.0, 0.0], [0.0, 0.0])
    for beyond in (4, 5, 9):
        assert [float(v[0]) for v in TRUE.at(np.array([beyond]))] == [0.4, 0.35, 0.03]
