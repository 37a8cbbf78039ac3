"""Feature scaling against formulas written out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from unskew.errors import ConfigError, DataError
from unskew.tables.lists import survey
from unskew.tables.lists.letor import read_letor
from unskew.tables.lists.scaling import SCALINGS, Scaler, fit_scaler, round_digits
from unskew.types import Lists


def make(features: object, sizes: list[int] | None = None, present: object = None) -> Lists:
    matrix = np.array(features, np.float32)
    offsets = np.concatenate([[0], np.cumsum(sizes or [len(matrix)])]).astype(np.int64)
    bits = None if present is None else np.packbits(np.array(present, bool), axis=1)
    queries = np.arange(len(offsets) - 1)
    return Lists(matrix, offsets, np.zeros(len(matrix), np.int16), queries, present=bits)


TRAIN = make([[1, 5, -3], [3, 5, 0], [8, 5, 3]], [2, 1])


def test_standard() -> None:
    scaled = fit_scaler("standard", TRAIN).apply(TRAIN).features
    deviation = math.sqrt(((1 - 4) ** 2 + (3 - 4) ** 2 + (8 - 4) ** 2) / 3)
    np.testing.assert_allclose(scaled[:, 0], [-3 / deviation, -1 / deviation, 4 / deviation], rtol=1e-6)
    assert scaled[:, 1].tolist() == [0, 0, 0]
    np.testing.assert_allclose(scaled[:, 2], [-math.sqrt(1.5), 0, math.sqrt(1.5)], rtol=1e-6)


def test_minmax_uses_the_training_range() -> None:
    scaler = fit_scaler("minmax", TRAIN, make([[100, 100, 100]]))
    np.testing.assert_allclose(scaler.transform(np.array([[4.5, 6, 6]])), [[0.5, 1, 1.5]])


def test_log1p() -> None:
    scaled = fit_scaler("log1p", TRAIN).transform(np.array([[0, 1, -3.0]]))
    np.testing.assert_allclose(scaled, [[0, math.log(2), -math.log(4)]], rtol=1e-6)


def test_query_minmax() -> None:
    lists = make([[1, 2], [3, 2], [2, 2], [10, 1], [20, 3]], [3, 0, 2])
    scaled = fit_scaler("query_minmax", lists).apply(lists).features
    np.testing.assert_allclose(scaled, [[0, 0], [1, 0], [0.5, 0], [0, 0], [1, 1]])
    alone = fit_scaler("query_minmax", lists).transform(lists.features[:3])  # no offsets: one query
    np.testing.assert_allclose(alone, [[0, 0], [1, 0], [0.5, 0]])


def test_ultra_by_hand() -> None:
    present = [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    train = make([[1, 5, 0], [3, 5, 2], [0, 5, 4]], present=present)
    test = make([[7, 5, -1]])
    scaled = fit_scaler("ultra", train, test).apply(train).features
    # feature 1 runs from 0 (an absent entry) to 7, feature 2 is constant, feature 3 runs from -1 to 4
    expected = [[-0.714286, 0, 0], [-0.142857, 0, 0.2], [0, 0, 1]]
    np.testing.assert_array_equal(scaled, np.array(expected, np.float32))
    assert fit_scaler("ultra", train, test).apply(test).features.tolist() == [[1, 0, -1]]


def test_ultra_log_by_hand() -> None:
    train = make([[0.0], [9.0], [99.0]], present=[[1], [1], [1]])
    scaler = fit_scaler("ultra_log", train)
    np.testing.assert_allclose(scaler.apply(train).features, [[-1], [0], [1]], atol=1e-6)
    assert scaler.transform(np.array([[-50.0]])).tolist() == [[-1]]


@given(st.floats(-1e12, 1e12).filter(lambda value: abs(value) > 1e-200))
def test_round_digits(value: float) -> None:
    rounded = float(round_digits(np.array([value]))[0])
    assert math.isclose(rounded, float(f"{rounded:.6g}"), rel_tol=1e-14)  # no more than six digits
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 5)
    assert abs(rounded - value) <= 0.5000001 * unit  # and the nearest such number


matrices = arrays(
    np.float32, st.tuples(st.integers(1, 12), st.integers(1, 5)), elements=st.floats(-1e6, 1e6, width=32)
)


@pytest.mark.parametrize("kind", SCALINGS)
@settings(deadline=None, max_examples=40)
@given(matrix=matrices)
def test_finite_and_bounded(kind: str, matrix: np.ndarray) -> None:
    lists = make(matrix, [1, len(matrix) - 1])
    scaled = fit_scaler(kind, lists).apply(lists).features
    assert scaled.dtype == np.float32
    assert np.isfinite(scaled).all()
    constant = matrix.min(axis=0) == matrix.max(axis=0)
    if kind not in ("none", "log1p"):
        assert (scaled[:, constant] == 0).all()
    if kind in ("minmax", "query_minmax", "ultra", "ultra_log"):
        assert np.abs(scaled).max() <= 1


@pytest.mark.parametrize("kind", SCALINGS)
def test_blocks_do_not_matter(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(60, 7)) * (rng.random((60, 7)) < 0.7) + 1000.0 * np.arange(7)
    lists = make(matrix, [5, 0, 30, 1, 4, 0, 20], rng.random((60, 7)) < 0.7)
    whole = fit_scaler(kind, lists, lists)
    expected = whole.apply(lists).features
    monkeypatch.setattr(survey, "BLOCK_VALUES", 7 * 8)
    parts = fit_scaler(kind, lists, lists)
    for name, values in whole.arrays().items():
        np.testing.assert_allclose(parts.arrays()[name], values, rtol=1e-12)
    np.testing.assert_array_equal(whole.apply(lists).features, expected)
    out = np.zeros((60, 7), np.float32)
    assert whole.apply(lists, out=out).features is out
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("kind", SCALINGS)
def test_saved_and_loaded(kind: str) -> None:
    scaler = fit_scaler(kind, TRAIN)
    loaded = Scaler.from_arrays(kind, scaler.arrays())
    np.testing.assert_array_equal(loaded.apply(TRAIN).features, scaler.apply(TRAIN).features)
    assert all(isinstance(array, np.ndarray) for array in scaler.arrays().values())


@pytest.mark.parametrize("kind", SCALINGS)
def test_widths_must_agree(kind: str) -> None:
    scaler = fit_scaler(kind, TRAIN)
    narrow = make([[1, 2]])
    with pytest.raises(DataError, match=r"2 features, .* 3"):
        scaler.transform(narrow.features)
    with pytest.raises(DataError, match=r"2 features, .* 3"):
        scaler.apply(narrow)
    with pytest.raises(DataError, match=r"2 features, .* 3"):
        scaler.apply(narrow, out=np.zeros((1, 2), np.float32))
    with pytest.raises(DataError, match=r"2 features, .* 3"):
        fit_scaler(kind, TRAIN, narrow)


def test_bad_names_and_arrays() -> None:
    with pytest.raises(ConfigError, match="Did you mean minmax"):
        fit_scaler("minmaxx", TRAIN)
    with pytest.raises(DataError, match=r"\['scale', 'shift'\] and width, not \['low', 'shift', 'width'\]"):
        Scaler.from_arrays("minmax", {"width": np.array([1]), "shift": np.zeros(1), "low": np.zeros(1)})
    with pytest.raises(DataError, match="shape"):
        Scaler.from_arrays("minmax", {"width": np.array([1]), "shift": np.zeros(2), "scale": np.zeros(1)})
    with pytest.raises(DataError, match="no documents"):
        fit_scaler("minmax", make(np.zeros((0, 2))))


def test_a_large_constant_is_no_noise() -> None:
    lists = make(np.full((1000, 1), 0.1) + 12345.6)
    assert not fit_scaler("standard", lists).apply(lists).features.any()


def test_real_features(data_folder: Path) -> None:
    lists = read_letor(data_folder / "mslr_sample" / "mslr_sample.txt.xz")
    for kind in SCALINGS:
        assert np.isfinite(fit_scaler(kind, lists).apply(lists).features).all()
    scaled = fit_scaler("standard", lists).apply(lists).features.astype(np.float64)
    varies = np.ptp(lists.features, axis=0) > 0
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(axis=0)[varies], 1, rtol=1e-5)
