"""Evaluation by query frequency, and where documents move to, by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import unskew
from unskew.errors import ConfigError, DataError
from unskew.logs.log import write_log
from unskew.simulation.synthetic import make_lists
from unskew.terminal.main import app
from unskew.types import Lists
from unskew.workflows.proofs.measure_lists import frequency_buckets, pages_per_query
from unskew_reproductions.pages import METRICS, measure_by_frequency, new_positions, ranks


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


def test_the_head_takes_the_middle_bucket_and_may_be_told(lists: Lists) -> None:
    scores = np.array([2.0, 1.0, 2.0, 1.0, 2.0, 1.0])  # DCG of 3, 1 / log2(3) and 0
    values = [3.0, 1 / math.log2(3), 0.0]
    for head, edge in ((None, 2), (1, 1), (3, 3)):
        found = measure_by_frequency(scores, lists, np.array([0, 1, 2]), ["dcg@10"], head=head)
        assert found.head["dcg@10"] == pytest.approx(np.mean(values[:edge]))
        tail = found.tail["dcg@10"]
        assert math.isnan(tail) if edge == 3 else tail == pytest.approx(np.mean(values[edge:]))


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
    long = Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.zeros(3), np.array([1]))
    assert new_positions(np.array([3, 2, 1]), np.array([2, 1, 3]), long, top=3)[0].tolist() == [2, 3, 1]
    assert deviation[0] == pytest.approx(math.sqrt(2) / 3)
    assert math.isnan(mean[2])


def test_queries_by_a_power_law() -> None:
    from unskew.simulation import simulate
    from unskew_reproductions.pages import by_power_law

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
    from unskew_reproductions.pages import Learned, graphs_of, position_figure, sequence_figures

    edges = [["relevance", "click"], ["position", "click"]]
    fit = Fit(curve=[{"step": 10, "notes": {"graph": edges[:1]}}, {"step": 20, "notes": {"graph": edges}}])
    found = graphs_of(Learned(np.zeros(1), fit))
    assert [step for step, _ in found] == [10, 20]
    assert found[1][1].parents("click") == ("relevance", "position")
    assert len(sequence_figures([found[0], found[0], found[1]])) == 2
    assert graphs_of(None) == []
    drawn = position_figure([{"method": "bal", "original": 1, "new": 1.5}]).to_dict()
    assert drawn["encoding"]["y"]["title"] == "average new position"


# ---- `unskew measure --by-frequency` ----


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, lists of nine queries, and a log in which query 3 was never asked and query 8 most often."""
    folder = tmp_path_factory.mktemp("frequency")
    lists = make_lists(queries=9, features=4, documents=8, seed=0)
    log = unskew.simulate(lists, pages=400, seed=0)
    rng = np.random.default_rng(1)
    kept = log.take(rng.random(len(log)) < np.array([8, 1, 2, 0, 4, 5, 6, 7, 9])[log.query] / 10)
    unskew.write_letor(lists, folder / "lists.txt")
    write_log(kept, folder / "log.parquet")
    for name in ("naive", "dla"):
        unskew.learn(log, method=name, ranker="linear", steps=5, out=folder / name)
    return folder / "dla"


def test_pages_are_counted_once_for_each_query(run: Path, tmp_path: Path) -> None:
    lists = unskew.read_letor(run.parent / "lists.txt")
    log = unskew.read_log(run.parent / "log.parquet", lists)
    pages = pages_per_query(log, lists)
    assert pages.sum() == len(log)
    assert pages.tolist() == pages_per_query(run.parent / "log.parquet", lists).tolist()
    assert (pages[3], pages.argmax()) == (0, 8)
    ids = pa.array([str(query) for query in lists.query_ids[[8, 8, 8, 0]]] + ["of another time"])
    pq.write_table(pa.table({"page_id": [1, 1, 2, 3, 4], "query_id": ids}), tmp_path / "few.parquet")
    assert pages_per_query(tmp_path / "few.parquet", lists).tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 2]


def test_head_middle_and_tail_are_the_thirds_of_the_queries(run: Path) -> None:
    folder = run.parent
    lists = unskew.read_letor(folder / "lists.txt")
    log = folder / "log.parquet"
    found = unskew.measure(run, folder / "lists.txt", by_frequency=log, against=folder / "naive")
    pages = pages_per_query(log, lists)
    order = np.argsort(-pages, kind="stable")
    other = unskew.measure(folder / "naive", lists, by_frequency=unskew.read_log(log, lists))
    per_query = unskew.measure_ranking(unskew.load(run).score(lists), lists, ["ndcg@3"]).per_query["ndcg@3"]
    assert list(found.frequency) == ["head", "middle", "tail"]
    for number, (name, part) in enumerate(found.frequency.items()):
        asked = order[3 * number : 3 * number + 3]
        assert (part.queries, part.pages) == (3, pages[asked].sum())
        assert (part.least, part.most) == (pages[asked].min(), pages[asked].max())
        assert part.means["ndcg@3"] == pytest.approx(per_query[asked].mean())
        difference = part.means["ndcg@3"] - other.frequency[name].means["ndcg@3"]
        assert part.against["ndcg@3"].difference == pytest.approx(difference)


def test_a_query_that_does_not_count_is_in_no_bucket(run: Path) -> None:
    lists = unskew.read_letor(run.parent / "lists.txt")
    labels = lists.labels.copy()
    labels[lists.offsets[8] : lists.offsets[9]] = 0  # the most frequent query has nothing relevant
    lists = Lists(lists.features, lists.offsets, labels, lists.query_ids)
    asked = {"metrics": ["mrr@10"], "by_frequency": run.parent / "log.parquet", "buckets": 9}
    buckets = unskew.measure(run, lists, **asked).frequency
    assert list(buckets) == [str(number) for number in range(1, 10)]
    assert np.isnan(buckets["1"].means["mrr@10"])
    assert unskew.measure(run, lists, empty="zero", **asked).frequency["1"].means["mrr@10"] == 0


def test_the_command_measures_by_frequency(run: Path) -> None:
    base = ["measure", str(run), "--lists", str(run.parent / "lists.txt")]
    asked = [*base, "--metric", "ndcg@10", "--by-frequency", str(run.parent / "log.parquet")]
    done = CliRunner().invoke(app, [*asked, "--json"])
    head = json.loads(done.stdout)["frequency"]["head"]
    shown = CliRunner().invoke(app, [*asked, "--against", str(run.parent / "naive")]).stdout
    assert f"head: 3 queries, {head['pages']} pages, {head['least']} to {head['most']} each" in shown
    assert f"{head['means']['ndcg@10']:.4f} │" in shown
    assert "difference (p)" in shown
    two = CliRunner().invoke(app, [*asked, "--buckets", "2", "--json"])
    assert list(json.loads(two.stdout)["frequency"]) == ["1", "2"]
    refused = CliRunner().invoke(app, [*base, "--buckets", "2"])
    assert "give --by-frequency too" in str(refused.exception)


def test_frequency_refuses(run: Path, tmp_path: Path) -> None:
    lists, log = run.parent / "lists.txt", run.parent / "log.parquet"
    with pytest.raises(ConfigError, match=r"buckets=10.* as many as the lists have queries, 9"):
        unskew.measure(run, lists, by_frequency=log, buckets=10)
    pq.write_table(pa.table({"page_id": [1], "query_id": ["x"]}), tmp_path / "other.parquet")
    with pytest.raises(DataError, match=r"none of its queries \(such as x\) is one of the 9 measured"):
        unskew.measure(run, lists, by_frequency=tmp_path / "other.parquet")
    pq.write_table(pa.table({"query": ["x"]}), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="missing columns: page_id, query_id"):
        unskew.measure(run, lists, by_frequency=tmp_path / "bad.parquet")
