"""One training loop for every method: it knows optimisers, schedules, validation and checkpoints, and no method.

Everything random is a function of (seed, step), so a resumed run takes the same steps as an uninterrupted one.
"""

import json
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from unskew.errors import Key, Option, RunError
from unskew.learning.fitting import runtime
from unskew.learning.fitting.training import Training, by_rate, enough, make_optimizer, move_along, no_worse
from unskew.learning.methods.contract import MethodModule
from unskew.learning.rankers.networks import WithSide, penalty_of
from unskew.learning.scoring.scorer import below
from unskew.types import ClickBatch


@dataclass
class Progress:
    """What a run tells while it trains."""

    step: int
    loss: float
    """Mean training loss since the last report."""
    metric: float | None
    """Validation metric, higher is better."""
    best: float | None
    seconds: float
    """Time spent training so far, validation included."""
    documents_per_second: float
    """Documents that went through the ranker and back, per second."""
    curves: dict[str, list[float]] = field(default_factory=dict)
    """What the method has learned of bias so far, by what it is."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What else the method says of itself."""


@dataclass
class Fit:
    """A finished, stopped or interrupted training."""

    curve: list[dict[str, Any]] = field(default_factory=list)
    step: int = 0
    best: float | None = None
    best_step: int = 0
    status: Literal["running", "finished", "stopped early", "interrupted"] = "running"


class Draws(Protocol):
    """What training draws its batches from."""

    def at(self, step: int) -> ClickBatch:
        """The batch of this step, from 0."""


Validate = Callable[[nn.Module, MethodModule], float]
Report = Callable[[Progress], None]


class Together(nn.Module):
    """Ranker and method as one module, from a batch to its loss."""

    def __init__(self, ranker: nn.Module, method: MethodModule) -> None:
        super().__init__()
        self.ranker, self.method = ranker, method
        self.side_alone = False
        """Whether the second network of a tower learns alone; the ranker stays as it is."""
        self.always = False
        """Whether the loss has a gradient whatever the batch, as processes wait for each other's."""

    def forward(self, batch: ClickBatch) -> Tensor:
        """The loss, with the penalty of a second network."""
        if self.side_alone:
            assert isinstance(self.ranker, WithSide)
            with torch.no_grad():
                outputs = self.ranker.eval().ranker(batch.documents)
            relevance = batch.pad(self.ranker.join(outputs, batch.documents))
            loss = self.method.side_loss(relevance, batch) + penalty_of(self.ranker)
        else:
            loss = self.method(batch.pad(self.ranker(batch.documents)), batch) + penalty_of(self.ranker)
        if self.always and not loss.requires_grad:
            loss = loss + 0.0 * next(self.ranker.parameters()).sum()
        return loss


class Trainer:
    """A ranker, a method, and the state that training carries from step to step."""

    leads = True
    """Whether this process validates, reports and writes."""

    def __init__(
        self, ranker: nn.Module, method: MethodModule, config: Training, identity: dict[str, Any] | None = None
    ) -> None:
        """`identity` names what else a checkpoint belongs to (method, data); a resumed run must have the same."""
        self.ranker, self.method, self.config, self.identity = ranker, method, config, identity or {}
        self.modules = nn.ModuleDict({"ranker": ranker, "method": method})
        self.together = Together(ranker, method)
        self.device = next(ranker.parameters()).device
        self.threads = config.threads
        self.fit = Fit()
        rate, decay = config.learning_rate, config.weight_decay or 0.0
        side = ranker.side if isinstance(ranker, WithSide) else nn.Module()  # its gradient is clipped apart
        beside = set(side.parameters())
        own = config.bias_learning_rate or 10 * rate
        groups = [
            ([weight for weight in weights if weight not in beside], factor * rate, decay)
            for factor, weights in by_rate(ranker).items()
        ]
        groups.append((list(side.parameters()), rate, 0.0))  # it has a penalty of its own
        groups += [(weights, factor * own, 0.0) for factor, weights in by_rate(method).items()]
        self.optimizer = make_optimizer(config, groups)
        self.best_weights: dict[str, Tensor] = {}
        self._bad = 0  # validations since the best one
        self._window = dict.fromkeys(("loss", "documents", "steps", "seconds"), 0.0)  # since the last report
        self._losses: list[Tensor] = []  # on the device still, to be added to the window

    def run(
        self,
        batches: Any,
        *,
        validate: Validate | None = None,
        report: Report | None = None,
        checkpoints: Path | None = None,
    ) -> Fit:
        """Train to the last step, to the end of patience, or to Ctrl-C; the best weights are in place after.

        `batches` is what a step draws from: `Draws`, or the parts of it that several make.
        """
        if self.fit.status == "running":
            with torch.random.fork_rng(), runtime.threads(self.threads), self.interrupts() as interrupted:
                while self.fit.status == "running":
                    self._advance(batches, validate, report)
                    if interrupted() and self.fit.status == "running":
                        self.fit.status = "interrupted"
                    due = self.fit.status != "running" or self.fit.step % self.config.checkpoint_every == 0
                    if checkpoints is not None and self.leads and due:
                        self.save(checkpoints)
        self.finish()
        return self.fit

    def finish(self) -> None:
        """Put the best weights in place."""
        if self.best_weights:
            self.modules.load_state_dict(self.best_weights)
        self.modules.eval()

    def interrupts(self) -> AbstractContextManager[Callable[[], bool]]:
        """Whether Ctrl-C was pressed, to be asked after each step."""
        return runtime.deferred_interrupt()

    def _advance(self, batches: Any, validate: Validate | None, report: Report | None) -> None:
        """One step and, where due, a validation and a report."""
        config, fit, window = self.config, self.fit, self._window
        began = time.perf_counter()
        loss, documents = self.step(batches, fit.step)
        fit.step += 1
        self._losses.append(loss)
        window["documents"] += documents
        window["steps"] += 1
        window["seconds"] += time.perf_counter() - began
        ended = config.ends_round(fit.step)
        if fit.step % config.validate_every == 0 or ended:
            began = time.perf_counter()
            self._check_finite()
            metric = None if validate is None else self._validate(validate)
            progress = self._record(metric, time.perf_counter() - began)
            if report is not None and self.leads:
                report(progress)
        if config.patience is not None and self._bad >= config.patience:
            fit.status = "stopped early"
        elif fit.step >= config.most or (ended and enough(self._ends())):
            fit.status = "finished"

    def _ends(self) -> list[float | None]:
        """Metrics at the ends of rounds so far."""
        return [point["metric"] for point in self.fit.curve if self.config.ends_round(point["step"])]

    def step(self, batches: Draws, step: int) -> tuple[Tensor, int]:
        """One optimiser step; the loss and the number of documents behind it."""
        runtime.seed_draws(self.config.seed * 1_000_003 + step, self.device)
        batch = batches.at(step)
        if self.method.input_gradient:
            batch.documents.requires_grad_(True)
        if not (self.ranker.training and self.method.training):
            self.modules.train()
        loss: Tensor = self.together(batch)
        self.update(loss, step)
        return loss.detach(), len(batch.documents)

    def update(self, loss: Tensor, step: int) -> None:
        """Move every parameter along the gradient of the loss."""
        self.forget_gradient()
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        move_along(self.optimizer, self.config.rate(step), self.config.clip)

    def forget_gradient(self) -> None:
        """Begin a step without a gradient; `zero_grad` does the same and takes a hundred times as long."""
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def _validate(self, validate: Validate) -> float:
        """The metric; the weights are kept if they are the best so far, in rounds at the end of one."""
        self.modules.eval()
        with torch.no_grad():
            metric = self.agreed(validate(self.ranker, self.method) if self.leads else 0.0)
        fit = self.fit
        if not self.config.in_rounds:
            better = not math.isnan(metric) and (fit.best is None or metric > fit.best)
        elif self.config.ends_round(fit.step):
            better = no_worse([*self._ends(), metric])
        else:
            return metric
        if better:
            fit.best, fit.best_step, self._bad = metric, fit.step, 0
            self.best_weights = {name: value.clone() for name, value in self.modules.state_dict().items()}
        else:
            self._bad += 1
        return metric

    def agreed(self, metric: float) -> float:
        """The metric of the process that leads."""
        return metric

    def _check_finite(self) -> None:
        """Stop a run that diverged, before its weights reach a validation or become the best."""
        self._collect()
        loss = self._window["loss"] / self._window["steps"]
        finite = math.isfinite(loss) and all(bool(p.isfinite().all()) for p in self.modules.parameters())
        if not finite:
            raise RunError(
                f"training diverged by step {self.fit.step}, with a loss of {loss}",
                hint=("lower ", Option(Key("training.learning_rate")), " or clip weights"),
            )

    def _collect(self) -> None:
        """Bring the losses of the window over from the device: once, not after each step."""
        if self._losses:
            self._window["loss"] = sum(torch.stack(self._losses).tolist(), self._window["loss"])
            self._losses = []

    def _record(self, metric: float | None, validation_seconds: float) -> Progress:
        """Close the window since the last report and put it on the curve."""
        fit, window = self.fit, self._window
        loss = window["loss"] / window["steps"]
        progress = Progress(
            step=fit.step,
            loss=loss,
            metric=metric,
            best=fit.best,
            seconds=(fit.curve[-1]["seconds"] if fit.curve else 0.0) + window["seconds"] + validation_seconds,
            documents_per_second=window["documents"] / max(window["seconds"], 1e-9),
            curves={curve.label: list(curve.values) for curve in self.method.curves()},
            notes=self.method.notes(),
        )
        fit.curve.append(vars(progress))
        self._window = dict.fromkeys(window, 0.0)
        return progress

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint holds besides its place: weights, best weights and optimiser state."""
        tensors = {f"now.{name}": value for name, value in self.modules.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best_weights.items()}
        tensors |= {
            f"optimizer.{name}": value for name, value in runtime.optimizer_tensors(self.optimizer).items()
        }
        return tensors

    def save(self, folder: Path) -> None:
        """Write a checkpoint."""
        self._collect()
        place = {"fit": vars(self.fit), "bad": self._bad, "window": self._window, "identity": self._identity()}
        runtime.write_tensors(folder / runtime.FILE, self.state(), place)

    def resume(self, folder: Path | None) -> bool:
        """Take up a checkpoint; False where there is none. More steps may be asked for than it had."""
        state = self.saved(folder)
        if state is not None:
            self.restore(*state)
        return state is not None

    def saved(self, folder: Path | None) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The checkpoint in a folder, after a check that it is one of this run; None where there is none."""
        if folder is None or not (folder / runtime.FILE).exists():
            return None
        tensors, place = runtime.read_tensors(folder / runtime.FILE)
        now, then = self._identity(), place["identity"]
        changed = sorted(key for key in now | then if now.get(key) != then.get(key))
        if changed:
            raise RunError(
                f"was begun with another {', '.join(changed)}",
                path=folder,
                hint=(Option("force", True), " starts afresh"),
            )
        return tensors, place

    def restore(self, tensors: dict[str, Tensor], place: dict[str, Any]) -> None:
        """Go on where a checkpoint was written."""
        self.modules.load_state_dict(below(tensors, "now."))
        self.best_weights = below(tensors, "best.")
        runtime.restore_optimizer(self.optimizer, below(tensors, "optimizer."))
        self.fit, self._bad, self._window = Fit(**place["fit"]), place["bad"], place["window"]
        ended = self.fit.status == "stopped early" or (self.config.in_rounds and self.fit.status == "finished")
        if not ended:
            self.fit.status = "running" if self.fit.step < self.config.most else "finished"

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to be taken up."""
        loose = {"patience", "device"} | ({"steps"} if self.config.schedule == "constant" else set())
        settings = self.config.model_dump(mode="json", exclude=loose) | self.identity
        plain: dict[str, Any] = json.loads(json.dumps(settings))  # as it comes back: a tuple is a list there
        return plain


def fit_side(
    tower: WithSide,
    method: MethodModule,
    batches: Any,
    config: Training,
    fit: Fit,
    validate: Validate | None = None,
    *,
    kind: type[Trainer] = Trainer,
) -> None:
    """Let the second network go on alone, as the run trained and for as many steps, from the weights as they are.

    `validate` chooses among its weights, those it began with included.
    """
    trainer = kind(tower, method, config.model_copy(update={"steps": max(fit.step, 1)}))
    trainer.together.side_alone = True
    trainer.optimizer = make_optimizer(config, [(list(tower.side.parameters()), config.learning_rate, 0.0)])
    trainer.fit.best = fit.best  # what it chooses must be better
    if validate is not None:
        trainer.best_weights = {name: value.clone() for name, value in trainer.modules.state_dict().items()}
    fit.best = trainer.run(batches, validate=validate).best
