"""Regression EM: the position-based click model fitted by EM, with the ranker as its relevance part.

Reference: Wang et al., "Position Bias Estimation for Unbiased Learning to Rank in Personal Search", WSDM 2018.

With g_k = sig(s_k + b) and examination theta_k, the E-step for results without a click is

    P(e=1 | c=0) = theta (1 - g) / (1 - theta g)        P(r=1 | c=0) = (1 - theta) g / (1 - theta g)

and both are 1 for a click. The M-step fits s to the relevance posteriors by cross-entropy and moves

    theta_k <- (1 - step) theta_k + step * mean(c + (1 - c) P(e=1 | c=0))

`form = "gradient"` is the later form with an examination logit e_k trained by its own cross-entropy.

Differences from the paper: the ranker is a network, not boosted trees, so the M-step is one gradient step per
batch; the posterior is used as the target itself (`labels = "expected"`) unless asked to draw it ("sampled"),
which is the same in expectation and noisier. Theta is kept within [1e-6, 1 - 1e-6]. Pages without a click must
be in the log.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from unskew.clicks.counts.reduction import Reduction
from unskew.learning.bias import at_rank, rank_sums
from unskew.learning.losses import sigmoid_loss
from unskew.learning.methods.contract import Context, ImpressionConfig
from unskew.learning.methods.skeletons import ClickProbabilities, LevelConfig
from unskew.types import ClickBatch


def posteriors(e: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """P(examined | no click), P(relevant | no click) from the logits of theta and g.

    >>> e, r = torch.tensor(0.9).logit(), torch.tensor(0.3)
    >>> [round(p.item(), 6) for p in posteriors(e, r)]
    [0.792961, 0.118932]
    """
    return torch.sigmoid(e - F.softplus(r)), torch.sigmoid(r - F.softplus(e))


class RegressionEMMethod(ClickProbabilities):
    """Cross-entropy to the posteriors of the E-step; theta moves by its M-step or by gradient."""

    config: RegressionEM
    examination: Tensor

    def __init__(self, config: RegressionEM, context: Context) -> None:
        super().__init__(config, context)
        start, level = context.factored_rates(config.start)
        if config.form == "gradient":
            self.examination = nn.Parameter(start)
        else:
            self.register_buffer("examination", start)
        self.offset = nn.Parameter(level)

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Cross-entropy of relevance (and, in the gradient form, examination) to the posteriors."""
        r = self.from_mean(relevance, batch)[..., 0] + self.offset
        e = at_rank(self.examination, batch.position)
        c, n = batch.clicks, batch.impressions
        with torch.no_grad():
            examined, relevant = posteriors(e, r)
            e_target, r_target = c + (n - c) * examined, c + (n - c) * relevant
            if self.config.labels == "sampled":
                drawn = torch.rand(len(batch.packed), device=r.device)  # one per result, so padding draws nothing
                r_target = (batch.pad(drawn) < r_target).to(r.dtype)
        loss = sigmoid_loss(r, r_target, where=batch.where, impressions=n)
        if self.config.form == "gradient":
            return loss + sigmoid_loss(e, e_target, where=batch.where, impressions=n)
        if self.training:
            self.update(e_target, batch)
        return loss

    @torch.no_grad()
    def update(self, e_target: Tensor, batch: ClickBatch) -> None:
        """One M-step for theta; ranks that the batch does not show stay."""
        ranks, step = self.positions, self.config.step
        shown = rank_sums(batch.impressions, batch.position, batch.where, ranks)
        mean = rank_sums(e_target, batch.position, batch.where, ranks) / torch.where(shown > 0, shown, 1.0)
        theta = self.examination.sigmoid()
        moved = torch.where(shown > 0, (1 - step) * theta + step * mean, theta)
        self.examination.copy_(moved.clamp(1e-6, 1 - 1e-6).logit())

    def log_click(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """log(theta_k g)."""
        r = relevance[..., 0] + self.offset
        return F.logsigmoid(at_rank(self.examination, batch.position)) + F.logsigmoid(r)

    def propensity(self) -> Tensor:
        """theta_k / theta_1."""
        theta = self.examination.detach().sigmoid()
        return theta / theta[0]


class RegressionEM(LevelConfig, ImpressionConfig):
    """Fit examination and relevance probabilities by EM."""

    module = RegressionEMMethod
    name: Literal["regression_em"] = "regression_em"
    form: Literal["em", "gradient"] = "em"
    """Update theta by its M-step, or as a logit with a gradient."""
    labels: Literal["expected", "sampled"] = "expected"
    """Train the ranker on relevance posteriors, or on labels drawn from them."""
    step: float = Field(0.5, gt=0, le=1)
    """How far theta moves to its new estimate at every batch; the published code takes 0.05."""
    start: float = Field(0.9, gt=0, lt=1)
    """Examination at the start, at the rank that is clicked most; others in proportion to their clicks."""

    @property
    def reduction(self) -> Reduction:
        """Counts; labels are drawn once per page."""
        return "counts" if self.labels == "expected" else "pages"
