"""Embedding dot-product model: click logit = relevance embedding . rank embedding.

Reference: Yan et al., "Revisiting Two-tower Models for Unbiased Learning to Rank", SIGIR 2022 (EDot, Eq. 4).

    z_k = r(x_k) . v_k + l_k        r, v in R^d;  P(c = 1) = sig(z_k);  rank by z at the canonical rank 1

Differences from the paper: sizes of the towers and d are not given there; v is a free table. It starts at ones
plus noise, so that the model begins as a sum of relevance outputs. l_k, a level per rank that starts at the click
rates, is ours: without it the relevance outputs must say first that little is clicked.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from unskew.learning.bias import at_rank
from unskew.learning.methods.contract import Context, ImpressionConfig
from unskew.learning.methods.skeletons import ClickLogits, LevelConfig
from unskew.types import ClickBatch


class EDotMethod(ClickLogits):
    """Cross-entropy of r . v."""

    def __init__(self, config: EmbeddingConfig, context: Context) -> None:
        super().__init__(config, context)
        self.outputs, self.canonical = config.dimension, min(config.canonical, context.positions)
        self.rank_embedding = nn.Parameter(1 + 0.1 * torch.randn(context.positions, config.dimension))
        self.level = nn.Parameter(context.click_rates().logit())
        self.centre = torch.zeros(config.dimension)

    def at_ranks(self, relevance: Tensor, position: Tensor) -> Tensor:
        """z at these ranks, [B, K]."""
        return (relevance * at_rank(self.rank_embedding, position)).sum(-1) + at_rank(self.level, position)

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """z at the ranks shown, [B, K]."""
        return self.at_ranks(relevance.where(batch.where.unsqueeze(-1), 0.0), batch.position)

    def score_weights(self) -> Tensor | None:
        """v at the canonical rank."""
        return self.rank_embedding[self.canonical - 1].detach()

    def score(self, relevance: Tensor, where: Tensor) -> Tensor:
        """z as if every document were shown at the canonical rank."""
        rank = torch.full_like(where, self.canonical, dtype=torch.int64)
        return self.at_ranks(relevance, rank).where(where, 0.0)


class EmbeddingConfig(LevelConfig, ImpressionConfig):
    """What models of relevance and rank embeddings may be told."""

    dimension: int = Field(8, ge=1)
    """d, the length of the embeddings."""
    canonical: int = Field(1, ge=1)
    """The rank that all documents are ranked at."""


class EDot(EmbeddingConfig):
    """Multiply a relevance embedding with an embedding of the rank."""

    module = EDotMethod
    name: Literal["edot"] = "edot"
