"""Click metrics against plain math, scikit-learn, and the pages that counts were reduced from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from unskew.errors import DataError
from unskew.measuring import (
    auc_metric,
    click_loglikelihood_metric,
    perplexity_by_rank_metric,
    perplexity_metric,
)


def log_of_clicks(seed, entries=500, levels=20):
    rng = np.random.default_rng(seed)
    probabilities = rng.integers(1, levels, entries) / levels  # ties
    clicks = (rng.random(entries) < probabilities).astype(int)
    return probabilities, clicks, rng.integers(1, 11, entries)


def counted(seed, entries=40):
    """Counts, and the same log with one entry for each impression."""
    rng = np.random.default_rng(seed)
    probabilities, impressions = rng.integers(1, 10, entries) / 10, rng.integers(0, 6, entries)
    clicks = rng.binomial(impressions, probabilities)
    long = [(p, int(i < c)) for p, c, n in zip(probabilities, clicks, impressions, strict=True) for i in range(n)]
    return (probabilities, clicks, impressions), np.array(long).T


def test_plain_math():
    p, c = [0.5, 0.2, 0.9], [1, 0, 0]
    value = (math.log(0.5) + math.log(0.8) + math.log(0.1)) / 3
    assert click_loglikelihood_metric(p, c) == pytest.approx(value)
    assert perplexity_metric(p, c) == pytest.approx(2 ** -((math.log2(0.5) + math.log2(0.8) + math.log2(0.1)) / 3))
    by_rank = perplexity_by_rank_metric(p, c, positions=[1, 3, 3])
    assert by_rank[[0, 2]] == pytest.approx([2, 2 ** -((math.log2(0.8) + math.log2(0.1)) / 2)])
    assert math.isnan(by_rank[1])


def test_a_coin_has_perplexity_two_and_a_prophet_one():
    assert perplexity_metric([0.5] * 4, [1, 0, 0, 1]) == pytest.approx(2)
    assert perplexity_metric([1, 0], [1, 0]) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_equals_sklearn(seed):
    probabilities, clicks, _ = log_of_clicks(seed)
    assert click_loglikelihood_metric(probabilities, clicks) == pytest.approx(-log_loss(clicks, probabilities))
    assert auc_metric(probabilities, clicks) == pytest.approx(roc_auc_score(clicks, probabilities), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_counts_equal_the_pages_they_came_from(seed):
    (p, c, n), (long_p, long_c) = counted(seed)
    assert click_loglikelihood_metric(p, c, impressions=n) == pytest.approx(-log_loss(long_c, long_p))
    assert auc_metric(p, c, impressions=n) == pytest.approx(roc_auc_score(long_c, long_p), abs=1e-12)
    assert perplexity_metric(p, c, impressions=n) == pytest.approx(perplexity_metric(long_p, long_c))
    rank = np.arange(len(p)) % 10 + 1
    by_rank = perplexity_by_rank_metric(p, c, positions=rank, impressions=n)
    long = perplexity_by_rank_metric(long_p, long_c, positions=np.repeat(rank, n))
    np.testing.assert_allclose(by_rank, long)


def test_overall_perplexity_is_the_weighted_geometric_mean_of_the_ranks():
    probabilities, clicks, positions = log_of_clicks(4)
    by_rank = perplexity_by_rank_metric(probabilities, clicks, positions=positions)
    shown = np.bincount(positions)[1:]
    overall = math.exp(sum(n * math.log(p) for n, p in zip(shown, by_rank, strict=True)) / sum(shown))
    assert perplexity_metric(probabilities, clicks) == pytest.approx(overall)


def test_padding_never_matters():
    p, c, n = np.array([[0.3, 0.6, 0.2]]), np.array([[1, 2, 0]]), np.array([[2, 2, 3]])
    pad = ((0, 1), (0, 2))
    wide = np.pad(p, pad, constant_values=np.nan), np.pad(c, pad), np.pad(n, pad)
    rank, wide_rank = np.array([[1, 2, 3]]), np.pad([[1, 2, 3]], pad)
    for metric in (click_loglikelihood_metric, perplexity_metric, auc_metric):
        assert metric(*wide[:2], impressions=wide[2]) == metric(p, c, impressions=n)
    np.testing.assert_array_equal(
        perplexity_by_rank_metric(*wide[:2], positions=wide_rank, impressions=wide[2]),
        perplexity_by_rank_metric(p, c, positions=rank, impressions=n),
    )


def test_clamping_is_explicit():
    assert click_loglikelihood_metric([0.0], [1]) == pytest.approx(math.log(1e-6))
    assert click_loglikelihood_metric([1.0], [0]) == pytest.approx(math.log(1e-6))


def test_nothing_to_measure_gives_nan_and_no_warning():
    assert math.isnan(click_loglikelihood_metric([], []))
    assert math.isnan(perplexity_metric([0.5], [0], impressions=[0]))
    assert len(perplexity_by_rank_metric([], [], positions=np.array([], int))) == 0
    assert math.isnan(auc_metric([], []))
    assert math.isnan(auc_metric([0.1, 0.2], [1, 1]))
    assert math.isnan(auc_metric([0.1, 0.2], [0, 0]))


@pytest.mark.parametrize(
    ("probabilities", "clicks", "impressions", "message"),
    [
        ([0.5, 1.2], [0, 1], None, "probability is out of range in 1 of 2 entries, the first is 1.2"),
        ([0.5, math.nan], [0, 1], None, "out of range"),
        ([0.5], [2], None, "pass the impressions of counted clicks"),
        ([0.5], [-1], None, "between 0 and impressions"),
        ([0.5], [3], [2], "between 0 and impressions"),
        ([0.5], [1], [math.inf], "between 0 and impressions"),
        ([0.5, 0.5], [1], None, "shapes differ"),
        ([0.5], [1], [[1]], "shapes differ"),
    ],
)
def test_wrong_data(probabilities, clicks, impressions, message):
    with pytest.raises(DataError, match=message):
        click_loglikelihood_metric(probabilities, clicks, impressions=impressions)


def test_wrong_positions_and_scores():
    with pytest.raises(DataError, match="positions count from 1"):
        perplexity_by_rank_metric([0.5], [1], positions=[0])
    with pytest.raises(DataError, match="positions must be integers"):
        perplexity_by_rank_metric([0.5], [1], positions=[1.0])
    with pytest.raises(DataError, match="score is out of range"):
        auc_metric([math.nan, 1], [0, 1])


@given(st.lists(st.tuples(st.integers(-50, 50), st.booleans()), min_size=1, max_size=40), st.integers(-9, 9))
@settings(deadline=None, max_examples=80)
def test_auc_is_the_share_of_ordered_pairs(entries, constant):
    scores, clicks = [s for s, _ in entries], [int(c) for _, c in entries]
    pairs = [(a > b) + (a == b) / 2 for a, c in entries for b, d in entries if c and not d]
    value = auc_metric(scores, clicks)
    if not pairs:
        assert math.isnan(value)
        return
    assert value == pytest.approx(sum(pairs) / len(pairs))
    assert auc_metric([s + constant for s in scores], clicks) == value
    assert auc_metric([-s for s in scores], clicks) == pytest.approx(1 - value)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40))
@settings(deadline=None, max_examples=80)
def test_bounds(entries):
    p, c = [p for p, _ in entries], [int(c) for _, c in entries]
    assert math.log(1e-6) - 1e-9 <= click_loglikelihood_metric(p, c) <= 0
    assert 1 <= perplexity_metric(p, c) <= 1e6 * (1 + 1e-9)
