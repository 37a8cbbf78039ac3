"""Vectors that relevance embeddings are projected on to be ranked: the likeliest embedding of a list, or the mean.

Reference: Chen et al., "Scalar is Not Enough: Vectorization-based Unbiased Learning to Rank", KDD 2022, section
4.3.

    b_j = sum_i exp(-v_ij) mu_ij / sum_i exp(-v_ij)   most likely embedding of the list     (Eq. 7, 8)

Legend: B lists, K documents of a list, d length of an embedding.
"""

import torch
from torch import Tensor, nn


def moments(outputs: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """mu and v, [B, K, d] each, which come after r."""
    return outputs[..., d : 2 * d], outputs[..., 2 * d :].clamp(-10, 10)


def base_vector(mu: Tensor, v: Tensor, where: Tensor) -> Tensor:
    """The most likely observation embedding common to the documents of each list, [B, d] (Eq. 8).

    >>> base_vector(torch.tensor([[[1.0], [3.0]]]), torch.zeros(1, 2, 1), torch.ones(1, 2) > 0).tolist()
    [[2.0]]
    """
    weight = torch.where(where.unsqueeze(-1), torch.exp(-v), 0.0)
    return (weight * mu.where(weight > 0, 0.0)).sum(-2) / weight.sum(-2).clamp(min=1e-12)


def base_loss(mu: Tensor, v: Tensor, o: Tensor, *, where: Tensor, weights: Tensor) -> Tensor:
    """Mean of (mu - o)^2 exp(-v) + v over documents shown and coordinates (Eq. 10, twice and up to a constant)."""
    each = ((mu - o).square() * torch.exp(-v) + v).mean(-1)
    return shown_mean(each, where=where, weights=weights)


def shown_mean(each: Tensor, *, where: Tensor, weights: Tensor) -> Tensor:
    """The mean over documents shown, by how often; 0 where there are none."""
    w = torch.where(where, weights, 0.0)
    return (w * torch.where(where, each, 0.0)).sum() / w.sum().clamp(min=1e-12)


class CommonVector(nn.Module):
    """b [d] that is the same for every list: the mean of o over what was shown."""

    mean: Tensor

    def __init__(self, dimension: int) -> None:
        """It begins at ones."""
        super().__init__()
        self.register_buffer("mean", torch.ones(dimension))

    @torch.no_grad()
    def follow(self, r: Tensor, o: Tensor, shown: Tensor) -> None:
        """Follow embeddings o [B, K, d], of relevance r, over steps, by how often each was shown [B, K]."""
        total = shown.sum()
        if total > 0:
            self.mean.lerp_(((shown / total).unsqueeze(-1) * o).sum((0, 1)), 0.05)

    def forward(self) -> Tensor:
        """The vector b as it stands, [d]."""
        return self.mean
