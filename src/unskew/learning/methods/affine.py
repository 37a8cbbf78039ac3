"""Affine corrections for trust bias: click rates become relevance through two probabilities per rank, by EM.

Reference: Vardasbi, Oosterhuis, de Rijke, "When Inverse Propensity Scoring does not Work: Affine Corrections for
Unbiased Learning to Rank", CIKM 2020.

With C the click rate of a document at its rank, z+_k = P(c=1 | R=1, k), z-_k = P(c=1 | R=0, k), and r the
relevance probability that the scores of its list give,

    c^ = z+ r + z-(1-r)        P(R=1 | c=1) = r z+ / c^        P(R=1 | c=0) = r (1-z+) / (1-c^)
    z+_k = sum C P(R=1|1) / sum [C P(R=1|1) + (1-C) P(R=1|0)]        z- likewise with P(R=0|.)
    y~ = (C - m_k) / (z+_k - m_k),  m_k = min(z-_k, mean C at k)
    minimise the list softmax loss with y~ as labels;  rank by f

Differences from the paper: EM runs over each batch and moves z by `step`, where the published code sweeps the
whole training set every 20 steps. y~ below 0 counts as 0: a negative label makes the loss unbounded. Rates need
repeated impressions of a ranking; with one page per ranking a click rate is a click.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from unskew.learning.curves import Curve, trust_curves
from unskew.learning.factors import at_rank, sums_at
from unskew.learning.losses import softmax_loss
from unskew.learning.methods.contract import Context, ImpressionConfig, MethodModule
from unskew.types import ClickBatch

_SMALL = 1e-6


def list_relevance(scores: Tensor, where: Tensor, kind: str) -> Tensor:
    """Relevance probabilities from the scores of a list: min-max of exp(s), sig(s - mean s), or softmax.

    >>> s = torch.tensor([[0.0, 1.0, 2.0]])
    >>> [round(r, 4) for r in list_relevance(s, torch.ones_like(s, dtype=torch.bool), "minmax")[0].tolist()]
    [0.0, 0.2689, 1.0]
    """
    if kind == "sigmoid":
        mean = torch.where(where, scores, 0.0).sum(-1, keepdim=True) / where.sum(-1, keepdim=True).clamp(min=1)
        return torch.sigmoid(scores - mean)
    top = torch.where(where, scores, -torch.inf).amax(-1, keepdim=True).clamp(min=-1e30)
    e = torch.where(where, scores - top, -torch.inf).exp()
    if kind == "softmax":
        return e / e.sum(-1, keepdim=True).clamp(min=_SMALL)
    low = torch.where(where, e, 1.0).amin(-1, keepdim=True)
    return torch.where(low < 1, (e - low) / (1 - low).clamp(min=_SMALL), 0.5)


class AffineMethod(MethodModule):
    """List softmax loss on corrected click rates."""

    config: Affine
    plus: Tensor
    minus: Tensor
    rate: Tensor

    def __init__(self, config: Affine, context: Context) -> None:
        super().__init__(config, context)
        for name, start in (("plus", 0.999), ("minus", 0.001), ("rate", 0.5)):
            self.register_buffer(name, torch.full((context.positions,), start))

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The loss on corrected rates; one EM step in training."""
        s, n = relevance[..., 0], batch.impressions
        if self.training:
            self.update(s.detach(), batch)
        low = at_rank(torch.minimum(self.minus, self.rate), batch.position)
        gain = (at_rank(self.plus, batch.position) - low).clamp(min=1e-3)
        labels = ((batch.clicks - low * n) / gain).clamp(min=0.0)
        return softmax_loss(s, labels, where=batch.where)

    @torch.no_grad()
    def update(self, scores: Tensor, batch: ClickBatch) -> None:
        """One E-step and one M-step; ranks that the batch does not show stay."""
        c, n = batch.clicks, batch.impressions
        r = list_relevance(scores, batch.where, self.config.relevance)
        plus, minus = at_rank(self.plus, batch.position), at_rank(self.minus, batch.position)
        click = (plus * r + minus * (1 - r)).clamp(_SMALL, 1 - _SMALL)
        relevant = (r * plus / click, r * (1 - plus) / (1 - click))  # given a click, given none

        def total(values: Tensor) -> Tensor:
            return sums_at(values, batch.position - 1, batch.where, self.positions)

        shown = total(n)
        hit, miss = total(c * relevant[0]), total((n - c) * relevant[1])
        off, none = total(c * (1 - relevant[0])), total((n - c) * (1 - relevant[1]))
        for buffer, new in (
            (self.plus, hit / (hit + miss).clamp(min=_SMALL)),
            (self.minus, off / (off + none).clamp(min=_SMALL)),
            (self.rate, total(c) / shown.clamp(min=_SMALL)),
        ):
            moved = (1 - self.config.step) * buffer + self.config.step * new
            buffer.copy_(torch.where(shown > 0, moved, buffer).clamp(1e-3, 0.999))

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """log(z+ r + z-(1-r))."""
        r = list_relevance(relevance[..., 0], batch.where, self.config.relevance)
        plus, minus = at_rank(self.plus, batch.position), at_rank(self.minus, batch.position)
        return (plus * r + minus * (1 - r)).clamp(min=_SMALL).log()

    def curves(self) -> tuple[Curve, ...]:
        """alpha = z+ - z- and beta = z-; clicks do not tell how much of them is examination."""
        return trust_curves((self.plus - self.minus).clamp(min=_SMALL).tolist(), self.minus.tolist())


class Affine(ImpressionConfig):
    """Correct click rates for trust bias, with parameters found by EM."""

    module = AffineMethod
    name: Literal["affine"] = "affine"
    relevance: Literal["minmax", "sigmoid", "softmax"] = "minmax"
    """How the scores of a list become relevance probabilities in the E-step. `minmax` was chosen in two worlds of
    trust bias, 0.03 above `sigmoid`, which ranks as well only early in training: see EXPERIMENTS.md."""
    step: float = Field(0.1, gt=0, le=1)
    """How far z moves to its new estimate at every batch."""
