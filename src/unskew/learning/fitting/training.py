"""How to train: optimiser, step sizes, how long, and what chooses the weights.

Without a number of steps a network is trained in *rounds*. The first takes F = 250 steps, every other as many as
all before it, so that round r = 0, 1, ... ends after F 2^r steps. The step size falls from its full value to 0
within each round (Loshchilov and Hutter 2017, SGDR), so every round ends with quiet weights. Only those ends are
compared and kept: held-out clicks are few, and the best of many noisy validations is a lucky one.

Training is over when a round gains less than two fifths of all that rounds have gained. Where it loses no more
than a quarter, its weights are taken all the same: what is learned of bias settles later than the ranking. The
step size is a function of the step alone, and what ends a run is a function of its curve, so a resumed run takes
the same steps and ends at the same one. How these numbers and the defaults were
chosen: docs/records/defaults.md.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Literal, TypedDict

import torch
from pydantic import Field
from torch import nn

from unskew.learning.methods.contract import LearnFrom
from unskew.settings import Config

FIRST = 250
"""Steps of the first round."""
MOST = FIRST * 2**7
"""Steps after which training ends whatever the held-out clicks say: eight rounds."""
WORTH = 0.4
"""Share of all that rounds have gained that a round must gain for another to follow."""
NOISE = 0.25
"""Share of all that rounds have gained that a round may lose and still count as no worse."""
UNCHOSEN = 1000
"""Steps where nothing is held out that could say when to stop."""


class TrainingKeywords(TypedDict, total=False):
    """The fields of `Training`, as keywords of `learn`."""

    steps: int | None
    batch: int
    optimizer: Literal["adagrad", "adam", "adamw", "sgd"]
    learning_rate: float
    bias_learning_rate: float | None
    weight_decay: float | None
    clip: float | None
    schedule: Literal["constant", "linear", "cosine"]
    warmup: int
    learn_from: LearnFrom
    validate_on: Literal["labels", "clicks", "nothing"]
    validate_every: int
    patience: int | None
    checkpoint_every: int
    seed: int
    threads: int | None
    device: str
    workers: int | None


class Training(Config):
    """How a network is trained: steps, batches, step sizes, and what chooses its weights."""

    steps: Annotated[int, Field(ge=1)] | None = None
    """Optimiser steps; none: as many as held-out clicks ask for, in rounds of 250, 250, 500, 1,000, ..."""
    batch: int = Field(256, ge=1)
    """Rows (distinct rankings, or pages) of a step."""
    optimizer: Literal["adagrad", "adam", "adamw", "sgd"] = "adam"
    """Adagrad starts its accumulator at 0.1, as in the published experiments (which took steps of 0.05)."""
    learning_rate: float = Field(0.003, gt=0)
    """Step size of the ranker."""
    bias_learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Step size of the method's own parameters; none means ten times that of the ranker."""
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    """L2 penalty on the ranker; none: 0.1 / sqrt(queries) for networks on features, else 0."""
    clip: Annotated[float, Field(gt=0)] | None = 5.0
    """Largest gradient norm, for the ranker and for the method's parameters apart."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """How the step size falls to 0 over the run, or over each round; a falling one takes the jitter out of the
    bias estimates."""
    warmup: int = Field(0, ge=0)
    """Steps over which the step size rises from 0 first."""
    learn_from: LearnFrom = "everything"
    """All impressions, those with a `display_time` above 0 ("displayed"), or those of the first rank that were put
    there at random ("randomized"); held-out clicks are of the same kind."""
    validate_on: Literal["labels", "clicks", "nothing"] = "clicks"
    """What chooses the best weights: nDCG@10 on labelled lists, or the likelihood of held-out clicks."""
    validate_every: int = Field(50, ge=1)
    """Steps between validations."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """Stop after this many validations without a better one."""
    checkpoint_every: int = Field(500, ge=1)
    """Steps between checkpoints, where there is a folder for them."""
    seed: int = Field(0, ge=0)
    """Seed of weights, batches and whatever a method draws."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """Processor threads to train with; none: one for a small network, else as many as torch has."""
    device: str = "auto"
    """cpu, cuda, cuda:1, ...; auto takes a GPU where there is one."""
    workers: Annotated[int, Field(ge=1)] | None = None
    """Parts that each step's batch is drawn in, from as many shares of the data; none: one for each process."""

    @property
    def in_rounds(self) -> bool:
        """Whether training goes on in rounds until a held-out part says that it is enough."""
        return self.steps is None and self.validate_on != "nothing"

    @property
    def most(self) -> int:
        """The last step there can be."""
        return MOST if self.in_rounds else self.steps or UNCHOSEN

    def round_at(self, step: int) -> tuple[int, int]:
        """First step of the round that a step is in, and the step after its last; one round where steps are given.

        >>> [Training().round_at(step) for step in (0, 249, 250, 500, 999)]
        [(0, 250), (0, 250), (250, 500), (500, 1000), (500, 1000)]
        """
        if not self.in_rounds:
            return 0, self.most
        if step < FIRST:
            return 0, FIRST
        begun = FIRST << ((step // FIRST).bit_length() - 1)
        return begun, 2 * begun

    def ends_round(self, step: int) -> bool:
        """Whether so many steps end a round."""
        return step > 0 and step == self.round_at(step - 1)[1]

    def torch_device(self) -> torch.device:
        """The device to train on."""
        if self.device != "auto":
            return torch.device(self.device)
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def rate(self, step: int) -> float:
        """Factor on the step size at this step.

        >>> [round(Training(steps=4, schedule="cosine").rate(step), 3) for step in range(4)]
        [1.0, 0.854, 0.5, 0.146]
        >>> [round(Training().rate(step), 3) for step in (0, 125, 249, 250, 375, 499)]
        [1.0, 0.5, 0.0, 1.0, 0.5, 0.0]
        """
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        first, end = self.round_at(step)
        first = max(first, self.warmup)
        done = (step - first) / max(end - first, 1)
        return {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[self.schedule]


def enough(ends: Sequence[float | None]) -> bool:
    """Whether the last round brought so little that another is not worth its steps.

    `ends` has the metric at the end of each round, higher is better.

    >>> enough([1.0, 2.0]), enough([1.0, 2.0, 1.9]), enough([1.0, 2.0, 2.2])
    (False, True, True)
    """
    known = _known(ends)
    if len(known) < 2:
        return len(known) < len(ends)
    *before, last = known
    return last - max(before) <= WORTH * max(last - before[0], 0.0)


def no_worse(ends: Sequence[float | None]) -> bool:
    """Whether the weights at the end of the last round are the ones to take.

    >>> no_worse([1.0, 2.0]), no_worse([1.0, 2.0, 1.9]), no_worse([1.0, 2.0, 1.5])
    (True, True, False)
    """
    if not _known(ends[-1:]):
        return False
    *before, last = _known(ends)
    return not before or last > max(before) - NOISE * (max(before) - before[0])


def _known(metrics: Sequence[float | None]) -> list[float]:
    return [metric for metric in metrics if metric is not None and not math.isnan(metric)]


def decay_for(queries: int) -> float:
    """L2 penalty of a network that learns from so many queries; few are soon known by heart.

    >>> decay_for(100), decay_for(10_000)
    (0.01, 0.001)
    """
    return 0.1 / math.sqrt(max(queries, 1))


def by_rate(module: nn.Module) -> dict[float, list[nn.Parameter]]:
    """Parameters by the factor on their step size: 1, or the `rate_factor` of a part of the module."""
    parts = [part for part in module.modules() if hasattr(part, "rate_factor")]
    factors = {id(weight): float(part.rate_factor) for part in parts for weight in part.parameters()}  # type: ignore[arg-type]
    found: dict[float, list[nn.Parameter]] = {}
    for weight in module.parameters():
        found.setdefault(factors.get(id(weight), 1.0), []).append(weight)
    return found


def make_optimizer(
    config: Training, groups: Iterable[tuple[list[nn.Parameter], float, float]]
) -> torch.optim.Optimizer:
    """The optimiser that the config names, over groups of parameters with their step size and weight decay."""
    for name in ("add_param_group", "state_dict", "load_state_dict"):
        bare = inspect.unwrap(getattr(torch.optim.Optimizer, name))
        vars(bare)["__dynamo_disable"] = bare  # else torch loads its compiler, to leave it as it is
    rows = [{"params": own, "lr": rate, "base": rate, "weight_decay": decay} for own, rate, decay in groups if own]
    if config.optimizer == "adagrad":
        return torch.optim.Adagrad(rows, initial_accumulator_value=0.1, fused=True)
    kinds: dict[str, Callable[..., torch.optim.Optimizer]]
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    return kinds[config.optimizer](rows, fused=True)


@torch.no_grad()
def move_along(optimizer: torch.optim.Optimizer, rate: float, clip: float | None) -> None:
    """A step of this share of the full one along the gradient, its length clipped by groups."""
    for group in optimizer.param_groups:
        group["lr"] = group["base"] * rate
        if clip is not None:
            clip_gradient(group["params"], clip)
    # without what torch wraps around it: hooks, and its compiler, which takes more than a second to load
    inspect.unwrap(type(optimizer).step)(optimizer)


def clip_gradient(parameters: Iterable[nn.Parameter], norm: float) -> None:
    """Shrink the gradient of these parameters to a norm, where it is longer; nothing waits for the device.

    As `torch.nn.utils.clip_grad_norm_` does, without its checks and groupings, which take as long again.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if gradients:
        length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_mul_(gradients, (norm / (length + 1e-6)).clamp(max=1.0))
