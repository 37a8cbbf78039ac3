"""How to train: optimiser, step sizes, how long, and what chooses the weights.

Without a number of steps a network is trained in *rounds*, each twice as long as the one before:

    round r = 0, 1, ...: steps from F (2^r - 1) to F (2^(r+1) - 1), F = 100

The step size falls from its full value to 0 within each round (Loshchilov and Hutter 2017, SGDR, T_mult = 2), so
every round ends with quiet weights, and those ends can be compared. Training is over when a round brings the
held-out clicks (or labels) too little to be worth twice its steps. The step size is a function of the step alone,
and what ends a run is a function of its curve: a resumed run takes the same steps and ends at the same one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import nn

from unskew.checking import Config
from unskew.learning.methods.contract import LearnFrom

FIRST = 100
"""Steps of the first round."""
MOST = FIRST * (2**8 - 1)
"""Steps after which training ends whatever the held-out clicks say: eight rounds."""
LITTLE = 0.05
"""Share of all that was gained since the first validation, below which a round is the last."""
UNCHOSEN = 1000
"""Steps where nothing is held out that could say when to stop."""


class Training(Config):
    """How to train."""

    steps: Annotated[int, Field(ge=1)] | None = 1000
    """Optimiser steps; none: as many as held-out clicks ask for, in rounds, each twice as long as the last."""
    batch: int = Field(256, ge=1)
    """Rows (distinct rankings, or pages) of a step."""
    optimizer: Literal["adagrad", "adam", "adamw", "sgd"] = "adam"
    """Adagrad starts its accumulator at 0.1, as in the published experiments (which took steps of 0.05)."""
    learning_rate: float = Field(0.003, gt=0)
    """Step size of the ranker."""
    bias_learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Step size of the method's own parameters; none means ten times that of the ranker."""
    weight_decay: float = Field(0.0, ge=0)
    """L2 penalty on the ranker."""
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

        >>> [Training(steps=None).round_at(step) for step in (0, 99, 100, 299, 300)]
        [(0, 100), (0, 100), (100, 300), (100, 300), (300, 700)]
        """
        if not self.in_rounds:
            return 0, self.most
        length = FIRST << ((step // FIRST + 1).bit_length() - 1)
        return length - FIRST, 2 * length - FIRST

    def torch_device(self) -> torch.device:
        """The device to train on."""
        if self.device != "auto":
            return torch.device(self.device)
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def rate(self, step: int) -> float:
        """Factor on the step size at this step.

        >>> [round(Training(steps=4, schedule="cosine").rate(step), 3) for step in range(4)]
        [1.0, 0.854, 0.5, 0.146]
        >>> [round(Training(steps=None).rate(step), 3) for step in (0, 50, 99, 100, 200, 299)]
        [1.0, 0.5, 0.0, 1.0, 0.5, 0.0]
        """
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        first, end = self.round_at(step)
        first = max(first, self.warmup)
        done = (step - first) / max(end - first, 1)
        return {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[self.schedule]


def enough(curve: Sequence[tuple[int, float | None]], first: int) -> bool:
    """Whether the round from step `first` on brought so little that twice its steps are not worth it.

    `curve` has steps and metrics, higher is better. Little is less than a share of all that was gained so far.

    >>> enough([(50, 1.0), (100, 2.0), (200, 2.9), (300, 3.0)], 100)
    False
    >>> enough([(50, 1.0), (100, 2.0), (200, 1.9), (300, 2.0)], 100)
    True
    """
    known = [(step, metric) for step, metric in curve if metric is not None and not math.isnan(metric)]
    before = [metric for step, metric in known if step <= first]
    after = [metric for step, metric in known if step > first]
    if not before or not after:
        return not known
    gained = max(after) - max(before)
    return gained <= LITTLE * max(max(after) - known[0][1], 0.0)


def make_optimizer(
    parameters: list[nn.Parameter], config: Training, rate: float, decay: float
) -> torch.optim.Optimizer:
    """The optimiser that the config names, over one group of parameters."""
    groups = [{"params": parameters, "lr": rate, "base": rate, "weight_decay": decay}]
    match config.optimizer:
        case "adagrad":
            return torch.optim.Adagrad(groups, initial_accumulator_value=0.1, fused=True)
        case "adam":
            return torch.optim.Adam(groups, fused=True)
        case "adamw":
            return torch.optim.AdamW(groups, fused=True)
        case "sgd":
            return torch.optim.SGD(groups, fused=True)
