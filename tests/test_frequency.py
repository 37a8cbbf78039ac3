"""Evaluation by query frequency, and where documents move to, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unskew.clicks.lists.synthetic import make_lists
from unskew.errors import DataError
from unskew.measuring.frequency import METRICS, frequency_buckets, measure_by_frequency, new_positions, ranks
from unskew.types import Lists


@pytest.fixture
def lists() -> Lists:
    labels = np.array([2, 0, 0, 1, 0, 0], np.int16)  # three queries with two documents each
    return Lists(np.zeros((6, 1), np.float32), np.array([0, 2, 4, 6]), labels, np.arange(3))


def test_buckets_are_as_full_as_each_other_and_start_with_the_frequent() -> None:
    counts = np.random.default_rng(0).permutation(1000)
    bucket = frequency_buckets(counts)
    assert np.bincount(bucket).tolist() == [100] * 10
    for b in range(9):
        assert counts[bucket == b].min() > counts[bucket == b + 1].max()
    assert frequency_buckets(np.array([1, 1, 1]), 3).tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="0 buckets"):
        frequency_buckets(counts, 0)


def test_head_and_tail_by_hand(lists: Lists) -> None:
    scores = np.array([2.0, 1.0, 2.0, 1.0, 2.0, 1.0])  # grades in order: [2, 0], [0, 1], [0, 0]
    found = measure_by_frequency(scores, lists, np.array([0, 1, 1]), ["dcg@10"])
    assert found.head["dcg@10"] == pytest.approx(3.0)
    assert found.tail["dcg@10"] == pytest.approx((1 / math.log2(3) + 0) / 2)
    assert found.buckets["dcg@10"].tolist() == pytest.approx([3.0, 0.5 / math.log2(3)])
    assert found.queries.tolist() == [1, 2]


def test_an_empty_bucket_is_nothing(lists: Lists) -> None:
    found = measure_by_frequency(np.arange(6), lists, np.array([0, 2, 2]), ["err@1"], head=1)
    assert math.isnan(found.buckets["err@1"][1])
    with pytest.raises(DataError, match="a bucket from 0 on for each of 3 queries"):
        measure_by_frequency(np.arange(6), lists, np.array([0, 1]))


def test_all_of_the_papers_metrics() -> None:
    made = make_lists(queries=30, features=5, documents=8, seed=1)
    bucket = frequency_buckets(np.arange(30))
    best, worst = (measure_by_frequency(sign * made.labels, made, bucket) for sign in (1, -1))
    assert set(best.head) == set(METRICS)
    assert all(best.head[name] > worst.head[name] for name in METRICS)


def test_new_positions_by_hand(lists: Lists) -> None:
    original, turned = np.array([2, 1, 2, 1, 2, 1]), np.array([1, 2, 2, 1, 2, 1])
    assert ranks(original, lists).tolist() == [1, 2, 1, 2, 1, 2]
    mean, deviation = new_positions(original, turned, lists, top=3)
    assert mean[:2].tolist() == pytest.approx([4 / 3, 5 / 3])
    assert deviation[0] == pytest.approx(math.sqrt(2) / 3)
    assert math.isnan(mean[2])


def test_queries_by_a_power_law() -> None:
    from unskew.clicks.simulate import simulate
    from unskew.studies.reproduce.pages import by_power_law

    made = make_lists(queries=20, features=5, documents=6, seed=1)
    log = simulate(made, "page", pages=5_000, seed=2)
    skewed = by_power_law(log, seed=0)
    asked = np.sort(np.bincount(skewed.query, minlength=20))[::-1]
    assert len(skewed) == len(log)
    assert asked[0] / asked[9] == pytest.approx(10, rel=0.35)
    assert set(skewed.columns) == set(log.columns)
    assert np.array_equal(skewed.query, by_power_law(log, seed=0).query)


def test_graphs_of_a_training() -> None:
    from unskew.learning.fitting.loop import Fit
    from unskew.studies.reproduce.pages import Learned, graphs_of, position_figure

    edges = [["relevance", "click"], ["position", "click"]]
    fit = Fit(curve=[{"step": 10, "notes": {"graph": edges[:1]}}, {"step": 20, "notes": {"graph": edges}}])
    found = graphs_of(Learned(np.zeros(1), fit))
    assert [step for step, _ in found] == [10, 20]
    assert found[1][1].parents("click") == ("relevance", "position")
    assert graphs_of(None) == []
    drawn = position_figure([{"method": "bal", "original": 1, "new": 1.5}]).to_dict()
    assert drawn["encoding"]["y"]["title"] == "average new position"
