"""Columns that tell results apart, labels and features: found, cut into ranges, or left out with the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from tests.helpers.uncleaned import open_tables
from unskew.diagnosis.curves.factors import factors
from unskew.diagnosis.curves.matrix import read_labels
from unskew.diagnosis.curves.ordering import (
    lists_of,
    rank_by_features,
)
from unskew.errors import DataError
from unskew.names import Names

QUERIES, PAGES, SHOWN = 40, 30, 4


def shuffled_pages() -> dict[str, Any]:
    """Pages in random order; a large result is clicked twice as often, and ranks 1 and 2 are above the fold."""
    rng = np.random.default_rng(0)
    pages = QUERIES * PAGES
    page, position = np.repeat(np.arange(pages), SHOWN), np.tile(np.arange(1, SHOWN + 1), pages)
    document = rng.random((pages, SHOWN)).argsort(1).ravel()
    query, large = page // PAGES, rng.random(len(page)) < 0.5
    worth = rng.random((QUERIES, SHOWN))[query, document]
    click = rng.random(len(page)) < 0.5 * worth / np.sqrt(position) * (1 + large)
    return {
        "page_id": page,
        "query_id": query,
        "doc_id": document,
        "position": position,
        "click": click.astype(int),
        "serp_large": large,
        "serp_height": np.where(page % 10 == 0, np.nan, rng.gamma(2, 100, len(page))),
        "serp_fold": np.where(position <= 2, "above", "below"),
        "serp_name": [f"n{number % 70}" for number in page],
        "serp_same": ["x"] * len(page),
        "serp_day": np.datetime64("2024-01-01") + page,
        "label": np.digitize(worth, [0.5]),
    }


@pytest.fixture(scope="module")
def log() -> dict[str, Any]:
    return shuffled_pages()


def test_columns_of_the_page_are_found_cut_and_left_out_with_the_reason(log: dict[str, Any]) -> None:
    with open_tables(log, serp=True, threads=1) as tables:
        assert tables.segments == ("serp_large", "serp_height", "serp_fold")
        assert tables.left_out == {
            "serp_name": "has 70 values, and 50 is the most",
            "serp_same": "has fewer than two values",
            "serp_day": "holds values of the type date, not text or numbers",
        }
        counted = tables.impressions.group_by("serp_height").agg(n=tables.impressions.count())
        by_range = {row["serp_height"]: row["n"] for row in tables.engine.rows(counted)}
    edges = [float(f"{np.nanquantile(log['serp_height'], share):.3g}") for share in (0.25, 0.5, 0.75)]
    low, middle, high = (f"{edge:g}" for edge in edges)
    names = {f"below {low}", f"{low} to {middle}", f"{middle} to {high}", f"from {high}", "(missing)"}
    assert set(by_range) == names
    assert by_range["(missing)"] == np.isnan(log["serp_height"]).sum()
    assert by_range[f"from {high}"] == (log["serp_height"] >= edges[2]).sum()


def test_a_number_that_is_nearly_always_the_same_has_two_ranges() -> None:
    rare = np.where(np.arange(200) < 180, 0, np.arange(200))
    rows = {"page_id": range(200), "query_id": [1] * 200, "doc_id": [1] * 200, "position": [1] * 200}
    with open_tables({**rows, "click": [0] * 200, "serp_ads": rare}, serp=True, threads=1) as tables:
        values = tables.engine.rows(tables.impressions.select("serp_ads").distinct())
    assert {row["serp_ads"] for row in values} == {"below 180", "from 180"}


def test_what_a_column_does_is_told_unless_the_rank_says_which_value_it_is(log: dict[str, Any]) -> None:
    with open_tables(log, serp=True, threads=1) as tables:
        found = {each.name: each for each in factors(tables).factors}
    large = dict(zip(found["serp_large"].values, found["serp_large"].effect, strict=True))
    assert large["false"] / large["true"] == pytest.approx(0.5, rel=0.15)
    assert found["serp_large"].p < 1e-6
    fold = found["serp_fold"]
    assert (fold.p, fold.decay_p, set(fold.effect)) == (None, None, {None})
    assert "follows from the rank" in str(fold.reason)


def test_labels_come_from_the_log_or_from_a_file(log: dict[str, Any], tmp_path: Path) -> None:
    judged = pa.table({"query_id": log["query_id"], "doc_id": log["doc_id"], "label": log["label"]})
    pairs = (
        judged.group_by(["query_id", "doc_id"]).aggregate([("label", "max")]).rename_columns(judged.schema.names)
    )
    with open_tables(log, threads=1) as tables:
        inside = read_labels(tables)
        assert inside is not None
        whole = {(row["query_id"], row["doc_id"]): row["label"] for row in tables.engine.rows(inside)}
    assert whole == {(q, d): str(grade) for q, d, grade in zip(*pairs.to_pydict().values(), strict=True)}
    texts = pairs.set_column(0, "query_id", pairs["query_id"].cast(pa.string()))
    pacsv.write_csv(texts.set_column(2, "label", pairs["label"].cast(pa.float64())), tmp_path / "labels.csv")
    bare = {name: values for name, values in log.items() if name != "label"}
    with open_tables(bare, threads=1) as tables:
        assert read_labels(tables) is None
        read = read_labels(tables, tmp_path / "labels.csv")
        assert read is not None
        assert {(row["query_id"], row["doc_id"]): row["label"] for row in tables.engine.rows(read)} == whole
        with pytest.raises(DataError, match="no label of a document that the log shows"):
            read_labels(tables, {"query_id": ["other"], "doc_id": ["d"], "label": [1]})
        with pytest.raises(DataError, match="label"):
            read_labels(tables, {"query_id": [1], "doc_id": [1], "grade": [1]})


# ---- features ----


def ordered_pages(*, noise: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """60 queries whose pages are ordered by |x|, more or less; and the features of their documents."""
    rng = np.random.default_rng(1)
    x, words = rng.normal(size=(60, 6)), np.array(["a", "b"])
    order = (np.abs(x) + noise * rng.normal(size=x.shape)).argsort(1)
    query, position = np.repeat(np.arange(60), 6), np.tile(np.arange(1, 7), 60)
    log = {"page_id": query, "query_id": query, "doc_id": order.ravel(), "position": position}
    documents = {"query_id": query, "doc_id": np.tile(np.arange(6), 60), "x": x.ravel()}
    documents |= {"kind": words[rng.integers(0, 2, 360)], "gap": np.where(rng.random(360) < 0.1, np.nan, 1.0)}
    return log | {"click": rng.integers(0, 2, 360)}, documents


@pytest.mark.parametrize(("noise", "low", "high"), [(0.0, 0.5, 1.0), (50.0, -0.5, 0.2)])
def test_trees_see_a_rank_that_features_tell_by_no_line(noise: float, low: float, high: float) -> None:
    log, documents = ordered_pages(noise=noise)
    with open_tables(log, threads=1) as tables:
        found = rank_by_features(tables, lists_of(tables, documents, Names()))
    assert found.r2 is not None
    assert low < found.r2 < high
    if noise == 0:
        assert found.by == "trees"
        assert found.correlation > 0.8
        assert found.predicted == tuple(sorted(found.predicted))
        assert found.spread[0][0] == 1.0
