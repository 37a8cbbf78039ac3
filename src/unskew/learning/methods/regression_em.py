"""Regression EM: the position-based click model fitted by EM, with the ranker as its relevance part.

Reference: Wang et al., "Position Bias Estimation for Unbiased Learning to Rank in Personal Search", WSDM 2018.

With g_k = sig(s_k + b) and examination theta_k, the E-step for results without a click is

    P(e=1 | c=0) = theta (1 - g) / (1 - theta g)        P(r=1 | c=0) = (1 - theta) g / (1 - theta g)

and both are 1 for a click. The M-step fits s to the relevance posteriors by cross-entropy and moves

    theta_k <- (1 - step) theta_k + step * mean(c + (1 - c) P(e=1 | c=0))

`form = "gradient"` is the later form with an examination logit e_k trained by its own cross-entropy.
With further factors theta is a product over them, and theta_f takes its E-step with g times the other theta for g.

Differences from the paper: the ranker is a network, not boosted trees, so the M-step is one gradient step per
batch; the posterior is used as the target itself (`labels = "expected"`) unless asked to draw it ("sampled"),
which is the same in expectation and noisier. Theta is kept within [1e-6, 1 - 1e-6]. Pages without a click must
be in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from unskew.learning.factors import BiasTable, Values, sums_at
from unskew.learning.losses import log_odds, sigmoid_loss
from unskew.learning.methods.bases import BiasConfig, Biased, ClickLogits, LevelConfig, log_product, seen_model
from unskew.learning.methods.contract import Context
from unskew.logs.counts.reduction import Reduction
from unskew.types import ClickBatch


def posteriors(e: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """P(examined | no click), P(relevant | no click) from the logits of theta and g.

    >>> e, r = torch.tensor(0.9).logit(), torch.tensor(0.3)
    >>> [round(p.item(), 6) for p in posteriors(e, r)]
    [0.792961, 0.118932]
    """
    return torch.sigmoid(e - F.softplus(r)), torch.sigmoid(r - F.softplus(e))


def logit_of_product(logits: Sequence[Tensor]) -> Tensor:
    """The logit of the product of their probabilities.

    >>> round(logit_of_product([torch.tensor(0.5).logit(), torch.tensor(0.4).logit()]).sigmoid().item(), 6)
    0.2
    """
    return logits[0] if len(logits) == 1 else log_odds(log_product(logits))


class RegressionEMMethod(ClickLogits, Biased):
    """Cross-entropy to the posteriors of the E-step; theta moves by its M-step or by gradient."""

    config: RegressionEM

    def __init__(self, config: RegressionEM, context: Context) -> None:
        super().__init__(config, context)
        self.examination, self.offset = seen_model(
            config, context, self.factors, config.start, trained=config.form == "gradient"
        )

    def log_seen(self, values: Values) -> Tensor:
        """log theta at these values of the factors."""
        return log_product(self.examination.parts(values))

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Cross-entropy of relevance (and, in the gradient form, examination) to the posteriors."""
        r = self.from_mean(relevance, batch)[..., 0] + self.offset
        parts = self.examination.parts(self.factors.of(batch))
        c, n = batch.clicks, batch.impressions
        with torch.no_grad():
            r_target = c + (n - c) * posteriors(logit_of_product(parts), r)[1]
            targets = [c + (n - c) * seen for seen in self.examined(parts, r)]
            if self.config.labels == "sampled":
                drawn = torch.rand(len(batch.packed), device=r.device)  # one per result, so padding draws nothing
                r_target = (batch.pad(drawn) < r_target).to(r.dtype)
        loss = sigmoid_loss(r, r_target, where=batch.where, impressions=n)
        if self.config.form == "gradient":
            each = zip(parts, targets, strict=True)
            return loss + sum(sigmoid_loss(e, target, where=batch.where, impressions=n) for e, target in each)
        if self.training:
            self.update(targets, batch)
        return loss

    def examined(self, parts: Sequence[Tensor], r: Tensor) -> list[Tensor]:
        """P(E_f = 1 | no click) of each factor: the others stand with relevance on the other side."""
        others = [[*parts[:f], *parts[f + 1 :]] for f in range(len(parts))]
        return [posteriors(e, logit_of_product([r, *rest]))[0] for e, rest in zip(parts, others, strict=True)]

    @torch.no_grad()
    def update(self, targets: Sequence[Tensor], batch: ClickBatch) -> None:
        """One M-step for the theta of each factor; values that the batch does not show stay."""
        step, values = self.config.step, self.factors.of(batch)
        assert isinstance(self.examination, BiasTable), "a tower learns by gradient"
        for (name, table), target in zip(self.examination.tables.items(), targets, strict=True):
            shown, total = (
                sums_at(each, values[name], batch.where, len(table)) for each in (batch.impressions, target)
            )
            theta = table.sigmoid()
            moved = (1 - step) * theta + step * total / torch.where(shown > 0, shown, 1.0)
            table.copy_(torch.where(shown > 0, moved, theta).clamp(1e-6, 1 - 1e-6).logit())

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The logit of theta_k g."""
        r = relevance[..., 0].where(batch.where, 0.0) + self.offset
        return log_odds(self.log_seen(self.factors.of(batch)) + F.logsigmoid(r))


class RegressionEM(BiasConfig, LevelConfig):
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

    @model_validator(mode="after")
    def _towers_learn_by_gradient(self) -> Self:
        if self.bias == "tower" and self.form == "em":
            raise ValueError('bias = "tower" has no M-step; it needs form = "gradient"')
        return self

    @property
    def reduction(self) -> Reduction:
        """Counts; labels are drawn once per page."""
        return "counts" if self.labels == "expected" else "pages"
