"""Tracked clicks as features: what serving looks up, zeros for the unknown, and a warning where they overlap."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import unskew
from unskew.errors import ConfigError, DataError
from unskew.terminal.main import app
from unskew.tracking.features import FEATURES, feature_vector, tracked_until, with_tracked
from unskew.types import Lists, Log

RUN = 'out = "{out}"\n[data]\nlog = "{log}"\nfeatures = "lists.txt"\ntracked = "store"\n'
RANKER = '[ranker]\nname = "mlp"\nsizes = [16, 8]\n'
REST = '[method]\nname = "naive"\nloss = "sigmoid"\n' + RANKER + "[training]\nsteps = {steps}\n"


@pytest.fixture(scope="module")
def lists() -> Lists:
    return unskew.make_lists(queries=30, features=4, documents=(12, 14), seed=1)


@pytest.fixture(scope="module")
def log(lists: Lists) -> Log:
    return unskew.Traffic(pages=6000, days=40, random_top=0.3, seed=0).draw(lists)


@pytest.fixture(scope="module")
def folder(log: Log, lists: Lists, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first thirty days tracked, the last ten to learn from."""
    place = tmp_path_factory.mktemp("tracked")
    start = log.columns["timestamp"][log.offsets[:-1]]
    late = start >= start.min().astype("datetime64[D]") + np.timedelta64(30, "D")
    unskew.write_log(log.take(~late), place / "early.parquet")
    unskew.write_log(log.take(late), place / "late.parquet")
    unskew.write_letor(lists, place / "lists.txt")
    unskew.track(place / "early.parquet", place / "store", refresh="all")
    return place


def test_features_are_what_serving_looks_up(folder: Path, lists: Lists) -> None:
    found = with_tracked(lists, folder / "store")
    assert found.dim == 4 + len(FEATURES)
    assert np.array_equal(found.features[:, :4], lists.features)
    look, names = unskew.Lookup(folder / "store"), lists.document_ids()
    queries = np.repeat(lists.query_ids, lists.sizes)
    shown = 0
    for row in range(0, len(names), 7):
        expected = feature_vector(look(queries[row], names[row]))
        np.testing.assert_allclose(found.features[row, 4:], expected, rtol=1e-6)
        shown += expected[FEATURES.index("month_log_displays")] > 0
    assert shown > 10


def test_what_was_never_shown_has_zeros(folder: Path, lists: Lists) -> None:
    other = unskew.make_lists(queries=40, features=4, documents=(12, 14), seed=1)
    found = with_tracked(other, folder / "store").features[:, 4:]
    unknown = ~np.isin(np.repeat(other.query_ids, other.sizes), lists.query_ids)
    assert unknown.any()
    assert not found[unknown].any()


def test_a_run_learns_from_tracked_clicks(folder: Path, lists: Lists) -> None:
    """Random first slots of the last days say which document is good; so do the clicks of the days before."""
    text = RUN.format(out="run", log="late.parquet") + REST.format(steps=150) + 'learn_from = "randomized"\n'
    (folder / "run.toml").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = unskew.learn(folder / "run.toml")
    tracked = with_tracked(lists, folder / "store")
    names = np.array([*"abcd", *FEATURES])
    often = tracked.features[:, names == "month_log_displays"][:, 0] > np.log(50)
    learned = run.score(tracked)
    agreement = np.corrcoef(learned[often], lists.labels[often])[0, 1]
    assert agreement > 0.5


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    """Two runs on random first results: one with tracked clicks, one on features alone."""
    for name, text in (("tracked", RUN), ("plain", RUN.replace('tracked = "store"\n', ""))):
        made = text.format(out=name, log="late.parquet") + REST.format(steps=40) + 'learn_from = "randomized"\n'
        (folder / f"{name}.toml").write_text(made)
        unskew.learn(folder / f"{name}.toml")
    return folder


def test_a_run_with_tracked_clicks_is_measured(trained: Path, lists: Lists) -> None:
    words = ["measure", str(trained / "tracked"), "--lists", str(trained / "lists.txt")]
    forgot = CliRunner().invoke(app, words)
    assert isinstance(forgot.exception, DataError)
    assert str(forgot.exception).endswith("give the store that it was trained with, --tracked")
    done = CliRunner().invoke(app, [*words, "--tracked", str(trained / "store"), "--json"])
    assert done.exit_code == 0, done.output
    scores = unskew.load(trained / "tracked").score(with_tracked(lists, trained / "store"))
    expected = unskew.measure_ranking(scores, lists, ["ndcg@10"]).means["ndcg@10"]
    assert json.loads(done.stdout)["ranking"]["means"]["ndcg@10"] == pytest.approx(expected, abs=1e-6)


def test_a_run_imputes_what_is_clicked_when_shown_first(trained: Path, lists: Lists, tmp_path: Path) -> None:
    words = ["impute", str(trained / "plain"), "--lists", str(trained / "lists.txt"), "--out"]
    done = CliRunner().invoke(app, [*words, str(tmp_path / "i.parquet"), "--first", "0.5", "0.1", "--json"])
    assert done.exit_code == 0, done.output
    table = pq.read_table(tmp_path / "i.parquet")
    model = unskew.load(trained / "plain")
    assert isinstance(model, unskew.Model)
    level = float(model.method.state_dict()["level"] - model.method.state_dict()["centre"])
    clicked = 1 / (1 + np.exp(-(model.score(lists) + level)))
    np.testing.assert_allclose(table["relevance"].to_numpy(), (clicked - 0.1) / 0.5, atol=1e-5)
    assert table["query_id"].to_pylist() == np.repeat(lists.query_ids, lists.sizes).tolist()
    told = unskew.judge(
        trained / "store", tmp_path / "j.csv", curves="em", imputation=tmp_path / "i.parquet", threads=1
    )
    assert told.pairs == len(lists.labels)
    again = CliRunner().invoke(app, [*words, str(tmp_path / "i.parquet")])
    assert "--force" in str(again.exception)
    (trained / "list.toml").write_text(
        (trained / "plain.toml")
        .read_text()
        .replace('loss = "sigmoid"', "")
        .replace('"plain"', '"list"')
        .replace('learn_from = "randomized"', "")
    )
    unskew.learn(trained / "list.toml")
    with pytest.raises(ConfigError, match="naive has no click probabilities; learn with a method that has one"):
        unskew.impute(trained / "list", trained / "lists.txt", tmp_path / "n.csv")


def test_traffic_from_the_shell(tmp_path: Path) -> None:
    words = ["traffic", "--lists", "synthetic", "--queries", "20", "--pages", "300", "--days", "3", "--json"]
    done = CliRunner().invoke(app, [*words, "--start", "2024-02-01", "--out", str(tmp_path / "feb.parquet")])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["pages"] == 300
    log = pq.read_table(tmp_path / "feb.parquet")
    assert {"timestamp", "display_time", "dwell_time", "randomized"} <= set(log.column_names)
    assert not [name for name in log.column_names if name.startswith("true_")]
    times = log["timestamp"].to_numpy()
    assert times.min() >= np.datetime64("2024-02-01")
    assert times.max() < np.datetime64("2024-02-04")
    more = [
        "--lists",
        told["train"],
        "--pages",
        "50",
        "--truth",
        "--seed",
        "1",
        "--out",
        str(tmp_path / "x.parquet"),
    ]
    assert CliRunner().invoke(app, ["traffic", *more]).exit_code == 0
    assert "true_examined" in pq.read_schema(tmp_path / "x.parquet").names
    wrong = CliRunner().invoke(app, [*words, "--start", "February", "--out", str(tmp_path / "y.parquet")])
    assert isinstance(wrong.exception, ConfigError)
    assert "start" in str(wrong.exception)


def test_clicks_of_the_same_time_are_warned_of(folder: Path) -> None:
    (folder / "overlap.toml").write_text(RUN.format(out="overlap", log="early.parquet") + REST.format(steps=1))
    with pytest.warns(
        UserWarning, match="store: has counted clicks until 2024-01-3.*a feature that has counted a click"
    ):
        unskew.learn(folder / "overlap.toml")
    assert tracked_until(folder / "store") > 0


def test_a_store_without_windows_is_refused(folder: Path, lists: Lists, tmp_path: Path) -> None:
    unskew.track(folder / "early.parquet", tmp_path / "store", refresh="none")
    with pytest.raises(DataError, match='no window was written yet; track with refresh="all"'):
        with_tracked(lists, tmp_path / "store")
    shards = RUN.format(out="run", log="late.parquet") + "shards = 2\n" + REST.format(steps=1)
    (tmp_path / "run.toml").write_text(shards)
    with pytest.raises(ConfigError, match=r"data.tracked joins a log in memory, not data.shards"):
        unskew.learn(tmp_path / "run.toml")
