"""CMIP: known values, an independent library, calibration, and simulated rankers with and without bias."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

import unskew
from unskew.errors import DataError
from unskew.workflows.twins.fitting import shown_order
from unskew_reproductions.experiments.cmip import cmip_metric, left_of_logging


def test_independent_given_the_grade_is_zero_though_both_follow_the_grade() -> None:
    rng = np.random.default_rng(0)
    grade = rng.integers(0, 4, 4000)
    a, b = grade + rng.normal(size=4000), 2 * grade + rng.normal(size=4000)
    assert np.corrcoef(a, b)[0, 1] > 0.6
    found = cmip_metric(a, b, grade, permutations=60)
    assert abs(found.value) < 0.01
    assert found.p > 0.01


def test_a_copy_has_the_entropy_of_the_bins_and_a_gaussian_its_information() -> None:
    rng = np.random.default_rng(1)
    x, grade = rng.normal(size=4000), rng.integers(0, 2, 4000)
    copied = cmip_metric(x, x, grade, bins=8, permutations=20)
    assert copied.counted == pytest.approx(np.log(8), abs=1e-3)
    y = 0.8 * x + 0.6 * rng.normal(size=4000)
    known = -0.5 * np.log(1 - 0.8**2)
    assert cmip_metric(x, y, grade, bins=16, permutations=20).value == pytest.approx(known, rel=0.1)


def test_counts_equal_scikit_learn_grade_by_grade() -> None:
    rng = np.random.default_rng(2)
    a, b, grade = rng.normal(size=600), rng.normal(size=600), rng.integers(0, 3, 600)
    b += a
    whole = 0.0
    for number in range(3):
        own = grade == number
        size = own.sum()
        count = min(4, int(np.sqrt(size / 5)))
        cut = [(np.argsort(np.argsort(each[own])) + 0.5) * count // size for each in (a, b)]
        whole += size / 600 * mutual_info_score(*cut)
    assert cmip_metric(a, b, grade, bins=4, permutations=5).counted == pytest.approx(whole, abs=1e-9)


def test_p_values_are_calibrated_with_queries() -> None:
    rng = np.random.default_rng(3)
    query = np.repeat(np.arange(40), 10)
    p = []
    for _ in range(60):
        taste = rng.normal(size=40)[query]  # scores of a query hang together; that alone is no bias
        grade = rng.integers(0, 3, 400)
        a, b = (taste + grade + rng.normal(size=400) for _ in range(2))
        p.append(cmip_metric(a, b, grade, query=query, permutations=39).p)
    assert np.mean(np.array(p) <= 0.1) < 0.25


def test_a_ranker_that_copies_the_log_is_told_from_one_that_does_not() -> None:
    lists = unskew.make_lists(queries=150, seed=0)
    log = unskew.simulate(lists, "position", pages=3000, seed=0)
    shown = shown_order(log)
    query = np.repeat(np.arange(len(lists)), lists.sizes)
    noise = np.random.default_rng(4).normal(size=len(query))
    debiased = cmip_metric(lists.labels + noise, shown, lists.labels, query=query, permutations=60)
    biased = cmip_metric(
        lists.labels + 0.5 * np.nan_to_num(shown, nan=-11.0) + noise, shown, lists.labels, query=query,
        permutations=60,
    )  # fmt: skip
    assert biased.value > 0.1 > 5 * abs(debiased.value)
    assert biased.p < 0.02 < debiased.p
    assert debiased.documents == np.isfinite(shown).sum()


def test_a_log_with_grades_tells_what_is_left() -> None:
    lists = unskew.make_lists(queries=60, documents=12, seed=1)
    log = unskew.simulate(lists, "position", pages=600, seed=0)
    copied = left_of_logging(np.nan_to_num(shown_order(log), nan=-11.0), log)
    drawn = left_of_logging(np.random.default_rng(0).random(len(lists.labels)), log)
    assert copied is not None
    assert drawn is not None
    assert copied.p < 0.01 < drawn.p
    assert copied.value > 0.5 > 5 * abs(drawn.value)
    assert (
        left_of_logging(
            copied.value * lists.features[:, 0], replace(log, lists=replace(lists, labels=lists.labels * 0))
        )
        is None
    )


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(DataError, match="fewer than two documents"):
        cmip_metric([1.0, 2.0], [np.nan, 1.0], [0, 1])
    with pytest.raises(DataError, match="equally many"):
        cmip_metric([1.0], [1.0, 2.0], [0, 1])
