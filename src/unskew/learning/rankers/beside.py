"""A ranker and a second network on the same documents, outputs side by side."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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

    def penalty(self) -> Tensor | float:
        """lambda sum ||W||^2 / 2 over the layers of the second network, biases apart."""
        if not self.strength:
            return 0.0
        return (
            self.strength * torch.stack([w.square().sum() / 2 for w in self.side.parameters() if w.ndim > 1]).sum()
        )


def penalty_of(ranker: nn.Module) -> Tensor | float:
    """What training adds to the loss for the sake of the ranker's own weights."""
    return ranker.penalty() if isinstance(ranker, WithSide) else 0.0
