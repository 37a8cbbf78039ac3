"""Who trains: a network in steps, trees in rounds, or a package by itself; one interface, and a table of them."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from unskew.errors import ConfigError, DataError, Key, Option
from unskew.learning.boosters import package
from unskew.learning.fitting.boosting import Boosting
from unskew.learning.fitting.distributed import Parallel, Part, workers_of, world
from unskew.learning.fitting.loop import Draws, Fit, Progress, Report, Trainer, fit_side
from unskew.learning.fitting.packages import grow
from unskew.learning.fitting.runtime import threads, threads_for
from unskew.learning.fitting.training import Training
from unskew.learning.methods import MethodConfig, PackageConfig
from unskew.learning.rankers import Trees
from unskew.learning.rankers.networks import WithSide
from unskew.learning.scoring.model import Model, build
from unskew.learning.scoring.scorer import Scorer
from unskew.measuring import measure_ranking
from unskew.tables.lists.scaling import Scaler
from unskew.types import Array, Lists, Log
from unskew.workflows.proofs.clicks import click_likelihood, impression_likelihood
from unskew.workflows.runs.data import LogData, TrainingData
from unskew.workflows.runs.settings import IN_MEMORY, Settings


def label_choice(scorer: Scorer, lists: Lists) -> Callable[[], float]:
    """nDCG@10 on labelled lists, prepared once."""
    if not (lists.labels > 0).any():
        raise DataError(
            "no validation document has a grade above 0, so labels cannot choose weights", path=lists.name
        )
    documents = scorer.prepared(lists)
    return lambda: _ndcg(scorer.score_prepared(documents, lists.sizes), lists.labels, lists.offsets)


def click_choice(model: Model, data: TrainingData, device: torch.device) -> Callable[[], float]:
    """The likelihood of held-out clicks."""
    batches = data.held_out_batches(model, device)
    if batches is None:
        raise DataError(
            "the held-out pages have no click, so clicks cannot choose weights",
            path=data.documents.name,
            hint=("give ", Option("validation"), ", or ", Option("validate_on", "nothing")),
        )
    alone = batches.position.shape[1] == 1  # which result of a page is clicked says nothing where there is one
    return lambda: impression_likelihood(model, batches) if alone else click_likelihood(model, batches)


def click_ndcg(scorer: Scorer, log: Log) -> float:
    """nDCG@10 of the pages of a log, by their clicks: how well a model without a click model ranks them."""
    return _ndcg(scorer.score(log.lists)[log.row], log.click.astype(np.int64), log.offsets)


def _ndcg(scores: Array, labels: Array, offsets: Array) -> float:
    return measure_ranking(scores, (labels, offsets), "ndcg@10").means["ndcg@10"]


class Fitter(ABC):
    """An untrained model and what trains it."""

    def __init__(self, asked: Settings, data: TrainingData, scaler: Scaler) -> None:
        """Build the model; its weights are drawn from torch's current random state."""
        self.asked, self.data, self.scaler = asked, data, scaler
        self.identity = asked.model_dump(mode="json", exclude={"training"})  # what a checkpoint belongs to

    def resume(self, folder: Path | None) -> bool:
        """Go on from a checkpoint, where there is one."""
        return False

    @abstractmethod
    def fit(self, report: Report | None, checkpoints: Path | None) -> tuple[Scorer, Fit]:
        """Train; the model with its best weights, and how it went."""

    def whole_log(self) -> LogData:
        """The data of those who grow trees: in memory, and in one process."""
        if not isinstance(self.data, LogData) or workers_of(self.asked.training) > 1:
            raise ConfigError(IN_MEMORY)
        return self.data


class NetworkFitter(Fitter):
    """A network, trained in steps by one process or several."""

    trainer: Trainer
    batches: Draws | list[Part]

    def __init__(self, asked: Settings, data: TrainingData, scaler: Scaler) -> None:
        super().__init__(asked, data, scaler)
        method, ranker = asked.method, asked.ranker
        if not isinstance(method, MethodConfig) or ranker is None:
            raise ConfigError(f"{method.name} {'needs a ranker' if ranker is None else 'grows its own trees'}")
        if method.settles and data.validation is None:
            raise ConfigError(f"{method.name} as it is set needs labelled lists: give validation")
        self.device = device_of(asked.training)
        self.model = build(method, ranker, scaler, scaler.width, data.context(method))
        self.model.ranker.to(self.device)
        self.model.method.to(self.device)
        self.prepare()

    def prepare(self) -> None:
        """Batches, and the training loop over them."""
        training, workers = self.asked.training, workers_of(self.asked.training)
        self.batches = self.data.batches(self.model, training, self.device, workers)
        kind = Trainer if workers == 1 else Parallel
        self.trainer = kind(self.model.ranker, self.model.method, training, self.identity)
        facts, (_, processes) = self.data.facts(), world()  # threads that the products of a step are worth
        documents = training.batch / processes * facts.impressions / max(facts.pages, 1)
        weights = sum(weight.numel() for weight in self.model.ranker.parameters())
        self.trainer.threads = training.threads or threads_for(documents * weights, torch.get_num_threads())

    def resume(self, folder: Path | None) -> bool:
        """Go on from a checkpoint, where there is one."""
        return self.trainer.resume(folder)

    def fit(self, report: Report | None, checkpoints: Path | None) -> tuple[Scorer, Fit]:
        """Train to the last step or until validation says stop, and what comes after the ranker."""
        model = self.model
        fit = self.trainer.run(self.batches, validate=self.validate(), report=report, checkpoints=checkpoints)
        if isinstance(model.ranker, WithSide) and model.ranker.later:
            with torch.random.fork_rng(), threads(self.trainer.threads):
                torch.manual_seed(self.asked.training.seed)
                chosen = self.validate() if self.data.validation is not None else None  # clicks need no score
                kind = Parallel if isinstance(self.trainer, Parallel) else Trainer
                training = self.asked.training
                fit_side(model.ranker, model.method, self.batches, training, fit, chosen, kind=kind)
        return model, fit

    def validate(self) -> Callable[..., float] | None:
        """What chooses weights. Process 0 does; the others are told, and need only know that somebody does."""
        if self.asked.training.validate_on == "nothing":
            return None
        if world()[0] > 0:
            return lambda *_: float("nan")
        lists = self.data.validation
        if lists is not None:
            choice = label_choice(self.model, lists)
        else:
            choice = click_choice(self.model, self.data, self.device)

        def chosen(*_: object) -> float:
            if lists is not None and self.asked.method.settles:
                self.model.settle(lists)  # the method takes from labelled lists what it was asked to
            return choice()

        return chosen


class TreeFitter(NetworkFitter):
    """Trees, grown in rounds from a log in memory."""

    def prepare(self) -> None:
        """The whole table, and boosting over it."""
        training, ranker = self.asked.training, self.asked.ranker
        assert isinstance(ranker, Trees)
        self.batches = self.whole_log().table(self.model, training, self.device)
        self.trainer = Boosting(self.model.ranker, self.model.method, ranker, training, self.identity)


class PackageFitter(Fitter):
    """A package that grows its own trees; its steps are the trees in use, and there are no checkpoints."""

    def __init__(self, asked: Settings, data: TrainingData, scaler: Scaler) -> None:
        super().__init__(asked, data, scaler)
        if not isinstance(asked.method, PackageConfig):
            raise ConfigError(f"{asked.method.name} needs a ranker")
        self.method, self.log_data = asked.method, self.whole_log()
        package(asked.method.package)  # or an error that says how to get it

    def fit(self, report: Report | None, checkpoints: Path | None) -> tuple[Scorer, Fit]:
        """Let the package grow its trees."""
        began, data = time.perf_counter(), self.log_data
        log, lists, held_out = data.train, data.validation, data.held_out
        scorer = grow(self.method, self.scaler, log, held_out if lists is None else lists, self.asked.training)
        best = None
        if lists is not None:
            best = label_choice(scorer, lists)()
        elif held_out is not None:
            best = click_ndcg(scorer, held_out)
        seconds, rounds = time.perf_counter() - began, self.method.rounds
        if report is not None:
            rate = rounds * len(log.row) / seconds
            report(Progress(rounds, float("nan"), best, best, seconds, rate))
        kept = scorer.trees.kept[0]
        return scorer, Fit([{"step": kept, "metric": best, "seconds": seconds}], kept, best, kept, "finished")


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
        raise ConfigError(str(error).splitlines()[0], argument=Key("training.device")) from error
    return device
