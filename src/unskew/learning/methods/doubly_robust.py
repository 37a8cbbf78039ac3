"""Doubly robust learning to rank: a regression estimate of relevance, corrected by weighted clicks.

Reference: Oosterhuis, "Doubly Robust Estimation for Correcting Position Bias in Click Feedback for Unbiased
Learning to Rank", ACM TOIS 2023.

For every candidate d of a query of n pages, with C its clicks, n_k the pages that showed it at rank k, alpha_k the
examination of a rank, R the regression estimate, and tau a clip that falls with the number of all pages N,

    a = sum_k n_k alpha_k / n                                 how much of it was seen; 0 if it was never shown
    y = R + (C / n - a R) / max(a, tau)                       tau = min(1, clip / sqrt(N))
    R by the likelihood of clicks  - C log(a R) - (n - C) log(1 - a R)
    minimise - sum_d n y log softmax_d(s) over all candidates, divided by the sum of n y
    s = log R + f                                             f: the ranker, R held constant;  rank by s

A document that was seen enough (a >= tau) has the inverse propensity estimate, one that was never shown has R
alone, and in between the less was seen, the more of R remains. y is never negative.

Differences from the paper: trust bias is not modelled (beta = 0); propensities are those of `ipw`, relative to
rank 1, so R is the click rate at rank 1; ranker and regression (a network of its own, with a level that starts
from the click rate, and an L2 penalty) are trained together, with a softmax loss and not by policy gradient. The
loss is least where s = log y, so s starts from log R and the ranker learns what clicks say beyond it; the
published ranker starts from a pre-trained one. The published loss of R is a cross-entropy with weights (C / n) /
max(a, tau) and (a - C / n) / max(a, tau), the latter of either sign (`fit = "weighted"`). Of the documents that
were never shown `candidates` are drawn for each query, each standing for its share of all of them.
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from unskew.learning.factors import seen_at
from unskew.learning.losses import log_odds, page_count, sigmoid_loss, softmax_loss
from unskew.learning.methods.contract import Context, ImpressionConfig, Side
from unskew.learning.methods.propensities import KnownPropensity, Propensities
from unskew.types import ClickBatch


def doubly_robust_label(clicks: Tensor, pages: Tensor, seen: Tensor, regression: Tensor, tau: Tensor) -> Tensor:
    """n y = n R + (C - n a R) / max(a, tau), from n a; with n = 0 it is 0.

    >>> C, n, seen, R = (torch.tensor(value) for value in (1.0, 2.0, 0.5, 0.4))
    >>> round(doubly_robust_label(C, n, seen, R, torch.tensor(0.5)).item(), 6)  # 0.8 + (1 - 0.2) / 0.5
    2.4
    """
    return pages * regression + (clicks - seen * regression) / clipped(seen, pages, tau)


def clipped(seen: Tensor, pages: Tensor, tau: Tensor) -> Tensor:
    """max(a, tau), from n a and n."""
    return torch.maximum(seen / torch.where(pages > 0, pages, 1.0), tau)


def log_rate(logit: Tensor, seen: Tensor, pages: Tensor) -> Tensor:
    """log a R with R = sig(logit), from n a and n; next to never where a document was not shown."""
    share = (seen / torch.where(pages > 0, pages, 1.0)).clamp(min=1e-12)
    return F.logsigmoid(logit) + share.log()


class DoublyRobustMethod(KnownPropensity):
    """A softmax loss on corrected labels, and the regression that they start from."""

    config: DoublyRobust
    tau: Tensor

    def __init__(self, config: DoublyRobust, context: Context) -> None:
        super().__init__(config, context)
        pages = 1 if context.facts is None else max(context.facts.pages, 1)
        self.register_buffer("tau", torch.tensor(min(1.0, config.clip / pages**0.5)))
        self.level = nn.Parameter(context.click_rates()[0].logit())
        self.linear = False  # log R is not linear in the outputs
        self.side, self.at_zero = Side(config.regression, 1, later=False, penalty=config.penalty), slice(0, 1)

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The ranking loss on corrected labels and the regression loss on weighted clicks."""
        where, c, n = batch.where, batch.clicks, batch.impressions
        relevance = relevance.where(where.unsqueeze(-1), 0.0)
        logit, seen = relevance[..., -1] + self.level, seen_at(self.theta, batch)
        label = doubly_robust_label(c, n, seen, logit.detach().sigmoid(), self.tau)
        copies = torch.ones_like(n) if batch.stands_for is None else batch.stands_for
        score = relevance[..., 0] + F.logsigmoid(logit).detach() + torch.where(where, copies, 1.0).log()
        ranking = softmax_loss(score, label, where=where, weights=copies)
        if self.config.fit == "likelihood":
            return ranking + sigmoid_loss(log_odds(log_rate(logit, seen, n)), c, where=where, impressions=n)
        each = (c * F.softplus(-logit) + (seen - c) * F.softplus(logit)) / clipped(seen, n, self.tau)
        return ranking + torch.where(where, each, 0.0).sum() / page_count(where, n)

    def score(self, relevance: Tensor, where: Tensor) -> Tensor:
        """log R + f."""
        return (relevance[..., 0] + F.logsigmoid(relevance[..., -1] + self.level)).where(where, 0.0)

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The regression times examination, in log space."""
        return log_rate(relevance[..., -1] + self.level, seen_at(self.theta, batch), batch.impressions)

    def click_probability(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """P(click) = a R."""
        return self.click_scores(relevance, batch).exp().clamp(max=1.0)


class DoublyRobust(Propensities, ImpressionConfig):
    """Correct a regression of relevance with weighted clicks; documents that were never shown have it alone."""

    module = DoublyRobustMethod
    name: Literal["doubly_robust"] = "doubly_robust"
    clip: float = Field(10.0, gt=0)
    """tau = min(1, clip / sqrt(pages))."""
    candidates: int = Field(50, ge=0)
    """Documents of each query that were never shown and are learned from; drawn where there are more."""
    regression: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] = (32, 32)
    """Hidden units of the regression."""
    penalty: float = Field(0.01, ge=0)
    """Weight of the L2 penalty on the regression, which speaks alone of documents that were never shown: without
    one it extrapolates ever more wildly as training goes on (docs/records/doubly_robust.md)."""
    fit: Literal["likelihood", "weighted"] = "likelihood"
    """How the regression is fitted: by the likelihood of the clicks, or by the published cross-entropy."""

    @property
    def unseen(self) -> int | None:
        """A row for each query, with candidates that were never shown."""
        return self.candidates
