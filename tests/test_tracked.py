"""Tracked clicks as features: what serving looks up, zeros for the unknown, and a warning where they overlap."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import unskew
from unskew.clicks.lists.tracked import tracked_until, with_tracked
from unskew.clicks.tracking.features import FEATURES, feature_vector
from unskew.errors import ConfigError, DataError
from unskew.types import Lists, Log

RUN = 'out = "{out}"\n[data]\nlog = "{log}"\nlists = "lists.txt"\ntracked = "store"\n'
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
