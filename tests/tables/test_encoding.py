"""Features as they are become finite numbers, the same ones whatever the order, the gaps and the values."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

import unskew
from unskew.errors import ConfigError, DataError
from unskew.tables.features.encoding import Encoding, EncodingRules, fit_encoding
from unskew.tables.features.features import table_lists
from unskew.tables.lists.scaling import fit_scaler, fitted_scaler
from unskew.tables.lists.survey import merge_surveys, survey
from unskew.types import Columns, Lists

NAN = float("nan")


def lists_of(columns: dict[str, Any]) -> Lists:
    """One list per row pair, from columns."""
    count = len(next(iter(columns.values())))
    ids = {"query_id": np.arange(count) // 2, "doc_id": np.arange(count)}
    return unskew.read_features(ids | columns)


@pytest.fixture(scope="module")
def raw() -> Lists:
    return lists_of(
        {
            "price": [1.0, NAN, 4.0, 1.0, 2.0, 2.0],
            "brand": ["acme", "bolt", None, "acme", "rare", "acme"],
            "size": ["s", "m", "m", "s", "s", "s"],
            "rating": [3, 4, 5, 3, 4, 5],
        }
    )


RULES = EncodingRules(most_categories=2, least_share=0.0)


def test_what_each_feature_becomes(raw: Lists) -> None:
    encoding = fit_encoding(raw, RULES)
    found = encoding.apply(raw)
    assert found.columns is not None
    assert found.columns.names == (
        "price", "price is missing", "brand=acme", "brand=bolt", "brand is other", "brand is missing",
        "size=s", "size=m", "rating",
    )  # fmt: skip
    assert found.columns.flags == found.columns.names[1:8]
    assert found.features.tolist() == [
        [1, 0, 1, 0, 0, 0, 1, 0, 3],
        [2, 1, 0, 1, 0, 0, 0, 1, 4],
        [4, 0, 0, 0, 0, 1, 0, 1, 5],
        [1, 0, 1, 0, 0, 0, 1, 0, 3],
        [2, 0, 0, 0, 1, 0, 1, 0, 4],
        [2, 0, 1, 0, 0, 0, 1, 0, 5],
    ]
    assert encoding.origins.tolist() == [0, 0, 1, 1, 1, 1, 2, 2, 3]
    assert encoding.names == ("price", "brand", "size", "rating")
    assert encoding.apply(found) is found  # once is enough
    again = Encoding.from_dict(json.loads(json.dumps(encoding.to_dict())))
    assert again == encoding


def test_other_lists_go_by_name(raw: Lists) -> None:
    encoding = fit_encoding(raw, RULES)
    other = lists_of(
        {"extra": [9, 9], "brand": ["new", "bolt"], "rating": [1, 2], "size": ["xl", "m"], "price": [7, 8]}
    )
    assert encoding.apply(other).features.tolist() == [
        [7, 0, 0, 0, 1, 0, 0, 0, 1],  # a new brand is one of the others; a new size none of the known
        [8, 0, 0, 1, 0, 0, 0, 1, 2],
    ]
    with pytest.raises(
        DataError, match=r"missing features: size, rating; there are pricee, brand, pri.*trained on"
    ):
        encoding.apply(lists_of({"pricee": [1, 2], "brand": ["a", "b"], "price": [1, 2]}))
    with pytest.raises(DataError, match="price is text here, such as 'cheap', and was a number in training"):
        encoding.apply(
            lists_of({"price": ["3", "cheap"], "brand": ["a", "b"], "size": ["s", "m"], "rating": [1, 2]})
        )


def test_gaps_where_training_had_none(raw: Lists) -> None:
    encoding = fit_encoding(raw, RULES)
    other = lists_of({"price": [1, 2], "brand": ["acme", None], "size": [None, "s"], "rating": [NAN, 2]})
    with pytest.warns(UserWarning, match=r"missing where training had no gaps: size, rating; they take the mean"):
        found = encoding.apply(other)
    assert found.features[0].tolist() == [1, 0, 1, 0, 0, 0, 0, 0, 4]


def test_rules_of_missing_values(raw: Lists) -> None:
    mean = fit_encoding(raw, EncodingRules(missing_values="mean"))
    assert not [name for name in mean.columns.names if "missing" in name]
    assert mean.apply(raw).features[1, 0] == 2.0
    with pytest.raises(DataError, match=r'row 1: price is missing; fill it, or set missing_values = "indicator"'):
        fit_encoding(raw, EncodingRules(missing_values="refuse")).apply(raw)
    with pytest.raises(ConfigError, match="missing_values"):
        EncodingRules(missing_values="drop")


def test_numbers_without_gaps_stay_and_so_do_memory_maps(tmp_path: Any) -> None:
    values = np.lib.format.open_memmap(tmp_path / "f.npy", "w+", np.float32, (4, 2))
    values[:] = [[1, 2], [3, 4], [5, 6], [7, 8]]
    lists = Lists(values, np.array([0, 4]), np.zeros(4), np.array([1]), columns=Columns(("a", "b")))
    encoding = fit_encoding(lists)
    assert encoding.identity
    assert encoding.apply(lists) is lists
    nameless = Lists(values, np.array([0, 4]), np.zeros(4), np.array([1]))
    assert fit_encoding(nameless).apply(nameless) is nameless
    broken = Lists(np.array([[1, np.inf]]), np.array([0, 1]), np.zeros(1), np.array([1]))
    with pytest.raises(
        DataError, match="document 0: feature 2 is missing or not finite; fill it: training had no"
    ):
        fit_encoding(nameless).apply(broken)
    with pytest.raises(DataError, match="b is infinite"):
        encoding.apply(broken)
    with pytest.raises(DataError, match="trained on 2 features, these documents have 1"):
        encoding.apply(Lists(np.ones((1, 1)), np.array([0, 1]), np.zeros(1), np.array([1])))


def test_nameless_features_may_have_gaps() -> None:
    lists = Lists(np.array([[1, NAN], [3, 4]]), np.array([0, 2]), np.zeros(2), np.array([1]))
    found = fit_encoding(lists).apply(lists)
    assert found.columns is not None
    assert found.columns.names == ("feature 1", "feature 2", "feature 2 is missing")
    assert found.features.tolist() == [[1, 4, 1], [3, 4, 0]]


def test_as_scikit_learn_does() -> None:
    rng = np.random.default_rng(0)
    count = 200
    price = np.where(rng.random(count) < 0.3, NAN, rng.normal(5, 2, count)).astype(np.float32)
    brand = rng.choice(["a", "b", "c", "d", "e"], count, p=[0.5, 0.25, 0.12, 0.08, 0.05])
    lists = lists_of({"price": price, "brand": brand})
    found = fit_encoding(lists, EncodingRules(most_categories=3, least_share=0)).apply(lists)
    imputed = SimpleImputer(strategy="mean", add_indicator=True).fit_transform(price[:, None])
    hot = OneHotEncoder(max_categories=4, sparse_output=False, handle_unknown="infrequent_if_exist")
    columns = hot.fit_transform(brand[:, None])
    assert list(hot.get_feature_names_out(["brand"])) == [
        "brand_a",
        "brand_b",
        "brand_c",
        "brand_infrequent_sklearn",
    ]
    assert found.columns is not None
    assert found.columns.names[2:] == ("brand=a", "brand=b", "brand=c", "brand is other")
    np.testing.assert_allclose(found.features, np.column_stack([imputed, columns]), rtol=1e-6)


def test_a_rare_flag_is_not_blown_up() -> None:
    price = np.arange(1000, dtype=np.float32)
    price[3] = NAN
    lists = lists_of({"price": price, "brand": ["x"] * 3 + ["y"] * 997})
    for kind in ("standard", "minmax", "log1p", "query_minmax", "ultra", "none"):
        encoded = fit_encoding(lists).apply(lists)
        scaled = fit_scaler(kind, encoded).apply(encoded).features
        assert np.abs(scaled[:, 1:]).max() <= 1.0, kind
        if kind in ("standard", "minmax"):
            np.testing.assert_array_equal(scaled[:, 1:], encoded.features[:, 1:])


def test_a_survey_of_parts_is_that_of_the_whole(raw: Lists) -> None:
    parts = merge_surveys([survey(raw.take(np.array([at]))) for at in range(len(raw))])
    whole = survey(raw)
    for name in ("present", "low", "high", "mean", "square"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name))
    assert {name: each.tolist() for name, each in parts.counts.items()} == {"brand": [3, 1, 1], "size": [2, 4]}
    again = type(whole).from_dict(json.loads(json.dumps(whole.to_dict())))
    encoding = fit_encoding(raw, RULES)
    encoded = encoding.apply(raw)
    for kind in ("standard", "minmax"):
        one = fitted_scaler(kind, encoding.surveyed(again), encoding.columns)
        other = fitted_scaler(kind, survey(encoded), encoding.columns)
        for name in one.statistics:
            np.testing.assert_allclose(one.statistics[name], other.statistics[name], rtol=1e-6)


VALUE = st.one_of(st.none(), st.floats(-1e6, 1e6, width=32))
WORD = st.one_of(st.none(), st.sampled_from(["acme", "bolt", "new", ""]))


@given(
    rows=st.lists(st.tuples(VALUE, VALUE, WORD), min_size=1, max_size=8),
    order=st.permutations(["price", "rating", "brand", "extra"]),
    rule=st.sampled_from(["indicator", "mean"]),
)
@settings(max_examples=60, deadline=None)
@pytest.mark.filterwarnings("ignore:.*missing where training had no gaps")
def test_any_table_is_finite_and_its_order_does_not_matter(rows: Any, order: Any, rule: Any) -> None:
    train = lists_of({"price": [1.0, NAN, 3.0], "rating": [1, 2, 3], "brand": ["acme", "bolt", "bolt"]})
    encoding = fit_encoding(train, EncodingRules(missing_values=rule))
    columns = dict(zip(["price", "rating", "brand"], map(list, zip(*rows, strict=True)), strict=True))
    columns["extra"] = list(range(len(rows)))
    for name in ("price", "rating"):
        columns[name] = np.array([NAN if value is None else value for value in columns[name]])
    plain, _ = table_lists(columns, encoding)
    mixed, _ = table_lists({name: columns[name] for name in order}, encoding)
    found = encoding.apply(plain).features
    assert np.isfinite(found).all()
    assert np.array_equal(found, encoding.apply(mixed).features)
