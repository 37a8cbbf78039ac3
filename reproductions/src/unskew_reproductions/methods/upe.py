"""UPE: propensities that are not confounded by relevance.

Reference: Luo et al., "Unconfounded Propensity Estimation for Unbiased Learning to Rank", arXiv 2305.09918, 2023.

Documents at high ranks are relevant, since a ranker put them there; a propensity model that sees ranks alone takes
part of that relevance for examination. So a network g of its own, with a head f, learns the logging ranker first,

    Lm = Lsoft(m, p),  m = f(g(x))             p: softmax of the logging scores, or 1 / rank where the log has none
    e_k(x) = v_k + t m(x)                      examination with the confounder in it
    Le = Lsoft(e, c; exp(s_1 - s_k))           as in dual learning; v and t learn, m stays as it is
    a_k = log mean_x P(seen at k | x)          examination if ranks were given out at random (backdoor): v_k here
    Lr = Lsoft(s, c; exp(a_1 - a_k))           the ranker sees a_k alone

Differences from the paper: there e_k(x) = f(g(x) + v_k) with v_k an embedding of the rank, and a_k is averaged
over documents (`confounding = "embedded"`; over 16 shuffles of each list in the released code, ours puts each
document shown at every rank). What a logging ranker that always gives the same order knows explains ranks wholly;
then nothing is left for v_k, and the weights go the wrong way. So by default clicks say, by t, how much of it
there is. Confounder, propensity and ranker are learned together, gradients kept apart, as in the released code.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from unskew.learning.factors import at_rank
from unskew.learning.losses import list_log_softmax, softmax_loss
from unskew.learning.methods.contract import Context, ListConfig, MethodModule, Side
from unskew.learning.methods.dla import dual_weights
from unskew.types import ClickBatch

SCORE = "logging_score"
"""Column of the log that says what pages were ordered by."""


def logging_target(batch: ClickBatch) -> Tensor:
    """What the logging ranker made of each list, [B, K], times its impressions: softmax of scores, or 1 / rank."""
    by_rank = 1 / batch.position.clamp(min=1)
    scores = batch.serp.get(SCORE)
    if scores is not None:
        scores = scores.to(batch.impressions)
        known = (scores.isfinite() | ~batch.where).all(-1, keepdim=True)
        by_rank = torch.where(known, list_log_softmax(scores.nan_to_num(), batch.where).exp(), by_rank)
    return torch.where(batch.where, batch.impressions * by_rank, 0.0)


class Head(nn.Sequential):
    """f, a network: it takes the step of the ranker."""

    rate_factor = 0.1
    """The part of the step of free numbers that it takes."""


class UPEMethod(MethodModule):
    """Dual learning whose propensity model knows the logging ranker."""

    config: UPE
    averaged: Tensor

    def __init__(self, config: UPE, context: Context) -> None:
        super().__init__(config, context)
        self.side = Side(config.confounder, config.width, later=False, penalty=0.0)  # g
        self.head = Head(nn.Linear(config.width, 32), nn.ELU(), nn.Linear(32, 1))  # f
        embedded = config.confounding == "embedded"
        self.rank = nn.Parameter(torch.zeros(context.positions, config.width if embedded else 1))  # v
        self.taste = nn.Parameter(torch.zeros(())) if not embedded else None  # t
        self.register_buffer("averaged", torch.zeros(context.positions))  # a, followed over steps if embedded

    def frozen_head(self, h: Tensor) -> Tensor:
        """f of embeddings [..., W], which does not learn from it."""
        fixed = {name: value.detach() for name, value in self.head.named_parameters()}
        found: Tensor = functional_call(self.head, fixed, (h,))
        return found.squeeze(-1)

    def confounded(self, h: Tensor, m: Tensor, position: Tensor) -> Tensor:
        """e of each shown result, [B, K]."""
        v = at_rank(self.rank, position)
        return self.frozen_head(h + v) if self.taste is None else v.squeeze(-1) + self.taste * m

    @torch.no_grad()
    def adjusted(self, h: Tensor, shown: Tensor) -> Tensor:
        """a_k [P], from embeddings [B, K, W] of results shown so often [B, K]."""
        each = self.frozen_head(h.unsqueeze(-2) + self.rank).softmax(-1)  # [B, K, P]
        total = shown.sum()
        mean = (shown.unsqueeze(-1) * each).sum((0, 1)) / torch.where(total > 0, total, 1.0)
        return mean.clamp(min=1e-12).log() if total > 0 else self.averaged.clone()

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Lm + Le + Lr; no gradient crosses from one to another."""
        where, clicks, limit = batch.where, batch.clicks, self.config.max_weight
        relevance = relevance.where(where.unsqueeze(-1), 0.0)
        s, h = relevance[..., 0], relevance[..., 1:]
        m = self.head(h).squeeze(-1)
        logging = softmax_loss(m, logging_target(batch), where=where)
        e = self.confounded(h.detach(), m.detach(), batch.position)
        w_r = dual_weights(s.detach(), where, max_weight=limit)
        a = self.examination()
        if self.training and self.taste is None:
            a = self.adjusted(h.detach(), torch.where(where, batch.impressions, 0.0))
            self.averaged.lerp_(a, 0.05)
        w_e = dual_weights(at_rank(a, batch.position), where, max_weight=limit)
        ranking = softmax_loss(s, clicks, where=where, weights=w_e)
        return logging + softmax_loss(e, clicks, where=where, weights=w_r) + ranking

    def examination(self) -> Tensor:
        """a_k [P], up to a constant."""
        return self.averaged if self.taste is None else self.rank.detach().squeeze(-1)

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Relevance times examination, in log space."""
        return relevance[..., 0] + at_rank(self.examination(), batch.position)

    def propensity(self) -> Tensor:
        """Examination relative to rank 1, exp(a_k - a_1)."""
        a = self.examination()
        return (a - a[0]).exp()


class UPE(ListConfig):
    """Learn examination with the logging ranker's taste taken out."""

    module = UPEMethod
    name: Literal["upe"] = "upe"
    averages: ClassVar[tuple[str, ...]] = (SCORE,)
    max_weight: Annotated[float, Field(ge=1)] | None = None
    """Clip both weights at this value; none clips nothing."""
    confounder: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] = (32,)
    """Hidden units of the network that learns the logging ranker."""
    confounding: Literal["additive", "embedded"] = "additive"
    """How what the logging ranker knew enters examination: by a factor that clicks say, or as published."""
    width: int = Field(16, ge=1)
    """Length of its embedding of a document."""
