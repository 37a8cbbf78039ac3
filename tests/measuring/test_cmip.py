"""CMIP: known values, an independent library, calibration, and simulated rankers with and without bias."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import mutual_info_score

import unskew
from unskew.errors import DataError
from unskew.measuring.cmip import cmip_metric, shown_order
from unskew.pages.documents.summaries import measure_page
from unskew.pages.page import markdown

COMPARE_FILE = """pages = 2000
seeds = 1
behaviours = [{ name = "position" }]
methods = [{ name = "naive" }]
[data.synthetic]
queries = 100
features = 5
documents = 12
[ranker]
name = "linear"
[training]
steps = 60
"""


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


def test_measure_tells_what_is_left_where_there_are_grades_and_a_log() -> None:
    lists = unskew.make_lists(queries=60, documents=12, seed=1)
    log = unskew.simulate(lists, "position", pages=600, seed=0)
    query = np.repeat(np.arange(len(lists)), lists.sizes)
    ids = {"query_id": lists.query_ids[query], "doc_id": lists.document_ids()}
    copied = np.nan_to_num(shown_order(log), nan=-11.0)
    told = {}
    for name, scores in (("copied", copied), ("random", np.random.default_rng(0).random(len(query)))):
        found = unskew.measure(pa.table(ids | {"score": scores}), lists, log=log)
        told[name] = found.cmip
        assert "Bias that is left" in markdown(measure_page(found))
    assert told["copied"].p < 0.01 < told["random"].p
    assert told["copied"].value > 0.5 > 5 * abs(told["random"].value)


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(DataError, match="fewer than two documents"):
        cmip_metric([1.0, 2.0], [np.nan, 1.0], [0, 1])
    with pytest.raises(DataError, match="equally many"):
        cmip_metric([1.0], [1.0, 2.0], [0, 1])


def test_compare_tells_it_for_every_method(tmp_path: Path) -> None:
    (tmp_path / "compare.toml").write_text(COMPARE_FILE)
    unskew.compare(tmp_path / "compare.toml", out=tmp_path / "out", jobs=1)
    rows = pq.read_table(tmp_path / "out" / "results.parquet").to_pylist()
    left = {row["method"]: row["cmip"] for row in rows}
    assert left["logging"] > 0.5 > 5 * abs(left["random"])
    assert left["naive"] > left["random"]
    assert "Bias that is left" in (tmp_path / "out" / "table.md").read_text()
