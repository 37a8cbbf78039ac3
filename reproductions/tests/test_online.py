"""Online learners: weights and gradient of PDGD by enumeration, and that it learns faster than dueling bandits."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import unskew
from unskew.errors import ConfigError
from unskew.types import Lists
from unskew_reproductions.experiments.online import (
    DuelingBandit,
    OnlineLearner,
    OnlinePage,
    Pdgd,
    learn_online,
    pdgd_gradient,
    swap_weight,
)
from unskew_reproductions.experiments.visitors import Visitors

SCORES = np.array([0.4, -0.9, 1.3, 0.1])
EXAMINATION = (1.0, 0.6, 0.3)


def page_chance(page: tuple[int, ...]) -> float:
    """Plackett-Luce, written out."""
    chance, left = 1.0, set(range(4))
    for doc in page:
        chance *= math.exp(SCORES[doc]) / sum(math.exp(SCORES[each]) for each in left)
        left.remove(doc)
    return chance


@pytest.mark.parametrize("shown", [3, 4])
def test_the_weight_of_a_pair_is_that_of_both_pages_written_out(shown: int) -> None:
    for page in itertools.permutations(range(4), shown):
        for i, j in itertools.permutations(range(shown), 2):
            other = list(page)
            other[i], other[j] = other[j], other[i]
            expected = page_chance(tuple(other)) / (page_chance(page) + page_chance(tuple(other)))
            found = swap_weight(SCORES, np.array(page), np.array([i]), np.array([j]))
            assert found[0] == pytest.approx(expected, rel=1e-10)


def outcomes(relevance: tuple[float, ...]) -> Iterator[tuple[float, tuple[int, ...], tuple[int, ...]]]:
    """Every page of three with every set of clicks, and its chance, under position bias."""
    for page in itertools.permutations(range(4), 3):
        for clicks in itertools.product((0, 1), repeat=3):
            rates = [EXAMINATION[k] * relevance[doc] for k, doc in enumerate(page)]
            chances = [rate if click else 1 - rate for rate, click in zip(rates, clicks, strict=True)]
            yield page_chance(page) * math.prod(chances), page, clicks


def expected_gradient(relevance: tuple[float, ...]) -> np.ndarray:
    every = [
        chance * pdgd_gradient(SCORES, np.array(page), np.array(clicks))
        for chance, page, clicks in outcomes(relevance)
    ]
    return np.asarray(np.sum(every, axis=0))


def test_equal_relevance_has_no_gradient_and_better_documents_rise() -> None:
    np.testing.assert_allclose(expected_gradient((0.5, 0.5, 0.5, 0.5)), 0, atol=1e-12)
    gradient = expected_gradient((0.5, 0.9, 0.5, 0.5))
    assert gradient[1] > 1e-3
    assert (gradient[[0, 2, 3]] < 0).all()


def test_without_the_weights_the_same_gradient_is_biased() -> None:
    """Were rho one half everywhere, what is shown on top would rise though all are alike."""
    total = np.zeros(4)
    for chance, page, clicks in outcomes((0.5, 0.5, 0.5, 0.5)):
        order, clicked = np.array(page), np.array(clicks)
        last = max((k for k in range(3) if clicks[k]), default=-2)
        for i, j in itertools.product(np.flatnonzero(clicked), np.flatnonzero(1 - clicked)):
            if j <= last + 1:
                total[order[i]] += chance / 2
                total[order[j]] -= chance / 2
    assert np.abs(total).max() > 0.01


def test_the_gradient_is_the_derivative_of_the_weighted_pairs() -> None:
    order, clicks, step = np.array([2, 0, 3]), np.array([0, 1, 0]), 1e-6
    pairs = [(0, 2), (0, 3)]  # candidate 0 was clicked; 2 above it and 3 right below were passed over
    rho = swap_weight(SCORES, order, np.array([1, 1]), np.array([0, 2]))

    def objective(f: np.ndarray) -> float:
        return float(sum(r / (1 + math.exp(f[e] - f[d])) for r, (d, e) in zip(rho, pairs, strict=True)))

    numeric = [(objective(SCORES + step * e) - objective(SCORES - step * e)) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(pdgd_gradient(SCORES, order, clicks), numeric, atol=1e-8)
    further = pdgd_gradient(SCORES, np.array([2, 0, 3, 1]), np.array([0, 1, 0, 0]))
    assert further[1] == 0  # two below the last click: nobody knows whether it was looked at


def test_huge_scores_and_pages_without_clicks_give_finite_gradients() -> None:
    for scores in (SCORES * 1e6, np.zeros(4)):
        assert (pdgd_gradient(scores, np.arange(4), np.zeros(4)) == 0).all()
        assert np.isfinite(pdgd_gradient(scores, np.array([2, 1]), np.array([0, 1]))).all()


def test_pages_of_pdgd_come_as_plackett_luce_says() -> None:
    rng, learner, features = np.random.default_rng(0), Pdgd(results=2), SCORES[:, None]
    pages = [tuple(learner.show(np.ones(1), features, rng).order.tolist()) for _ in range(2000)]
    for page in itertools.permutations(range(4), 2):
        p = page_chance(page)
        assert pages.count(page) / 2000 == pytest.approx(p, abs=4.5 * math.sqrt(p / 2000))


def test_a_bandit_moves_only_where_the_changed_ranker_wins() -> None:
    learner, u = DuelingBandit(rate=0.5), np.array([0.6, 0.8])
    page = OnlinePage(np.array([0, 1, 2]), np.array([0, 1, 1]), u)
    features = np.zeros((3, 2))
    assert learner.learn(np.ones(2), features, page, np.array([0, 1, 0])).tolist() == [1.3, 1.4]
    for clicks in ([1, 0, 0], [1, 0, 1], [0, 0, 0]):
        assert learner.learn(np.ones(2), features, page, np.array(clicks)).tolist() == [1.0, 1.0]


@pytest.fixture(scope="module")
def lists() -> tuple[Lists, Lists]:
    made = [unskew.make_lists(queries=200, features=10, documents=20, seed=seed) for seed in (0, 1)]
    mean, scale = made[0].features.mean(0), made[0].features.std(0)
    scaled = [replace(each, features=((each.features - mean) / scale).astype(np.float32)) for each in made]
    return scaled[0], scaled[1]


def learned(learner: OnlineLearner, lists: tuple[Lists, Lists], pages: int, seed: int) -> list[float]:
    train, test = lists
    visitors = Visitors(train, unskew.behaviours.BEHAVIOURS["position"](), seed=seed)
    trace = learn_online(learner, visitors, pages, seed=seed, every=pages // 2)
    return [unskew.measure_ranking(test.features @ w, test, "ndcg@10").means["ndcg@10"] for _, w in trace]


def test_pdgd_learns_and_beats_dueling_bandits(lists: tuple[Lists, Lists]) -> None:
    ours = [learned(Pdgd(), lists, 1200, seed)[-1] for seed in range(2)]
    theirs = [learned(DuelingBandit(), lists, 1200, seed)[-1] for seed in range(2)]
    random = np.random.default_rng(0).random(len(lists[1].labels))
    nothing = unskew.measure_ranking(random, lists[1], "ndcg@10").means["ndcg@10"]
    assert np.mean(ours) > np.mean(theirs) + 0.02
    assert np.mean(theirs) > nothing + 0.02
    assert min(ours) > nothing + 0.05


def test_the_same_seed_learns_the_same_and_gaps_in_features_are_refused(lists: tuple[Lists, Lists]) -> None:
    assert learned(Pdgd(), lists, 50, 3) == learned(Pdgd(), lists, 50, 3)
    broken = lists[0].features.copy()
    broken[0, 0] = np.nan
    visitors = Visitors(replace(lists[0], features=broken), unskew.behaviours.BEHAVIOURS["position"]())
    with pytest.raises(ConfigError, match="finite features"):
        next(learn_online(Pdgd(), visitors, 1))
