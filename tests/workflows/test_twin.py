"""Twins of logs: curves that meet the log's, examination recovered where it can be, said where it cannot."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.errors import ConfigError
from unskew.measuring.portrait import off, portrait
from unskew.options.logs import TwinArguments
from unskew.types import Lists, Log
from unskew.workflows.twins.fitting import grades
from unskew.workflows.twins.simulate import twin_to
from unskew.workflows.twins.twin import Twin, shuffled
from unskew_reproductions.behaviours import DynamicBayesian

MODELS = ("pbm", "dbn")


@pytest.fixture(scope="module")
def lists() -> Lists:
    return unskew.make_lists(queries=60, features=8, documents=14, seed=0)


@pytest.fixture(scope="module")
def log(lists: Lists) -> Log:
    """Position bias, a fifth of the pages shuffled."""
    return unskew.simulate(lists, "position", pages=10_000, randomized=0.2, seed=0, truth=True)


@pytest.fixture(scope="module")
def twin(log: Log) -> Twin:
    return unskew.twin(log, models=MODELS)


def test_the_twin_meets_the_log(twin: Twin, log: Log) -> None:
    own, made = portrait(log), portrait(twin.simulate(15_000, seed=5))
    assert off(own, made) == []
    inside = [
        ends is not None and rate is not None and ends[0] - 0.004 <= rate <= ends[1] + 0.004
        for rate, ends in zip(made.rate, own.interval, strict=True)
    ]
    assert all(inside)
    assert made.clicks == pytest.approx(own.clicks, abs=0.02)
    assert made.first == pytest.approx(own.first, abs=0.02)
    assert made.head == pytest.approx(own.head, abs=0.02)
    assert made.queries == own.queries


def test_examination_is_recovered_from_shuffled_pages(twin: Twin) -> None:
    assert (twin.model.name, twin.identified, twin.examination_from) == ("pbm", True, "shuffled pages")
    assert twin.idle < 0.05
    true = unskew.behaviours.PositionBias().examination(10)
    assert twin.examination() == pytest.approx(true / true[0], abs=0.12)


def test_relevance_follows_the_truth(twin: Twin, log: Log, lists: Lists) -> None:
    seen = np.bincount(log.row, minlength=len(lists.labels)) > 0
    assert np.corrcoef(twin.relevance[seen], lists.labels[seen])[0, 1] > 0.6
    assert set(np.unique(twin.layout.lists.labels)) == {0, 1, 2, 3, 4}
    made = twin.simulate(500, seed=1)
    assert np.array_equal(made.columns["label"], twin.layout.lists.labels[made.row])


def test_a_thin_log_of_a_good_ranker_keeps_its_level_of_clicks() -> None:
    lists = unskew.make_lists(queries=200, features=8, documents=14, seed=0)
    good = unskew.behaviours.ScoresLogger(values=lists.labels + np.random.default_rng(0).random(len(lists.labels)))
    log = unskew.simulate(lists, "position", logger=good, pages=1500, randomized=0.1, seed=0)
    made = unskew.twin(log, models=["pbm"])
    own, drawn = portrait(log), portrait(made.simulate(20_000, seed=1))
    assert drawn.clicks[0] == pytest.approx(own.clicks[0], abs=0.035)
    assert off(own, drawn) == []


def test_what_the_log_does_not_tell_is_said(lists: Lists) -> None:
    fixed = unskew.simulate(lists, "position", pages=3000, seed=0)  # one order per query
    made = unskew.twin(fixed, models=["pbm"])
    assert not made.identified
    assert "priors" in made.examination_from
    assert any("not known from this log" in note for note in made.notes)


def test_people_who_read_on_until_satisfied_are_not_position_based(lists: Lists) -> None:
    log = unskew.simulate(lists, DynamicBayesian(), pages=6000, randomized=0.1, seed=0)
    made = unskew.twin(log, models=MODELS)
    assert made.model.name == "dbn"
    assert off(portrait(log), portrait(made.simulate(seed=3)), errors=4) == []


def test_pages_at_which_nobody_looks_are_found(log: Log) -> None:
    silent = (np.random.default_rng(0).random(len(log)) < 0.4)[np.repeat(np.arange(len(log)), log.sizes)]
    quiet = replace(log, click=np.where(silent, 0, log.click).astype(np.uint8))
    made = unskew.twin(quiet, models=["pbm"])
    assert made.idle == pytest.approx(0.4, abs=0.12)
    true = unskew.behaviours.PositionBias().examination(10)
    assert made.examination() == pytest.approx(true / true[0], abs=0.15)
    own, drawn = portrait(quiet), portrait(made.simulate(15_000, seed=5))
    assert drawn.clicks == pytest.approx(own.clicks, abs=0.02)
    assert off(own, drawn) == []


def test_kinds_of_people_share_the_curve_of_the_log(log: Log) -> None:
    made = unskew.twin(log.take(np.arange(5000)), models=["pbm+pbm"])
    assert made.examination_from == "shuffled pages"
    true = unskew.behaviours.PositionBias().examination(10)
    assert made.examination() == pytest.approx(true / true[0], abs=0.15)


def test_shuffling_is_as_asked(twin: Twin, log: Log) -> None:
    assert log.randomized is not None
    as_logged = twin.simulate(4000, seed=2)
    assert as_logged.randomized is not None
    assert as_logged.randomized.mean() == pytest.approx(log.randomized.mean(), abs=0.03)
    none, half = twin.simulate(2000, randomized=0.0, seed=2), twin.simulate(2000, randomized=0.5, seed=2)
    assert none.randomized is not None
    assert half.randomized is not None
    assert none.randomized.sum() == 0
    assert half.randomized.mean() == pytest.approx(0.5, abs=0.05)
    assert np.array_equal(half.click, twin.simulate(2000, randomized=0.5, seed=2).click)
    with pytest.raises(ConfigError, match=r"randomized=: input should be less than or equal to 1, not 2\.0"):
        twin.simulate(10, randomized=2.0)
    with pytest.raises(ConfigError, match="pages=: input should be greater than or equal to 1, not 0"):
        twin.simulate(0)


def test_the_usual_order_is_that_of_the_log(twin: Twin, log: Log) -> None:
    usual = log.keep(~log.randomized)
    orders = {tuple(usual.row[a:b]) for a, b in zip(usual.offsets[:-1], usual.offsets[1:], strict=True)}
    made = twin.simulate(300, randomized=0.0, seed=6)
    assert {tuple(made.row[a:b]) for a, b in zip(made.offsets[:-1], made.offsets[1:], strict=True)} <= orders


def test_shuffled_pages_keep_their_results_and_every_order_is_as_likely(log: Log) -> None:
    one = log.take(np.zeros(3000, np.int64))
    mixed = shuffled(one, np.ones(3000, bool), np.random.default_rng(0))
    width = one.sizes[0]
    rows = mixed.row.reshape(3000, width)
    assert np.array_equal(np.sort(rows, axis=1), np.sort(one.row.reshape(3000, width), axis=1))
    on_top = np.unique(rows[:, 0], return_counts=True)[1]
    assert np.all(np.abs(on_top - 3000 / width) < 5 * np.sqrt(3000 / width))


def test_features_tell_relevance_of_documents_never_shown(lists: Lists) -> None:
    log = unskew.simulate(lists, "position", pages=6000, randomized=0.2, seed=1, cutoff=5)
    made = unskew.twin(log, models=["pbm"])
    unseen = np.bincount(log.row, minlength=len(lists.labels)) == 0
    assert unseen.sum() > 100
    assert np.corrcoef(made.relevance[unseen], lists.labels[unseen])[0, 1] > 0.15


def test_grades_by_hand() -> None:
    spread = np.linspace(0, 1, 101)
    found = grades(spread)
    low, top = 0.05, 0.98
    for at in (0, 20, 50, 97):
        scaled = min(max((spread[at] - low) / (top - low), 0), 1)
        assert found[at] == round(float(np.log2(1 + 15 * scaled)))


def test_files_of_a_twin_can_be_learned_from(log: Log, lists: Lists, tmp_path: Path) -> None:
    unskew.write_log(log.take(np.arange(1500)), tmp_path / "log.parquet")
    places = {"log": tmp_path / "log.parquet", "out": tmp_path / "twin.parquet", "report": tmp_path / "page.html"}
    facts = twin_to(TwinArguments(**places, pages=800))
    assert facts.pages == 800
    truth = pq.read_table(tmp_path / "twin.truth.parquet")
    assert truth.column_names == ["query_id", "doc_id", "relevance", "label"]
    assert json.loads((tmp_path / "twin.twin.json").read_text())["log"]["pages"] == 1500
    assert "Click rate by rank" in (tmp_path / "page.html").read_text()
    again = unskew.read_log(tmp_path / "twin.parquet", lists)
    assert len(again) == 800


def test_the_order_of_rows_changes_nothing() -> None:
    rng = np.random.default_rng(2)
    pages, shown = 300, 3
    page = np.repeat(np.arange(pages), shown)
    query = rng.integers(9, size=pages)[page]
    rank = np.tile(np.arange(shown), pages) + 1
    document = (query + 2 * rank) % 7
    table = pa.table(
        {
            "page_id": [f"p{each}" for each in page],
            "query_id": [f"q{each}" for each in query],
            "doc_id": [f"d{each}" for each in document],
            "position": rank,
            "click": ((rng.random(len(page)) < 0.5 / rank) & (rank < shown)).astype(int),
        }
    )
    mixed = table.take(pa.array(rng.permutation(len(page))))
    made, again = (unskew.twin(each, models=["pbm"]) for each in (table, mixed))
    assert made.report() == again.report()
    assert np.array_equal(made.layout.lists.labels, again.layout.lists.labels)
