"""Rankers: networks from a feature vector to one or several relevance outputs.

The shape is LayerNorm -> Linear -> ELU per layer with no activation after the last, as in the published
experiments; a linear ranker is the same with no hidden layer. Both can be changed for engines that run networks
without (Solr's `NeuralNetworkModel` has no LayerNorm and no ELU). The published rankers normalise the raw feature
vector too (`input_norm = true`). That throws away each document's overall level, which relevance may depend on;
docs/records/input_norm.md shows what it costs, so it is off unless asked for. Weights start Glorot-uniform, biases
at 0 (the published code draws biases too; a constant added to every score of a list changes no ranking). Those of
a linear ranker start at 0: what is drawn stays in the score for hundreds of steps, and what methods learn of bias
makes up for it meanwhile (docs/records/levels.md).

Legend: n documents, D features, O outputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field
from torch import nn

from unskew.learning.rankers.contract import RankerConfig

Activation = Literal["elu", "relu", "leaky_relu", "sigmoid", "tanh"]
ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "elu": partial(nn.ELU, inplace=True),
    "relu": partial(nn.ReLU, inplace=True),
    "leaky_relu": partial(nn.LeakyReLU, inplace=True),
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}
"""What stands between layers."""


class MLP(RankerConfig):
    """A feed-forward ranker."""

    name: Literal["mlp"] = "mlp"
    fitted_by: ClassVar[Literal["steps"]] = "steps"
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

    def build(self, features: int, outputs: int, at_zero: slice = slice(0, 0)) -> nn.Module:
        """The network, weights drawn from torch's current random state; outputs `at_zero` start as 0."""
        return network(features, (*self.sizes, outputs), self, at_zero)


class Linear(RankerConfig):
    """A linear ranker: scores are a weighted sum of the (normalised) features."""

    name: Literal["linear"] = "linear"
    fitted_by: ClassVar[Literal["steps"]] = "steps"
    input_norm: bool = False
    """Normalise each document's feature vector first, as published."""

    def build(self, features: int, outputs: int, at_zero: slice = slice(0, 0)) -> nn.Module:
        """The layer, all of which starts at 0."""
        return network(features, (outputs,), MLP(sizes=(), input_norm=self.input_norm), slice(None))


def network(
    features: int, sizes: tuple[int, ...], config: MLP, at_zero: slice = slice(0, 0), *, norm: bool = True
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
