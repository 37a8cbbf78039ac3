"""What rankers compute on: prepared documents in memory, gathered by row.

Legend: N documents, n of them gathered, D features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unskew.types import Array


@dataclass(frozen=True)
class Vectors:
    """Feature vectors, [N, D] float32.

    >>> Vectors(torch.tensor([[1.0], [2.0]])).gather(torch.tensor([1, 1, 0])).flatten().tolist()
    [2.0, 2.0, 1.0]
    """

    features: Tensor

    def gather(self, rows: Tensor) -> Tensor:
        """The vectors at these rows, [n, D]."""
        return self.features.index_select(0, rows)

    @classmethod
    def of(cls, features: Array, device: str | torch.device = "cpu") -> Vectors:
        """A matrix on a device."""
        return cls(as_tensor(np.asarray(features, np.float32), torch.device(device)))


def as_tensor(array: Array, device: torch.device) -> Tensor:
    """The array on the device; copied when it is memory-mapped or read-only, which torch cannot share."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)
