"""Embedding interaction model: a bilinear form of relevance and rank embeddings, with linear terms.

Reference: Yan et al., "Revisiting Two-tower Models for Unbiased Learning to Rank", SIGIR 2022 (EInter, Eq. 5).

    z_k = r(x_k)' B v_k + b_r . r(x_k) + b_v . v_k + l_k      rank by z at the canonical rank 1

With B = 0 it is the additive model.

Differences from the paper: sizes of the towers and d are not given there; v is a free table, and l_k,
a level per rank that starts at the click rates, stands in the place of one number b. B starts at 0, so training
begins with the additive model; with a random B, scores at rank 1 vary more from seed to seed.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from unskew.learning.bias import at_rank
from unskew.learning.methods.contract import Context
from unskew.learning.methods.edot import EDotMethod, EmbeddingConfig


class EInterMethod(EDotMethod):
    """Cross-entropy of the bilinear form."""

    def __init__(self, config: EInter, context: Context) -> None:
        super().__init__(config, context)
        d = config.dimension
        self.rank_embedding = nn.Parameter(0.1 * torch.randn(context.positions, d))
        self.interaction = nn.Parameter(torch.zeros(d, d))
        self.relevance_weight = nn.Parameter(torch.full((d,), 1 / d))
        self.rank_weight = nn.Parameter(torch.full((d,), 1 / d))

    def score_weights(self) -> Tensor | None:
        """B v + the weights of r, at the canonical rank."""
        return (self.interaction @ self.rank_embedding[self.canonical - 1] + self.relevance_weight).detach()

    def at_ranks(self, relevance: Tensor, position: Tensor) -> Tensor:
        """z at these ranks, [B, K]."""
        v = at_rank(self.rank_embedding, position)  # [B, K, d]
        both = (relevance @ self.interaction * v).sum(-1)
        return both + relevance @ self.relevance_weight + v @ self.rank_weight + at_rank(self.level, position)


class EInter(EmbeddingConfig):
    """Let relevance and rank embeddings interact freely."""

    module = EInterMethod
    name: Literal["einter"] = "einter"
