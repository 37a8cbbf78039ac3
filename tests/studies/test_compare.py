"""Comparisons between runs against scipy, plain math, and the coverage that an interval promises."""

from __future__ import annotations

import itertools
import math
import statistics
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from unskew.errors import ConfigError, DataError
from unskew.measuring import (
    bootstrap_mean,
    gap_closed,
    holm,
    mean_over_seeds,
    paired_bootstrap,
    paired_t_test,
)
from unskew.measuring.experiments import tests as compare


def two_runs(seed, queries=50, effect=0.02):
    rng = np.random.default_rng(seed)
    first = rng.random(queries)
    return first, first - effect + 0.1 * rng.normal(size=queries)


@pytest.mark.parametrize("queries", [2, 3, 50, 2000])
def test_t_test_equals_scipy(queries):
    first, second = two_runs(queries, queries)
    ours, theirs = paired_t_test(first, second), stats.ttest_rel(first, second)
    assert ours.t == pytest.approx(theirs.statistic, rel=1e-9)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert ours.difference == pytest.approx(first.mean() - second.mean())
    swapped = paired_t_test(second, first)
    assert (swapped.t, swapped.p) == pytest.approx((-ours.t, ours.p))


def test_t_test_drops_skipped_queries_pairwise():
    first, second = two_runs(1)
    first[[0, 3]], second[[3, 7]] = math.nan, math.nan
    kept = np.delete(np.arange(50), [0, 3, 7])
    ours = paired_t_test(first, second)
    assert ours.p == pytest.approx(stats.ttest_rel(first[kept], second[kept]).pvalue, rel=1e-9)
    assert (ours.queries, ours.dropped) == (47, 3)
    assert "47 queries, 3 dropped" in str(ours)


def test_t_test_without_spread():
    same = paired_t_test([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert (same.difference, same.t, same.p) == (0, 0, 1)
    up = paired_t_test([1.0, 2.0, 3.0], [0.0, 1.0, 2.0])
    assert (up.difference, up.t, up.p) == (1, math.inf, 0)
    assert paired_t_test([0.0, 1.0], [1.0, 2.0]).t == -math.inf


@pytest.mark.parametrize("values", [[0.4], [0.4, math.nan], [], [math.nan]])
def test_too_few_queries(values):
    test = paired_t_test(values, values)
    assert math.isnan(test.t)
    assert math.isnan(test.p)
    for interval in (paired_bootstrap(values, values), bootstrap_mean(values)):
        assert math.isnan(interval.low)
        assert math.isnan(interval.high)
    assert str(test)
    assert str(interval)


@pytest.mark.parametrize("function", [paired_t_test, paired_bootstrap])
def test_wrong_runs(function):
    with pytest.raises(DataError, match="the runs have 2 and 3 queries; compare runs on the same queries"):
        function([1, 2], [1, 2, 3])
    with pytest.raises(DataError, match="flat"):
        function([[1, 2]], [[1, 2]])
    with pytest.raises(DataError, match="infinities"):
        function([1, math.inf], [1, math.inf])


@pytest.mark.parametrize("options", [{"resamples": 0}, {"level": 0}, {"level": 1}, {"level": math.nan}])
def test_wrong_bootstrap_settings(options):
    with pytest.raises(ConfigError):
        bootstrap_mean([1, 2, 3], **options)


def test_bootstrap_of_three_values_equals_all_27_draws():
    values = [0.0, 1.0, 5.0]
    means = sorted(sum(draw) / 3 for draw in itertools.product(values, repeat=3))
    interval = bootstrap_mean(values, level=0.8, resamples=40_000)
    assert (interval.low, interval.high) == pytest.approx((means[2], means[24]))  # 2.7 and 24.3 of 27
    assert interval.mean == pytest.approx(2)


def test_bootstrap_is_seeded_and_paired():
    first, second = two_runs(2)
    one = paired_bootstrap(first, second, seed=1)
    assert one == paired_bootstrap(first, second, seed=1)
    assert one != paired_bootstrap(first, second, seed=2)
    assert one == bootstrap_mean(first - second, seed=1)
    swapped = paired_bootstrap(second, first, seed=1)
    assert (swapped.low, swapped.high) == pytest.approx((-one.high, -one.low))


def test_block_size_never_matters(monkeypatch):
    first, second = two_runs(3)
    whole = paired_bootstrap(first, second)
    for block in (1, 777):
        monkeypatch.setattr(compare, "_BLOCK", block)
        assert paired_bootstrap(first, second) == whole


def test_bootstrap_is_close_to_the_normal_interval():
    values = np.random.default_rng(4).normal(0.5, 0.2, 2000)
    interval = bootstrap_mean(values)
    half = 1.96 * values.std(ddof=1) / math.sqrt(2000)
    assert interval.low == pytest.approx(values.mean() - half, abs=half * 0.1)
    assert interval.high == pytest.approx(values.mean() + half, abs=half * 0.1)
    assert bootstrap_mean(values, level=0.5).high < interval.high


def test_bootstrap_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(5)
    covered = 0
    for seed in range(400):
        interval = bootstrap_mean(rng.exponential(size=60), resamples=500, level=0.9, seed=seed)
        covered += interval.low <= 1 <= interval.high
    assert 0.83 < covered / 400 < 0.95  # 0.9, less a little: percentile intervals of a skewed mean are narrow


def test_bootstrap_drops_skipped_queries():
    interval = bootstrap_mean([1.0, math.nan, 3.0, 2.0])
    assert (interval.mean, interval.queries, interval.dropped) == (2.0, 3, 1)
    assert (
        str(interval) == f"2.0000 [{interval.low:.4f}, {interval.high:.4f}] (95% bootstrap, 3 queries, 1 dropped)"
    )


def test_seeds():
    runs = [0.71, 0.70, 0.74, 0.72]
    summary = mean_over_seeds(runs)
    assert summary.mean == pytest.approx(statistics.mean(runs))
    assert summary.sd == pytest.approx(statistics.stdev(runs))
    assert str(summary) == "0.7175 ± 0.0171 (4 seeds)"
    one = mean_over_seeds([0.7])
    assert (one.mean, one.seeds) == (0.7, 1)
    assert math.isnan(one.sd)
    assert math.isnan(mean_over_seeds([]).mean)
    with pytest.raises(DataError, match="1 of 2 seeds"):
        mean_over_seeds([0.7, math.nan])


def test_holm_by_hand():
    # sorted .005 .01 .03 .04: times 4, 3, 2, 1 -> .02 .03 .06 .04 -> running maximum .02 .03 .06 .06
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.01, math.nan, 0.04]), [0.02, math.nan, 0.04])
    np.testing.assert_allclose(holm([0.9, 0.8]), [1, 1])
    np.testing.assert_allclose(holm([0.2]), [0.2])
    assert len(holm([])) == 0
    with pytest.raises(DataError, match="between 0 and 1"):
        holm([0.5, 1.5])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.randoms())
@settings(deadline=None, max_examples=80)
def test_holm_properties(p_values, random):
    adjusted = holm(p_values)
    assert (adjusted >= np.array(p_values)).all()
    assert (adjusted <= np.minimum(1, np.array(p_values) * len(p_values))).all()
    assert (np.diff(adjusted[np.argsort(p_values, kind="stable")]) >= 0).all()
    order = random.sample(range(len(p_values)), len(p_values))
    np.testing.assert_array_equal(holm([p_values[i] for i in order]), adjusted[order])


def test_gap_closed():
    assert gap_closed(0.72, naive=0.70, labeled=0.75) == pytest.approx(0.4)
    assert gap_closed(0.69, naive=0.70, labeled=0.75) == pytest.approx(-0.2)
    assert gap_closed(0.76, naive=0.70, labeled=0.75) == pytest.approx(1.2)
    assert math.isnan(gap_closed(0.72, naive=0.75, labeled=0.75))
    assert math.isnan(gap_closed(0.72, naive=0.76, labeled=0.75))
    assert math.isnan(gap_closed(math.nan, naive=0.7, labeled=0.75))
    assert math.isnan(gap_closed(0.72, naive=0.7, labeled=math.nan))


def test_bootstrap_of_many_queries_stays_in_bounded_memory():
    values = np.random.default_rng(6).random(100_000)
    tracemalloc.start()
    bootstrap_mean(values, resamples=2000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 2**20


def test_a_query_that_one_seed_skipped_is_dropped_from_the_crossed_test():
    rng = np.random.default_rng(2)
    first, second = rng.random((3, 12)), rng.random((3, 12))
    whole = compare.crossed_t_test(first[:, 1:], second[:, 1:])
    first[1, 0] = math.nan
    found = compare.crossed_t_test(first, second)
    assert (found.difference, found.p) == pytest.approx((whole.difference, whole.p))
    assert (found.queries, found.dropped) == (11, 1)
