"""What is served scores as what was learned, without torch, whatever was learned."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch

import unskew
from tests.helpers.every_method import METHODS
from unskew.errors import RunError
from unskew.learning.methods import PACKAGES, Context
from unskew.learning.rankers import MLP, Linear, Ranker, Trees
from unskew.learning.rankers.networks import DoublyRobustMLP
from unskew.learning.rankers.trees import tree_rankers
from unskew.learning.scoring import onnx_graph
from unskew.learning.scoring.model import Model, build, load
from unskew.serving.scoring.models import Served
from unskew.tables.lists.scaling import SCALINGS, fit_scaler
from unskew.types import Array, Lists

torch.set_num_threads(1)
RANKERS: dict[str, Ranker] = {
    "linear": Linear(),
    "mlp": MLP(sizes=(6, 4), input_norm=True, epsilon=1e-3),
    "trees": Trees(beside=(3,)),
    "apart": DoublyRobustMLP(tracked=2, imputation=(4,), sizes=(3,)),
    "relu": MLP(sizes=(6, 4), activation="relu", hidden_norm=False),
    "leaky relu": MLP(sizes=(6,), activation="leaky_relu"),
    "sigmoid": MLP(sizes=(6,), activation="sigmoid", hidden_norm=False),
    "tanh": MLP(sizes=(6,), activation="tanh"),
}
SMALL = RANKERS["mlp"]
KNOWN = {"propensity": [1.0, 0.5, 0.3]}


@pytest.fixture(scope="module")
def lists() -> Lists:
    return unskew.make_lists(queries=12, features=5, documents=(3, 9), seed=1)


def made(lists: Lists, method: str, ranker: Ranker = SMALL, scaling: str = "standard", **options: Any) -> Model:
    """A model whose weights are all drawn, as no training leaves them; trees of drawn targets."""
    chosen = METHODS[method](name=method, **options)
    torch.manual_seed(3)
    model = build(chosen, ranker, fit_scaler(scaling, lists), lists.dim, Context(positions=6))
    drawn = torch.Generator().manual_seed(5)
    for weights in [*model.ranker.parameters(), *model.method.parameters()]:
        weights.data += 0.3 * torch.randn(weights.shape, generator=drawn)
    for name, value in model.method.named_buffers():
        if name in ("centre", "common.mean", "common.solved", "common.spread", "ready"):
            value.copy_(torch.rand(value.shape, generator=drawn) if name != "ready" else torch.tensor(1.0))
    for trees in tree_rankers(model.ranker):
        grow(trees, model.prepared(lists))
    return model


def grow(trees: Any, rows: Array) -> None:
    """Three trees for each output."""
    drawn = np.random.default_rng(4)
    told = {"num_leaves": 4, "min_data_in_leaf": 2, "verbosity": -1, "num_threads": 1, "boost_from_average": False}
    for output in range(len(trees.start)):
        data = lightgbm.Dataset(rows, rows[:, output % 3] * rows[:, 1] + drawn.normal(size=len(rows)))
        trees.boosters.append(lightgbm.train(told, data, num_boost_round=3))
        trees.kept[output] = 3 - output % 2


def parity(model: Model, lists: Lists, folder: Path) -> Served:
    """Save, open both ways, and compare; a constant added to every score changes no ranking."""
    model.save(folder)
    served, by_torch = Served.load(folder), load(folder)
    found, expected = served.score(lists), by_torch.score(lists)
    spread = np.ptp(expected)
    assert spread > 1e-3
    assert np.ptp(found - expected) < 1e-5 * spread
    assert served.rank(lists).tolist() == by_torch.rank(lists).tolist()
    return served


EVERY = [*itertools.product(sorted(METHODS), ("linear", "mlp", "trees")), ("approximated_dr", "apart")]


@pytest.mark.parametrize(("method", "ranker"), EVERY)
def test_every_method_on_every_ranker(method: str, ranker: str, lists: Lists, tmp_path: Path) -> None:
    options = KNOWN if method in ("ipw", "doubly_robust") else {}
    served = parity(made(lists, method, RANKERS[ranker], **options), lists, tmp_path / "model")
    engines = {"trees": {"lightgbm", "lightgbm and onnxruntime"}}
    assert served.engine in engines.get(ranker, {"onnxruntime"})


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a likely vector by a tower": ("vectorization", {"bias": "tower"}),
    "a likely vector of pages": ("vectorization", {"page_size": 3}),
    "pca": ("vectorization_projected", {"project": "pca"}),
    "labels": ("vectorization_projected", {"project": "labels"}),
    "published": ("approximated_dr", {"combination": "published", "centred": False}),
    "two towers": ("dla", {"bias": "tower"}),
    "edot": ("edot", {"dimension": 3}),
}


@pytest.mark.parametrize(("name", "ranker"), [*itertools.product(VARIANTS, ("mlp", "trees"))])
def test_every_variant_of_a_score(name: str, ranker: str, lists: Lists, tmp_path: Path) -> None:
    method, options = VARIANTS[name]
    parity(made(lists, method, RANKERS[ranker], **options), lists, tmp_path / "model")


def test_a_score_that_only_its_method_knows_is_refused(lists: Lists, tmp_path: Path) -> None:
    made(lists, "vectorization_projected", project="factor").save(tmp_path / "model")
    with pytest.raises(RunError, match="projections:Projected are not known without torch"):
        Served.load(tmp_path / "model")
    assert np.isfinite(load(tmp_path / "model").score(lists)).all()


@pytest.mark.parametrize("scaling", [*SCALINGS])
def test_every_scaling(scaling: str, lists: Lists, tmp_path: Path) -> None:
    parity(made(lists, "naive", scaling=scaling), lists, tmp_path / "model")


@pytest.mark.parametrize("method", sorted(PACKAGES))
def test_every_package(method: str, lists: Lists, tmp_path: Path) -> None:
    log = unskew.simulate(lists, "position", pages=60, seed=2)
    chosen = PACKAGES[method](name=method, rounds=3, leaves=3, min_data_in_leaf=1)
    learned = unskew.learn(log, chosen, out=tmp_path / "run", threads=1)
    served = Served.load(tmp_path / "run")
    assert served.engine == PACKAGES[method].package
    np.testing.assert_allclose(served.score(lists), learned.score(lists), rtol=1e-6)
    how, parts = served.why(lists)
    assert how == "shapley"
    assert np.ptp(served.score(lists) - parts.sum(1)) < 1e-5


def test_categories_and_gaps_by_name(tmp_path: Path) -> None:
    items = {
        "doc_id": [f"d{at}" for at in range(12)],
        "price": [None if at % 5 == 0 else float(at % 7) for at in range(12)],
        "brand": [None if at % 4 == 0 else "abc"[at % 3] for at in range(12)],
    }
    pacsv.write_csv(pa.table(items), tmp_path / "items.csv")
    shown = [
        (page, f"q{page % 5}", f"d{(page + 2 * rank) % 12}", rank + 1) for page in range(40) for rank in range(4)
    ]
    columns = dict(zip(("page_id", "query_id", "doc_id", "position"), zip(*shown, strict=True), strict=True))
    clicks = [int((page + rank) % 3 == 0) for page, _, _, rank in shown]
    pq.write_table(pa.table({**columns, "click": clicks}), tmp_path / "log.parquet")
    known = unskew.read_features(tmp_path / "items.csv", candidates=tmp_path / "log.parquet")
    log = unskew.read_log(tmp_path / "log.parquet", known)
    learned = unskew.learn(
        log, "dla", ranker=MLP(sizes=(4,)), steps=5, threads=1, out=tmp_path / "run", engine="none"
    )
    served = Served.load(tmp_path / "run")
    assert served.names == ("price", "brand")
    asked = {"price": [3.0, None, 900.0], "brand": ["b", "zzz", None]}
    np.testing.assert_allclose(served.score(asked), learned.score(asked), atol=1e-5)
    how, parts = served.why(known)
    assert (how, parts.shape) == ("gradient x input", (len(known.features), 2))


def test_before_a_base_model_knows_the_mean_is_the_base(lists: Lists, tmp_path: Path) -> None:
    model = made(lists, "vectorization")
    model.method.ready.fill_(0.0)  # type: ignore[operator, union-attr]
    parity(model, lists, tmp_path / "model")


def test_an_unseen_document_has_the_imputation(lists: Lists, tmp_path: Path) -> None:
    model = made(lists, "approximated_dr", RANKERS["apart"])
    served = parity(model, lists, tmp_path / "model")
    seen = np.arange(len(lists.features)) % 2 == 0
    found, outputs = served.score(lists, seen=seen), served.run(served.prepared(lists))
    centre, levels = (model.numbers()[f"method.{name}"].tolist() for name in ("centre", "levels"))
    for at, (i, a, z) in enumerate(outputs.tolist()):
        imputed, affine = (
            1 / (1 + math.exp(-(output - centre[part] + levels[part]))) for part, output in enumerate((i, a))
        )
        expected = affine + math.tanh(z) * (imputed - affine) if seen[at] else imputed
        assert found[at] == pytest.approx(expected, rel=1e-5)


# ---- reasons


def scored(model: Model, rows: torch.Tensor) -> torch.Tensor:
    """The score of one list by torch, as a function of its documents: base vectors held."""
    relevance, where = model.ranker(rows).unsqueeze(0), torch.ones(1, len(rows)) > 0
    method: Any = model.method
    if model.card.method["name"] == "vectorization":
        base = method.base(relevance, where).detach()
        return torch.as_tensor((relevance[0, :, : base.shape[1]] * base).sum(-1))
    if model.card.method["name"] == "approximated_dr":  # its estimates are detached
        y = (relevance[0, :, :2] - method.centre + method.levels).sigmoid()
        return y[:, 1] + relevance[0, :, 2].tanh() * (y[:, 0] - y[:, 1])
    return torch.as_tensor(method.score(relevance, where)[0])


REASONS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "linear": ("naive", "linear", {}, "weight x input"),
    "mlp": ("dla", "mlp", {}, "gradient x input"),
    **{kind: ("naive", kind, {}, "gradient x input") for kind in ("relu", "leaky relu", "sigmoid", "tanh")},
    "edot": ("edot", "mlp", {"dimension": 2}, "gradient x input"),
    "vectors": ("vectorization", "mlp", {}, "gradient x input, base vector held"),
    "straight vectors": ("vectorization", "linear", {}, "weight x input, base vector held"),
    "doubly robust": ("doubly_robust", "linear", KNOWN, "gradient x input"),
    "bent and straight": ("doubly_robust", "linear", {**KNOWN, "regression": ()}, "gradient x input"),
    "approximated": ("approximated_dr", "apart", {}, "gradient x input"),
}


@pytest.mark.parametrize("name", REASONS)
def test_reasons_are_gradients_of_torch_times_inputs(name: str, lists: Lists, tmp_path: Path) -> None:
    method, ranker, options, told = REASONS[name]
    model = made(lists, method, RANKERS[ranker], **options)
    model.save(tmp_path / "model")
    one = lists.take(slice(0, 1))
    how, found = Served.load(tmp_path / "model").why(one)
    assert how == told
    rows = torch.tensor(model.prepared(one), requires_grad=True)
    scored(model, rows).sum().backward()
    assert rows.grad is not None
    expected = rows.grad * rows.detach()
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)
    assert np.abs(found).max() > 1e-3


EXACT: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "linear": ("naive", "linear", {}, "weight x input"),
    "straight vectors": ("vectorization", "linear", {}, "weight x input, base vector held"),
    "trees": ("dla", "trees", {}, "shapley"),
    "trees and a network": ("lbd", "trees", {}, "shapley"),
    "trees of vectors": ("vectorization", "trees", {}, "shapley, base vector held"),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_reasons_add_up_to_scores(name: str, lists: Lists, tmp_path: Path) -> None:
    method, ranker, options, told = EXACT[name]
    made(lists, method, RANKERS[ranker], **options).save(tmp_path / "model")
    served = Served.load(tmp_path / "model")
    how, parts = served.why(lists)
    assert how == told
    rest: Array = served.score(lists) - parts.sum(1)
    within = [np.ptp(each) for each in np.split(rest, lists.offsets[1:-1])]
    assert max(within) < 1e-4  # a constant of each list
    assert np.ptp(parts) > 1e-3


def test_reasons_of_trees_whose_score_is_bent_say_so(lists: Lists, tmp_path: Path) -> None:
    model = made(lists, "doubly_robust", RANKERS["trees"], **KNOWN)
    model.save(tmp_path / "model")
    how, parts = Served.load(tmp_path / "model").why(lists)
    assert how == "shapley x slope and gradient x input"
    assert np.isfinite(parts).all()


def test_an_unseen_document_has_reasons_of_the_imputation(lists: Lists, tmp_path: Path) -> None:
    made(lists, "approximated_dr", RANKERS["apart"]).save(tmp_path / "model")
    served = Served.load(tmp_path / "model")
    _, parts = served.why(lists, seen=np.zeros(len(lists.features), bool))
    assert not parts[:, 3:].any()  # tracked clicks have no part in it
    assert np.abs(parts[:, :3]).max() > 1e-3


# ---- what runs


def test_without_onnx_a_network_is_refused_and_says_what_to_do(
    lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(lists, "dla")
    model.save(tmp_path / "whole")
    monkeypatch.setattr(onnx_graph.onnx, "available", lambda: False)
    model.save(tmp_path / "bare")
    with pytest.raises(RunError, match=r"without a graph: the packages onnx .* --to onnx` writes it"):
        Served.load(tmp_path / "bare")
    np.testing.assert_allclose(load(tmp_path / "bare").score(lists), model.score(lists), atol=1e-6)
    monkeypatch.setattr("unskew.serving.scoring.networks.available", lambda: False)
    with pytest.raises(RunError, match=r"takes onnx and onnxruntime; run: pip install 'unskew\[serve\]'"):
        Served.load(tmp_path / "whole")


def test_a_graph_is_run_where_there_is_one(lists: Lists, tmp_path: Path) -> None:
    model = made(lists, "naive")
    model.save(tmp_path / "model")
    served = Served.load(tmp_path / "model")
    assert served.engine == "onnxruntime"
    np.testing.assert_allclose(served.score(lists), model.score(lists), atol=1e-5)
    (tmp_path / "model" / "model.onnx").write_bytes(b"nonsense")
    with pytest.raises(RunError, match=r"model\.onnx: damaged, it is not what was written"):
        Served.load(tmp_path / "model")


def test_no_torch_is_imported(lists: Lists, tmp_path: Path) -> None:
    made(lists, "dla").save(tmp_path / "model")
    code = (
        "import sys, numpy as np; from unskew.serving.scoring.models import Served\n"
        "served = Served.load(sys.argv[1]); served.score(np.ones((3, 5)))\n"
        "print('torch' in sys.modules, served.engine)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "model")], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "onnxruntime"], done.stderr
