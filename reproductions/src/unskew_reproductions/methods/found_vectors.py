"""Vectors that relevance embeddings may be projected on to be ranked: by factors, from labels, or by PCA.

Legend: B lists, K documents of a list, d length of an embedding, V values of a factor.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from unskew.learning.factors import Factors, Values
from unskew.learning.methods.base_vectors import CommonVector, shown_mean


def likely_value(logits: Tensor, where: Tensor) -> Tensor:
    """The value of a factor that is most likely common to the documents of each list, [B] (Eq. 6).

    >>> logits = torch.tensor([[[2.0, 0.0, 1.0], [0.0, 3.0, 2.5]]])
    >>> likely_value(logits, torch.ones(1, 2) > 0).tolist()  # neither document's own favourite
    [2]
    """
    log_p = torch.log_softmax(logits, dim=-1)
    return torch.where(where.unsqueeze(-1), log_p, 0.0).sum(-2).argmax(-1)


def likely_values(outputs: Tensor, factors: Factors, where: Tensor) -> Values:
    """The most likely value of every factor of each list, [B] each; numbers at their mean."""
    logits = by_factor(outputs, factors.sizes).items()
    numbers = {name: outputs.new_zeros(len(outputs)) for name in factors.numbers}
    return {name: likely_value(each, where) for name, each in logits} | numbers


def by_factor(outputs: Tensor, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """log P(t | x) of every factor up to a constant, [B, K, V] each, from outputs side by side."""
    parts = torch.split(outputs, list(sizes.values()), dim=-1)
    return dict(zip(sizes, parts, strict=True))


def factor_loss(
    logits: Mapping[str, Tensor], values: Mapping[str, Tensor], *, where: Tensor, weights: Tensor
) -> Tensor:
    """Mean of -log P(t | x) over documents shown, summed over factors; values [B, K] from 0."""
    each = torch.zeros(where.shape).to(weights)
    for name, z in logits.items():
        index = values[name].long().clamp(0, z.shape[-1] - 1).unsqueeze(-1)
        each = each - torch.log_softmax(z, dim=-1).gather(-1, index).squeeze(-1)
    return shown_mean(each, where=where, weights=weights)


def label_vector(r: Tensor, labels: Tensor, where: Tensor) -> Tensor:
    """b [d] by least squares of labels [B, K] on embeddings [B, K, d], both from their mean in each list.

    A little ridge decides where labels do not.

    >>> r = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]]])
    >>> b = label_vector(r, torch.tensor([[2.0, 1.0, 5.0]]), torch.ones(1, 3) > 0)
    >>> [round(value, 3) for value in b.tolist()]
    [2.0, 1.0]
    """
    count = where.sum(-1, keepdim=True).clamp(min=1)
    labels, r = labels.to(r.dtype), r.where(where.unsqueeze(-1), 0.0)
    y = torch.where(where, labels - torch.where(where, labels, 0.0).sum(-1, keepdim=True) / count, 0.0)
    x = (r - (r.sum(-2, keepdim=True) / count.unsqueeze(-1))).where(where.unsqueeze(-1), 0.0)
    x, y = x.flatten(0, 1).double(), y.flatten().double()
    scale = x.square().sum() / x.shape[-1]
    ridge = 1e-6 * scale.clamp(min=1e-12) * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    found: Tensor = torch.linalg.solve(x.T @ x + ridge, x.T @ y)
    return found.to(r.dtype)


def principal_direction(mean: Tensor, second: Tensor, towards: Tensor) -> Tensor:
    """The unit vector [d] along which embeddings vary most, from mean r [d] and mean r r' [d, d].

    Of its two signs, the one in which r . towards grows.

    >>> second = torch.tensor([[1.0, 0.0], [0.0, 5.0]])
    >>> principal_direction(torch.zeros(2), second, torch.tensor([0.0, -1.0])).tolist()
    [0.0, -1.0]
    """
    _, vectors = torch.linalg.eigh(second - mean.outer(mean))
    direction: Tensor = vectors[:, -1]
    return direction * torch.where(direction @ towards < 0, -1.0, 1.0) + 0.0  # no negative zero


class FoundVector(CommonVector):
    """b [d] that is the same for every list: from labels, by PCA of embeddings seen so far, or the mean of o."""

    solved: Tensor
    spread: Tensor

    def __init__(self, dimension: int, kind: str) -> None:
        """`kind` is `labels`, `pca`, or anything else for the mean, which also stands in until the others know."""
        super().__init__(dimension)
        self.kind = kind
        self.register_buffer("solved", torch.zeros(dimension))
        self.register_buffer("spread", torch.zeros(dimension + 1, dimension))  # mean of r, and of r r'

    @torch.no_grad()
    def follow(self, r: Tensor, o: Tensor, shown: Tensor) -> None:
        """Follow the moments of embeddings [B, K, d] over steps, by how often each was shown [B, K]."""
        super().follow(r, o, shown)
        total = shown.sum()
        if total > 0:
            share = (shown / total).unsqueeze(-1)
            moments = torch.cat([(share * r).sum((0, 1))[None], torch.einsum("bki,bkj->ij", share * r, r)])
            self.spread.lerp_(moments, 0.05)

    def forward(self) -> Tensor:
        """The vector b as it stands, [d]."""
        if self.kind == "labels" and self.solved.any():
            return self.solved
        mean, second = self.spread[0], self.spread[1:]
        return principal_direction(mean, second, self.mean) if self.kind == "pca" and second.any() else self.mean
