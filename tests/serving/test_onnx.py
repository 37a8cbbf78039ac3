"""Saved networks as ONNX graphs: onnxruntime says what torch says, for every ranker and method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unskew
from tests.helpers.every_method import METHODS
from unskew.errors import RunError
from unskew.learning.rankers import MLP, DoublyRobustMLP, Linear, Ranker, Trees
from unskew.learning.scoring import onnx_graph
from unskew.learning.scoring.model import Model, build, load
from unskew.serving.scoring.models import Served
from unskew.tables.lists.scaling import fit_scaler
from unskew.types import Lists, Log
from unskew.workflows.runs.data import LogData

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def lists() -> Lists:
    return unskew.make_lists(queries=12, features=6, documents=(2, 12), seed=1)


@pytest.fixture(scope="module")
def log(lists: Lists) -> Log:
    return unskew.simulate(lists, "position", pages=300, seed=2, randomized=0.5)


def made(log: Log, method: str, ranker: Ranker, **settings: Any) -> Model:
    """Untrained, with weights and buffers moved off their starting values."""
    torch.manual_seed(3)
    config = METHODS[method](**settings)
    model = build(config, ranker, fit_scaler("standard", log.lists), log.lists.dim, LogData(log).context(config))
    with torch.no_grad():
        for parameter in model.ranker.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def answer(path: Path, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == ["features"]
    assert [each.name for each in session.get_outputs()] == ["outputs"]
    return np.asarray(session.run(["outputs"], {"features": rows})[0])


def by_torch(model: Model, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    model.ranker.eval()
    with torch.no_grad():
        return np.asarray(model.ranker(torch.from_numpy(rows)))


RANKERS: dict[str, Ranker] = {
    "linear": Linear(),
    "linear normed": Linear(input_norm=True),
    "mlp": MLP(sizes=(8,)),
    "deep": MLP(sizes=(16, 8, 4), input_norm=True, dropout=0.5, epsilon=1e-3),
    "no hidden layer": MLP(sizes=()),
    "relu": MLP(sizes=(8,), activation="relu", hidden_norm=False),
    "leaky relu": MLP(sizes=(8,), activation="leaky_relu"),
    "sigmoid": MLP(sizes=(8, 4), activation="sigmoid", hidden_norm=False),
    "tanh": MLP(sizes=(8,), activation="tanh"),
}


@pytest.mark.parametrize("kind", RANKERS)
def test_every_network_says_what_torch_says(kind: str, log: Log, lists: Lists, tmp_path: Path) -> None:
    model = made(log, "dla", RANKERS[kind])
    model.save(tmp_path / "model")
    rows = np.concatenate([model.prepared(lists), 1e4 * np.eye(6, dtype=np.float32), np.zeros((1, 6), np.float32)])
    expected = by_torch(model, rows)
    np.testing.assert_allclose(answer(tmp_path / "model/model.onnx", rows), expected, rtol=1e-5, atol=1e-5)
    assert expected[: len(lists.features)].std() > 0.05
    assert json.loads((tmp_path / "model/model.json").read_text())["no_onnx"] is None


@pytest.mark.filterwarnings("ignore:examination from rank")
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_has_its_outputs(method: str, log: Log, lists: Lists, tmp_path: Path) -> None:
    ranker = (
        DoublyRobustMLP(tracked=2, imputation=(5,), sizes=(4,)) if method == "approximated_dr" else MLP(sizes=(8,))
    )
    model = made(log, method, ranker)
    model.save(tmp_path / "model")
    rows = model.prepared(lists)
    expected = by_torch(model, rows)
    found = answer(tmp_path / "model/model.onnx", rows)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_run_tries_its_graph_on_documents_of_training(log: Log, tmp_path: Path) -> None:
    run = unskew.learn(log, "naive", out=tmp_path / "run", steps=5, threads=1)
    assert isinstance(run.model, Model)
    assert run.model.sample is not None
    np.testing.assert_array_equal(run.model.sample, run.model.prepared(log.lists)[: len(run.model.sample)])
    assert len(run.model.sample) == min(onnx_graph.CHECKED, len(log.lists.features))
    rows = run.model.prepared(log.lists)
    np.testing.assert_allclose(
        answer(tmp_path / "run/model.onnx", rows), by_torch(run.model, rows), rtol=1e-5, atol=1e-5
    )
    assert unskew.load(tmp_path / "run").score(log.lists) == pytest.approx(run.score(log.lists), abs=1e-6)


def test_a_model_is_saved_without_a_graph_that_differs(
    log: Log, lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(log, "dla", MLP(sizes=(8,)))
    rows = model.prepared(lists)
    spread = by_torch(model, rows).std(0).max()
    graph = onnx_graph.graph_of(model.ranker, rows[:2])
    onnx_graph.check_graph(graph, model.ranker, rows)
    with torch.no_grad():
        model.ranker[-1].bias.add_(3e-5 * spread)  # type: ignore[index,operator,union-attr]
    with pytest.raises(RunError, match="it differs from the model by"):
        onnx_graph.check_graph(graph, model.ranker, rows)
    monkeypatch.setattr(onnx_graph, "graph_of", lambda *_: graph)
    model.sample = rows
    with pytest.warns(UserWarning, match="it differs from the model by"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model/model.onnx").exists()
    assert "unskew export RUN --to onnx" in json.loads((tmp_path / "model/model.json").read_text())["no_onnx"]
    with pytest.raises(RunError, match=r"it was saved without a graph: .* it differs from the model by"):
        Served.load(tmp_path / "model")
    np.testing.assert_allclose(load(tmp_path / "model").score(lists), model.score(lists), atol=1e-6)


def test_what_has_no_graph_says_why(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(log, "dla", Trees()).save(tmp_path / "trees")
    monkeypatch.setattr(onnx_graph.onnx, "available", lambda: False)
    made(log, "vectorization", Trees()).save(tmp_path / "vectors")
    made(log, "dla", MLP(sizes=(8,))).save(tmp_path / "absent")
    missing = "pip install 'unskew"
    expected = {"trees": "own package", "vectors": missing, "absent": missing}
    for name, words in expected.items():
        assert words in json.loads((tmp_path / name / "model.json").read_text())["no_onnx"]
        assert not (tmp_path / name / "model.onnx").exists()
        load(tmp_path / name)


def test_a_damaged_graph_is_noticed(log: Log, tmp_path: Path) -> None:
    made(log, "dla", MLP(sizes=(8,))).save(tmp_path / "model")
    path = tmp_path / "model/model.onnx"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(RunError, match=r"model\.onnx: damaged"):
        load(tmp_path / "model")
