"""What rankers compute on: prepared documents in memory, gathered by row.

Legend: N documents, n of them gathered, D features, L tokens of the longest.
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
        """The features [N, D] as a tensor on a device."""
        return cls(as_tensor(np.asarray(features, np.float32), torch.device(device)))


@dataclass(frozen=True)
class Tokens:
    """Feature vectors, and after them the tokens of query and document: one tensor, as for other rankers.

    A token is written 2 i + s, with i its number in the vocabulary and s = 1 in the document; -1 pads. A 32-bit
    float holds that exactly for vocabularies of up to 8 million.

    >>> tokens = Tokens.of(np.zeros((2, 0)), np.array([10, 15, 10]), np.array([2, 1]))
    >>> tokens.gather(torch.tensor([0, 1])).tolist()
    [[10.0, 15.0], [10.0, -1.0]]
    """

    features: Tensor  # [N, D] float32
    codes: Tensor  # [T] int32, 2 i + s of every token, document after document
    starts: Tensor  # [N + 1] int64, where each document's tokens begin and end

    def gather(self, rows: Tensor) -> Tensor:
        """Features and tokens at these rows, [n, D + L], padded to the longest of them."""
        sizes = self.starts[rows + 1] - self.starts[rows]
        slots = torch.arange(int(sizes.max()) if len(rows) else 0, device=rows.device)
        where = slots < sizes.unsqueeze(-1)  # [n, L]
        places = (self.starts[rows].unsqueeze(-1) + slots).where(where, 0)
        padded = self.codes[places].where(where, -1).to(self.features.dtype)
        return torch.cat([self.features.index_select(0, rows), padded], dim=-1)

    @classmethod
    def of(cls, features: Array, codes: Array, sizes: Array, device: str | torch.device = "cpu") -> Tokens:
        """Codes [T] of all documents, one after another, how many each has [N], and their features [N, D]."""
        device = torch.device(device)
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        vectors = Vectors.of(features, device).features
        return cls(vectors, as_tensor(codes.astype(np.int32), device), as_tensor(starts, device))


def as_tensor(array: Array, device: torch.device) -> Tensor:
    """The array on the device; copied when it is memory-mapped or read-only, which torch cannot share."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device)
