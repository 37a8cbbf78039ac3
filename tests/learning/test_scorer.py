"""What serving needs and nothing else: no training code, trees without torch; and propensities from files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import unskew
from tests.helpers.every_method import CALLED, METHODS
from unskew.errors import ConfigError, DataError, RunError
from unskew.examination import Examination
from unskew.learning.methods import DLA, IPW, DoublyRobust, EDot, EInter, MethodConfig
from unskew.learning.rankers import MLP, Trees
from unskew.learning.scoring.model import Model, load
from unskew.learning.scoring.scorer import TreeScorer, load_scorer
from unskew.types import Lists, Log

torch.set_num_threads(1)
SMALL = Trees(rounds=4, leaves=4, min_data_in_leaf=2)


@pytest.fixture(scope="module")
def lists() -> Lists:
    return unskew.make_lists(queries=25, features=5, documents=(3, 9), seed=1)


@pytest.fixture(scope="module")
def log(lists: Lists) -> Log:
    return unskew.simulate(lists, "position", pages=2000, seed=2, randomized=0.3, truth=True)


def python(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("method", [DLA(), EDot(dimension=3), EInter(dimension=3)], ids=lambda config: config.name)
def test_trees_score_alike_without_torch(method: MethodConfig, log: Log, lists: Lists, tmp_path: Path) -> None:
    run = unskew.learn(log, method, ranker=SMALL, threads=1)
    run.save(tmp_path / "model")
    light = load_scorer(tmp_path / "model")
    assert isinstance(light, TreeScorer)
    expected = run.score(lists)
    shift = expected - light.score(lists)  # a constant added to every score changes no ranking
    assert np.ptp(shift) == pytest.approx(0, abs=1e-5)


def test_models_are_loaded_without_training_code_and_trees_without_torch(
    log: Log, lists: Lists, tmp_path: Path
) -> None:
    methods = {"table": DLA(), "vectors": EDot(dimension=3)}
    for name, method in methods.items():
        unskew.learn(log, method, ranker=SMALL, threads=1).save(tmp_path / name)
    unskew.learn(log, "vectorization", ranker=MLP(sizes=(4,)), steps=3, threads=1).save(tmp_path / "network")
    np.save(tmp_path / "features.npy", lists.features)
    code = (
        "import sys, numpy as np; from unskew.learning.scoring.scorer import load_scorer\n"
        "features, best = np.load(sys.argv[1]), [load_scorer(path).score for path in sys.argv[2:4]]\n"
        "best = [int(score(features).argmax()) for score in best]\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
        "load_scorer(sys.argv[4])\n"
        "heavy = ('unskew.learning.fitting', 'unskew.workflows')\n"
        "print([*best, *(name for name in sys.modules if name.startswith(heavy))])"
    )
    done = python(code, tmp_path / "features.npy", *(tmp_path / name for name in (*methods, "network")))
    assert done.returncode == 0, done.stderr
    best = [int(load_scorer(tmp_path / name).score(lists.features).argmax()) for name in methods]
    assert done.stdout.strip() == str(best)


@pytest.mark.parametrize("name", METHODS)
def test_weights_of_the_score_say_what_the_score_says(name: str, log: Log) -> None:
    """Where a score is said to be linear in the relevance outputs, it is."""
    run = unskew.learn(log, CALLED[name], ranker=MLP(sizes=(4,)), steps=3, threads=1, validate_on="nothing")
    assert isinstance(run.model, Model)
    method = run.model.method
    weights = method.score_weights()
    if weights is None:
        assert name in ("vectorization", "approximated_dr", "doubly_robust")
        return
    relevance = torch.randn(2, 3, method.outputs)
    scores = method.score(relevance, torch.ones(2, 3, dtype=torch.bool))
    linear = relevance @ weights
    assert torch.allclose(scores - scores[0, 0], linear - linear[0, 0], atol=1e-5)


def test_a_run_scores_as_its_model_does(log: Log, lists: Lists, tmp_path: Path) -> None:
    run = unskew.learn(log, ranker=MLP(sizes=(4,)), steps=4, threads=1, test=lists, out=tmp_path / "run")
    assert isinstance(run.model, Model)
    assert run.model.card.method["name"] == "dla"
    assert (run.folder, run.fit.status) == (tmp_path / "run", "finished")
    assert set(run.metrics.to_dict()) == {"validation", "standing", "propensity", "curves", "test", "engine"}
    assert np.array_equal(run.score(lists), run.model.score(lists))
    assert np.array_equal(run.rank(lists.features[:5]), run.model.rank(lists.features[:5]))
    assert np.array_equal(load(tmp_path / "run").score(lists), run.score(lists))
    with pytest.raises(RunError, match="never overwritten"):
        unskew.learn(log, out=tmp_path / "run", steps=1)


# ------------------------------------------------------------------------------------- propensities from a file


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.json", "[0.8, 0.4, 0.2]"),
        ("p.json", '{"examination": [0.8, 0.4, 0.2], "method": "pivot"}'),
        ("p.csv", "position,examination\n2,0.4\n1,0.8\n3,0.2\n"),
    ],
)
@pytest.mark.parametrize("config", [IPW, DoublyRobust])
def test_propensities_come_from_a_file(
    name: str, text: str, config: type[IPW | DoublyRobust], log: Log, lists: Lists, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    assert Examination.read(tmp_path / name).theta == (1.0, 0.5, 0.25)
    asked = {"ranker": MLP(sizes=(4,)), "steps": 3, "threads": 1}
    run = unskew.learn(log, config(propensity=str(tmp_path / name)), **asked)  # type: ignore[arg-type]
    found = run.propensity()
    assert found is not None
    assert found[:3].tolist() == pytest.approx([1, 0.5, 0.25])
    given = unskew.learn(log, config(propensity=(0.8, 0.4, 0.2)), **asked)  # type: ignore[arg-type]
    assert np.array_equal(run.score(lists), given.score(lists))
    run.save(tmp_path / "model")
    (tmp_path / name).unlink()  # the model keeps them
    assert np.array_equal(load(tmp_path / "model").score(lists), run.score(lists))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.json", "[1.0, 0.0]", "positive number per rank"),
        ("p.json", "{}", "'examination' is missing"),
        ("p.json", "nonsense", "no propensities"),
        ("p.json", "[[1.0]]", "positive number per rank"),
        ("p.csv", "position,examination\n2,0.5\n", "positions must run 1, 2, 3"),
        ("p.csv", "rank,theta\n1,0.5\n", "'position' is missing"),
    ],
)
def test_a_file_without_propensities_is_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises((DataError, ConfigError), match=message):
        Examination.read(tmp_path / name)
    with pytest.raises(DataError, match=r"gone\.json: cannot be read"):
        Examination.read(tmp_path / "gone.json")
