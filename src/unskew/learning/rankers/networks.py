"""Rankers: networks from a feature vector to one or several relevance outputs, alone or side by side.

The shape is LayerNorm -> Linear -> ELU per layer with no activation after the last, as in the published
experiments; a linear ranker is the same with no hidden layer. Both can be changed for engines that run networks
without (Solr's `NeuralNetworkModel` has no LayerNorm and no ELU). The published rankers normalise the raw feature
vector too (`input_norm = true`). That throws away each document's overall level, which relevance may depend on;
docs/records/input_norm.md shows what it costs, so it is off unless asked for. Weights start Glorot-uniform, biases
at 0 (the published code draws biases too; a constant added to every score of a list changes no ranking). Those of
a linear ranker start at 0: what is drawn stays in the score for hundreds of steps, and what methods learn of bias
makes up for it meanwhile (docs/records/levels.md).

Legend: n documents, D features, T tracked ones, O outputs, S those of a second network.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from unskew.errors import ConfigError, Key, Option
from unskew.settings import Config
from unskew.tracking.features import FEATURES

NOTHING = slice(0, 0)
"""No output starts at 0."""
Activation = Literal["elu", "relu", "leaky_relu", "sigmoid", "tanh"]
ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "elu": partial(nn.ELU, inplace=True),
    "relu": partial(nn.ReLU, inplace=True),
    "leaky_relu": partial(nn.LeakyReLU, inplace=True),
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}
"""What stands between layers."""


class RankerConfig(Config):
    """Base of all that `ranker =` may name."""

    name: str

    fitted_by: ClassVar[Literal["steps", "rounds"]] = "steps"
    """What training counts: optimiser steps, or rounds of boosting."""
    reads: ClassVar[bool] = False
    """Whether it reads what queries and documents say."""

    def usual_training(self, steps: int | None) -> Mapping[str, int]:
        """Training settings that suit the ranker better than the usual ones, where none were given."""
        return {}

    def located(self, folder: Path) -> Self:
        """The same with relative paths taken from this folder; most name no files."""
        return self


class MLP(RankerConfig):
    """A feed-forward ranker."""

    name: Literal["mlp"] = "mlp"
    sizes: tuple[int, ...] = Field((64, 32), strict=False)
    """Units of the hidden layers. 512, 256 and 128 are published; they take ten times as long and, with
    few queries, learn the logged ranks by heart, which ruins what is learned of examination. Chosen over worlds of
    many kinds: docs/records/defaults.md."""
    input_norm: bool = False
    """Normalise each document's feature vector before the first layer, as published."""
    hidden_norm: bool = True
    """Normalise what goes into each layer but the first, as published."""
    activation: Activation = "elu"
    """What each hidden unit gives: elu as published, or relu, leaky_relu, sigmoid or tanh."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of hidden units dropped in training."""
    epsilon: float = Field(1e-5, gt=0)
    """Constant inside LayerNorm; the original TensorFlow code used 1e-3."""

    def build(self, features: int, outputs: int, at_zero: slice = NOTHING) -> nn.Module:
        """The network, weights drawn from torch's current random state; outputs `at_zero` start as 0."""
        return network(features, (*self.sizes, outputs), self, at_zero)


class Linear(RankerConfig):
    """A linear ranker: scores are a weighted sum of the (normalised) features."""

    name: Literal["linear"] = "linear"
    input_norm: bool = False
    """Normalise each document's feature vector first, as published."""

    def build(self, features: int, outputs: int, at_zero: slice = NOTHING) -> nn.Module:
        """The layer, all of which starts at 0."""
        return network(features, (outputs,), MLP(sizes=(), input_norm=self.input_norm), slice(None))


def network(
    features: int, sizes: tuple[int, ...], config: MLP, at_zero: slice = NOTHING, *, norm: bool = True
) -> nn.Sequential:
    """LayerNorm (unless `norm` is off) -> Linear -> activation per layer, [n, D] -> [n, O]."""
    layers: list[nn.Module] = []
    for depth, (width, size) in enumerate(itertools.pairwise((features, *sizes))):
        if depth > 0:
            layers.append(ACTIVATIONS[config.activation]())
            layers += [nn.Dropout(config.dropout)] if config.dropout else []
        if norm and (config.hidden_norm if depth > 0 else config.input_norm):
            layers.append(nn.LayerNorm(width, eps=config.epsilon))
        linear = nn.Linear(width, size)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers.append(linear)
    linear.weight.data[at_zero] = 0
    return nn.Sequential(*layers)


# ---- side by side ----


class WithSide(nn.Module):
    """A ranker and a second network on the same documents, [n, D] -> [n, O + S]."""

    def __init__(self, ranker: nn.Module, side: nn.Module, *, later: bool = False, penalty: float = 0.0) -> None:
        """`later`: when the ranker is trained, the second network goes on alone."""
        super().__init__()
        self.ranker, self.side, self.later, self.strength = ranker, side, later, penalty

    def forward(self, documents: Tensor) -> Tensor:
        """Outputs of the ranker, then of the other."""
        return self.join(self.ranker(documents), documents)

    def join(self, outputs: Tensor, documents: Tensor) -> Tensor:
        """The second network's outputs beside those of the ranker, [n, O] -> [n, O + S]."""
        return torch.cat([outputs, self.side(documents)], dim=-1)


def penalty_of(ranker: nn.Module) -> Tensor | float:
    """What training adds to the loss: lambda sum ||W||^2 / 2 over the layers of a second network, biases apart."""
    if not isinstance(ranker, WithSide) or not ranker.strength:
        return 0.0
    layers = [w.square().sum() / 2 for w in ranker.side.parameters() if w.ndim > 1]
    return ranker.strength * torch.stack(layers).sum()


def alone(output: int, at_zero: slice, outputs: int) -> slice:
    """`at_zero` for a network that gives this output alone."""
    return slice(0, 1) if output in range(outputs)[at_zero] else NOTHING


class ClickNetworks(nn.Module):
    """A network on clicks for each output but the first, [n, T] -> [n, O - 1]."""

    def __init__(self, features: int, outputs: int, at_zero: slice, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.each = nn.ModuleList(
            network(features, (*sizes, 1), MLP(), alone(output, at_zero, outputs)) for output in range(1, outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        """What each network says; nothing, [n, 0], where the first output is the only one."""
        return torch.cat([x[:, :0], *(one(x) for one in self.each)], dim=-1)


class DoublyRobustTower(nn.Module):
    """MLP_0(f), MLP_1(x), MLP_2(x), ...: x the tracked clicks, which are the last features, f the others.

    Made for the method `approximated_dr`, as `doubly_robust_mix` is for texts: Zou et al., "Approximated Doubly
    Robust Search Relevance Estimation", CIKM 2022, section 6.2. The networks share no weight. [n, D] -> [n, O].
    """

    def __init__(self, features: int, outputs: int, at_zero: slice, config: DoublyRobustMLP) -> None:
        super().__init__()
        self.other = features - config.tracked
        self.imputation = network(self.other, (*config.imputation, 1), MLP(), alone(0, at_zero, outputs))
        self.clicks = ClickNetworks(config.tracked, outputs, at_zero, config.sizes)

    def forward(self, documents: Tensor) -> Tensor:
        """The imputation, then what each network of clicks says."""
        first, x = documents[:, : self.other], documents[:, self.other :]
        return torch.cat([self.imputation(first), self.clicks(x)], dim=-1)


class DoublyRobustMLP(RankerConfig):
    """Features for the first output, tracked clicks for each other."""

    name: Literal["doubly_robust_mlp"] = "doubly_robust_mlp"
    tracked: int = Field(len(FEATURES), ge=1)
    """How many of the features, the last ones, are tracked clicks; as many as `data.tracked` adds."""
    imputation: tuple[int, ...] = Field((64, 32), strict=False)
    """Hidden units of the first network, as `mlp` has them."""
    sizes: tuple[int, ...] = Field((64, 32, 16), strict=False)
    """Hidden units of the others, as published."""

    def build(self, features: int, outputs: int, at_zero: slice = NOTHING) -> nn.Module:
        """The networks, weights drawn from torch's current random state; outputs `at_zero` start as 0."""
        if features <= self.tracked:
            raise ConfigError(
                f"{self.tracked} of the features are to be tracked clicks, and there are {features}",
                argument=Key("ranker.tracked"),
                value=self.tracked,
                hint=("give features of documents too, and tracked clicks by ", Option(Key("data.tracked"))),
            )
        return DoublyRobustTower(features, outputs, at_zero, self)
