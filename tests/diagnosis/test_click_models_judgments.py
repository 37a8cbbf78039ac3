"""Judgments from everything: what the order shown says, clicks, labels; where clicks are few and engines good."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import unskew
from unskew.diagnosis.click_models import PBM, Prior
from unskew.diagnosis.click_models.fitted import errors
from unskew.diagnosis.click_models.labels import FOLDS, meant
from unskew.diagnosis.click_models.pages import ShownPairs
from unskew.engine_prior import EnginePrior, Expectation, after, leaning, mean_ranks, spread_worth
from unskew.errors import DataError
from unskew.examination import Examination
from unskew.logs.log import write_log
from unskew.measuring import ndcg_metric
from unskew.terminal.main import app
from unskew.types import Array, Lists, Log

models = unskew.click_models
THETA = np.array([1, 0.72, 0.45, 0.33, 0.26, 0.20, 0.16, 0.13, 0.11, 0.09])
RELEVANCE = np.array([0.02, 0.08, 0.2, 0.45, 0.9])
DOCUMENTS = 25


def world(seed: int, engine: float, *, queries: int = 200, pages: int = 10_000, moves: float = 0.15) -> Any:
    """A log with position bias of an engine that knows so much, and the chance of a click at rank 1."""
    draw = np.random.default_rng(seed)
    wanted = draw.normal(size=queries * DOCUMENTS)
    score = engine * wanted + np.sqrt(1 - engine**2) * draw.normal(size=len(wanted))
    grade = np.searchsorted(np.quantile(wanted, [0.55, 0.75, 0.88, 0.96]), wanted)
    often = 1 / np.arange(1, queries + 1) ** 0.8
    asked = draw.choice(queries, size=pages, p=often / often.sum())
    noise = moves * draw.normal(size=(pages, DOCUMENTS))
    order = np.argsort(-score.reshape(queries, DOCUMENTS)[asked] - noise, 1)[:, :10]
    row = asked[:, None] * DOCUMENTS + order
    chance = np.minimum(0.3 * RELEVANCE[grade], 0.95)
    click = draw.random(row.shape) < THETA * chance[row]
    ids = np.array([f"d{number}" for number in range(len(wanted))], object)
    offsets = np.arange(queries + 1) * DOCUMENTS
    lists = Lists(np.zeros((len(wanted), 1), np.float32), offsets, grade.astype(np.int16), np.arange(queries), ids)
    position = np.tile(np.arange(1, 11), pages).astype(np.int16)
    ends = np.arange(pages + 1) * 10
    return Log(lists, asked, ends, row.ravel(), position, click.ravel().astype(np.uint8)), chance


def numbers(table: pa.Table, log: Log, name: str) -> Array:
    """A column of judgments by document; 0 where nothing was shown."""
    found = np.zeros(len(log.lists.features))
    found[[int(each[1:]) for each in table["doc_id"].to_pylist()]] = table[name].to_numpy()
    return found


def ndcg(scores: Array, log: Log) -> float:
    """Over the documents that were shown."""
    rows = np.unique(log.row)
    query = rows // DOCUMENTS
    offsets = np.append(0, np.cumsum(np.bincount(query, minlength=len(log.lists))))
    labels = np.asarray(log.lists.labels)[rows]
    return float(np.nanmean(ndcg_metric(scores[rows], labels, offsets=offsets, at=10)))


# ---- by hand ----


def test_the_posterior_mean_by_hand() -> None:
    found = after(np.array([0.1, 0.1, 0.1]), 20.0, np.array([1.0, 0.0, 0.0]), np.array([3.0, 3.0, 0.0]))
    assert found == pytest.approx([3 / 23, 2 / 23, 0.1])
    assert found[0] == pytest.approx(0.130435, abs=1e-6)


def test_mean_ranks_count_pages_without_a_document() -> None:
    """Shown first twice of three pages of ten results, and never; a query without a page."""
    found = mean_ranks(np.array([2.0, 0.0, 0.0]), np.array([2.0, 0.0, 0.0]), np.array([3.0, 3.0, 0.0]), 10)
    assert found == pytest.approx([13 / 3, 11, 11])


def test_what_is_never_shown_lies_beyond_the_last_rank() -> None:
    rank = np.array([1.0, 2.0, 4.0, 5.0])
    clicks, looked, query = np.array([40.0, 20.0, 10.0, 0.0]), np.array([100.0, 100, 100, 0]), np.zeros(4, int)
    told = Expectation.fit(clicks, looked, rank, query).of(clicks, looked, rank, query)
    assert told[3] < told[2] < told[1] < told[0]


def test_the_level_of_a_pair_is_told_by_the_others() -> None:
    """Two pairs of a query at rank 1, of 10 examinations each, where half a click is due: (2 + 4) / (2 + 5)."""
    prior = EnginePrior((0.5,), "numbers")
    one = np.ones(2)
    told = Expectation(prior, 1.0, 2.0).of(np.array([9.0, 4.0]), 10 * one, one, np.zeros(2, int))
    assert told == pytest.approx([0.5 * 6 / 7, min(0.5 * 11 / 7, 0.95)])


@pytest.mark.parametrize("trials", [2.0, 10.0])
def test_what_a_mean_is_worth_is_found_by_how_far_clicks_are_from_it(trials: float) -> None:
    draw, size = np.random.default_rng(0), 20_000
    mean = draw.uniform(0.05, 0.4, size)
    relevance = draw.beta(trials * mean, trials * (1 - mean))
    shown = draw.integers(1, 30, size)
    seen = draw.choice([0.9, 0.3], size)
    clicks = draw.binomial(shown, seen * relevance).astype(float)
    found = spread_worth(clicks, shown * seen, shown * seen**2, mean)
    assert found == pytest.approx(trials, rel=0.1)


def test_examination_leans_on_click_rates_where_nothing_is_known() -> None:
    shown, clicks = np.full(3, 1e6), np.array([4e5, 1e5, 2.5e4])
    assert leaning(shown, clicks, None) == pytest.approx([1, 0.25**0.8, 0.0625**0.8], rel=1e-3)
    ends = (1.0, 0.499, 0.249), (1.0, 0.501, 0.251)
    sure = Examination((1.0, 0.5, 0.25), "swaps", *ends)
    assert leaning(shown, clicks, sure) == pytest.approx([1, 0.5, 0.25], rel=1e-2)
    wide = Examination((1.0, 0.5, 0.25), "swaps", (1.0, 0.05, 0.025), (1.0, 5.0, 2.5))
    assert leaning(shown, clicks, wide)[1] < 0.45


def test_intervals_are_those_of_a_beta_distribution() -> None:
    """Beta(1, 1) has mean 1/2 and variance 1/12; Beta(1, 2) is 1 - (1 - x)^2, of mean 1/3 and variance 1/18."""
    found = errors(np.array([1 / 2, 1 / 3]), np.sqrt([1 / 12, 1 / 18]))
    assert found["lower"] == pytest.approx([0.025, 1 - math.sqrt(0.975)])
    assert found["upper"] == pytest.approx([0.975, 1 - math.sqrt(0.025)])


# ---- worlds ----


@pytest.fixture(scope="module")
def strong() -> Any:
    return world(1, 0.97)


def test_a_good_order_and_few_clicks_are_joined(strong: Any) -> None:
    """Where flat priors put what nobody looked at above what was looked at and not clicked."""
    log, _ = strong
    judged = models.fit(log, "pbm").relevance()
    flat = models.fit(log, PBM(attractiveness=Prior(mean=0.05, strength=2.0))).relevance()
    shown = ndcg(-numbers(judged, log, "mean_rank"), log)
    assert ndcg(numbers(flat, log, "relevance"), log) < shown - 0.05
    found = ndcg(numbers(judged, log, "relevance"), log)
    assert found > shown
    for name in ("click_rate", "coec"):
        assert found > ndcg(numbers(judged, log, name), log) + 0.01


@pytest.mark.parametrize("model", ["pbm", "ubm", "ccm", "dbn", "pbm+rctr"])
def test_models_are_no_worse_than_the_order_shown(model: str, strong: Any) -> None:
    log, _ = strong
    judged = models.fit(log, model).relevance()
    shown = ndcg(-numbers(judged, log, "mean_rank"), log)
    assert ndcg(numbers(judged, log, "relevance"), log) > shown - 0.005


@pytest.mark.parametrize(("seed", "engine"), [(2, 0.5), (3, 0.75), (1, 0.97)])
def test_intervals_cover(seed: int, engine: float) -> None:
    log, chance = world(seed, engine)
    judged = models.fit(log, "pbm").relevance()
    rows = np.unique(log.row)
    low, high = (numbers(judged, log, end)[rows] for end in ("lower", "upper"))
    covered = float(((low <= chance[rows]) & (chance[rows] <= high)).mean())
    assert 0.92 < covered < 0.985


@pytest.mark.parametrize("engine", [0.4, 0.97])
def test_without_examination_it_says_so_and_is_no_worse_than_click_rate(engine: float) -> None:
    log, _ = world(4, engine, moves=0.0)
    fitted = models.fit(log, "pbm")
    assert fitted.unknown is not None
    assert "two ranks" in fitted.unknown
    judged = fitted.relevance()
    best = ndcg(numbers(judged, log, "click_rate"), log)
    assert ndcg(numbers(judged, log, "relevance"), log) > best - 0.005
    found = models.fit_and_compare(log, ["dctr", "pbm"])
    assert any("cannot be known" in note for note in found.notes)
    assert found.judge == "pbm"


# ---- labels ----


def some_labels(log: Log, queries: int) -> pa.Table:
    rows = np.unique(log.row)
    rows = rows[rows // DOCUMENTS < queries]
    label = np.asarray(log.lists.labels)[rows]
    ids = {"query_id": rows // DOCUMENTS, "doc_id": [f"d{row}" for row in rows]}
    return pa.table(ids | {"label": label, "by": np.where(rows % 2, "Ada", "a model")})


def test_some_labels_make_judgments_better_and_no_interval_wider() -> None:
    log, _ = world(5, 0.6)
    fitted, labels = models.fit(log, "pbm"), some_labels(log, 30)
    plain, better = fitted.relevance(), fitted.relevance(labels)
    told, found = (ndcg(numbers(table, log, "relevance"), log) for table in (plain, better))
    assert found > told + 0.005
    for name in ("relevance", "standard_error"):
        one, other = (numbers(table, log, name) for table in (plain, better))
        assert other[30 * DOCUMENTS :] == pytest.approx(one[30 * DOCUMENTS :])
    assert np.all(other <= one + 1e-12)
    mixed = models.fit(log, "pbm+rctr").relevance(labels)
    assert ndcg(numbers(mixed, log, "relevance"), log) > told


def test_what_a_label_means_is_told_by_other_queries() -> None:
    """All labels of a query are in one part, so a query alone with its label is told nothing by itself."""
    ids = pa.array(["a", "a", "b", "b"])
    pairs = ShownPairs(ids, pa.array(["1", "2", "1", "2"]), np.array([0, 0, 1, 1]))
    labels = np.arange(4), np.array([0.0, 1.0, 0.0, 1.0]), np.zeros(4, int)
    assert crc32(b"a") % FOLDS != crc32(b"b") % FOLDS
    pair, told = meant(labels, np.array([1.0, 3.0, 5.0, 9.0]), np.full(4, 9.5), pairs)
    assert pair.tolist() == [0, 1, 2, 3]
    assert told == pytest.approx([0.55, 0.95 * 1.001, 0.15, 0.35 * 1.001])


def test_labels_that_mean_nothing_do_little(strong: Any) -> None:
    log, _ = strong
    fitted, labels = models.fit(log, "pbm"), some_labels(log, 30)
    random = np.random.default_rng(0).permutation(labels["label"].to_numpy())
    labels = labels.set_column(2, "label", pa.array(random))
    one, other = (ndcg(numbers(fitted.relevance(each), log, "relevance"), log) for each in (None, labels))
    assert other > one - 0.01


def test_labels_that_cannot_be_read_are_told(strong: Any, tmp_path: Path) -> None:
    fitted, labels = models.fit(strong[0], "pbm"), some_labels(strong[0], 2)
    with pytest.raises(DataError, match="missing columns: label"):
        fitted.relevance(labels.drop_columns(["label"]))
    with pytest.raises(DataError, match="no label of a query and document that was shown"):
        fitted.relevance(labels.set_column(1, "doc_id", pa.array(["x"] * len(labels))))
    with pytest.raises(DataError, match="label is not a number"):
        fitted.relevance(labels.set_column(2, "label", pa.array(["good"] * len(labels))))


# ---- one result everywhere ----


def test_python_command_and_export_say_the_same(strong: Any, tmp_path: Path) -> None:
    log, _ = strong
    write_log(log, tmp_path / "log.parquet")
    pq.write_table(some_labels(log, 30), tmp_path / "labels.parquet")
    here = models.fit(log, "pbm").relevance(tmp_path / "labels.parquet")
    words = ["compare-click-models", str(tmp_path / "log.parquet"), "--model", "pbm", "--model", "rctr"]
    words += ["--labels", str(tmp_path / "labels.parquet"), "--out", str(tmp_path / "out"), "--threads", "1"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.exception
    there = pacsv.read_csv(tmp_path / "out" / "judgments.csv")
    assert {"click_rate", "coec", "mean_rank", "lower", "upper"} <= {*there.column_names}
    words = ["export", str(tmp_path / "log.parquet"), "--to", "quepid", "--confidence", "0"]
    words += ["--labels", str(tmp_path / "labels.parquet"), "--out", str(tmp_path / "q.csv")]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.exception
    with (tmp_path / "q.csv.confidence.csv").open() as file:
        graded = {row["docid"]: float(row["relevance"]) for row in csv.DictReader(file)}
    mine = numbers(here, log, "relevance")
    assert numbers(there, log, "relevance") == pytest.approx(mine, rel=1e-6)
    assert [graded[f"d{row}"] for row in np.unique(log.row)] == pytest.approx(mine[np.unique(log.row)], rel=1e-6)
