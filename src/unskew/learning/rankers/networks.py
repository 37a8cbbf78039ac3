"""Rankers: networks from a feature vector to one or several relevance outputs.

The shape is LayerNorm -> Linear -> ELU per layer with no activation after the last, as in the published
experiments; a linear ranker is the same with no hidden layer. The published rankers normalise the raw feature
vector too (`input_norm = true`). That throws away each document's overall level, which relevance may depend on;
EXPERIMENTS.md shows what it costs, so it is off unless asked for. Weights start Glorot-uniform, biases at 0 (the
published code draws biases too; a constant added to every score of a list changes no ranking).

Legend: n documents, D features, O outputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from unskew.clicks.counts.batches import Batches
from unskew.learning.rankers.trees import Trees
from unskew.types import ClickBatch


class MLP(BaseModel):
    """A feed-forward ranker."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Literal["mlp"] = "mlp"
    sizes: tuple[int, ...] = Field((512, 256, 128), strict=False)
    """Units of the hidden layers."""
    input_norm: bool = False
    """Normalise each document's feature vector before the first layer, as published."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of hidden units dropped in training."""
    epsilon: float = Field(1e-5, gt=0)
    """Constant inside LayerNorm; the original TensorFlow code used 1e-3."""

    def build(self, features: int, outputs: int) -> nn.Module:
        """The network, weights drawn from torch's current random state."""
        return Network(features, (*self.sizes, outputs), self)


class Linear(BaseModel):
    """A linear ranker: scores are a weighted sum of the (normalised) features."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Literal["linear"] = "linear"
    input_norm: bool = False
    """Normalise each document's feature vector first, as published."""

    def build(self, features: int, outputs: int) -> nn.Module:
        """The layer, weights drawn from torch's current random state."""
        return Network(features, (outputs,), MLP(sizes=(), input_norm=self.input_norm))


class Network(nn.Module):
    """LayerNorm -> Linear -> ELU per layer, [n, D] -> [n, O]."""

    def __init__(self, features: int, sizes: tuple[int, ...], config: MLP) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = features
        for depth, size in enumerate(sizes):
            if depth > 0:
                layers.append(nn.ELU(inplace=True))
                if config.dropout:
                    layers.append(nn.Dropout(config.dropout))
            if depth > 0 or config.input_norm:
                layers.append(nn.LayerNorm(width, eps=config.epsilon))
            linear = nn.Linear(width, size)
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
            layers.append(linear)
            width = size
        self.layers = nn.Sequential(*layers)

    def forward(self, documents: Tensor) -> Tensor:
        """Relevance outputs of each document."""
        outputs: Tensor = self.layers(documents)
        return outputs


def plain_network(features: int, sizes: tuple[int, ...]) -> nn.Sequential:
    """Linear layers with ELU between them and no normalisation, Glorot-uniform weights, biases at 0."""
    layers: list[nn.Module] = []
    for width, size in itertools.pairwise((features, *sizes)):
        layers += [nn.ELU(inplace=True)] if layers else []
        layers.append(linear := nn.Linear(width, size))
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
    return nn.Sequential(*layers)


class WithSide(nn.Module):
    """A ranker and a second network on the same features, outputs side by side."""

    def __init__(self, ranker: nn.Module, side: nn.Module, width: int, *, later: bool) -> None:
        """`later`: the second network is trained after the ranker, and gives zeros until then."""
        super().__init__()
        self.ranker, self.side, self.width, self.later = ranker, side, width, later

    def forward(self, documents: Tensor) -> Tensor:
        """Outputs of the ranker, then of the other, [n, O + S]."""
        return self.join(self.ranker(documents), documents)

    def join(self, outputs: Tensor, documents: Tensor) -> Tensor:
        """The second network's outputs beside those of the ranker, [n, O] -> [n, O + S]."""
        idle = self.later and self.training
        beside = outputs.new_zeros(len(outputs), self.width) if idle else self.side(documents)
        return torch.cat([outputs, beside], dim=-1)

    def weight_norm(self) -> Tensor:
        """sum ||W||^2 / 2 over the layers of the second network."""
        return torch.stack([w.square().sum() / 2 for w in self.side.parameters() if w.ndim > 1]).sum()

    def fit_side(
        self, batches: Batches, steps: int, loss: Callable[[Tensor, ClickBatch], Tensor], *, penalty: float
    ) -> None:
        """Train the second network alone, with an L2 penalty; the ranker stays as it is."""
        optimizer = torch.optim.Adam(self.side.parameters(), lr=0.003, weight_decay=penalty)
        for step in range(steps):
            batch = batches.at(step)
            with torch.no_grad():
                outputs = self.ranker(batch.documents)
            value = loss(batch.pad(torch.cat([outputs, self.side(batch.documents)], dim=-1)), batch)
            optimizer.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def beside_trees(trees: Trees, features: int, outputs: int, boosted: int) -> WithSide:
    """Trees that give the first outputs, and a network for the others."""
    width = outputs - boosted
    network = Network(features, (*trees.beside, width), MLP())
    return WithSide(trees.build(features, boosted), network, width, later=False)


Ranker = MLP | Linear | Trees
RANKERS: dict[str, type[MLP] | type[Linear] | type[Trees]] = {"mlp": MLP, "linear": Linear, "trees": Trees}
"""Rankers that can be asked for by name."""
