"""The training loop: settings, optimisers, schedules, choice of weights, interrupts, checkpoints and resuming."""

from __future__ import annotations

import json
import math
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors import safe_open
from torch import Tensor, nn

from unskew.errors import ConfigError, RunError
from unskew.learning.fitting.loop import Fit, Progress, Trainer, fit_side
from unskew.learning.fitting.runtime import (
    FILE,
    deferred_interrupt,
    optimizer_tensors,
    read_tensors,
    restore_optimizer,
    write_tensors,
)
from unskew.learning.fitting.training import Training, clip_gradient, make_optimizer
from unskew.learning.methods import DLA, IPW, Context, MethodConfig, MethodModule, Naive, RegressionEM
from unskew.learning.rankers import MLP
from unskew.learning.rankers.networks import WithSide
from unskew.learning.scoring.scorer import below
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.reduction import reduce_log
from unskew.simulation import PositionBias, simulate
from unskew.simulation.synthetic import make_lists
from unskew.types import ClickBatch, Log
from unskew.workflows.runs.data import LogData
from unskew_reproductions.methods import PairDebias

torch.set_num_threads(1)

PLAIN = {"schedule": "constant", "warmup": 0, "clip": 5.0, "device": "cpu"}
"""Nothing that the number of steps would change, whatever the defaults are."""
METHODS = {
    "naive": Naive(),
    "ipw": IPW(),
    "dla": DLA(),
    "regression_em": RegressionEM(),
    "sampled": RegressionEM(labels="sampled"),
    "gradient": RegressionEM(form="gradient"),
    "pair_debias": PairDebias(),
}


@pytest.fixture(scope="module")
def log() -> Log:
    lists = make_lists(queries=12, features=6, documents=(3, 8), seed=1)
    return simulate(lists, PositionBias(), pages=400, seed=2, cutoff=5, randomized=0.4)


class Rank(MethodModule):
    """A method with one parameter and a loss that is a given function of ranker output and parameter."""

    def __init__(self, loss: Any = None) -> None:
        super().__init__(Naive(), Context(1))
        self.bias = nn.Parameter(torch.tensor([1.0]))
        self.loss = loss or (lambda relevance, bias: (relevance * 3.0).sum() + 2.0 * bias.sum())

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        loss: Tensor = self.loss(relevance, self.bias)
        return loss


class Scalar(nn.Module):
    """A ranker with one weight: every document scores w / (number of documents)."""

    def __init__(self, start: float = 0.5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([start]))

    def forward(self, documents: Tensor) -> Tensor:
        return self.weight.expand(len(documents), 1) / len(documents)


def batches_of(log: Log, method: MethodConfig | None = None, size: int = 8, seed: int = 0) -> Batches:
    return Batches(reduce_log(log, method.reduction if method else "counts"), size=size, seed=seed)


def trainer_of(log: Log, method: MethodConfig, **settings: Any) -> tuple[Trainer, Batches]:
    """A fresh trainer, its weights drawn from the seed."""
    config = Training(**(PLAIN | {"steps": 30, "batch": 8, "validate_every": 4} | settings))
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        module = method.build(LogData(log).context(method))
        ranker = MLP(sizes=(6,), dropout=0.1).build(log.lists.dim, module.outputs)
    trainer = Trainer(ranker, module, config, identity={"method": method.model_dump(), "sizes": (6,)})
    return trainer, batches_of(log, method, size=config.batch, seed=config.seed)


def weights(trainer: Trainer) -> dict[str, Tensor]:
    state = nn.ModuleDict({"ranker": trainer.ranker, "method": trainer.method}).state_dict()
    return {name: value.clone() for name, value in state.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def metrics(trainer: Trainer) -> list[tuple[Any, ...]]:
    names = ("step", "loss", "metric", "best", "curves")
    return [tuple(point[name] for name in names) for point in trainer.fit.curve]


class Wavering:
    """A validation that is some function of the weights alone, up and down over a run."""

    def __call__(self, ranker: nn.Module, method: MethodModule) -> float:
        assert not ranker.training
        assert not method.training
        assert not torch.is_grad_enabled()
        total = sum(float(parameter.double().sum()) for parameter in ranker.parameters())
        return math.sin(40 * total)


class Scripted:
    """A validation that returns the given metrics, and keeps the weights it saw."""

    def __init__(self, *values: float) -> None:
        self.values, self.seen = list(values), []

    def __call__(self, ranker: nn.Module, method: MethodModule) -> float:
        self.seen.append({name: value.clone() for name, value in ranker.state_dict().items()})
        return self.values[len(self.seen) - 1]


# ---- settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("steps", 0), ("steps", "10"), ("steps", 1.5), ("batch", 0), ("optimizer", "adagard"),
        ("learning_rate", 0.0), ("learning_rate", -1.0), ("bias_learning_rate", 0.0), ("weight_decay", -0.1),
        ("clip", 0.0), ("schedule", "step"), ("warmup", -1), ("validate_on", "test"), ("validate_every", 0),
        ("patience", 0), ("checkpoint_every", 0), ("seed", -1), ("learnig_rate", 0.1),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"Training\.{setting}: "):
        Training(**{setting: value})


def test_settings_are_frozen_and_have_defaults() -> None:
    config = Training()
    with pytest.raises(ValidationError, match="frozen"):
        config.steps = 3
    assert config.clip == 5.0  # of the published experiments
    assert config.batch == 256
    assert Training(device="cpu").torch_device() == torch.device("cpu")
    assert Training(clip=None, patience=None, bias_learning_rate=None).clip is None


def test_schedules_by_hand() -> None:
    assert [Training(steps=4, schedule="constant").rate(step) for step in range(4)] == [1, 1, 1, 1]
    assert [Training(steps=4, schedule="linear").rate(step) for step in range(4)] == [1, 0.75, 0.5, 0.25]
    cosine = [Training(steps=4, schedule="cosine").rate(step) for step in range(4)]
    assert cosine == pytest.approx([1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2])
    warm = Training(steps=6, warmup=2, schedule="linear")
    assert [warm.rate(step) for step in range(6)] == pytest.approx([1 / 3, 2 / 3, 1, 0.75, 0.5, 0.25])
    assert all(0 < Training(steps=5, warmup=9, schedule="cosine").rate(step) <= 1 for step in range(5))


# ---- optimisers ----------------------------------------------------------------------------------------------


def first_step(log: Log, **settings: Any) -> tuple[float, float]:
    """Weight and bias after one step with gradients 3 and 2, from 0.5 and 1.0."""
    ranker, method = Scalar(), Rank()
    given = PLAIN | {"bias_learning_rate": settings["learning_rate"]} | settings
    trainer = Trainer(ranker, method, Training(steps=10, **given))
    trainer.step(batches_of(log), 0)
    return ranker.weight.item(), method.bias.item()


def test_adagrad_starts_its_accumulator_at_a_tenth(log: Log) -> None:
    # w - lr g / sqrt(0.1 + g^2), as TensorFlow's Adagrad, which the published experiments used
    weight, bias = first_step(log, optimizer="adagrad", learning_rate=0.05, clip=None)
    assert weight == pytest.approx(0.5 - 0.05 * 3 / math.sqrt(0.1 + 9), abs=1e-7)
    assert bias == pytest.approx(1 - 0.05 * 2 / math.sqrt(0.1 + 4), abs=1e-7)


def test_other_optimisers_by_hand(log: Log) -> None:
    assert first_step(log, optimizer="sgd", learning_rate=0.1, clip=None) == pytest.approx((0.2, 0.8), abs=1e-6)
    # Adam's first step is the learning rate, whatever the gradient
    assert first_step(log, optimizer="adam", learning_rate=0.1, clip=None) == pytest.approx((0.4, 0.9), abs=1e-6)
    # AdamW also shrinks the ranker's weight by lr * decay, but not the method's
    adamw = first_step(log, optimizer="adamw", learning_rate=0.1, weight_decay=0.2, clip=None)
    assert adamw == pytest.approx((0.5 * (1 - 0.1 * 0.2) - 0.1, 0.9), abs=1e-6)
    sgd = first_step(log, optimizer="sgd", learning_rate=0.1, weight_decay=0.2, clip=None)
    assert sgd == pytest.approx((0.5 - 0.1 * (3 + 0.2 * 0.5), 0.8), abs=1e-6)


def test_the_method_has_its_own_learning_rate_and_clip(log: Log) -> None:
    own = first_step(log, optimizer="sgd", learning_rate=0.1, bias_learning_rate=0.01, clip=None)
    assert own == pytest.approx((0.2, 1 - 0.02), abs=1e-6)
    unsaid = first_step(log, optimizer="sgd", learning_rate=0.01, bias_learning_rate=None, clip=None)
    assert unsaid == pytest.approx((0.5 - 0.03, 1 - 10 * 0.02), abs=1e-6)  # ten times that of the ranker
    # norms 3 and 2 are clipped each on its own: 3 -> 2.5, 2 stays; a common norm would shrink both
    clipped = first_step(log, optimizer="sgd", learning_rate=0.1, clip=2.5)
    assert clipped == pytest.approx((0.5 - 0.25, 0.8), abs=1e-5)
    both = first_step(log, optimizer="sgd", learning_rate=0.1, clip=1.5)
    assert both == pytest.approx((0.5 - 0.15, 1 - 0.15), abs=1e-5)


def test_a_gradient_is_clipped_as_torch_does() -> None:
    for length in (0.5, 20.0):
        ours, theirs = ([nn.Parameter(torch.zeros(size)) for size in (3, 5, 7)] for _ in range(2))
        for number, (one, other) in enumerate(zip(ours[:2], theirs[:2], strict=True)):  # the third has none
            one.grad = torch.linspace(-1, number + 1, len(one)) * length
            other.grad = one.grad.clone()
        clip_gradient(ours, 5.0)
        nn.utils.clip_grad_norm_(theirs, 5.0)
        for one, other in zip(ours[:2], theirs[:2], strict=True):
            assert torch.allclose(one.grad, other.grad, rtol=1e-6)
        assert ours[2].grad is None
    clip_gradient(ours[2:], 5.0)


def test_the_schedule_moves_the_step_size(log: Log) -> None:
    ranker, method = Scalar(), Rank()
    config = Training(steps=4, schedule="linear", optimizer="sgd", learning_rate=0.1, clip=None, device="cpu")
    trainer, positions = Trainer(ranker, method, config), [0.5]
    for step in range(4):
        trainer.step(batches_of(log), step)
        positions.append(ranker.weight.item())
    assert -np.diff(positions) == pytest.approx([0.3, 0.225, 0.15, 0.075], abs=1e-6)


def test_a_method_without_parameters_needs_no_optimiser(log: Log) -> None:
    trainer, _ = trainer_of(log, Naive())
    assert len(trainer.optimizer.param_groups) == 1
    assert len(trainer_of(log, DLA())[0].optimizer.param_groups) == 2


@pytest.mark.parametrize("name", ["adagrad", "adam", "adamw", "sgd"])
def test_optimiser_state_survives_a_file(name: str, tmp_path: Path) -> None:
    def steps(parameter: nn.Parameter, optimizer: torch.optim.Optimizer, gradients: list[float]) -> None:
        for gradient in gradients:
            parameter.grad = torch.full_like(parameter, gradient)
            optimizer.step()

    def fresh() -> tuple[nn.Parameter, torch.optim.Optimizer]:
        parameter = nn.Parameter(torch.linspace(-1, 1, 5))
        return parameter, make_optimizer(Training(optimizer=name), [([parameter], 0.1, 0.01)])

    straight, optimizer = fresh()
    steps(straight, optimizer, [1.0, -0.5, 2.0, 0.3])
    first, optimizer = fresh()
    steps(first, optimizer, [1.0, -0.5])
    write_tensors(tmp_path / "state", {"now": first.data} | optimizer_tensors(optimizer), {"a": [1]})
    tensors, note = read_tensors(tmp_path / "state")
    assert note == {"a": [1]}
    second, optimizer = fresh()
    second.data.copy_(tensors.pop("now"))
    restore_optimizer(optimizer, tensors)
    steps(second, optimizer, [2.0, 0.3])
    assert torch.equal(second, straight)


# ---- what a run leaves behind --------------------------------------------------------------------------------


def test_the_last_weights_stay_without_a_validation(log: Log) -> None:
    trainer, batches = trainer_of(log, DLA(), steps=10)
    other, _ = trainer_of(log, DLA(), steps=10)
    fit = trainer.run(batches)
    with torch.random.fork_rng():
        for step in range(10):
            other.step(batches, step)
    assert same(weights(trainer), weights(other))
    assert (fit.status, fit.step, fit.best) == ("finished", 10, None)
    assert [point["step"] for point in fit.curve] == [4, 8, 10]
    assert not trainer.ranker.training
    assert not trainer.method.training


def test_the_best_weights_come_back_after_the_last_step(log: Log) -> None:
    trainer, batches = trainer_of(log, DLA(), steps=12)
    validate = Scripted(0.1, 0.3, 0.2)
    fit = trainer.run(batches, validate=validate)
    assert (fit.status, fit.step, fit.best, fit.best_step) == ("finished", 12, 0.3, 8)
    assert same(trainer.ranker.state_dict(), validate.seen[1])
    assert not same(trainer.ranker.state_dict(), validate.seen[2])
    assert [(point["metric"], point["best"]) for point in fit.curve] == [(0.1, 0.1), (0.3, 0.3), (0.2, 0.3)]


def test_the_best_weights_come_back_when_patience_ends(log: Log) -> None:
    trainer, batches = trainer_of(log, PairDebias(), steps=100, patience=2)
    validate = Scripted(0.1, 0.5, 0.5, 0.4)  # no better is not better
    fit = trainer.run(batches, validate=validate)
    assert (fit.status, fit.step, fit.best_step) == ("stopped early", 16, 8)
    assert same(trainer.ranker.state_dict(), validate.seen[1])


def test_a_metric_that_is_not_a_number_is_never_best(log: Log) -> None:
    trainer, batches = trainer_of(log, Naive(), steps=12)
    validate = Scripted(math.nan, 0.3, math.nan)
    fit = trainer.run(batches, validate=validate)
    assert (fit.best, fit.best_step) == (0.3, 8)
    assert same(trainer.ranker.state_dict(), validate.seen[1])


def press_ctrl_c(at: int) -> Any:
    """A report that sends this process an interrupt at a step."""

    def report(progress: Progress) -> None:
        if progress.step == at:
            signal.raise_signal(signal.SIGINT)

    return report


def test_the_best_weights_come_back_after_an_interrupt(log: Log) -> None:
    trainer, batches = trainer_of(log, RegressionEM(), steps=100)
    validate = Scripted(0.4, 0.3, 0.2)
    before = signal.getsignal(signal.SIGINT)
    fit = trainer.run(batches, validate=validate, report=press_ctrl_c(12))
    assert (fit.status, fit.step, fit.best_step) == ("interrupted", 12, 4)
    assert same(trainer.ranker.state_dict(), validate.seen[0])
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_at_the_last_step_is_a_finished_run(log: Log) -> None:
    trainer, batches = trainer_of(log, DLA(), steps=12)
    assert trainer.run(batches, validate=Wavering(), report=press_ctrl_c(12)).status == "finished"


def test_a_second_interrupt_counts_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with deferred_interrupt() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_training_works_outside_the_main_thread(log: Log) -> None:
    trainer, batches = trainer_of(log, Naive(), steps=3)
    thread = threading.Thread(target=trainer.run, args=(batches,))
    thread.start()
    thread.join()
    assert trainer.fit.status == "finished"


def test_progress_says_what_happened(log: Log) -> None:
    trainer, batches = trainer_of(log, DLA(), steps=6)
    told: list[Progress] = []
    losses = []
    original = trainer.step

    def step(*args: Any) -> tuple[Tensor, int]:
        result = original(*args)
        losses.append(result[0].item())
        return result

    trainer.step = step  # type: ignore[method-assign]
    trainer.run(batches, validate=Wavering(), report=told.append)
    assert [progress.step for progress in told] == [4, 6]
    assert told[0].loss == pytest.approx(sum(losses[:4]) / 4)
    assert told[1].loss == pytest.approx(sum(losses[4:]) / 2)
    assert told[1].seconds > told[0].seconds > 0
    assert told[0].documents_per_second > 0
    assert told[0].curves["examination relative to rank 1"][0] == 1.0


def test_the_random_state_of_the_caller_is_left_alone(log: Log) -> None:
    trainer, batches = trainer_of(log, RegressionEM(labels="sampled"), steps=8)
    torch.manual_seed(99)
    expected = torch.rand(3)
    torch.manual_seed(99)
    trainer.run(batches, validate=Wavering())
    assert torch.equal(torch.rand(3), expected)


def test_the_random_state_of_the_caller_changes_nothing(log: Log) -> None:
    results = []
    for state in (1, 2):
        trainer, batches = trainer_of(log, RegressionEM(labels="sampled"), steps=8)
        torch.manual_seed(state)
        trainer.run(batches)
        results.append(weights(trainer))
    assert same(*results)


def test_a_step_after_a_validation_is_one_of_training(log: Log) -> None:
    seen: list[bool] = []

    class Watching(Rank):
        def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
            seen.append(self.training)
            return super().forward(relevance, batch)

    trainer = Trainer(Scalar(), Watching(), Training(steps=4, validate_every=2, **PLAIN))
    trainer.run(batches_of(log), validate=Scripted(0.1, 0.2))
    assert seen == [True] * 4


class Slow(nn.Module):
    """A part of a network, or of a method, that takes a quarter of the step."""

    rate_factor = 0.25

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0]))


class TwoParts(WithSide):
    """A ranker with a slow part, and a second network."""

    def __init__(self) -> None:
        own, side = Scalar(), Scalar()
        own.slow = Slow()
        super().__init__(own, side)

    def forward(self, documents: Tensor) -> Tensor:
        return self.ranker(documents) + self.ranker.slow.weight / len(documents) + self.side(documents)


def test_parts_take_their_share_of_the_step(log: Log) -> None:
    """A slow part moves a quarter as far; the penalty is that of the ranker, none of the second network."""
    ranker, method = TwoParts(), Rank()
    method.slow = Slow()
    method.loss = lambda relevance, bias: (relevance * 3.0).sum() + 2.0 * (bias + method.slow.weight).sum()
    given = PLAIN | {"optimizer": "sgd", "learning_rate": 0.1, "weight_decay": 0.2, "clip": None}
    trainer = Trainer(ranker, method, Training(steps=10, **given))
    trainer.step(batches_of(log), 0)
    assert ranker.ranker.weight.item() == pytest.approx(0.5 - 0.1 * (3 + 0.2 * 0.5), abs=1e-6)
    assert ranker.ranker.slow.weight.item() == pytest.approx(1 - 0.025 * (3 + 0.2), abs=1e-6)
    assert ranker.side.weight.item() == pytest.approx(0.5 - 0.1 * 3, abs=1e-6)
    assert method.bias.item() == pytest.approx(1 - 1.0 * 2, abs=1e-6)
    assert method.slow.weight.item() == pytest.approx(1 - 0.25 * 2, abs=1e-6)


class Sided(Rank):
    """What the second network learns when it goes on alone: to be small."""

    def side_loss(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        return relevance.square().sum()


@pytest.mark.parametrize(("metric", "taken"), [(0.4, False), (0.6, True)])
def test_a_second_network_goes_on_only_where_that_is_better(log: Log, metric: float, taken: bool) -> None:
    tower, method = WithSide(Scalar(), Scalar(), later=True), Sided()
    before = tower.side.weight.item()
    fit = Fit(step=4, best=0.5)
    config = Training(validate_every=4, learning_rate=0.1, **PLAIN)
    fit_side(tower, method, batches_of(log), config, fit, validate=Scripted(metric))
    assert (tower.side.weight.item() != before) == taken
    assert fit.best == max(metric, 0.5)


# ---- divergence ----------------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_stops_the_run(log: Log) -> None:
    method = Rank(lambda relevance, bias: relevance.sum() * math.inf)
    trainer = Trainer(Scalar(), method, Training(steps=10, validate_every=5, device="cpu"))
    with pytest.raises(RunError, match=r"diverged by step 5.*learning_rate"):
        trainer.run(batches_of(log))


def test_weights_that_are_not_finite_are_never_validated(log: Log) -> None:
    # the loss is still finite when a gradient overflows; the weights after that step are not
    def sharp(relevance: Tensor, bias: Tensor) -> Tensor:
        return (relevance.sum() - 0.5).abs().sqrt() + bias.sum()  # infinite slope at the start

    trainer = Trainer(Scalar(0.5), Rank(sharp), Training(steps=10, validate_every=1, device="cpu"))
    asked = Scripted(0.1, 0.2)
    with pytest.raises(RunError, match="diverged by step 1"):
        trainer.run(batches_of(log), validate=asked)
    assert asked.seen == []


def test_a_huge_learning_rate_diverges_with_a_message(log: Log) -> None:
    method = RegressionEM()
    trainer, batches = trainer_of(log, method, steps=200, optimizer="sgd", learning_rate=1e38, clip=None)
    with pytest.raises(RunError, match="diverged"):
        trainer.run(batches, validate=Wavering())


# ---- checkpoints and resuming --------------------------------------------------------------------------------


def uninterrupted(log: Log, method: MethodConfig, **settings: Any) -> Trainer:
    trainer, batches = trainer_of(log, method, **settings)
    trainer.run(batches, validate=Wavering())
    return trainer


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_a_resumed_run_is_the_uninterrupted_one(name: str, optimizer: str, log: Log, tmp_path: Path) -> None:
    method = METHODS[name]
    straight = uninterrupted(log, method, optimizer=optimizer)
    first, batches = trainer_of(log, method, optimizer=optimizer)
    fit = first.run(batches, validate=Wavering(), report=press_ctrl_c(12), checkpoints=tmp_path)
    assert (fit.status, fit.step) == ("interrupted", 12)

    second, batches = trainer_of(log, method, optimizer=optimizer)
    assert second.resume(tmp_path)
    fit = second.run(batches, validate=Wavering(), checkpoints=tmp_path)
    assert (fit.status, fit.step) == ("finished", 30)
    assert same(weights(second), weights(straight))
    assert metrics(second) == metrics(straight)
    assert (fit.best, fit.best_step) == (straight.fit.best, straight.fit.best_step)
    # not only the best weights, also those of the last step
    assert same(below(read_tensors(tmp_path / FILE)[0], "best."), weights(straight))


class Killed(Exception):
    """Stands for a process that ends without a word."""


@pytest.mark.parametrize("name", ["dla", "sampled", "pair_debias"])
@pytest.mark.parametrize("killed_at", [7, 10, 21])
def test_a_killed_run_resumes_from_its_last_checkpoint(
    name: str, killed_at: int, log: Log, tmp_path: Path
) -> None:
    method = METHODS[name]
    settings = {"checkpoint_every": 5, "validate_every": 4}  # checkpoints fall between validations
    straight = uninterrupted(log, method, **settings)
    first, batches = trainer_of(log, method, **settings)
    original = first.step

    def step(batches: Batches, step: int) -> tuple[Tensor, int]:
        if step == killed_at:
            raise Killed
        return original(batches, step)

    first.step = step  # type: ignore[method-assign]
    with pytest.raises(Killed):
        first.run(batches, validate=Wavering(), checkpoints=tmp_path)
    second, batches = trainer_of(log, method, **settings)
    assert second.resume(tmp_path)
    assert second.fit.step == killed_at // 5 * 5
    second.run(batches, validate=Wavering(), checkpoints=tmp_path)
    assert same(weights(second), weights(straight))
    assert metrics(second) == metrics(straight)


def test_an_interrupt_between_validations_resumes_exactly(log: Log, tmp_path: Path) -> None:
    method = METHODS["sampled"]
    straight = uninterrupted(log, method)
    first, batches = trainer_of(log, method)
    original = first.step

    def step(batches: Batches, step: int) -> tuple[Tensor, int]:
        if step == 13:
            signal.raise_signal(signal.SIGINT)
        return original(batches, step)

    first.step = step  # type: ignore[method-assign]
    fit = first.run(batches, validate=Wavering(), checkpoints=tmp_path)
    assert (fit.status, fit.step) == ("interrupted", 14)
    second, batches = trainer_of(log, method)
    assert second.resume(tmp_path)
    second.run(batches, validate=Wavering())
    assert same(weights(second), weights(straight))
    assert metrics(second) == metrics(straight)


def test_patience_is_remembered(log: Log, tmp_path: Path) -> None:
    first, batches = trainer_of(log, DLA(), steps=100, patience=3)
    first.run(batches, validate=Scripted(0.9, 0.1, 0.2), report=press_ctrl_c(12), checkpoints=tmp_path)
    second, batches = trainer_of(log, DLA(), steps=100, patience=3)
    assert second.resume(tmp_path)
    fit = second.run(batches, validate=Scripted(0.3, 0.3, 0.3), checkpoints=tmp_path)
    assert (fit.status, fit.step) == ("stopped early", 16)
    third, batches = trainer_of(log, DLA(), steps=100, patience=3)
    assert third.resume(tmp_path)
    fit = third.run(batches, validate=Scripted())
    assert (fit.status, fit.step) == ("stopped early", 16)  # not a step more
    assert same(weights(third), weights(second))


def test_a_finished_run_stays_finished_and_can_be_prolonged(log: Log, tmp_path: Path) -> None:
    first, batches = trainer_of(log, DLA(), steps=12)
    first.run(batches, validate=Wavering(), checkpoints=tmp_path)
    again, batches = trainer_of(log, DLA(), steps=12)
    assert again.resume(tmp_path)
    fit = again.run(batches, validate=Scripted())
    assert (fit.status, fit.step) == ("finished", 12)
    assert same(weights(again), weights(first))
    longer, batches = trainer_of(log, DLA(), steps=20)
    assert longer.resume(tmp_path)
    longer.run(batches, validate=Wavering())
    straight = uninterrupted(log, DLA(), steps=20)
    assert same(weights(longer), weights(straight))
    assert metrics(longer) == metrics(straight)


def test_an_interrupted_run_is_not_taken_past_its_last_step(log: Log, tmp_path: Path) -> None:
    first, batches = trainer_of(log, DLA(), steps=20)
    first.run(batches, validate=Wavering(), report=press_ctrl_c(12), checkpoints=tmp_path)
    shorter, batches = trainer_of(log, DLA(), steps=8)
    assert shorter.resume(tmp_path)
    fit = shorter.run(batches, validate=Scripted())
    assert (fit.status, fit.step) == ("finished", 12)


def test_there_may_be_no_checkpoint(log: Log, tmp_path: Path) -> None:
    trainer, _ = trainer_of(log, DLA())
    before = weights(trainer)
    assert not trainer.resume(tmp_path / "nowhere")
    assert same(weights(trainer), before)


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"learning_rate": 0.07}, "learning_rate"), ({"seed": 4}, "seed"), ({"optimizer": "adagrad"}, "optimizer")],
)
def test_other_settings_cannot_resume(settings: dict[str, Any], named: str, log: Log, tmp_path: Path) -> None:
    first, batches = trainer_of(log, DLA(), steps=4)
    first.run(batches, checkpoints=tmp_path)
    other, _ = trainer_of(log, DLA(), steps=4, **settings)
    before = weights(other)
    with pytest.raises(RunError, match=rf"another {named};"):
        other.resume(tmp_path)
    assert same(weights(other), before)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_falling_step_size_belongs_to_its_number_of_steps(schedule: str, log: Log, tmp_path: Path) -> None:
    first, batches = trainer_of(log, DLA(), steps=20, schedule=schedule)
    first.run(batches, report=press_ctrl_c(4), checkpoints=tmp_path)
    longer, _ = trainer_of(log, DLA(), steps=40, schedule=schedule)
    with pytest.raises(RunError, match="another steps;"):
        longer.resume(tmp_path)


def test_another_method_cannot_resume(log: Log, tmp_path: Path) -> None:
    first, batches = trainer_of(log, IPW(propensity=(1.0, 0.5)), steps=4)
    first.run(batches, checkpoints=tmp_path)
    same_again, _ = trainer_of(log, IPW(propensity=(1.0, 0.5)), steps=4)
    assert same_again.resume(tmp_path)  # a tuple in the settings is a list on disk, and still the same
    for method in (IPW(propensity=(1.0, 0.4)), Naive()):
        other, _ = trainer_of(log, method, steps=4)
        with pytest.raises(RunError, match="another method;"):
            other.resume(tmp_path)


def test_a_checkpoint_is_data_and_not_code(log: Log, tmp_path: Path) -> None:
    trainer, batches = trainer_of(log, DLA(), steps=8)
    trainer.run(batches, validate=Wavering(), checkpoints=tmp_path / "new" / "folder")
    (file,) = (tmp_path / "new" / "folder").iterdir()  # nothing half-written lies about
    with safe_open(file, "pt") as opened:
        names, note = set(opened.keys()), json.loads(opened.metadata()["unskew"])
        assert torch.equal(opened.get_tensor("best.method.bias.table0"), trainer.method.bias.table0)
    assert {name.split(".")[0] for name in names} == {"now", "best", "optimizer"}
    assert note["fit"]["step"] == 8
    assert note["identity"]["learning_rate"] == trainer.config.learning_rate
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    ends = [about["data_offsets"][1] for name, about in header.items() if name != "__metadata__"]
    assert 8 + length + max(ends) == len(content)  # a length, JSON and numbers: neither a zip nor a pickle


def test_a_checkpoint_that_is_half_written_leaves_the_one_before(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, batches = trainer_of(log, DLA(), steps=8)
    trainer.run(batches, checkpoints=tmp_path)
    before = (tmp_path / FILE).read_bytes()

    def die(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
        Path(path).write_bytes(before[:100])
        raise Killed

    monkeypatch.setattr("unskew.learning.fitting.runtime.save_file", die)
    with pytest.raises(Killed):
        trainer.save(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


# ---- what is drawn -------------------------------------------------------------------------------------------


def drawn_numbers(log: Log, seed: int) -> list[float]:
    """What a method draws at each of four steps."""
    drawn: list[float] = []

    def loss(relevance: Tensor, bias: Tensor) -> Tensor:
        drawn.append(torch.rand(()).item())
        return relevance.sum() + bias.sum()

    trainer = Trainer(Scalar(), Rank(loss), Training(steps=4, seed=seed, **PLAIN))
    trainer.run(batches_of(log))
    return drawn


def test_every_step_of_every_seed_draws_numbers_of_its_own(log: Log) -> None:
    found = [drawn_numbers(log, seed) for seed in (0, 1, 2)]
    assert len({number for numbers in found for number in numbers}) == 12
    assert drawn_numbers(log, 1) == found[1]


def test_epochs_of_neighbouring_seeds_are_others(log: Log) -> None:
    """Were a seed and an epoch added up, epoch 1 of seed 0 would be epoch 0 of seed 1."""
    orders = [batches_of(log, seed=seed)._shuffle(epoch).tolist() for seed in range(4) for epoch in range(4)]
    assert len({tuple(order) for order in orders}) == 16


# ---- without a number of steps -------------------------------------------------------------------------------

ROUNDS: dict[str, Any] = {"steps": None, "schedule": "cosine", "validate_every": 50}


def test_training_ends_with_the_round_that_brings_nothing(log: Log) -> None:
    trainer, batches = trainer_of(log, DLA(), **ROUNDS)
    validate = Scripted(*[0.9] * 4, 0.3, *[0.8] * 4, 0.6, *[0.7] * 9, 0.5)  # only ends of rounds count
    fit = trainer.run(batches, validate=validate)
    assert (fit.status, fit.step, fit.best, fit.best_step) == ("finished", 1000, 0.6, 500)
    assert same(trainer.ranker.state_dict(), validate.seen[9])


def test_the_end_of_a_round_is_validated_whatever_the_interval(log: Log) -> None:
    trainer, batches = trainer_of(log, Naive(), **ROUNDS | {"validate_every": 100})
    trainer.run(batches, validate=Scripted(0.1, 0.2, 0.1, 0.1, 0.1, 0.1))
    assert [point["step"] for point in trainer.fit.curve] == [100, 200, 250, 300, 400, 500]


def test_a_resumed_run_ends_where_the_uninterrupted_one_does(log: Log, tmp_path: Path) -> None:
    method = RegressionEM(labels="sampled")
    straight, batches = trainer_of(log, method, **ROUNDS)
    straight.run(batches, validate=Wavering())
    broken, _ = trainer_of(log, method, **ROUNDS)
    assert broken.run(batches, validate=Wavering(), report=press_ctrl_c(350), checkpoints=tmp_path).step == 350
    again, _ = trainer_of(log, method, **ROUNDS)
    assert again.resume(tmp_path)
    again.run(batches, validate=Wavering(), checkpoints=tmp_path)
    assert metrics(again) == metrics(straight)
    assert same(weights(again), weights(straight))
    third, _ = trainer_of(log, method, **ROUNDS)
    assert third.resume(tmp_path)
    assert third.run(batches, validate=Wavering()).step == straight.fit.step  # it is over, and stays so


def test_no_step_asks_torch_to_seed_devices_that_are_not_there(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, batches = trainer_of(log, DLA(), steps=3)
    monkeypatch.setattr(torch, "manual_seed", pytest.fail)
    assert trainer.run(batches).status == "finished"


def test_losses_of_a_window_are_brought_over_once(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, batches = trainer_of(log, Naive(), steps=8, validate_every=8)
    each: list[float] = []
    step = trainer.step

    def watched(*args: Any) -> Any:
        loss, documents = step(*args)
        each.append(loss.item())
        return loss, documents

    monkeypatch.setattr(trainer, "step", watched)
    fit = trainer.run(batches)
    assert len(each) == 8
    assert fit.curve[0]["loss"] == pytest.approx(sum(each) / 8, rel=1e-12)
