"""Trees for every method: the gradients LightGBM gets, round trips, seeds, interruption; and the baselines."""

from __future__ import annotations

import importlib
import math
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unskew.clicks.batches import Batches
from unskew.clicks.simulate import PositionBias, simulate
from unskew.clicks.synthetic import make_lists
from unskew.config import settings
from unskew.errors import ConfigError, DataError, MissingExtra, RunError
from unskew.learning import baselines, trees_fit
from unskew.learning.methods import (
    DLA,
    IPW,
    LBD,
    METHODS,
    PAL,
    Additive,
    Context,
    EDot,
    MethodConfig,
    Naive,
    RegressionEM,
    Vectorization,
)
from unskew.learning.model import load
from unskew.learning.train import Progress, Training
from unskew.learning.trees import TreeRanker, Trees, tree_rankers
from unskew.learning.trees_fit import Boosting, derivatives, positive
from unskew.measuring import ndcg_metric
from unskew.run import learn, prepare, split
from unskew.types import Array, Lists, Log

torch.set_num_threads(1)

SMALL = Trees(rounds=6, leaves=4, min_data_in_leaf=2, bias_steps=2)
SPOILED = ["lbd", "lbd_lips"]  # methods that differentiate the ranker by its features


@pytest.fixture(scope="module")
def log() -> Log:
    """Repeated and shuffled rankings, so that a document has several of them."""
    lists = make_lists(queries=12, features=5, documents=(3, 9), seed=3)
    return simulate(lists, PositionBias(), sessions=500, seed=4, cutoff=6, randomized=0.3, truth=True)


def boosting(log: Log, method: MethodConfig, trees: Trees = SMALL, **training: Any) -> tuple[Boosting, Batches]:
    """A trainer that has numbered its documents and grown nothing."""
    asked = settings(method, trees, "none", None, {"validate_on": "nothing", "threads": 1} | training, None)
    torch.manual_seed(0)
    trainer, batches, _ = prepare(asked, split(log, None, asked))
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
    full = torch.zeros(len(batches.features), trainer.outputs.shape[1])
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
    # document 0 was clicked in two of three sessions; 2 documents / 3 clicks * (3 * 1/2 - 2)
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


def test_outputs_share_curvature_and_linear_losses_have_none() -> None:
    f = torch.tensor([[1.0, 2.0]], requires_grad=True)
    _, h = derivatives((f[:, 0] * f[:, 1]).sum(), f, torch.ones(1))  # a saddle: H = [[0, 1], [1, 0]]
    assert h.tolist() == [[1.0, 1.0]]
    g, h = derivatives((3 * f).sum(), f, torch.ones(1))
    assert h.tolist() == [[0.0, 0.0]]
    assert positive(h, g).tolist() == [[pytest.approx(0.3)] * 2]
    assert positive(torch.tensor([math.nan, 0.0]), torch.tensor([1.0, 0.0])).tolist() == pytest.approx([0.1, 1e-6])


def test_chunks_and_drawn_rows(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that is a mean over sessions is the same in chunks; a table that is too long is drawn from."""
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


@pytest.mark.parametrize("name", [name for name in METHODS if name not in SPOILED])
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
    )
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
    outputs = model.method.outputs
    assert {f"trees_{output}.txt" for output in range(outputs)} == {n for n in files if n.startswith("trees_")}


@pytest.mark.parametrize("name", SPOILED)
def test_methods_that_need_input_gradients_refuse(name: str, log: Log) -> None:
    with pytest.raises(ConfigError, match=r"lbd_ber or unlimited, or method\.strength = 0"):
        learn(log, METHODS[name](), ranker=SMALL, threads=1)
    learn(log, LBD(strength=0.0), ranker=SMALL, threads=1)


@pytest.mark.parametrize(
    "method", [Vectorization(schedule="joint", freeze=4), RegressionEM(labels="sampled"), Naive(loss="lambda")]
)
def test_other_forms_train(method: MethodConfig, log: Log) -> None:
    model = learn(log, method, ranker=SMALL, threads=1)
    assert np.isfinite(model.score(log.lists)).all()


def test_the_network_beside_the_trees_is_trained_jointly(log: Log) -> None:
    trainer, batches = boosting(log, Vectorization(schedule="joint", freeze=0))
    before = [parameter.clone() for parameter in trainer.ranker.side.parameters()]  # type: ignore[union-attr]
    trainer.step(batches, 0)
    after = list(trainer.ranker.side.parameters())  # type: ignore[union-attr]
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


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
        seen.append(ranker(batches.features))
        return -abs(len(seen) - 2)

    fit = trainer.run(batches, validate=validate)
    (trees,) = tree_rankers(trainer.ranker)
    assert (fit.best_step, fit.step, trees.kept.tolist()) == (2, 6, [2])
    assert trees.boosters[0].num_trees() == 2
    assert torch.equal(trees(batches.features), seen[1])
    patient, batches = boosting(log, Naive(), patience=2)
    patient.table, seen = None, []
    assert patient.run(batches, validate=validate).step == 4


def test_rounds_and_validations() -> None:
    def every(**training: Any) -> tuple[int, int]:
        trainer = Boosting(
            Trees(rounds=200).build(3, 1), Naive().build(Context(3, None)), Trees(rounds=200), Training(**training)
        )
        return trainer.config.steps, trainer.config.validate_every

    assert every() == (200, 10)
    assert every(validate_every=3) == (200, 3)


def test_where_no_split_is_possible(log: Log, tmp_path: Path) -> None:
    """Leaves too large to split: every document scores the same. Features that never differ are an error."""
    stump = Trees(rounds=3, min_data_in_leaf=10_000)
    model = learn(log, Naive(), ranker=stump, threads=1)
    scores = model.score(log.lists)
    assert np.ptp(scores) == 0
    model.save(tmp_path)
    assert np.array_equal(load(tmp_path).score(log.lists), scores)
    blank = replace(log, lists=replace(log.lists, features=np.zeros_like(log.lists.features)))
    with pytest.raises(DataError, match="features that differ"):
        learn(blank, Naive(), ranker=SMALL, scaling="none", threads=1)


def test_ctrl_c_leaves_a_usable_run_that_begins_again(log: Log, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    asked: dict[str, Any] = {"ranker": SMALL, "validation": log.lists, "out": tmp_path / "run", "threads": 1}
    model = learn(log, DLA(), report=stop, **asked)
    assert '"interrupted"' in (tmp_path / "run" / "run.json").read_text()
    assert np.array_equal(load(tmp_path / "run").score(log.lists), model.score(log.lists))
    with pytest.warns(UserWarning, match="3 rounds are grown again"):
        learn(log, DLA(), **asked)
    assert '"finished"' in (tmp_path / "run" / "run.json").read_text()


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
    ranker = learn(replace(log, lists=lists), Naive(), ranker=SMALL, threads=1).ranker
    assert isinstance(ranker, TreeRanker)
    return ranker.texts()[0]


def ndcg(scores: Array, lists: Lists) -> float:
    return float(np.nanmean(ndcg_metric(scores, lists.labels, offsets=lists.offsets, at=10)))


def test_dla_beats_naive_where_the_logging_ranker_is_wrong() -> None:
    train, test = (make_lists(queries=200, features=8, seed=seed) for seed in (1, 2))
    log = simulate(train, PositionBias(), sessions=40_000, seed=0)
    trees = Trees(rounds=60)
    naive, dla = (
        ndcg(learn(log, method, ranker=trees, threads=1, validate_every=10).score(test), test)
        for method in (Naive(), DLA())
    )
    assert dla > naive + 0.02


def test_trees_are_read_from_a_run_file_and_checked() -> None:
    with pytest.raises(ConfigError, match="Did you mean"):
        settings("dla", "treees", "none", None, {}, None)
    assert settings("dla", "trees", "none", None, {}, None).ranker == Trees()


def without(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Make these packages as good as not installed."""
    real = importlib.import_module

    def missing(name: str, *rest: Any) -> Any:
        if name in packages:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr("unskew.learning.trees.import_module", missing)
    monkeypatch.setattr("unskew.learning.baselines.import_module", missing)


def test_a_missing_package_names_its_extra(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "lightgbm", "xgboost")
    with pytest.raises(MissingExtra, match=r"lightgbm is not installed; run: pip install 'unskew\[trees\]'"):
        learn(log, "naive", ranker="trees")
    with pytest.raises(MissingExtra, match="lightgbm"):
        baselines.fit_baseline("lightgbm", log)
    with pytest.raises(MissingExtra, match="xgboost"):
        baselines.fit_baseline("xgboost", log)


def backwards(log: Log) -> Log:
    """The same sessions with the rows of each in the opposite order."""
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(log.offsets, log.offsets[1:], strict=False)])
    return replace(log, row=log.row[order], position=log.position[order], click=log.click[order])


@pytest.mark.parametrize("name", baselines.BASELINES)
def test_baselines_run(name: str, log: Log) -> None:
    if name.startswith("xgboost"):
        pytest.importorskip("xgboost")
    options: dict[str, Any] = {"rounds": 5, "threads": 1, "min_data_in_leaf": 2, "leaves": 4}
    model = baselines.fit_baseline(name, log, log.lists, 0, **options)
    scores = model.score(log.lists)
    assert scores.shape == (len(log.lists.features),)
    assert np.isfinite(scores).all()
    assert np.ptp(scores) > 0
    assert (model.name, 1 <= model.rounds <= 5) == (name, True)
    assert np.array_equal(baselines.fit_baseline(name, log, log.lists, 0, **options).score(log.lists), scores)
    assert np.array_equal(
        baselines.fit_baseline(name, backwards(log), log.lists, **options).score(log.lists), scores
    )
    assert baselines.fit_baseline(name, log, log, **options).rounds <= 5
    assert baselines.fit_baseline(name, log, **options).rounds == 5


def test_bias_options_change_the_trees(log: Log) -> None:
    pytest.importorskip("xgboost")
    options: dict[str, Any] = {"rounds": 5, "threads": 1, "min_data_in_leaf": 2}
    for plain, other in (("lightgbm", "lightgbm_position"), ("xgboost", "xgboost_unbiased")):
        scores = [baselines.fit_baseline(name, log, **options).score(log.lists) for name in (plain, other)]
        assert not np.array_equal(*scores)


@pytest.mark.parametrize("package", ["lightgbm", "xgboost"])
def test_rows_arrive_sorted_by_rank_one_group_a_session(
    package: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = pytest.importorskip(package)
    given: list[dict[str, Any]] = []
    kind = "Dataset" if package == "lightgbm" else "DMatrix"
    real = getattr(library, kind)

    def spy(features: Array, labels: Array | None = None, **rest: Any) -> Any:
        given.append({"features": features, "labels": labels} | rest)
        return real(features, labels, **rest)

    monkeypatch.setattr(library, kind, spy)
    name = {"lightgbm": "lightgbm_position", "xgboost": "xgboost_unbiased"}[package]
    baselines.fit_baseline(name, backwards(log), rounds=1, threads=1)
    clicks = np.add.reduceat(log.click.astype(int), log.offsets[:-1])
    kept = log.take((clicks > 0) & (clicks < log.sizes))
    assert np.array_equal(given[0]["features"], log.lists.features[kept.row])
    assert np.array_equal(given[0]["labels"], kept.click)
    if package == "lightgbm":
        assert np.array_equal(given[0]["group"], kept.sizes)
        assert np.array_equal(given[0]["position"], kept.position)
    else:
        assert np.array_equal(np.unique(given[0]["qid"], return_counts=True)[1], kept.sizes)


def test_baselines_say_what_is_wrong(log: Log) -> None:
    with pytest.raises(ConfigError, match="Did you mean lightgbm"):
        baselines.fit_baseline("lightgmb", log)
    with pytest.raises(ConfigError, match=r"unknown option 'round'\. Did you mean rounds"):
        baselines.fit_baseline("lightgbm", log, round=3)
    with pytest.raises(DataError, match="both a clicked and an unclicked"):
        baselines.fit_baseline("lightgbm", replace(log, click=np.zeros_like(log.click)))
    assert len(baselines.session_groups(log, sessions=7, seed=0).sizes) == 7
