"""Trees for every method: the gradients LightGBM gets, round trips, seeds, interruption."""

from __future__ import annotations

import importlib
import json
import math
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.helpers.asked import settings
from tests.helpers.every_method import METHODS
from unskew.errors import ConfigError, DataError, MissingExtra, RunError
from unskew.learning.fitting import boosting as trees_fit
from unskew.learning.fitting.boosting import Boosting, derivatives, positive
from unskew.learning.fitting.loop import Progress
from unskew.learning.fitting.runtime import FILE, read_tensors, write_tensors
from unskew.learning.fitting.training import Training
from unskew.learning.methods import (
    DLA,
    IPW,
    LBD,
    PAL,
    Additive,
    Context,
    EDot,
    MethodConfig,
    Naive,
    RegressionEM,
    Vectorization,
)
from unskew.learning.rankers.networks import WithSide
from unskew.learning.rankers.trees import TreeRanker, Trees, tree_rankers
from unskew.learning.scoring.model import load
from unskew.logs.counts.batches import Batches
from unskew.measuring import ndcg_metric
from unskew.simulation import PositionBias, simulate
from unskew.simulation.synthetic import make_lists
from unskew.tables.lists.inputs import Vectors
from unskew.types import Array, Lists, Log
from unskew.workflows.runs.data import split
from unskew.workflows.runs.fitters import TreeFitter
from unskew.workflows.runs.learn import learn
from unskew.workflows.runs.run import prepare
from unskew_reproductions.methods import LBDBer, LBDLips, LBDReleased, Unlimited

torch.set_num_threads(1)

SMALL = Trees(rounds=6, leaves=4, min_data_in_leaf=2, bias_steps=2)


@pytest.fixture(scope="module")
def log() -> Log:
    """Repeated and shuffled rankings, so that a document has several of them."""
    lists = make_lists(queries=12, features=5, documents=(3, 9), seed=3)
    return simulate(lists, PositionBias(), pages=500, seed=4, cutoff=6, randomized=0.3, truth=True)


def boosting(log: Log, method: MethodConfig, trees: Trees = SMALL, **training: Any) -> tuple[Boosting, Batches]:
    """A trainer that has numbered its documents and grown nothing."""
    asked = settings(method, trees, "none", None, {"validate_on": "nothing", "threads": 1} | training, None)
    torch.manual_seed(0)
    fitter = prepare(asked, split(log, None, asked))
    assert isinstance(fitter, TreeFitter)
    trainer, batches = fitter.trainer, fitter.batches
    assert isinstance(trainer, Boosting)
    trainer.begin(batches)
    generator = torch.Generator().manual_seed(5)
    trainer.outputs += torch.randn(trainer.outputs.shape, generator=generator).double()
    trainer.method.eval()
    return trainer, batches


def total_loss(trainer: Boosting, batches: Batches, per_document: torch.Tensor) -> torch.Tensor:
    """The method's loss of all rows, written without the trainer: outputs of each row of the lists' features."""
    batch = batches.rows(torch.arange(len(batches.row)))
    rows = batches.row.clamp(min=0)
    relevance = torch.where(batch.where.unsqueeze(-1), per_document[rows], 0.0)
    loss: torch.Tensor = trainer.method(relevance, batch)
    return loss


def spread_out(trainer: Boosting, batches: Batches) -> tuple[torch.Tensor, torch.Tensor]:
    """The trainer's outputs, one row per row of the lists' features, and which rows were shown."""
    shown = torch.tensor(sorted({int(row) for row in batches.row.flatten() if row >= 0}))
    full = torch.zeros(len(batches.input.features), trainer.outputs.shape[1])
    full[shown] = trainer.outputs.float()
    return full, shown


@pytest.mark.parametrize("method", [Naive(), IPW(), DLA(), Additive(), PAL(), EDot()], ids=lambda m: m.name)
def test_the_booster_gets_the_gradient_of_the_loss(log: Log, method: MethodConfig) -> None:
    trainer, batches = boosting(log, method)
    loss, gradient, curvature = trainer.differentiate(0)
    full, shown = spread_out(trainer, batches)
    full.requires_grad_()
    expected = total_loss(trainer, batches, full)
    (slope,) = torch.autograd.grad(expected, full)
    torch.testing.assert_close(loss, expected.detach())
    torch.testing.assert_close(gradient, len(shown) * slope[shown], rtol=1e-4, atol=1e-5)
    assert (curvature > 0).all()
    assert curvature.isfinite().all()


def test_the_gradient_is_the_slope_of_the_loss(log: Log) -> None:
    """Finite differences, for documents of one and of many rankings."""
    trainer, batches = boosting(log, Additive())
    _, gradient, _ = trainer.differentiate(0)
    full, shown = spread_out(trainer, batches)
    trainer.method.double()
    for document in (0, 7, 20):
        ends = []
        for step in (1e-3, -1e-3):
            moved = full.double()
            moved[shown[document], 0] += step
            ends.append(total_loss(trainer, batches, moved).item())
        slope = len(shown) * (ends[0] - ends[1]) / 2e-3
        assert gradient[document, 0].item() == pytest.approx(slope, rel=2e-3, abs=1e-4)


def test_a_document_of_two_rankings_gets_both_gradients() -> None:
    """Two pages with the same two documents in both orders; list softmax at F = 0, by hand."""
    lists = Lists(np.eye(2, dtype=np.float32), np.array([0, 2]), np.zeros(2, np.int16), np.array([0]))
    log = Log(
        lists,
        query=np.zeros(3, np.int64),
        offsets=np.array([0, 2, 4, 6]),
        row=np.array([0, 1, 1, 0, 1, 0]),
        position=np.array([1, 2, 1, 2, 1, 2], np.int16),
        click=np.array([1, 0, 0, 1, 1, 0], np.uint8),
    )
    trainer, _ = boosting(log, Naive())
    trainer.outputs.zero_()
    _, gradient, _ = trainer.differentiate(0)
    # document 0 was clicked in two of three pages; 2 documents / 3 clicks * (3 * 1/2 - 2)
    assert gradient.flatten().tolist() == pytest.approx([2 / 3 * -0.5, 2 / 3 * 0.5])


def test_curvature_is_exact_for_cross_entropy_and_right_on_average_for_a_softmax() -> None:
    f = torch.tensor([[0.3], [-1.0], [2.0]], requires_grad=True)
    p = [1 / (1 + math.exp(-x)) for x in (0.3, -1.0, 2.0)]
    _, h = derivatives(torch.nn.functional.softplus(f).sum(), f, torch.tensor([1.0, -1.0, -1.0]))
    assert h.flatten().tolist() == pytest.approx([q * (1 - q) for q in p], rel=1e-5)
    total = sum(math.exp(x) for x in (0.3, -1.0, 2.0))
    p = [math.exp(x) / total for x in (0.3, -1.0, 2.0)]
    probes = [torch.tensor([a, b, c]) for a in (-1.0, 1.0) for b in (-1.0, 1.0) for c in (-1.0, 1.0)]
    found = torch.stack([derivatives(-torch.log_softmax(f, 0)[0, 0], f, signs)[1] for signs in probes])
    assert found.mean(0).flatten().tolist() == pytest.approx([q * (1 - q) for q in p], rel=1e-4)


def test_curvature_of_a_hill_is_its_magnitude() -> None:
    f = torch.tensor([[1.0], [-2.0]], requires_grad=True)
    _, h = derivatives(-(torch.tensor([[1.0], [3.0]]) * f.square()).sum(), f, torch.tensor([1.0, -1.0]))
    assert h.flatten().tolist() == [2.0, 6.0]


def test_outputs_share_curvature_and_linear_losses_have_none() -> None:
    f = torch.tensor([[1.0, 2.0]], requires_grad=True)
    _, h = derivatives((f[:, 0] * f[:, 1]).sum(), f, torch.ones(1))  # a saddle: H = [[0, 1], [1, 0]]
    assert h.tolist() == [[1.0, 1.0]]
    g, h = derivatives((3 * f).sum(), f, torch.ones(1))
    assert h.tolist() == [[0.0, 0.0]]
    assert positive(h, g).tolist() == [[pytest.approx(0.3)] * 2]
    assert positive(torch.tensor([math.nan, 0.0]), torch.tensor([1.0, 0.0])).tolist() == pytest.approx([0.1, 1e-6])


def test_chunks_and_drawn_rows(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that is a mean over pages is the same in chunks; a table that is too long is drawn from."""
    trainer, _ = boosting(log, Additive())
    whole = trainer.differentiate(0)
    monkeypatch.setattr(trees_fit, "_CELLS", 400)
    assert len(trainer.chunks(0)) > 3
    for found, expected in zip(trainer.differentiate(0)[:2], whole[:2], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    few, _ = boosting(log, Additive(), SMALL.model_copy(update={"rows": 10}))
    first, second = torch.cat(few.chunks(0)), torch.cat(few.chunks(1))
    assert len(first) == 10
    assert len(first.unique()) == 10
    assert not torch.equal(first, second)
    assert torch.equal(first, torch.cat(few.chunks(0)))


@pytest.mark.parametrize("method", [Naive(), EDot(dimension=3), LBD()], ids=lambda m: m.name)
def test_the_outputs_that_are_kept_are_those_of_the_trees(method: MethodConfig, log: Log, tmp_path: Path) -> None:
    """After every tree, of every output, and after a checkpoint."""
    trainer, batches = boosting(log, method)
    trainer.table = None
    trainer.begin(batches)
    features = torch.from_numpy(trainer.features)
    for step in range(3):
        trainer.step(batches, step)
        assert trainer.tree_ranker.kept.tolist() == [step + 1] * len(trainer.tree_ranker.boosters)
        torch.testing.assert_close(trainer.outputs.float(), trainer.tree_ranker(features), rtol=1e-4, atol=1e-5)
    assert (trainer.outputs.std(0) > 0).all()
    trainer.fit.step = 3
    trainer.save(tmp_path)
    again, batches = boosting(log, method)
    again.table = None
    assert again.resume(tmp_path)
    again.step(batches, 3)
    trainer.step(batches, 3)
    assert torch.equal(again.outputs, trainer.outputs)
    torch.testing.assert_close(again.outputs.float(), again.tree_ranker(features), rtol=1e-4, atol=1e-5)


def test_steps_of_the_method_see_every_chunk_in_turn(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees_fit, "_CELLS", 400)
    trainer, batches = boosting(log, DLA())
    chunks, seen = [chunk.tolist() for chunk in trainer.chunks(0)], list[list[int]]()
    relevance = trainer.relevance

    def watched(index: torch.Tensor, outputs: torch.Tensor) -> Any:
        if not outputs.requires_grad:  # a step of the method, not the gradient of the trees
            seen.append(index.tolist())
        return relevance(index, outputs)

    monkeypatch.setattr(trainer, "relevance", watched)
    for step in range(3):
        trainer.step(batches, step)
    assert len(chunks) > 6
    assert seen == chunks[:6]  # two steps in each of three rounds


def test_every_round_draws_numbers_of_its_own(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signs of the curvature's estimate, and the features that a tree of each output may split on."""
    trainer, batches = boosting(log, EDot(dimension=3))
    signs, seeds = list[list[float]](), list[int]()
    differ, add = trees_fit.derivatives, trees_fit.add_tree
    monkeypatch.setattr(trees_fit, "derivatives", lambda a, b, s: signs.append(s.tolist()) or differ(a, b, s))
    monkeypatch.setattr(trees_fit, "add_tree", lambda b, pair, seed: seeds.append(seed) or add(b, pair, seed))
    for step in range(3):
        trainer.step(batches, step)
    assert len({tuple(each) for each in signs}) == 3
    assert len(set(seeds)) == 9


@pytest.mark.parametrize("name", METHODS)
def test_every_method_trains_and_comes_back(name: str, log: Log, tmp_path: Path) -> None:
    progress: list[Progress] = []
    model = learn(
        log,
        METHODS[name](),
        ranker=SMALL,
        validation=log.lists,
        out=tmp_path / "run",
        threads=1,
        seed=2,
        report=progress.append,
    ).model
    scores = model.score(log.lists)
    assert np.isfinite(scores).all()
    assert np.ptp(scores) > 0
    assert [p.step for p in progress] == [1, 2, 3, 4, 5, 6]
    assert all(math.isfinite(p.loss) for p in progress)
    again = load(tmp_path / "run")
    assert np.array_equal(again.score(log.lists), scores)
    again.save(tmp_path / "copy")
    assert np.array_equal(load(tmp_path / "copy").score(log.lists), scores)
    files = {path.name for path in (tmp_path / "run").iterdir()}
    outputs = model.method.boosted or model.method.outputs
    assert {f"trees_{output}.txt" for output in range(outputs)} == {n for n in files if n.startswith("trees_")}


@pytest.mark.parametrize("method", [LBD(), LBDLips(), LBDReleased(gaussian=True)], ids=str)
def test_trees_give_relevance_and_a_network_observation(method: MethodConfig, log: Log) -> None:
    """Outputs stand as they do in a network: r, h of each rank, then the spreads; h starts at 0."""
    trainer, batches = boosting(log, method, SMALL.model_copy(update={"beside": (7, 5)}))
    assert isinstance(trainer.ranker, WithSide)
    trainer.grow(*trainer.differentiate(0)[1:], 0)
    found = trainer.ranker(batches.input.features)
    assert found.shape[1] == trainer.method.outputs
    assert torch.equal(found[:, :1], trainer.tree_ranker(batches.input.features))
    assert torch.equal(found[:, 1:], trainer.ranker.side(batches.input.features))
    assert found[:, 0].std() > 0
    assert (found[:, 1:7] == 0).all()
    layers = [layer for layer in trainer.ranker.side.modules() if isinstance(layer, torch.nn.Linear)]
    assert [layer.out_features for layer in layers] == [7, 5, trainer.method.outputs - 1]


@pytest.mark.parametrize("method", [LBDBer(), Unlimited(), LBD(strength=0.0)], ids=lambda m: m.name)
def test_without_a_penalty_trees_give_everything(method: MethodConfig, log: Log) -> None:
    trainer, _ = boosting(log, method)
    assert isinstance(trainer.ranker, TreeRanker)
    assert len(trainer.ranker.boosters) == trainer.method.outputs == 7


def test_the_penalty_is_the_slope_of_the_network_beside_the_trees(log: Log) -> None:
    """Value and gradient by finite differences: of o by each feature, and of the loss by a weight."""
    trainer, batches = boosting(log, LBD(strength=2.0, drop=0.0))
    assert isinstance(trainer.ranker, WithSide)
    side = trainer.ranker.side.double()
    last = [layer for layer in side.modules() if isinstance(layer, torch.nn.Linear)][-1]
    last.weight.data += torch.randn(last.weight.shape, generator=torch.Generator().manual_seed(1)).double()
    assert trainer.table is not None
    trainer.table.input = Vectors(trainer.table.input.features.double())
    trainer.method.double()
    index = torch.arange(len(batches.row))

    def loss(training: bool = True) -> torch.Tensor:
        torch.manual_seed(3)  # the same random signs
        trainer.method.train(training)
        relevance, batch = trainer.relevance(index, trainer.outputs)
        value: torch.Tensor = trainer.method(relevance, batch)
        return value

    batch = trainer.table.rows(index)
    torch.manual_seed(3)
    signs, squared = torch.randint(0, 2, (6,)) * 2 - 1, torch.zeros(len(batch.documents), dtype=torch.float64)
    for feature in range(batch.documents.shape[1]):
        moved = torch.zeros_like(batch.documents)
        moved[:, feature] = 1e-5
        up, down = ((side(batch.documents + way * moved).sigmoid() * signs).sum(-1) for way in (1, -1))
        squared += ((up - down) / 2e-5).square().detach()
    weights = batch.impressions.flatten()[batch.packed].double()
    expected = 2.0 * (weights * squared).sum() / weights.sum() / 6
    assert (loss() - loss(training=False)).item() == pytest.approx(expected.item(), rel=1e-6)

    first = next(iter(side.parameters()))
    (slope,) = torch.autograd.grad(loss(), first)
    (without,) = torch.autograd.grad(loss(training=False), first)
    for place in ((0, 0), (3, 2)):
        ends = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                first[place] += step
            ends.append(loss().item())
            with torch.no_grad():
                first[place] -= step
        assert slope[place].item() == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5)
        assert abs(slope[place] - without[place]) > 1e-4  # the penalty's part


def test_the_penalty_leaves_the_trees_alone(log: Log) -> None:
    found = []
    for strength in (1e-6, 1e3):
        trainer, _ = boosting(log, LBDLips(strength=strength))
        side = trainer.ranker.side  # type: ignore[union-attr]
        for parameter in side.parameters():
            parameter.data += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        trainer.method.train()
        found.append(trainer.differentiate(0))
    assert found[1][0] > found[0][0] + 1  # the loss has the penalty in it
    torch.testing.assert_close(found[0][1:], found[1][1:])


@pytest.mark.parametrize("form", [{}, {"observation": "free"}, {"gaussian": True}], ids=str)
def test_a_large_strength_flattens_observation(form: dict[str, Any], log: Log) -> None:
    """Observation that differs between documents where it may, and only by rank where it may not."""
    spread = []
    for strength in (1e-6, 1e4):
        trees = SMALL.model_copy(update={"rounds": 20, "bias_steps": 20})
        method = LBDLips(strength=strength, **form)
        model = learn(log, method, ranker=trees, threads=1, learning_rate=0.05, validate_on="nothing").model
        ranker = model.ranker
        assert isinstance(ranker, WithSide)
        features = torch.from_numpy(model.scaler.apply(log.lists).features)
        spread.append(ranker.side(features)[:, :6].std(0).max().item())
    assert spread[0] > 0.1
    assert spread[1] < spread[0] / 20


@pytest.mark.parametrize(
    "method",
    [
        Vectorization(schedule="joint", freeze=4),
        RegressionEM(labels="sampled"),
        Naive(loss="lambda"),
        LBDReleased(gaussian=True),
        LBDLips(observation="free", penalty="published"),
    ],
    ids=str,
)
def test_other_forms_train(method: MethodConfig, log: Log, tmp_path: Path) -> None:
    model = learn(log, method, ranker=SMALL, threads=1).model
    scores = model.score(log.lists)
    assert np.isfinite(scores).all()
    model.save(tmp_path)
    assert np.array_equal(load(tmp_path).score(log.lists), scores)


@pytest.mark.parametrize(
    "method", [Vectorization(schedule="joint", freeze=0), LBD(), LBDLips(observation="free")], ids=str
)
def test_the_network_beside_the_trees_is_trained_jointly(method: MethodConfig, log: Log) -> None:
    trainer, batches = boosting(log, method)
    before = [parameter.clone() for parameter in trainer.ranker.side.parameters()]  # type: ignore[union-attr]
    trainer.step(batches, 0)
    after = list(trainer.ranker.side.parameters())  # type: ignore[union-attr]
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_the_network_beside_the_trees_takes_shrunken_steps(log: Log) -> None:
    """0.01 * 0.2, those of the method ten times 0.01; a network beside the ranker is not meant."""
    trees = SMALL.model_copy(update={"learning_rate": 0.2})
    trainer, _ = boosting(log, LBD(), trees, learning_rate=0.01)
    rates = {id(p): group["base"] for group in trainer.optimizer.param_groups for p in group["params"]}
    assert isinstance(trainer.ranker, WithSide)
    assert [rates[id(p)] for p in trainer.ranker.side.parameters()] == pytest.approx([0.002] * 6)
    assert [rates[id(p)] for p in trainer.method.parameters()] == pytest.approx([0.1])
    other, _ = boosting(log, Vectorization(schedule="joint"), trees, learning_rate=0.01)
    bases = {id(p): group["base"] for group in other.optimizer.param_groups for p in group["params"]}
    assert {bases[id(p)] for p in other.ranker.side.parameters()} == {0.01}  # type: ignore[union-attr]


def test_several_outputs_start_apart() -> None:
    """Products of equal outputs have equal gradients, and would grow the same trees for ever."""
    torch.manual_seed(0)
    ranker = Trees().build(3, 4)
    start = ranker.start
    assert len(start.unique()) == 4
    assert torch.equal(ranker(torch.zeros(2, 3)), start.expand(2, 4))  # what it gives without a tree
    assert start.abs().max() < 1
    assert Trees().build(3, 1).start.tolist() == [0.0]


def test_lightgbm_is_told_what_was_asked_for() -> None:
    asked = Trees(leaves=7, learning_rate=0.3, min_data_in_leaf=9, feature_fraction=0.4, l2=2.5)
    told = asked.parameters(threads=3)
    expected = {"num_leaves": 7, "learning_rate": 0.3, "min_data_in_leaf": 9, "feature_fraction": 0.4}
    assert told | expected | {"lambda_l2": 2.5, "num_threads": 3, "objective": "none"} == told


def test_same_seed_same_trees(log: Log) -> None:
    found = [
        learn(log, DLA(), ranker=SMALL, validation=log.lists, threads=1, seed=seed).score(log.lists)
        for seed in (1, 1, 2)
    ]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_the_best_round_is_kept(log: Log) -> None:
    """Validation that likes round 2 best: two trees remain, and their scores are those of round 2."""
    trainer, batches = boosting(log, Naive())
    trainer.table = None
    seen: list[torch.Tensor] = []

    def validate(ranker: torch.nn.Module, method: object) -> float:
        seen.append(ranker(batches.input.features))
        return -abs(len(seen) - 2)

    fit = trainer.run(batches, validate=validate)
    (trees,) = tree_rankers(trainer.ranker)
    assert (fit.best_step, fit.step, trees.kept.tolist()) == (2, 6, [2])
    assert trees.boosters[0].num_trees() == 2
    assert torch.equal(trees(batches.input.features), seen[1])
    patient, batches = boosting(log, Naive(), patience=2)
    patient.table, seen = None, []
    assert patient.run(batches, validate=validate).step == 4


def test_rounds_and_validations() -> None:
    def every(**training: Any) -> tuple[int, int]:
        trainer = Boosting(
            Trees(rounds=200).build(3, 1), Naive().build(Context(3)), Trees(rounds=200), Training(**training)
        )
        return trainer.config.steps, trainer.config.validate_every

    assert every() == (200, 10)
    assert every(validate_every=3) == (200, 3)


def test_where_no_split_is_possible(log: Log, tmp_path: Path) -> None:
    """Leaves too large to split: every document scores the same. Features that never differ are an error."""
    stump = Trees(rounds=3, min_data_in_leaf=10_000)
    model = learn(log, Naive(), ranker=stump, threads=1).model
    scores = model.score(log.lists)
    assert np.ptp(scores) == 0
    model.save(tmp_path)
    assert np.array_equal(load(tmp_path).score(log.lists), scores)
    blank = replace(log, lists=replace(log.lists, features=np.zeros_like(log.lists.features)))
    with pytest.raises(DataError, match="features that differ"):
        learn(blank, Naive(), ranker=SMALL, scaling="none", threads=1)


def stop_at(*steps: int) -> Callable[[Progress], None]:
    """Press Ctrl-C after these rounds."""

    def stop(progress: Progress) -> None:
        if progress.step in steps:
            os.kill(os.getpid(), signal.SIGINT)

    return stop


@pytest.mark.parametrize(
    "method",
    [Naive(), DLA(), LBD(), Unlimited(), RegressionEM(), Vectorization(schedule="joint", freeze=4)],
    ids=str,
)
def test_an_interrupted_run_goes_on_to_the_same_trees(method: MethodConfig, log: Log, tmp_path: Path) -> None:
    """Features are drawn for each tree, so a resumed run must draw the same ones; twice interrupted."""
    trees = SMALL.model_copy(update={"rounds": 12, "feature_fraction": 0.4})
    asked: dict[str, Any] = {"ranker": trees, "validation": log.lists, "threads": 1, "seed": 3}
    straight = learn(log, method, **asked)
    place, stop = tmp_path / "run", stop_at(4, 9)
    cut = learn(log, method, out=place, report=stop, **asked)
    assert json.loads((place / "run.json").read_text())["status"] == "interrupted"
    assert np.array_equal(load(place).score(log.lists), cut.score(log.lists))
    learn(log, method, out=place, report=stop, **asked)
    assert json.loads((place / "run.json").read_text())["steps"] == 9
    resumed = learn(log, method, out=place, report=stop, **asked)
    assert json.loads((place / "run.json").read_text())["status"] == "finished"
    assert not (place / FILE).exists()
    one, two = straight.model, resumed.model
    for mine, its in ((one.ranker, two.ranker), (one.method, two.method)):
        assert all(torch.equal(value, its.state_dict()[name]) for name, value in mine.state_dict().items())
    for first, other in zip(*(tree_rankers(model.ranker)[0].boosters for model in (one, two)), strict=True):
        assert first.dump_model()["tree_info"] == other.dump_model()["tree_info"]
    assert np.array_equal(straight.score(log.lists), resumed.score(log.lists))
    assert np.array_equal(load(place).score(log.lists), resumed.score(log.lists))


def test_the_last_checkpoint_of_a_killed_run_is_taken_up(log: Log, tmp_path: Path) -> None:
    trees = SMALL.model_copy(update={"rounds": 8, "feature_fraction": 0.4})
    asked: dict[str, Any] = {"ranker": trees, "validation": log.lists, "threads": 1}
    seen: list[int] = []

    def die(progress: Progress) -> None:
        seen.append(progress.step)
        if seen == [1, 2, 3, 4, 5]:
            raise SystemExit

    with pytest.raises(SystemExit):
        learn(log, DLA(), out=tmp_path / "run", report=die, **asked)
    resumed = learn(log, DLA(), out=tmp_path / "run", report=die, **asked)
    assert seen == [1, 2, 3, 4, 5, 5, 6, 7, 8]  # a checkpoint every fourth of the rounds
    assert np.array_equal(resumed.score(log.lists), learn(log, DLA(), **asked).score(log.lists))


@pytest.mark.parametrize("damage", ["trees", "outputs", "text"])
def test_a_damaged_checkpoint_is_named(damage: str, log: Log, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"ranker": SMALL, "validation": log.lists, "out": tmp_path / "run", "threads": 1}
    learn(log, DLA(), report=stop_at(3), **asked)
    tensors, place = read_tensors(tmp_path / "run" / FILE)
    if damage == "text":
        tensors["trees.0"] = tensors["trees.0"][:100].clone()
    else:
        del tensors[{"trees": "trees.0", "outputs": "outputs"}[damage]]
    write_tensors(tmp_path / "run" / FILE, tensors, place)
    with pytest.raises(RunError, match=r"checkpoint\.safetensors: damaged"):
        learn(log, DLA(), **asked)


@pytest.mark.parametrize("damage", ["missing", "cut", "nonsense", "another"])
def test_damaged_trees_are_named(damage: str, log: Log, tmp_path: Path) -> None:
    model = learn(log, Naive(), ranker=SMALL, threads=1)
    model.save(tmp_path)
    path = tmp_path / "trees_0.txt"
    text = path.read_text()
    if damage == "another":
        text = tree_text(log, 3)
    path.write_text({"cut": text[:300], "nonsense": "end of trees"}.get(damage, text))
    if damage == "missing":
        path.unlink()
    with pytest.raises(RunError, match=r"trees_0\.txt"):
        load(tmp_path)


def tree_text(log: Log, features: int) -> str:
    """Trees of a model on fewer features."""
    lists = replace(log.lists, features=np.ascontiguousarray(log.lists.features[:, :features]))
    ranker = learn(replace(log, lists=lists), Naive(), ranker=SMALL, threads=1).model.ranker
    assert isinstance(ranker, TreeRanker)
    return ranker.forest().texts()[0]


def ndcg(scores: Array, lists: Lists) -> float:
    return float(np.nanmean(ndcg_metric(scores, lists.labels, offsets=lists.offsets, at=10)))


@pytest.fixture(scope="module")
def confounded() -> tuple[Log, Lists, float]:
    """A log whose logging ranker is wrong, lists to test on, and what naive reaches there."""
    train, test = (make_lists(queries=200, features=8, seed=seed) for seed in (1, 2))
    log = simulate(train, PositionBias(), pages=40_000, seed=0)
    naive = learn(log, Naive(), ranker=Trees(rounds=60), threads=1, validate_every=10)
    return log, test, ndcg(naive.score(test), test)


@pytest.mark.parametrize("method", [DLA(), LBD(), LBDLips(), LBDBer()], ids=lambda m: m.name)
def test_methods_beat_naive_where_the_logging_ranker_is_wrong(
    method: MethodConfig, confounded: tuple[Log, Lists, float]
) -> None:
    log, test, naive = confounded
    model = learn(log, method, ranker=Trees(rounds=60), threads=1, validate_every=10)
    assert ndcg(model.score(test), test) > naive + 0.08


def test_trees_are_read_from_a_run_file_and_checked() -> None:
    with pytest.raises(ConfigError, match="Did you mean"):
        settings("dla", "treees", "none", None, {}, None)
    assert settings("dla", "trees", "none", None, {}, None).ranker == Trees()


def test_a_missing_package_names_its_extra(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def missing(name: str, *rest: Any) -> Any:
        if name == "lightgbm":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr("unskew.errors.import_module", missing)
    with pytest.raises(MissingExtra, match=r"lightgbm is not installed; run: pip install 'unskew\[trees\]'"):
        learn(log, "naive", ranker="trees")
