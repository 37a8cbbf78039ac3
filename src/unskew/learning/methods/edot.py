"""Embedding models of the click logit: a dot product, or a bilinear form, of relevance and rank embeddings.

Reference: Yan et al., "Revisiting Two-tower Models for Unbiased Learning to Rank", SIGIR 2022 (EDot,
Eq. 4; EInter, Eq. 5).

    edot      z_k = r(x_k) . v_k + l_k                                        r, v in R^d
    einter    z_k = r(x_k)' B v_k + b_r . r(x_k) + b_v . v_k + l_k
    P(c = 1) = sig(z_k);  rank by z at the canonical rank 1

With further factors v and l are sums over them, or with `bias = "tower"` a network on all of them; documents are
ranked at the first value of each. With B = 0 einter is the additive model.

Differences from the paper: sizes of the towers and d are not given there; v is a free table unless
`bias = "tower"`. r starts at 0 and v at one number for each coordinate, around 1 and the same at all ranks: a
random r would teach v, whose steps are larger, before it has learned. l_k, a level per rank that starts at the
click rates, is ours: without it the relevance outputs must say first that little is clicked. B starts at 0, so
training begins with the additive model; with a random B, scores at rank 1 vary more by seed.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from unskew.learning.curves import ODDS
from unskew.learning.factors import Values
from unskew.learning.methods.bases import BiasConfig, Biased, ClickLogits, LevelConfig, apart
from unskew.learning.methods.contract import Context
from unskew.types import ClickBatch


class EDotMethod(ClickLogits, Biased):
    """Cross-entropy of r . v."""

    meaning = f"{ODDS} without relevance"  # to documents of other relevance ranks do other things
    start = 1.0
    """What v starts around."""

    def __init__(self, config: EmbeddingConfig, context: Context) -> None:
        super().__init__(config, context)
        self.outputs, self.canonical = config.dimension, min(config.canonical, context.positions)
        self.at_zero = slice(0, self.outputs)
        levels = self.factors.shares(context.click_rates().logit())
        v, starts = apart(config.dimension, self.start), {}
        for index, (name, level) in enumerate(levels.items()):
            own = (v if index == 0 else torch.zeros_like(v)).expand(len(level), -1)
            starts[name] = torch.cat([own, level.unsqueeze(-1)], dim=-1)
        middle = torch.cat([v, context.click_rates().mean().logit()[None]])
        self.bias = config.model(self.factors, starts, middle)
        self.centre = torch.zeros(config.dimension)

    def parts(self, values: Values) -> tuple[Tensor, Tensor]:
        """v [..., d] and l at these values of the factors."""
        both: Tensor = self.bias(values)
        return both[..., :-1], both[..., -1]

    def z(self, relevance: Tensor, values: Values) -> Tensor:
        """z at these values of the factors, [...]."""
        v, level = self.parts(values)
        return (relevance * v).sum(-1) + level

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """z as shown, [B, K]."""
        return self.z(relevance.where(batch.where.unsqueeze(-1), 0.0), self.factors.of(batch))

    def served(self) -> Values:
        """The canonical rank, and the reference of other factors, [1] each."""
        return self.factors.reference(1) | self.factors.at(torch.tensor([self.canonical]))

    def score_weights(self) -> Tensor | None:
        """v at the canonical rank."""
        return self.parts(self.served())[0].squeeze(0).detach()

    def score(self, relevance: Tensor, where: Tensor) -> Tensor:
        """z as if every document were shown at the canonical rank."""
        return self.z(relevance, self.served()).where(where, 0.0)

    def log_seen(self, values: Values) -> Tensor:
        """z without relevance."""
        nothing = next(self.parameters()).new_zeros(self.outputs)
        return self.z(nothing, values)


class EmbeddingConfig(BiasConfig, LevelConfig):
    """What models of relevance and rank embeddings may be told."""

    dimension: int = Field(8, ge=1)
    """d, the length of the embeddings."""
    canonical: int = Field(1, ge=1)
    """The rank that all documents are ranked at."""


class EDot(EmbeddingConfig):
    """Multiply a relevance embedding with an embedding of the rank."""

    module = EDotMethod
    name: Literal["edot"] = "edot"


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
