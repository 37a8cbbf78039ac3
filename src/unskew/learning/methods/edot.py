"""Embedding dot-product model: click logit = relevance embedding . rank embedding.

Reference: Yan et al., "Revisiting Two-tower Models for Unbiased Learning to Rank", SIGIR 2022 (EDot, Eq. 4).

    z_k = r(x_k) . v_k        r, v in R^d;  P(c = 1) = sig(z_k);  rank by z at the canonical rank 1

Differences from the paper: sizes of the towers and d are not given there; v is a free table. It starts at ones
plus noise, so that the model begins as a sum of relevance outputs.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from unskew.learning.bias import at_rank
from unskew.learning.losses import sigmoid_loss
from unskew.learning.methods.contract import Context, ImpressionConfig, MethodModule
from unskew.types import ClickBatch


class EmbeddingConfig(ImpressionConfig):
    """What models of relevance and rank embeddings may be told."""

    dimension: int = Field(8, ge=1)
    """d, the length of the embeddings."""
    canonical: int = Field(1, ge=1)
    """The rank that all documents are ranked at."""


class EDot(EmbeddingConfig):
    """Multiply a relevance embedding with an embedding of the rank."""

    name: Literal["edot"] = "edot"

    def build(self, context: Context) -> EDotMethod:
        """The method, with one embedding per rank of the log."""
        return EDotMethod(self, context.positions)


class EDotMethod(MethodModule):
    """Cross-entropy of r . v."""

    def __init__(self, config: EmbeddingConfig, positions: int) -> None:
        super().__init__()
        self.config, self.outputs = config, config.dimension
        self.canonical = min(config.canonical, positions)
        self.rank_embedding = nn.Parameter(1 + 0.1 * torch.randn(positions, config.dimension))

    def logits(self, relevance: Tensor, position: Tensor) -> Tensor:
        """z at these ranks, [B, K]."""
        return (relevance * at_rank(self.rank_embedding, position)).sum(-1)

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Cross-entropy of every result shown."""
        z = self.logits(relevance.where(batch.where.unsqueeze(-1), 0.0), batch.position)
        return sigmoid_loss(z, batch.clicks, where=batch.where, impressions=batch.impressions)

    def score_weights(self) -> Tensor | None:
        """v at the canonical rank."""
        return self.rank_embedding[self.canonical - 1].detach()

    def score(self, relevance: Tensor, where: Tensor) -> Tensor:
        """z as if every document were shown at the canonical rank."""
        rank = torch.full_like(where, self.canonical, dtype=torch.int64)
        return self.logits(relevance, rank).where(where, 0.0)

    def click_probability(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """sig(z)."""
        return self.logits(relevance, batch.position).sigmoid()

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """log sig(z)."""
        return F.logsigmoid(self.logits(relevance, batch.position))
