"""Made-up lists: shapes, grades, a world shared between seeds, and a confounder that says nothing of relevance."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.errors import ConfigError
from unskew.simulation import logging_scores
from unskew.simulation.synthetic import GRADES, draw_lists, make_lists, make_world
from unskew.types import Array, Lists


def shares(lists: Lists) -> Array:
    return np.bincount(lists.labels, minlength=len(GRADES)) / len(lists.labels)


def with_utility(
    queries: int, features: int, documents: int | tuple[int, int] = 24, seed: int = 0, noise: float = 0.5
) -> tuple[Lists, Array]:
    lists, utility = draw_lists(make_world(0, features, True, noise, GRADES), queries, documents, seed, noise)
    same = make_lists(queries, features, documents, seed, noise=noise)
    assert np.array_equal(lists.features, same.features)
    return lists, utility


def test_shapes_and_types() -> None:
    lists, utility = with_utility(queries=50, features=9, documents=(3, 6), seed=2)
    assert lists.features.dtype == np.float32
    assert lists.labels.dtype == np.int16
    assert lists.features.shape == (lists.offsets[-1], 9)
    assert utility.shape == (len(lists.features),)
    assert set(lists.sizes.tolist()) == {3, 4, 5, 6}
    assert np.isfinite(lists.features).all()


def test_same_seed_same_lists() -> None:
    first, second, other = (make_lists(queries=20, features=6, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.features, second.features)
    np.testing.assert_array_equal(first.labels, second.labels)
    assert not np.array_equal(first.features[:20], other.features[:20])


@pytest.mark.parametrize("world", [0, 1, 2])
def test_grades_are_distributed_as_asked_in_every_sample(world: int) -> None:
    for seed in (1, 2):
        lists = make_lists(queries=600, features=20, seed=seed, world=world)
        np.testing.assert_allclose(shares(lists), GRADES, atol=0.05)


def test_other_grades() -> None:
    lists = make_lists(queries=400, features=8, grades=(0.5, 0.5), noise=0.0)
    assert set(lists.labels.tolist()) == {0, 1}
    assert abs(lists.labels.mean() - 0.5) < 0.08


def test_grades_vary_within_queries_and_follow_the_utility() -> None:
    lists, utility = with_utility(queries=400, features=20)
    query = np.repeat(np.arange(len(lists)), lists.sizes)
    mean = np.bincount(query, utility) / lists.sizes
    within = float(((utility - mean[query]) ** 2).mean())
    assert 0.5 < within / utility.var() < 0.95
    assert np.corrcoef(utility, lists.labels)[0, 1] > 0.75


def test_thresholds_belong_to_the_world_not_to_the_sample() -> None:
    # without noise a grade is a range of utility; the ranges of two samples must not overlap
    samples = [with_utility(queries=300, features=10, seed=s, noise=0.0) for s in (1, 2)]
    utility = np.concatenate([sample[1] for sample in samples])
    labels = np.concatenate([sample[0].labels for sample in samples])
    tops = [utility[labels == grade].max() for grade in range(4)]
    bottoms = [utility[labels == grade].min() for grade in range(1, 5)]
    assert all(top < bottom for top, bottom in zip(tops, bottoms, strict=True))


def test_lengths_vary_around_the_mean() -> None:
    sizes = make_lists(queries=3000, features=4, documents=24).sizes
    assert 23 < sizes.mean() < 25
    assert sizes.std() > 5
    assert sizes.min() >= 2


def test_confounder_is_independent_of_relevance() -> None:
    lists, utility = with_utility(queries=800, features=20)
    assert lists.confounder is not None
    planted = lists.features[:, lists.confounder]
    bound = 5 / np.sqrt(len(planted))
    assert abs(np.corrcoef(planted, utility)[0, 1]) < bound
    assert abs(np.corrcoef(planted, lists.labels)[0, 1]) < bound
    assert make_lists(queries=5, features=6, confounder=False).confounder is None
    assert make_lists(queries=5, features=20, seed=9).confounder == lists.confounder


def test_some_features_tell_and_some_do_not() -> None:
    lists = make_lists(queries=800, features=30)
    correlation = np.array([abs(np.corrcoef(column, lists.labels)[0, 1]) for column in lists.features.T])
    assert (correlation < 0.03).sum() >= 6
    assert (correlation > 0.1).sum() >= 6
    scale = lists.features.std(0)
    assert (scale > 0).all()
    assert scale.max() / scale.min() > 10


def test_a_linear_ranker_of_one_world_works_for_another_seed_but_is_not_perfect() -> None:
    from unskew.simulation import SvmLogger

    train = make_lists(queries=400, features=20, seed=1)
    test, utility = with_utility(queries=400, features=20, seed=2)
    ranker = SvmLogger(share=0.5, favourite=0.0).fit(train)
    linear = np.corrcoef(ranker.scores(test), utility)[0, 1]
    assert 0.4 < linear < 0.95
    assert abs(np.corrcoef(logging_scores(test, "random"), utility)[0, 1]) < 0.1


@pytest.mark.parametrize(
    "wrong",
    [
        {"queries": 0},
        {"features": 2},
        {"documents": (5, 2)},
        {"documents": 0},
        {"noise": -1.0},
        {"grades": (0.5, 0.4)},
        {"grades": (1.0,)},
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"cannot make|must sum to 1"):
        make_lists(**wrong)  # type: ignore[call-overload]
