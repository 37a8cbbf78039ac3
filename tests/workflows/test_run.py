"""`learn` from end to end: run folders, seeds, interrupts, kills, resuming, and what chooses the weights."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unskew
from tests.helpers.asked import settings
from tests.helpers.every_method import CALLED, METHODS
from unskew.errors import ConfigError, DataError, RunError, Unproven
from unskew.learning.fitting.loop import Progress
from unskew.learning.fitting.training import Training, decay_for
from unskew.learning.methods import Labeled
from unskew.learning.rankers import MLP
from unskew.learning.scoring.model import Model
from unskew.learning.scoring.onnx_file import available
from unskew.types import Lists, Log
from unskew.workflows.runs.data import split
from unskew.workflows.runs.folder import fingerprint, status
from unskew.workflows.runs.run import Run, prepare

torch.set_num_threads(1)

QUICK: dict[str, Any] = {"ranker": MLP(sizes=(8,)), "batch": 16, "learning_rate": 0.02, "validate_every": 5}


def make_log(seed: int = 0, pages: int = 3000) -> Log:
    lists = unskew.make_lists(queries=30, features=6, documents=(3, 8), seed=seed)
    return unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=pages, seed=seed, randomized=0.5)


@pytest.fixture(scope="module")
def log() -> Log:
    return make_log()


@pytest.fixture(scope="module")
def fresh() -> Lists:
    return unskew.make_lists(queries=12, features=6, documents=(3, 8), seed=9)


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def same(first: Run | Model, second: Run | Model) -> bool:
    """Whether two models agree in every bit."""
    models = [run.model if isinstance(run, Run) else run for run in (first, second)]
    states = [{**m.ranker.state_dict(), **m.method.state_dict()} for m in models]
    return states[0].keys() == states[1].keys() and all(torch.equal(v, states[1][k]) for k, v in states[0].items())


# ------------------------------------------------------------------------------------------- learning


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_something(log: Log, fresh: Lists, method: str) -> None:
    random = unskew.measure_ranking(np.random.default_rng(0).random(len(fresh.features)), fresh)
    model = unskew.learn(log, CALLED[method], steps=60, **QUICK)
    learned = unskew.measure_ranking(model.score(fresh), fresh)
    assert learned.means["ndcg@10"] > random.means["ndcg@10"] + 0.02


@cache
def honest(method: str) -> Run:
    """Learned from the log as it is."""
    return unskew.learn(make_log(), CALLED[method], steps=8, seed=3, **QUICK)


@pytest.mark.parametrize("method", METHODS)
def test_the_seed_decides_everything(log: Log, method: str) -> None:
    first = honest(method)
    torch.manual_seed(99)  # what the caller does with torch's random state is no matter
    assert same(first, unskew.learn(log, CALLED[method], steps=8, seed=3, **QUICK))
    assert not same(first, unskew.learn(log, CALLED[method], steps=8, seed=4, **QUICK))


def test_the_callers_random_state_is_left_alone(log: Log) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    unskew.learn(log, "regression_em", steps=2, **QUICK)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "labeled"])
def test_labels_are_never_read(log: Log, method: str) -> None:
    garbage = np.random.default_rng(1).integers(-7, 99, len(log.lists.labels)).astype(np.int16)
    poisoned = replace(log, lists=replace(log.lists, labels=garbage))
    assert same(honest(method), unskew.learn(poisoned, CALLED[method], steps=8, seed=3, **QUICK))


def test_the_upper_bound_does_read_labels(log: Log) -> None:
    turned = replace(log, lists=replace(log.lists, labels=4 - log.lists.labels))
    assert not same(honest("labeled"), unskew.learn(turned, "labeled", steps=8, seed=3, **QUICK))


def test_options_and_a_training_config_do_not_mix(log: Log) -> None:
    with pytest.raises(ConfigError, match="give training= or steps, not both"):
        unskew.learn(log, training=Training(), steps=3)
    with pytest.raises(ConfigError, match=r"step=: unknown key\. Did you mean steps\?"):
        unskew.learn(log, step=3)
    by_config = unskew.learn(log, "dla", ranker=MLP(sizes=(8,)), training=Training(steps=3, batch=16))
    assert same(by_config, unskew.learn(log, "dla", ranker=MLP(sizes=(8,)), steps=3, batch=16))


def test_an_unusable_device_is_a_config_error(log: Log) -> None:
    with pytest.raises(ConfigError, match=r"training\.device"):
        unskew.learn(log, steps=1, device="toaster", **QUICK)


# ------------------------------------------------------------------------------------------- what chooses weights


def test_a_tenth_of_the_queries_is_held_out_and_more_where_clicks_are_few(log: Log) -> None:
    data = split(log, None, settings("dla", "mlp", "standard", None, {}, None))
    assert data.held_out is not None
    assert data.validation is None
    assert len(np.unique(data.held_out.query)) == 7  # a quarter of 30, as a tenth has few clicks
    alone = settings("dla", "mlp", "standard", None, {}, None).model_copy(update={"engine": "none"})
    tenth = split(log, None, alone).held_out
    assert tenth is not None
    assert len(np.unique(tenth.query)) == 3
    assert not set(data.held_out.query) & set(data.train.query)
    assert len(data.train) + len(data.held_out) == len(log)
    other = split(log, None, settings("dla", "mlp", "standard", None, {"seed": 1}, None))
    assert other.held_out is not None
    assert set(other.held_out.query) != set(data.held_out.query)


def test_labels_choose_where_lists_are_given(log: Log, fresh: Lists, tmp_path: Path) -> None:
    seen: list[Progress] = []
    model = unskew.learn(
        log, "naive", validation=fresh, steps=20, out=tmp_path / "run", report=seen.append, **QUICK
    )
    validation = read(tmp_path / "run", "metrics.json")["validation"]
    ndcg = unskew.measure_ranking(model.score(fresh), fresh).means["ndcg@10"]
    assert validation["on"] == "labels"
    assert read(tmp_path / "run", "config.json")["training"]["validate_on"] == "labels"
    assert validation["best"] == pytest.approx(ndcg, abs=1e-6)
    assert validation["best"] == max(progress.metric or 0 for progress in seen)


def test_clicks_choose_where_a_log_is_given(log: Log, tmp_path: Path) -> None:
    held_out = make_log(seed=5)
    model = unskew.learn(log, "naive", validation=held_out, steps=10, out=tmp_path / "run", **QUICK)
    validation = read(tmp_path / "run", "metrics.json")["validation"]
    assert validation["on"] == "clicks"
    total = clicks = 0.0  # mean log softmax of the clicked results, written out page by page
    scores = model.model.correction(held_out.lists).astype(float)[held_out.row]
    for start, stop in zip(held_out.offsets[:-1], held_out.offsets[1:], strict=True):
        shown, clicked = scores[start:stop], held_out.click[start:stop] > 0
        total += (shown[clicked] - np.log(np.exp(shown).sum())).sum()
        clicks += clicked.sum()
    assert validation["best"] == pytest.approx(total / clicks, abs=1e-5)
    assert read(tmp_path / "run", "run.json")["data"]["pages"] == len(log)


def test_without_validation_clicks_choose_and_labels_for_the_upper_bound(log: Log, tmp_path: Path) -> None:
    unskew.learn(log, "dla", steps=5, out=tmp_path / "dla", **QUICK)
    unskew.learn(log, "labeled", steps=5, out=tmp_path / "labeled", **QUICK)
    chosen = {name: read(tmp_path / name, "metrics.json")["validation"] for name in ("dla", "labeled")}
    assert chosen["dla"]["on"] == "clicks"
    assert chosen["dla"]["best"] < 0
    assert chosen["labeled"]["on"] == "labels"
    assert 0 < chosen["labeled"]["best"] <= 1
    assert read(tmp_path / "labeled", "run.json")["data"]["queries"] == 27


def test_nothing_chooses_when_asked(log: Log, tmp_path: Path) -> None:
    unskew.learn(log, "dla", steps=5, validate_on="nothing", out=tmp_path / "run", **QUICK)
    assert read(tmp_path / "run", "metrics.json")["validation"] == {"on": "nothing", "best": None, "step": 0}
    assert read(tmp_path / "run", "run.json")["data"]["pages"] == len(log)


def test_validation_of_the_wrong_kind_is_refused(log: Log, fresh: Lists) -> None:
    with pytest.raises(ConfigError, match='validate_on = "labels" needs'):
        unskew.learn(log, validate_on="labels")
    with pytest.raises(ConfigError, match='validate_on = "clicks" needs'):
        unskew.learn(log, validation=fresh, validate_on="clicks")
    asked = settings("dla", "mlp", "standard", Training(steps=3), {}, fresh)
    assert asked.training.validate_on == "labels"


def test_a_log_of_one_query(log: Log) -> None:
    single = log.take(log.query == log.query[0])
    with pytest.warns(UserWarning, match="one query, so pages of it are held out"):
        assert unskew.learn(single, "naive", steps=2, **QUICK).metrics.validation.on == "clicks"
    assert isinstance(unskew.learn(single, "naive", steps=2, validate_on="nothing", **QUICK).model, Model)


@pytest.mark.parametrize("method", ["dla", Labeled(documents="all")])
def test_an_empty_log(log: Log, method: Any) -> None:
    empty = log.take(np.zeros(len(log), bool))
    with pytest.raises(DataError, match="no pages"):
        unskew.learn(empty, method, steps=2, **QUICK)
    with pytest.raises(DataError, match="no impressions"):
        unskew.learn(empty, method, steps=2, validate_on="nothing", **QUICK)


def test_validation_that_cannot_choose_is_refused(log: Log, fresh: Lists) -> None:
    quiet = replace(log, click=np.zeros_like(log.click))
    with pytest.raises(DataError, match="held-out pages have no click"):
        unskew.learn(log, "naive", validation=quiet, steps=2, **QUICK)
    bad = replace(fresh, labels=np.zeros_like(fresh.labels))
    with pytest.raises(DataError, match="no validation document has a grade above 0"):
        unskew.learn(log, "naive", validation=bad, steps=2, **QUICK)


def test_lists_of_another_width_are_refused_before_training(log: Log, tmp_path: Path) -> None:
    wide = unskew.make_lists(queries=3, features=7, documents=(3, 8))
    with pytest.raises(DataError, match="the test lists have 7 features, the log's lists 6"):
        unskew.learn(log, test=wide, steps=2, out=tmp_path / "run", **QUICK)
    with pytest.raises(DataError, match="7 features"):
        unskew.learn(log, validation=wide, steps=2, out=tmp_path / "run", **QUICK)
    assert list(tmp_path.iterdir()) == []  # nothing half-done


def test_a_filtered_log_is_warned_about(log: Log) -> None:
    clicked = np.add.reduceat(log.click, log.offsets[:-1]) > 0
    assert not clicked.all()
    with pytest.warns(UserWarning, match="every page of this log has a click; regression_em") as caught:
        unskew.learn(log.take(clicked), "regression_em", steps=1, **QUICK)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", Unproven)
        unskew.learn(log, "regression_em", steps=1, **QUICK)
        unskew.learn(log.take(clicked), "dla", steps=1, **QUICK)


# ------------------------------------------------------------------------------------------- run folders


def test_what_a_run_folder_holds(log: Log, fresh: Lists, tmp_path: Path) -> None:
    model = unskew.learn(log, "dla", steps=12, seed=6, test=fresh, out=tmp_path / "deep" / "run", **QUICK)
    folder = tmp_path / "deep" / "run"
    names = {"config.json", "run.json", "model.json", "weights.safetensors", "curve.jsonl", "metrics.json"}
    assert {path.name for path in folder.iterdir()} == names | ({"model.onnx"} if available() else set())
    assert [path.name for path in folder.parent.iterdir()] == ["run"]

    about = read(folder, "run.json")
    assert (about["status"], about["steps"], about["seed"]) == ("finished", 12, 6)
    assert about["versions"]["unskew"] == unskew.__version__
    assert about["versions"]["torch"] == torch.__version__
    assert len(about["data"]["fingerprint"]) == 32
    assert (
        about["data"]["queries"] == 25
    )  # of 30: held-out pages have as many clicks as chose how the score begins
    assert about["data"]["clicks"] < log.click.sum()

    config = read(folder, "config.json")
    assert config["method"]["name"] == "dla"
    assert config["ranker"]["sizes"] == [8]
    assert (
        config["training"]
        == Training(
            steps=12, batch=16, learning_rate=0.02, weight_decay=decay_for(25), validate_every=5, seed=6
        ).model_dump()
    )

    curve = [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]
    assert [point["step"] for point in curve] == [5, 10, 12]
    metrics = read(folder, "metrics.json")
    assert metrics["validation"]["best"] == max(point["metric"] for point in curve)
    assert metrics["propensity"][0] == 1
    assert metrics["test"]["means"]["ndcg@10"] == pytest.approx(
        unskew.measure_ranking(model.score(fresh), fresh).means["ndcg@10"]
    )
    assert same(model, unskew.load(folder))


def test_the_fingerprint_sees_one_click(log: Log) -> None:
    flipped = log.click.copy()
    flipped[1234] ^= 1
    assert fingerprint(log) == fingerprint(make_log())
    assert fingerprint(log) != fingerprint(replace(log, click=flipped))
    times = np.full(len(log.row), np.datetime64("2024-01-01T00:00:00", "us"))
    timed = replace(log, columns={**log.columns, "timestamp": times})
    later = replace(log, columns={**log.columns, "timestamp": times + np.timedelta64(1, "s")})
    assert len({fingerprint(log), fingerprint(timed), fingerprint(later)}) == 3
    features = log.lists.features.copy()
    features[3, 2] += 1
    assert fingerprint(log) != fingerprint(replace(log, lists=replace(log.lists, features=features)))
    relabelled = replace(log, lists=replace(log.lists, labels=log.lists.labels + 1))
    assert fingerprint(log) == fingerprint(relabelled)
    assert fingerprint(log, labels=True) != fingerprint(relabelled, labels=True)


def test_the_fingerprint_of_a_run_sees_every_click(log: Log) -> None:
    asked = settings("dla", "mlp", "standard", None, {}, None)
    held_out = split(log, None, asked).held_out
    assert held_out is not None
    page = int(np.flatnonzero(log.query == held_out.query[0])[0])
    flipped = log.click.copy()
    flipped[log.offsets[page]] ^= 1
    before = split(log, None, asked).fingerprint(labels=False)
    assert split(replace(log, click=flipped), None, asked).fingerprint(labels=False) != before


def test_a_finished_run_stays(log: Log, tmp_path: Path) -> None:
    unskew.learn(log, "naive", steps=2, out=tmp_path / "run", **QUICK)
    with pytest.raises(RunError, match=r"run exists and is never overwritten"):
        unskew.learn(log, "dla", steps=2, out=tmp_path / "run", **QUICK)
    assert unskew.load(tmp_path / "run").card.method["name"] == "naive"
    unskew.learn(log, "dla", steps=2, out=tmp_path / "run", force=True, **QUICK)
    assert unskew.load(tmp_path / "run").card.method["name"] == "dla"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_force_never_deletes_what_is_not_a_run(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("more")
    monkeypatch.chdir(tmp_path / "home")
    for out in (tmp_path / "home", tmp_path / "file", "."):
        with pytest.raises(RunError, match=r"is not ours .it has no run.json., so it is not overwritten"):
            unskew.learn(log, "naive", steps=2, out=out, force=True, **QUICK)
        with pytest.raises(RunError, match="never overwritten"):
            unskew.learn(log, "naive", steps=2, out=out, **QUICK)
    assert (tmp_path / "home" / "thesis.txt").read_text() == "years of work"
    (tmp_path / "new").mkdir()  # an empty folder is nobody's work
    unskew.learn(log, "naive", steps=2, out=tmp_path / "new", force=True, **QUICK)
    assert status(tmp_path / "new") == "finished"


def test_a_damaged_run_json(tmp_path: Path) -> None:
    assert status(tmp_path) is None
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run\.json: damaged"):
        status(tmp_path)


# ------------------------------------------------------------------------------------------- interrupted, killed


def interrupt_at(step: int) -> Any:
    """A report that presses Ctrl-C."""

    def report(progress: Progress) -> None:
        if progress.step == step:
            signal.raise_signal(signal.SIGINT)

    return report


@pytest.mark.parametrize("method", ["dla", "regression_em", "pair_debias"])
def test_an_interrupted_run_is_usable_and_goes_on(log: Log, tmp_path: Path, method: str) -> None:
    whole = unskew.learn(log, CALLED[method], steps=25, out=tmp_path / "whole", **QUICK)

    stopped = unskew.learn(log, CALLED[method], steps=25, out=tmp_path / "run", report=interrupt_at(10), **QUICK)
    assert status(tmp_path / "run") == "interrupted"
    assert read(tmp_path / "run", "run.json")["steps"] == 10
    assert same(stopped, unskew.load(tmp_path / "run"))
    assert not same(stopped, whole)

    seen: list[int] = []
    resumed = unskew.learn(
        log,
        CALLED[method],
        steps=25,
        out=tmp_path / "run",
        report=lambda progress: seen.append(progress.step),
        **QUICK,
    )
    assert seen == [15, 20, 25]
    assert status(tmp_path / "run") == "finished"
    assert same(resumed, whole)
    assert same(unskew.load(tmp_path / "run"), whole)
    curves = [
        [json.loads(line)["loss"] for line in (tmp_path / name / "curve.jsonl").read_text().splitlines()]
        for name in ("whole", "run")
    ]
    assert len(curves[0]) == 5
    assert curves[0] == curves[1]
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "whole"]


def test_an_interrupted_run_may_be_interrupted_again(log: Log, tmp_path: Path) -> None:
    whole = unskew.learn(log, "dla", steps=20, **QUICK)
    for step in (5, 10, 15):
        unskew.learn(log, "dla", steps=20, out=tmp_path / "run", report=interrupt_at(step), **QUICK)
        assert read(tmp_path / "run", "run.json")["steps"] == step
    assert same(unskew.learn(log, "dla", steps=20, out=tmp_path / "run", **QUICK), whole)


def test_resuming_something_else_is_refused(log: Log, fresh: Lists, tmp_path: Path) -> None:
    out = tmp_path / "run"
    stopped = unskew.learn(log, "dla", steps=20, out=out, report=interrupt_at(5), **QUICK)
    flipped = log.click.copy()
    flipped[::3] ^= 1
    with pytest.raises(RunError, match=r"begun with another data.*; force=True starts afresh"):
        unskew.learn(replace(log, click=flipped), "dla", steps=20, out=out, **QUICK)
    with pytest.raises(RunError, match="begun with another method"):
        unskew.learn(log, "naive", steps=20, out=out, **QUICK)
    with pytest.raises(RunError, match="another ranker"):
        unskew.learn(log, "dla", steps=20, out=out, **QUICK | {"ranker": MLP(sizes=(9,))})
    with pytest.raises(RunError, match="another data, validate_on"):
        unskew.learn(log, "dla", validation=fresh, steps=20, out=out, **QUICK)
    assert status(out) == "interrupted"
    assert same(unskew.load(out), stopped)
    assert unskew.learn(log, "naive", steps=5, out=out, force=True, **QUICK).model.card.method["name"] == "naive"


def test_a_damaged_checkpoint_is_named(log: Log, tmp_path: Path) -> None:
    unskew.learn(log, "dla", steps=20, out=tmp_path / "run", report=interrupt_at(5), **QUICK)
    path = tmp_path / "run" / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RunError, match=r"checkpoint\.safetensors: damaged .*force=True"):
        unskew.learn(log, "dla", steps=20, out=tmp_path / "run", **QUICK)


KILLED = """
import sys, time
import torch
import unskew
from unskew.learning.rankers import MLP
torch.set_num_threads(1)
lists = unskew.make_lists(queries=30, features=6, documents=(3, 8), seed=0)
log = unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=3000, seed=0, randomized=0.5)

def report(progress):
    print(progress.step, flush=True)
    if progress.step == 15:
        time.sleep(600)  # the parent kills us here, between two checkpoints

unskew.learn(log, "dla", ranker=MLP(sizes=(8,)), steps=30, batch=16, learning_rate=0.02, validate_every=5,
             checkpoint_every=4, out=sys.argv[1], report=report)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_last_checkpoint(log: Log, tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(out)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline().strip() for _ in range(3)]
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert lines == ["5", "10", "15"]
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "run.partial").is_dir()
    assert not (tmp_path / "run").exists()  # nothing half-done under its name
    with pytest.raises(RunError, match="there is no such run"):
        unskew.load(out)

    seen: list[int] = []
    options = QUICK | {"checkpoint_every": 4, "steps": 30}
    resumed = unskew.learn(log, "dla", out=out, report=lambda progress: seen.append(progress.step), **options)
    assert seen == [15, 20, 25, 30]  # from step 12 on
    assert same(resumed, unskew.learn(log, "dla", **options))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_that_failed_after_training_is_not_trained_again(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    out, options = tmp_path / "run", QUICK | {"steps": 10}
    with monkeypatch.context() as patch:
        patch.setattr("unskew.workflows.runs.run.write_run", fail)
        with pytest.raises(OSError, match="disk full"):
            unskew.learn(log, "dla", out=out, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["run.partial"]

    seen: list[Progress] = []
    written = unskew.learn(log, "dla", out=out, report=seen.append, **options)
    assert seen == []
    assert status(out) == "finished"
    assert same(written, unskew.learn(log, "dla", **options))


def test_only_the_published_scaling_looks_at_other_lists() -> None:
    """`ultra` takes its range over all splits, as published; the others are fitted on training lists alone."""
    train, test = unskew.make_lists(30, features=6, seed=1), unskew.make_lists(30, features=6, seed=2)
    wide = replace(test, features=test.features * 10)
    log = unskew.simulate(train, "position", pages=300, seed=0)
    for scaling, alike in (("standard", True), ("minmax", True), ("ultra", False)):
        asked = settings("naive", "linear", scaling, None, {"steps": 1, "validate_on": "nothing"}, None)
        near, far = (
            prepare(asked, split(log, None, asked), lists).model.scaler.arrays()  # type: ignore[attr-defined]
            for lists in (test, wide)
        )
        assert all(np.array_equal(near[name], far[name]) for name in near) == alike
