"""Networks as engines take them: weights, layers or an ONNX graph on unscaled numbers.

    linear     w . x + c                                   any engine
    layers     activation(W x + b), one after another      Solr's NeuralNetworkModel
    ONNX       from `features` float32 [n, E] to `score` float32 [n, 1], scaling inside

Scaling by a shift s and a scale t for each column is worked into the first layer: W (x - s) / t + b is
(W / t) x + (b - W (s / t)). The weights of a score over several outputs are worked into the last.

Legend: E encoded columns, O relevance outputs, H units.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from unskew.errors import ConfigError
from unskew.learning.scoring.scorer import Scorer
from unskew.serving.export.plain import Layer
from unskew.types import Array

if TYPE_CHECKING:
    from torch import nn

SHIFTED = ("none", "standard", "minmax")
"""Scalings that are a shift and a scale of each column."""
BY_DOCUMENT = (*SHIFTED, "log1p")
"""Scalings that a graph can do, which sees one document at a time."""


def scored_network(scorer: Scorer) -> tuple[nn.Module, Array]:
    """The network, and w [O]: its outputs . w are the score; or an error that says why there is none."""
    from unskew.learning.rankers.networks import WithSide
    from unskew.learning.rankers.trees import tree_rankers
    from unskew.learning.scoring.model import Model

    if scorer.reads:
        raise ConfigError("it reads text, whose tokens need the tokenizer of the encoder; serve it with unskew")
    if scorer.card.trees is not None:
        raise ConfigError("its score is of trees, not of a network; export it to lightgbm, solr or opensearch")
    assert isinstance(scorer, Model)
    weights = scorer.method.score_weights()
    if weights is None:
        name = scorer.card.method["name"]
        raise ConfigError(
            f"the score of {name} is not a weighted sum of the network's outputs; serve it with unskew"
        )
    if tree_rankers(scorer.ranker):
        raise ConfigError("trees and a network score together; serve it with unskew")
    ranker = scorer.ranker.ranker if isinstance(scorer.ranker, WithSide) else scorer.ranker
    return ranker, weights.detach().cpu().double().numpy()


def plain_weights(scorer: Scorer) -> Layer | None:
    """The weights of a linear model, one unit on unscaled columns; None where it is none."""
    try:
        ranker, _ = scored_network(scorer)
    except ConfigError:
        return None
    from torch import nn

    if not isinstance(ranker, nn.Sequential) or len(ranker) != 1 or not isinstance(ranker[0], nn.Linear):
        return None
    return plain_layers(scorer, {})[0]


def plain_layers(scorer: Scorer, activations: dict[str, str]) -> list[Layer]:
    """The layers of a network on unscaled columns, or an error that says why an engine cannot run them.

    `activations` are those that the engine has: its name for each of ours.
    """
    ranker, weights = scored_network(scorer)
    if scorer.scaler.kind not in SHIFTED:
        raise ConfigError(
            f"scaling {scorer.scaler.kind} cannot be worked into weights; learn with one of {', '.join(SHIFTED)}"
        )
    layers, scaler = list(_layers(ranker, activations)), scorer.scaler
    if scaler.kind != "none":
        first = layers[0]
        matrix = first.matrix / scaler.statistics["scale"]
        layers[0] = Layer(matrix, first.bias - matrix @ scaler.statistics["shift"], first.activation)
    last = layers[-1]
    layers[-1] = Layer((weights @ last.matrix)[None], np.array([weights @ last.bias]), "identity")
    return layers


def _layers(network: nn.Module, activations: dict[str, str]) -> Iterator[Layer]:
    """Each Linear, with the activation after it."""
    from torch import nn

    if not isinstance(network, nn.Sequential):
        raise ConfigError("it is several networks side by side")
    modules = [each for each in network if not isinstance(each, nn.Dropout)]
    units = {_activation(each) for each in modules} - {None, *activations}
    why = [f"its units are {name} (ranker.activation)" for name in sorted(filter(None, units))]
    if any(isinstance(each, nn.LayerNorm) for each in modules):
        why.append("it normalises layers (ranker.hidden_norm, ranker.input_norm)")
    if why:
        raise ConfigError(f"{' and '.join(why)}; it knows {', '.join(activations)}, and no norm")
    for at, module in enumerate(modules):
        if isinstance(module, nn.Linear):
            name = _activation(modules[at + 1]) if at + 1 < len(modules) else None
            matrix, bias = (each.detach().double().cpu().numpy() for each in (module.weight, module.bias))
            yield Layer(matrix, bias, "identity" if name is None else activations[name])


def _activation(module: nn.Module) -> str | None:
    """The name of an activation; None where the module is none."""
    from unskew.learning.rankers.networks import ACTIVATIONS

    return next((name for name, make in ACTIVATIONS.items() if type(make()) is type(module)), None)


def standalone(scorer: Scorer) -> bytes:
    """An ONNX graph from unscaled columns to the score."""
    import torch

    from unskew.learning.scoring.onnx_graph import graph_of

    (network, weights), scaler = scored_network(scorer), scorer.scaler
    if scaler.kind not in BY_DOCUMENT:
        raise ConfigError(
            f"scaling {scaler.kind} needs more than one document; learn with one of {', '.join(BY_DOCUMENT)}"
        )
    told = {name: torch.from_numpy(np.asarray(each)) for name, each in scaler.statistics.items()}
    weigh = torch.from_numpy(weights[:, None].astype(np.float32))

    class Scored(torch.nn.Module):
        """Scaling in 64-bit floats as the model does it, the network, and the weights of its score."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            if scaler.kind == "log1p":
                rows = (rows.double().sign() * (rows.double().abs() + 1).log()).float()
            elif scaler.kind != "none":
                rows = ((rows.double() - told["shift"]) / told["scale"]).float()
            found: torch.Tensor = self.network(rows) @ weigh
            return found

    return graph_of(Scored(), np.zeros((2, scorer.card.features), np.float32), output="score")
