"""Embedding interaction model: a bilinear form of relevance and rank embeddings, with linear terms.

Reference: Yan et al., "Revisiting Two-tower Models for Unbiased Learning to Rank", SIGIR 2022 (EInter, Eq. 5).

    z_k = r(x_k)' B v_k + b_r . r(x_k) + b_v . v_k + l_k      rank by z at the canonical rank 1

With B = 0 it is the additive model. Further factors come in as in `edot`.

Differences from the paper: sizes of the towers and d are not given there; v is a free table unless
`bias = "tower"`, and l_k, a level per rank that starts at the click rates, stands in the place of one number b. B
starts at 0, so training begins with the additive model; with a random B, scores at rank 1 vary more by seed.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from unskew.learning.factors import Values
from unskew.learning.methods.contract import Context
from unskew.learning.methods.edot import EDotMethod, EmbeddingConfig


class EInterMethod(EDotMethod):
    """Cross-entropy of the bilinear form."""

    start = 0.0

    def __init__(self, config: EInter, context: Context) -> None:
        super().__init__(config, context)
        d = config.dimension
        self.interaction = nn.Parameter(torch.zeros(d, d))
        self.relevance_weight = nn.Parameter(torch.full((d,), 1 / d))
        self.rank_weight = nn.Parameter(torch.full((d,), 1 / d))

    def score_weights(self) -> Tensor | None:
        """B v + the weights of r, at the canonical rank."""
        v, _ = self.parts(self.served())
        return (self.interaction @ v.squeeze(0) + self.relevance_weight).detach()

    def z(self, relevance: Tensor, values: Values) -> Tensor:
        """z at these values of the factors, [...]."""
        v, level = self.parts(values)
        both = (relevance @ self.interaction * v).sum(-1)
        return both + relevance @ self.relevance_weight + v @ self.rank_weight + level


class EInter(EmbeddingConfig):
    """Let relevance and rank embeddings interact freely."""

    module = EInterMethod
    name: Literal["einter"] = "einter"
