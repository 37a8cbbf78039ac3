"""Networks side by side that share no weight: one on what a document is, the others on what was clicked before.

Reference: Zou et al., "Approximated Doubly Robust Search Relevance Estimation", CIKM 2022, section 6.2.

    doubly_robust_mlp    MLP_0(f),  MLP_1(x),  MLP_2(x), ...   x: tracked clicks, the last features;  f: the rest

Made for the method `approximated_dr`, as `doubly_robust_mix` is, for documents with features in the place of text.

Legend: n documents, D features, T tracked ones, O outputs.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from unskew.errors import ConfigError
from unskew.learning.rankers.contract import RankerConfig
from unskew.learning.rankers.networks import MLP, network
from unskew.tracking.features import FEATURES

NOTHING = slice(0, 0)


class ClickNetworks(nn.Module):
    """A network on clicks for each output but the first, [n, T] -> [n, O - 1]."""

    def __init__(self, features: int, outputs: int, at_zero: slice, sizes: tuple[int, ...]) -> None:
        super().__init__()
        zeros = range(outputs)[at_zero]
        self.each = nn.ModuleList(
            network(features, (*sizes, 1), MLP(), slice(0, 1) if output in zeros else NOTHING)
            for output in range(1, outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        """What each network says; nothing, [n, 0], where the first output is the only one."""
        return torch.cat([x[:, :0], *(one(x) for one in self.each)], dim=-1)


class DoublyRobustTower(nn.Module):
    """A network on the first features and `ClickNetworks` on the others, [n, D] -> [n, O]."""

    def __init__(self, features: int, outputs: int, at_zero: slice, config: DoublyRobustMLP) -> None:
        super().__init__()
        self.other = features - config.tracked
        zero = slice(0, 1) if 0 in range(outputs)[at_zero] else NOTHING
        self.imputation = network(self.other, (*config.imputation, 1), MLP(), zero)
        self.clicks = ClickNetworks(config.tracked, outputs, at_zero, config.sizes)

    def forward(self, documents: Tensor) -> Tensor:
        """The imputation, then what each network of clicks says."""
        first, x = documents[:, : self.other], documents[:, self.other :]
        return torch.cat([self.imputation(first), self.clicks(x)], dim=-1)


class DoublyRobustMLP(RankerConfig):
    """Features for the first output, tracked clicks for each other."""

    name: Literal["doubly_robust_mlp"] = "doubly_robust_mlp"
    fitted_by: ClassVar[Literal["steps"]] = "steps"
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
                f"{self.name}: {self.tracked} of the features are to be tracked clicks, and there are {features}; "
                "give features of documents too, and tracked clicks by data.tracked"
            )
        return DoublyRobustTower(features, outputs, at_zero, self)
