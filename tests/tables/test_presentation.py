"""Presentation columns of any kind: encoded alike after saving, whatever the order and parts of the data."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unskew
from unskew.errors import DataError
from unskew.logs import presentation
from unskew.logs import presentation as tallies
from unskew.logs.counts.reduction import reduce_log
from unskew.logs.presentation import (
    Categories,
    Continuous,
    Ordinals,
    Presentation,
    fit_presentation,
    fit_tallies,
    merge_tallies,
    tally_columns,
)
from unskew.types import Array

NAMES = ("serp_text", "serp_flag", "serp_level", "serp_size")
ROWS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.text(max_size=3)),
        st.one_of(st.none(), st.booleans()),
        st.one_of(st.none(), st.integers(-3, 5)),
        st.one_of(st.none(), st.floats()),
    ),
    min_size=1,
    max_size=30,
)


def columns_of(rows: Any) -> dict[str, Array]:
    """Columns as a log has them: text and optional booleans as objects, missing numbers as NaN."""
    text, flag, level, size = zip(*rows, strict=True)
    numbers = [np.array([np.nan if v is None else v for v in column], np.float64) for column in (level, size)]
    return dict(zip(NAMES, [np.array(text, object), np.array(flag, object), *numbers], strict=True))


def same(left: dict[str, Array], right: dict[str, Array]) -> bool:
    return all(a.dtype == right[n].dtype and np.array_equal(a, right[n]) for n, a in left.items())


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, new=ROWS, bins=st.integers(0, 4), data=st.data())
def test_encoding_depends_on_values_alone(rows: Any, new: Any, bins: int, data: Any) -> None:
    columns, unknown = columns_of(rows), columns_of(new)
    fitted = fit_presentation(columns, NAMES, bins=bins)
    shuffled = columns_of(data.draw(st.permutations(rows)))
    assert fit_presentation(shuffled, NAMES, bins=bins) == fitted
    again = Presentation.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert again == fitted
    assert same(again.encode(unknown), fitted.encode(unknown))
    cut = data.draw(st.integers(0, len(rows)))
    parts = [
        tally_columns({name: c[part] for name, c in columns.items()}, NAMES)
        for part in (slice(cut, None), slice(0, cut))
    ]
    assert fit_tallies(merge_tallies(*parts), bins=bins) == fitted


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, new=ROWS, bins=st.integers(0, 4))
def test_codes_lie_in_their_table(rows: Any, new: Any, bins: int) -> None:
    columns = columns_of(rows)
    fitted = fit_presentation(columns, NAMES, bins=bins)
    for seen, values in ((True, columns), (False, columns_of(new))):
        for name, codes in fitted.encode(values).items():
            assert np.isfinite(codes).all()
            if name not in fitted.sizes:
                assert codes.dtype == np.float32
                continue
            assert codes.dtype == np.int64
            assert codes.min() >= 0
            assert codes.max() < fitted.sizes[name]
            missing = [
                v is None or (isinstance(v, float) and not np.isfinite(np.float64(v))) for v in values[name]
            ]
            assert (codes[missing] == fitted.sizes[name] - 1).all()
            if seen:
                assert (codes != fitted.sizes[name] - 2).all()


def test_kinds_are_found() -> None:
    columns = {
        "text": np.array(["b", "a"]),
        "flag": np.array([True, False]),
        "level": np.array([0, 2], np.int8),
        "optional": np.array([0.0, np.nan]),
        "height": np.arange(101),
        "share": np.array([0.5, 1.0]),
        "empty": np.array([None, None]),
    }
    rows = {name: np.resize(column, 101) for name, column in columns.items()}
    fitted = fit_presentation(rows, list(rows))
    kinds = {name: encoder.kind for name, encoder in fitted.encoders.items()}
    assert kinds == {
        "text": "categorical",
        "flag": "categorical",
        "level": "ordinal",
        "optional": "ordinal",
        "height": "continuous",
        "share": "continuous",
        "empty": "categorical",
    }
    assert fitted.sizes == {"text": 4, "flag": 4, "level": 4, "optional": 3, "empty": 2}
    assert fitted.encoders["optional"].missing == 50


def test_whole_numbers_from_0_stay_what_they_are() -> None:
    column = np.array([2, 0, 1, 1])
    assert fit_presentation({"a": column}, ["a"]).encode({"a": column})["a"].tolist() == [2, 0, 1, 1]


def test_numbers_are_standardised_and_cut() -> None:
    column = np.array([1.5, 2.5, np.nan, 6.5])
    fitted = fit_presentation({"a": column}, ["a"])
    deviation = ((2.0**2 + 1 + 3**2) / 3) ** 0.5  # around 3.5
    assert fitted.encode({"a": column})["a"] == pytest.approx([-2 / deviation, -1 / deviation, 0, 3 / deviation])
    assert fitted.encoders["a"] == Continuous(mean=3.5, deviation=deviation, missing=1)
    cut = fit_presentation({"a": np.arange(8) + 0.5}, ["a"], bins=4)
    new = {"a": np.array([-9.0, 0.5, 2.4, 2.5, 7.0, 99.0, np.nan])}
    assert cut.encode(new)["a"].tolist() == [0, 0, 0, 1, 3, 3, 5]
    assert cut.sizes == {"a": 6}
    lopsided = fit_presentation({"a": np.array([0.5] * 9 + [1.5])}, ["a"], bins=4)
    assert lopsided.encode({"a": np.array([0.5, 1.5])})["a"].tolist() == [0, 1]  # no empty bins


def test_a_number_read_as_text_is_the_same_category_and_level() -> None:
    fitted = fit_presentation({"a": np.array([3, 1])}, ["a"])
    assert fitted.encode({"a": np.array(["1", "2", "3"])})["a"].tolist() == [0, 2, 1]
    named = fit_presentation({"a": np.array(["3", "1"])}, ["a"])
    assert named.encoders["a"] == Categories(values=("1", "3"))
    assert named.encode({"a": np.array([1.0, np.nan, 3.0])})["a"].tolist() == [0, 3, 1]


def test_weights_are_rows() -> None:
    once, twice = {"a": np.array([0.5, 1.5, None], float)}, {"a": np.array([0.5, 1.5, 1.5, 1.5, None], float)}
    weighed = tally_columns(once, ["a"], weights=np.array([1, 3, 1]))
    assert fit_tallies(weighed, bins=2) == fit_presentation(twice, ["a"], bins=2)


def test_many_numbers_are_rounded_and_many_texts_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "EXACT", 50)
    monkeypatch.setattr(presentation, "MOST", 20)
    column = np.arange(100_000, 100_200)
    parts = [tally_columns({"a": column[part]}, ["a"]) for part in (slice(0, 30), slice(30, 200))]
    both, whole = merge_tallies(*parts), tally_columns({"a": column}, ["a"])
    assert fit_tallies(both, bins=2) == fit_tallies(whole, bins=2)
    assert both["a"].rounded
    assert fit_tallies(both).encoders["a"].kind == "continuous"  # though few of the rounded ones differ
    with pytest.raises(DataError, match=r"url has more than 50 different values; .*coarsen"):
        tally_columns({"url": column.astype(str)}, ["url"])
    with pytest.raises(DataError, match="url has more than 20 different values"):
        fit_presentation({"url": column[:40].astype(str)}, ["url"])


def test_what_cannot_be_encoded_is_named() -> None:
    fitted = fit_presentation({"serp_a": np.array([1, 2])}, ["serp_a"])
    with pytest.raises(DataError, match="the log has no column serp_a; it has serp_b"):
        fitted.encode({"serp_b": np.array([1])})
    with pytest.raises(DataError, match="serp_a held numbers when the model was trained"):
        fitted.encode({"serp_a": np.array(["x"])})
    with pytest.raises(DataError, match="serp_a holds values of several types"):
        fitted.encode({"serp_a": np.array([1, "x"], object)})
    with pytest.raises(DataError, match="serp_a is of type timestamp"):
        fitted.encode({"serp_a": np.array(["2024-01-01"], "datetime64[s]")})
    with pytest.raises(DataError, match="serp_a holds text in one part of the log and numbers in another"):
        merge_tallies(*(tally_columns({"serp_a": np.array([v])}, ["serp_a"]) for v in (1, "x")))
    for broken in ({"kind": "ordinal", "values": ["x"]}, {"kind": "other"}, {"kind": "ordinal"}, 7):
        with pytest.raises(DataError, match=r"presentation: serp_a"):
            Presentation.from_dict({"serp_a": broken})


def test_a_log_is_reduced_to_codes() -> None:
    lists = unskew.make_lists(queries=5, features=5, documents=(3, 5), seed=1)
    log = unskew.simulate(lists, pages=300, seed=2, cutoff=3)
    kind = np.array(["text", "image"], object)[np.arange(len(log.row)) % 2]
    height = np.where(np.arange(len(log.row)) % 3 == 0, np.nan, np.arange(len(log.row)) / 7)
    log = replace(log, columns={"serp_kind": kind, "serp_height": height})
    fitted = fit_presentation(log.columns, ["serp_kind", "serp_height"], bins=2)
    counts = reduce_log(log, presentation=fitted)
    codes = reduce_log(replace(log, columns=fitted.encode(log.columns)), serp=fitted.names)
    assert counts.serp.keys() == {"serp_kind", "serp_height"}
    for name, values in counts.serp.items():
        assert values.dtype == np.int64
        assert np.array_equal(values, codes.serp[name])
    assert np.array_equal(counts.clicks, codes.clicks)
    assert counts.clicks.sum() == log.click.sum()
    assert len(counts) < len(reduce_log(log, serp=fitted.names))  # bins hold pages together


def test_ordinals_are_ordered() -> None:
    fitted = fit_presentation({"a": np.array([10, -1, 9])}, ["a"])
    assert fitted.encoders["a"] == Ordinals(values=(-1.0, 9.0, 10.0))
