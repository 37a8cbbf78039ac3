"""Who trains: a network in steps, trees in rounds, or a package by itself; one interface, and a table of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from unskew.clicks.lists.scaling import Scaler
from unskew.errors import ConfigError
from unskew.learning.fitting.boosting import Boosting
from unskew.learning.fitting.distributed import Parallel
from unskew.learning.fitting.loop import Draws, Fit, Report, Trainer, Training, fit_side, threads
from unskew.learning.fitting.packages import Packaged
from unskew.learning.fitting.processes import workers_of, world
from unskew.learning.methods import MethodConfig, PackageConfig
from unskew.learning.model import Model, build
from unskew.learning.rankers import Trees
from unskew.learning.rankers.beside import WithSide
from unskew.learning.scorer import Scorer
from unskew.running.choosing import click_choice, click_ndcg, label_choice
from unskew.running.data import TrainingData
from unskew.running.settings import IN_MEMORY, Settings


class Fitter(ABC):
    """An untrained model and what trains it."""

    identity: dict[str, Any]
    """What a checkpoint belongs to."""

    @abstractmethod
    def resume(self, folder: Path | None) -> bool:
        """Go on from a checkpoint, where there is one."""

    @abstractmethod
    def fit(self, report: Report | None, checkpoints: Path | None) -> tuple[Scorer, Fit]:
        """Train; the model with its best weights, and how it went."""


class NetworkFitter(Fitter):
    """A network, trained in steps by one process or several."""

    model: Model
    trainer: Trainer
    batches: Draws

    def __init__(self, asked: Settings, data: TrainingData, scaler: Scaler) -> None:
        """Weights are drawn from torch's current random state."""
        method, ranker = asked.method, asked.ranker
        if not isinstance(method, MethodConfig) or ranker is None:
            raise ConfigError(f"{method.name} {'needs a ranker' if ranker is None else 'grows its own trees'}")
        self.asked, self.data, self.device = asked, data, device_of(asked.training)
        self.model = build(method, ranker, scaler, scaler.width, data.context(method))
        self.model.ranker.to(self.device)
        self.model.method.to(self.device)
        self.identity = asked.model_dump(mode="json", exclude={"training"})
        self.prepare()

    def prepare(self) -> None:
        """Batches, and the training loop over them."""
        training, workers = self.asked.training, workers_of(self.asked.training)
        self.batches = self.data.batches(self.model, training, self.device, workers)
        kind = Trainer if workers == 1 else Parallel
        self.trainer = kind(self.model.ranker, self.model.method, training, self.identity)

    def resume(self, folder: Path | None) -> bool:
        """Go on from a checkpoint, where there is one."""
        return self.trainer.resume(folder)

    def fit(self, report: Report | None, checkpoints: Path | None) -> tuple[Scorer, Fit]:
        """Train to the last step or until validation says stop, and what comes after the ranker."""
        training, model = self.asked.training, self.model
        fit = self.trainer.run(self.batches, validate=self.validate(), report=report, checkpoints=checkpoints)
        if isinstance(model.ranker, WithSide) and model.ranker.later:
            with torch.random.fork_rng(), threads(training.threads):
                torch.manual_seed(training.seed)
                fit_side(model.ranker, model.method, self.batches, fit.step)
        return model, fit

    def validate(self) -> Callable[..., float] | None:
        """What chooses weights. Process 0 does; the others are told, and need only know that somebody does."""
        if self.asked.training.validate_on == "nothing":
            return None
        if world()[0] > 0:
            return lambda *_: float("nan")
        if self.data.validation is not None:
            choice = label_choice(self.model, self.data.validation)
        else:
            choice = click_choice(self.model, self.data, self.device)
        return lambda *_: choice()


class TreeFitter(NetworkFitter):
    """Trees, grown in rounds from a log in memory."""

    def prepare(self) -> None:
        """The whole table, and boosting over it."""
        assert isinstance(self.asked.ranker, Trees)
        data = self.data.in_memory(self.asked.method)
        if workers_of(self.asked.training) > 1:
            raise ConfigError(IN_MEMORY)
        self.batches = data.table(self.model, self.asked.training, self.device)
        self.trainer = Boosting(
            self.model.ranker, self.model.method, self.asked.ranker, self.asked.training, self.identity
        )


class PackageFitter(Fitter):
    """A package that grows its own trees."""

    def __init__(self, asked: Settings, data: TrainingData, scaler: Scaler) -> None:
        """Pages to learn from, and what chooses the number of trees."""
        if not isinstance(asked.method, PackageConfig):
            raise ConfigError(f"{asked.method.name} needs a ranker")
        self.data, self.identity = (
            data.in_memory(asked.method),
            asked.model_dump(mode="json", exclude={"training"}),
        )
        if workers_of(asked.training) > 1:
            raise ConfigError(IN_MEMORY)
        chosen_by = self.data.held_out if self.data.validation is None else self.data.validation
        self.packaged = Packaged(asked.method, scaler, self.data.train, chosen_by, asked.training)

    def resume(self, folder: Path | None) -> bool:
        """There is nothing to go on from."""
        return False

    def fit(self, report: Report | None, checkpoints: Path | None) -> tuple[Scorer, Fit]:
        """Let the package grow its trees."""
        validation, held_out = self.data.validation, self.data.held_out
        validate: Callable[[Scorer], float] | None = None
        if validation is not None:
            lists = validation
            validate = lambda scorer: label_choice(scorer, lists)()  # noqa: E731
        elif held_out is not None:
            log = held_out
            validate = lambda scorer: click_ndcg(scorer, log)  # noqa: E731
        return self.packaged.run(validate, report), self.packaged.fit


FITTERS: dict[str, Callable[[Settings, TrainingData, Scaler], Fitter]] = {
    "steps": NetworkFitter,
    "rounds": TreeFitter,
    "package": PackageFitter,
}
"""Who trains, by `Settings.fitted_by`."""


def device_of(training: Training) -> torch.device:
    """The device asked for, if it can be used."""
    try:
        device = training.torch_device()
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts that it was built for the device
        raise ConfigError(f"training.device: {str(error).splitlines()[0]}") from error
    return device
