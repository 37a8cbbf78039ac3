"""Doubly robust learning to rank: a regression estimate of relevance, corrected by weighted clicks.

Reference: Oosterhuis, "Doubly Robust Estimation for Correcting Position Bias in Click Feedback for Unbiased
Learning to Rank", ACM TOIS 2023.

With C the clicks and n the impressions of a document at rank k, alpha_k and beta_k the affine click model, R the
regression estimate, and tau a clip that falls with the number of pages N,

    y = n R + (C - n beta_k - n alpha_k R) / max(alpha_k, tau)        tau = min(1, clip / sqrt(N))
    R by cross-entropy, weights (C - n beta) / max(alpha, tau) and (n alpha - C + n beta) / max(alpha, tau)
    minimise the list softmax loss with y as labels;  rank by the score

Where alpha >= tau it is the affine (with beta = 0 the inverse propensity) estimate; the less was seen, the more of
the regression remains.

Differences from the paper: beta = 0, the position-based model; propensities are those of `ipw`, relative to
rank 1; score and regression are two outputs of one ranker, trained together with a softmax loss and not by
policy gradient; negative y count as 0, as the softmax loss is unbounded otherwise.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from unskew.learning.bias import at_rank
from unskew.learning.losses import sigmoid_loss, softmax_loss
from unskew.learning.methods.contract import Context, ImpressionConfig
from unskew.learning.methods.ipw import KnownPropensity, Propensities
from unskew.types import ClickBatch


def doubly_robust_label(clicks: Tensor, shown: Tensor, alpha: Tensor, regression: Tensor, tau: Tensor) -> Tensor:
    """n R + (C - n alpha R) / max(alpha, tau).

    >>> C, n, alpha, R = (torch.tensor(value) for value in (1.0, 2.0, 0.25, 0.4))
    >>> round(doubly_robust_label(C, n, alpha, R, torch.tensor(0.5)).item(), 6)  # 0.8 + (1 - 0.2) / 0.5
    2.4
    """
    return shown * regression + (clicks - shown * alpha * regression) / torch.maximum(alpha, tau)


class DoublyRobustMethod(KnownPropensity):
    """A softmax loss on corrected labels, and the regression that they start from."""

    outputs = 2
    tau: Tensor

    def __init__(self, config: DoublyRobust, context: Context) -> None:
        super().__init__(config, context)
        pages = 1 if context.facts is None else max(context.facts.pages, 1)
        self.register_buffer("tau", torch.tensor(min(1.0, config.clip / pages**0.5)))

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The ranking loss on corrected labels and the regression loss on weighted clicks."""
        score, regression = relevance[..., 0], relevance[..., 1]
        alpha, c, n = at_rank(self.theta, batch.position), batch.clicks, batch.impressions
        clipped = torch.maximum(alpha, self.tau)
        label = doubly_robust_label(c, n, alpha, regression.detach().sigmoid(), self.tau)
        ranking = softmax_loss(score, label.clamp(min=0.0), where=batch.where)
        shown = n * alpha / clipped
        return ranking + sigmoid_loss(regression, c / clipped, where=batch.where, impressions=shown)


class DoublyRobust(Propensities, ImpressionConfig):
    """Correct a regression of relevance with weighted clicks."""

    module = DoublyRobustMethod
    name: Literal["doubly_robust"] = "doubly_robust"
    clip: float = Field(10.0, gt=0)
    """tau = min(1, clip / sqrt(pages))."""
