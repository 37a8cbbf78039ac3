"""Proof by clicks: any ranking on any log, in memory or in files, whole or in parts, says the same."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import unskew
from unskew.errors import ConfigError, DataError
from unskew.logs.reader import StoredLog
from unskew.measuring import ClickEvidence, LoggedPages
from unskew.measuring.counterfactual.judge import some_queries
from unskew.names import Names
from unskew.pages.web import html
from unskew.tables.engine.engine import connect
from unskew.types import Array, Lists, Log
from unskew.workflows.inputs.rankings import ScoreTable, ShownRanking, document_order, open_ranking
from unskew.workflows.proofs import joined_log
from unskew.workflows.proofs.joined_log import join_log
from unskew.workflows.proofs.proof import known_examination, prove

ONE = {"threads": 1}


@dataclass(frozen=True)
class World:
    """A log of lists of twelve, eight shown, a tenth of the pages shuffled; and scores that know the labels."""

    folder: Path
    log: Log
    lists: Lists
    scores: Array

    def path(self, name: str) -> str:
        return str(self.folder / name)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("proof")
    lists = unskew.make_lists(queries=40, features=5, documents=12, seed=3)
    lists = replace(lists, query_ids=np.array([f"q{at}" for at in range(len(lists))], object))
    log = unskew.simulate(
        lists, unskew.behaviours.PositionBias(), pages=3000, cutoff=8, randomized=0.1, logger="random", seed=4
    )
    scores = lists.labels + np.random.default_rng(0).normal(0, 0.3, len(lists.labels))
    unskew.write_log(log, folder / "log.parquet")
    unskew.write_letor(lists, folder / "lists.txt")
    query = np.repeat(lists.query_ids, lists.sizes)
    table = pa.table({"query_id": query, "doc_id": lists.document_ids(), "score": scores})
    pq.write_table(table, folder / "scores.parquet")
    pacsv.write_csv(table, folder / "scores.csv")
    return World(folder, log, lists, scores)


def same(one: ClickEvidence, other: ClickEvidence) -> None:
    """Both say the same."""
    assert one.verdict == other.verdict
    assert one.missing_overlap == pytest.approx(other.missing_overlap)
    for first, second in zip(one.estimates, other.estimates, strict=True):
        assert (first.name, first.reason) == (second.name, second.reason)
        for name in ("new", "other", "difference", "effective", "overlap"):
            assert getattr(first, name) == pytest.approx(getattr(second, name)), (first.name, name)
        assert first.clusters == second.clusters


def test_a_log_in_memory_and_in_files_say_the_same(world: World) -> None:
    whole = prove(world.path("scores.parquet"), log=world.log)
    assert whole.verdict == "better"
    for source in ("scores.parquet", "scores.csv"):
        same(whole, prove(world.path(source), log=world.path("log.parquet"), **ONE))


def test_many_queries_fall_into_the_same_buckets_in_memory_and_in_files(tmp_path: Path) -> None:
    """Queries by name, more of them than examination has buckets: every number is the same to the last digits."""
    lists = unskew.make_lists(queries=150, features=4, documents=10, seed=5)
    lists = replace(lists, query_ids=np.array([f"query {at}" for at in range(len(lists))], object))
    log = unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=4000, randomized=0.1, seed=6)
    unskew.write_log(log, tmp_path / "log.parquet")
    ids = {"query_id": np.repeat(lists.query_ids, lists.sizes), "doc_id": lists.document_ids()}
    scores = pa.table(ids | {"score": lists.labels + np.random.default_rng(0).normal(0, 0.3, len(lists.labels))})
    here, there = (prove(scores, log=each, **ONE) for each in (log, tmp_path / "log.parquet"))
    for one, other in zip(here.estimates, there.estimates, strict=True):
        assert (one.name, one.clusters) == (other.name, other.clusters)
        assert (one.difference is None) == (other.difference is None)
        if one.difference is not None:
            assert one.difference == pytest.approx(other.difference, rel=1e-9)
        if one.interval is not None:
            assert one.interval == pytest.approx(other.interval, rel=1e-9)


def test_rows_in_any_order_and_pages_by_name(world: World) -> None:
    table = pq.read_table(world.path("log.parquet"))
    table = table.take(np.random.default_rng(1).permutation(len(table)))
    named = pa.array([f"page {value}" for value in table["page_id"].to_pylist()])
    table = table.set_column(table.column_names.index("page_id"), "page_id", named)
    pq.write_table(table, world.folder / "mixed.parquet")
    found = prove(world.path("scores.parquet"), log=world.path("mixed.parquet"), **ONE)
    same(prove(world.path("scores.parquet"), log=world.log), found)


def test_parts_of_a_log_add_up_to_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every page is in one part, queries stay whole, and results come in the order of their ranks."""
    with connect("duckdb", threads=1) as engine:
        log = StoredLog.open(world.path("log.parquet"))
        joined = join_log(engine, log, open_ranking(world.path("scores.parquet")), ShownRanking())
        monkeypatch.setattr(joined_log, "PART", 4_000)
        parts = list(joined.parts())
    assert len(parts) > 3
    assert sum(len(part.pages) for part in parts) == len(world.log)
    assert sum(part.pages.click.sum() for part in parts) == world.log.click.sum()
    queries = [set(part.pages.query.tolist()) for part in parts]
    assert sum(map(len, queries)) == len(set.union(*queries)) == len(world.lists)
    for part in parts:
        inside = np.diff(part.pages.page) == 0
        assert (np.diff(part.pages.position)[inside] > 0).all()
        assert part.pages.document.min() == 0


def test_one_ranking_against_another_is_against_the_other_way_round(world: World) -> None:
    backwards = {"query_id": np.repeat(world.lists.query_ids, world.lists.sizes)}
    backwards |= {"doc_id": world.lists.document_ids(), "score": -world.scores}
    there = prove(world.path("scores.parquet"), backwards, log=world.log)
    back = prove(backwards, world.path("scores.parquet"), log=world.path("log.parquet"), **ONE)
    assert (there.verdict, back.verdict) == ("better", "worse")
    for one, other in zip(there.estimates, back.estimates, strict=True):
        if one.difference is not None:
            assert one.difference == pytest.approx(-other.difference, abs=1e-9)


def test_visits_are_drawn_again_where_the_log_names_them(world: World) -> None:
    visit = np.repeat(np.arange(len(world.log)) // 3, world.log.sizes)
    log = replace(world.log, columns={**world.log.columns, "visit_id": visit})
    unskew.write_log(log, world.folder / "visits.parquet")
    found = prove(world.path("scores.parquet"), log=world.path("visits.parquet"), **ONE)
    same(prove(world.path("scores.parquet"), log=log), found)
    assert found["clicks"].clusters > 2 * len(world.lists)


def test_what_it_would_pick_and_nobody_saw_by_hand() -> None:
    """Two shown of three; the best by score is not on the page, so one of its first two is missing."""
    lists = Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.zeros(3, np.int16), np.array([0]))
    log = Log(lists, np.zeros(1, int), np.array([0, 2]), np.array([0, 1]), np.array([1, 2]), np.array([1, 0]))
    table = {"query_id": [0, 0, 0], "doc_id": [0, 1, 2], "score": [0.1, 0.2, 0.3]}
    assert prove(table, log=log).missing_overlap == pytest.approx(0.5)
    assert document_order(np.array([0.1, 0.2, np.nan]), lists).tolist() == [2, 1, 3]


def test_costly_estimates_look_at_some_whole_queries(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = LoggedPages.from_log(world.log)
    chosen = some_queries(pages, 500)
    sizes = np.bincount(world.log.query, chosen)
    assert set(np.unique(sizes / np.bincount(world.log.query))) == {0, 1}
    assert 500 <= chosen.sum() < 500 + np.bincount(world.log.query).max()
    whole = prove(world.path("scores.parquet"), log=world.log)
    monkeypatch.setattr("unskew.measuring.counterfactual.judge.MOST_PAGES", 500)
    some = prove(world.path("scores.parquet"), log=world.log)
    assert some["direct"].difference == whole["direct"].difference
    assert some["item-position"].pages == chosen.sum() < whole["item-position"].pages
    assert some["item-position"].clusters < whole["item-position"].clusters


# ---- what has no score ----


def without(world: World, documents: int) -> dict[str, Array]:
    """The scores but those of some documents that were shown."""
    kept = np.ones(len(world.scores), bool)
    kept[np.unique(world.log.row)[:documents]] = False
    query = np.repeat(world.lists.query_ids, world.lists.sizes)
    return {
        "query_id": query[kept],
        "doc_id": world.lists.document_ids()[kept],
        "score": world.scores[kept],
    }


def test_pages_without_a_score_are_left_out_and_told(world: World) -> None:
    table = without(world, 3)
    with pytest.warns(UserWarning, match=r"impressions have no score, so [\d,]+ of 3,000 pages"):
        whole = prove(table, log=world.log)
    with pytest.warns(UserWarning, match=r"log\.parquet: .* cannot be judged and are left out"):
        found = prove(table, log=world.path("log.parquet"), **ONE)
    assert found.pages < len(world.log)
    for one, other in zip(whole.estimates, found.estimates, strict=True):
        assert one.difference == pytest.approx(other.difference)


@pytest.mark.parametrize("in_files", [True, False])
def test_a_log_of_other_documents_is_refused(world: World, in_files: bool) -> None:
    table = without(world, 200)
    with pytest.raises(DataError, match="cannot be judged; give features or scores of every document"):
        prove(table, log=world.path("log.parquet") if in_files else world.log)


def test_scores_that_are_no_numbers_count_as_missing(world: World) -> None:
    table = without(world, 0)
    table["score"] = np.where(np.arange(len(table["score"])) < 300, np.nan, table["score"])
    with pytest.raises(DataError, match="have no score"):
        prove(table, log=world.log)
    with pytest.raises(DataError, match="have no score"):
        prove(table, log=world.path("log.parquet"), **ONE)


def test_two_scores_for_one_document_are_refused(world: World) -> None:
    table = {name: np.concatenate([each, each]) for name, each in without(world, 0).items()}
    for log in (world.log, world.path("log.parquet")):
        with pytest.raises(DataError, match="a document of a query has two scores"):
            prove(table, log=log)


# ---- rankings ----


def test_models_of_every_kind_rank_as_their_scores_do(world: World) -> None:
    """A run in memory, its folder, its trees in a text file, and the table that it predicts."""
    run = unskew.learn(world.log, "naive", ranker="trees", steps=5, engine="none", out=world.path("run"))
    unskew.export(run, "lightgbm", world.path("trees.txt"))
    unskew.predict(run, world.lists, out=world.path("predicted.parquet"))
    whole = prove(run, log=world.log)
    files = {"log": world.path("log.parquet"), "features": world.path("lists.txt"), **ONE}
    for source in ("run", "trees.txt", "predicted.parquet"):
        same(whole, prove(world.path(source), **files))


def test_trees_from_elsewhere_go_by_name(tmp_path: Path) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    x, options = rng.normal(size=(300, 2)), {"verbose": -1, "num_threads": 1}
    data = lightgbm.Dataset(x, x[:, 1], feature_name=["unit price", "stars"])
    booster = lightgbm.train(options, data, num_boost_round=3)
    booster.save_model(tmp_path / "m.txt")
    items = {"doc_id": np.arange(300), "stars": x[:, 1], "unit_price": x[:, 0]}
    lists = unskew.read_features(items, candidates={"query_id": np.zeros(300, int), "doc_id": np.arange(300)})
    scores = open_ranking(tmp_path / "m.txt").of_documents(lists)
    at = lists.document_ids().astype(int)
    assert scores == pytest.approx(booster.predict(x.astype(np.float32)[at], raw_score=True))
    other = unskew.read_features(
        {"doc_id": np.arange(3), "stars": x[:3, 0]}, candidates={"query_id": [0] * 3, "doc_id": range(3)}
    )
    with pytest.raises(DataError, match="its trees take unit_price, which these documents do not have"):
        open_ranking(tmp_path / "m.txt").of_documents(other)


def test_pages_that_clicks_cannot_judge_are_refused(world: World) -> None:
    for log, said in (
        (replace(world.log, click=np.zeros_like(world.log.click)), "nothing was clicked"),
        (world.log.keep(world.log.position == 1), "pages have one result each"),
    ):
        with pytest.raises(DataError, match=said):
            prove(world.path("scores.parquet"), log=log)


def test_what_is_no_ranking_is_told(world: World, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="this is a log, not a table of scores"):
        prove(world.path("log.parquet"), log=world.log)
    with pytest.raises(ConfigError, match="what was shown against what was shown"):
        prove("shown", log=world.log)
    with pytest.raises(ConfigError, match="no ranking can be made of int"):
        open_ranking(3)
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(DataError, match="not a LightGBM model"):
        open_ranking(tmp_path / "notes.txt")
    with pytest.raises(DataError, match="no such run or table of scores"):
        open_ranking(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="scores documents by their features: give features="):
        prove(unskew.learn(world.log, "naive", ranker="linear", steps=1), log=world.path("log.parquet"), **ONE)


def test_columns_under_other_names(world: World) -> None:
    table = without(world, 0)
    theirs = {"term": table["query_id"], "sku": table["doc_id"], "score": table["score"]}
    columns = {"query_id": "term", "doc_id": "sku"}
    same(prove(table, log=world.log), prove(theirs, log=world.log, names=Names(columns)))
    with pytest.raises(DataError, match=r"missing columns: query_id, doc_id.*columns="):
        ScoreTable(theirs, "theirs").of_documents(world.lists)


# ---- examination ----


def test_examination_from_a_file_a_run_and_numbers(world: World, tmp_path: Path) -> None:
    (tmp_path / "seen.json").write_text(json.dumps([2.0, 1.0, 0.5]))
    found = known_examination(tmp_path / "seen.json")
    assert found is not None
    assert (list(found.theta), found.source) == ([1.0, 0.5, 0.25], str(tmp_path / "seen.json"))
    run = unskew.learn(world.log, "dla", ranker="linear", steps=2)
    of_run = known_examination(run)
    assert of_run is not None
    assert of_run.source == "method dla"
    with pytest.raises(DataError, match="naive learns no examination by rank"):
        known_examination(unskew.learn(world.log, "naive", ranker="linear", steps=1))
    plain = replace(world.log, randomized=None)
    assert "(from numbers)" in prove(world.path("scores.parquet"), log=plain, propensities=[1, 0.5])["ips"].assumes
    swapped = prove(world.path("scores.parquet"), log=plain)["ips"].assumes
    assert "(from documents shown at several ranks)" in swapped
    assert "(from shuffled pages)" in prove(world.path("scores.parquet"), log=world.log)["ips"].assumes


# ---- measure ----


def test_measure_takes_a_log_alone(world: World) -> None:
    found = unskew.measure(world.path("scores.parquet"), log=world.log, out=world.path("proof.html"))
    assert set(found.to_dict()) == {"run", "evidence"}
    assert found.evidence.verdict == "better"
    page = (world.folder / "proof.html").read_text()
    assert "Verdict: better" in page
    assert "what was shown?" in page
    assert page.count("<svg") >= 1


def test_measure_takes_labels_and_clicks_at_once(world: World) -> None:
    found = unskew.measure(
        world.path("scores.parquet"), world.lists, log=world.log, against="shown", out=world.path("both")
    )
    assert {"ranking", "pages", "evidence"} <= set(found.to_dict())
    assert found.against.to_dict() == {"run": "shown"}
    assert found.ranking.means["ndcg@10"] > 0.9
    joined = unskew.report([world.folder / "both"])
    assert "Verdict: better" in [section.heading for section in joined.sections]
    assert "better" in html(joined)
    told = json.loads((world.folder / "both" / "measured.json").read_text())
    assert told["evidence"]["verdict"] == "better"


def test_measure_says_what_is_missing(world: World) -> None:
    with pytest.raises(ConfigError, match="give log=, or lists= with labels"):
        unskew.measure(world.path("scores.parquet"))
    with pytest.raises(ConfigError, match="outcomes= says nothing alone: give lists= too"):
        unskew.measure(world.path("scores.parquet"), log=world.log, outcomes=["sales"])
    with pytest.raises(ConfigError, match="has no order of whole lists"):
        unskew.measure("shown", world.lists)
    with pytest.raises(ConfigError, match="level=: input should be less than 1, not 95"):
        unskew.measure(world.path("scores.parquet"), log=world.log, level=95)
