"""Ranking losses as pure functions: scores and clicks in, one number out; list axis last, masks everywhere.

A row is a page, or a group of pages that showed the same ranking: `clicks` are then sums over the group
and `impressions` its size. Losses that are linear in the clicks give the same value and gradient either way.

Legend: B rows, K results of a page.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unskew.logs.counts.reduction import Reduction
from unskew.types import ClickBatch

LossName = Literal["softmax", "softmax_list", "sigmoid", "pairwise", "lambda"]


def log1mexp(x: Tensor) -> Tensor:
    """log(1 - exp(x)) for x < 0, exact near 0 and far from it (the two forms meet at -log 2).

    >>> round(log1mexp(torch.tensor(math.log(0.25))).exp().item(), 6)
    0.75
    """
    x = x.clamp(max=-1e-30)  # log 0 has no gradient
    near = x > -math.log(2)  # the gradient of the form that is not taken must be finite too
    return torch.where(
        near,
        torch.log(-torch.expm1(torch.where(near, x, -1.0))),
        torch.log1p(-torch.exp(torch.where(near, -1.0, x))),
    )


def log_odds(log_p: Tensor) -> Tensor:
    """The logit of a probability, log p - log(1 - p), from its logarithm.

    >>> round(log_odds(torch.tensor(math.log(0.2))).sigmoid().item(), 6)
    0.2
    """
    return log_p - log1mexp(log_p)


def list_log_softmax(scores: Tensor, where: Tensor) -> Tensor:
    """Log softmax over the results of each list, 0 where padded.

    >>> list_log_softmax(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([True, True, False])).tolist()
    [-1.3132..., -0.3132..., 0.0]
    """
    lowest = torch.finfo(scores.dtype).min
    masked = torch.where(where, scores, lowest)
    return torch.where(where, F.log_softmax(masked, dim=-1), 0.0)


def softmax_loss(
    scores: Tensor, clicks: Tensor, *, where: Tensor, weights: Tensor | None = None, by_list: bool = False
) -> Tensor:
    """-sum_k u_k log softmax(scores)_k with u = clicks * weights, divided by the sum of u over the batch.

    `by_list` makes u sum to 1 in every list, and averages the lists that have a click. No click at all gives 0.

    >>> s, c = torch.tensor([[1.0, 2, 0], [0.5, -0.5, 1.5]]), torch.tensor([[0.0, 1, 0], [1, 0, 1]])
    >>> round(softmax_loss(s, c, where=torch.ones_like(c, dtype=torch.bool)).item(), 6)
    0.740939
    """
    u = clicks if weights is None else clicks * weights
    u = torch.where(where, u, 0.0)
    log_p = list_log_softmax(scores, where)
    if by_list:
        total = u.sum(-1, keepdim=True)
        u = torch.where(total > 0, u / torch.where(total > 0, total, 1.0), 0.0)
    return _ratio(-(u * log_p).sum(), u.sum())


def sigmoid_loss(
    scores: Tensor,
    clicks: Tensor,
    *,
    where: Tensor,
    weights: Tensor | None = None,
    impressions: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of sigmoid(scores) against w c, summed over a page and averaged over pages.

    -(w c) log sig(s) - (n - w c) log(1 - sig(s)); with w the inverse propensity it is unbiased.

    >>> z, c = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 0.0]])
    >>> round(sigmoid_loss(z, c, where=torch.tensor([[True, True]])).item(), 6)
    2.820075
    """
    n = torch.ones_like(clicks) if impressions is None else impressions
    positive = clicks if weights is None else clicks * weights
    scores = torch.where(where, scores, 0.0)
    loss = positive * F.softplus(-scores) + (n - positive) * F.softplus(scores)
    return torch.where(where, loss, 0.0).sum() / page_count(where, impressions)


def pair_losses(scores: Tensor) -> Tensor:
    """log(1 + exp(-(s_i - s_j))) for every pair of a list, [B, K, K]."""
    return F.softplus(scores.unsqueeze(-2) - scores.unsqueeze(-1))


def pairwise_loss(
    scores: Tensor,
    clicks: Tensor,
    *,
    where: Tensor,
    weights: Tensor | None = None,
    pairs: Tensor | None = None,
    gains: Tensor | None = None,
) -> Tensor:
    """Logistic loss over pairs with a click on i and none on j (or a higher grade on i), averaged over pairs.

    weights [B, K] multiply the pairs of their clicked result, gains [B, K, K] any pair.

    >>> s, c = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    >>> round(pairwise_loss(s, c, where=torch.tensor([[True, True, True]])).item(), 6)
    0.220095
    """
    n = pair_counts(clicks, where) if pairs is None else pairs
    u = n if weights is None else n * torch.where(where, weights, 0.0).unsqueeze(-1)
    u = u if gains is None else u * gains
    loss = torch.where(n > 0, u * pair_losses(torch.where(where, scores, 0.0)), 0.0)
    return _ratio(loss.sum(), u.sum())


def pair_counts(clicks: Tensor, where: Tensor) -> Tensor:
    """Pairs of single pages, [B, K, K]: 1 where i has more clicks (or a higher grade) than j."""
    both = where.unsqueeze(-1) & where.unsqueeze(-2)
    return ((clicks.unsqueeze(-1) > clicks.unsqueeze(-2)) & both).to(clicks.dtype)


def lambda_gains(scores: Tensor, clicks: Tensor, *, where: Tensor) -> Tensor:
    """|change of nDCG| when i and j swap places in the order of the scores, [B, K, K], without gradient."""
    with torch.no_grad():
        lowest = torch.finfo(scores.dtype).min
        order = torch.where(where, scores, lowest).argsort(dim=-1, descending=True, stable=True)
        rank = torch.empty_like(order).scatter_(
            -1, order, torch.arange(order.shape[-1]).to(order).expand_as(order)
        )
        discount = torch.where(where, 1 / torch.log2(rank.to(scores) + 2), 0.0)
        gain = torch.where(where, torch.exp2(clicks) - 1, 0.0)
        ideal = gain.sort(dim=-1, descending=True).values / torch.log2(torch.arange(gain.shape[-1]).to(gain) + 2)
        best = ideal.sum(-1)[:, None, None]
        delta = _differences(gain).abs() * _differences(discount).abs()
        return torch.where(best > 0, delta / torch.where(best > 0, best, 1.0), 0.0)


def lambda_loss(scores: Tensor, clicks: Tensor, *, where: Tensor, weights: Tensor | None = None) -> Tensor:
    """LambdaRank's pair loss: the pairwise logistic loss, each pair weighted by the nDCG it decides.

    >>> s, c = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    >>> round(lambda_loss(s, c, where=torch.tensor([[True, True, True]])).item(), 6)
    0.206059
    """
    gains = lambda_gains(scores, clicks, where=where)
    return pairwise_loss(scores, clicks, where=where, weights=weights, gains=gains)


def page_count(where: Tensor, impressions: Tensor | None) -> Tensor:
    """Number of pages behind a batch, at least 1: the largest impression count of each row, summed."""
    rows = where.to(torch.float32) if impressions is None else torch.where(where, impressions, 0.0)
    return rows.amax(-1).sum().clamp(min=1.0)


def _differences(x: Tensor) -> Tensor:
    return x.unsqueeze(-1) - x.unsqueeze(-2)


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The ratio; nothing to average is 0 / 0 and gives 0 with a zero gradient."""
    return numerator / torch.where(denominator > 0, denominator, 1.0)


@dataclass(frozen=True)
class ListLoss:
    """A loss as methods use it: the function of (scores, batch, weights), and the reduction it can take."""

    reduction: Reduction
    function: Callable[[Tensor, ClickBatch, Tensor | None], Tensor]


LOSSES: dict[LossName, ListLoss] = {
    "softmax": ListLoss("counts", lambda s, b, w: softmax_loss(s, b.clicks, where=b.where, weights=w)),
    "softmax_list": ListLoss(
        "pages", lambda s, b, w: softmax_loss(s, b.clicks, where=b.where, weights=w, by_list=True)
    ),
    "sigmoid": ListLoss(
        "counts", lambda s, b, w: sigmoid_loss(s, b.clicks, where=b.where, weights=w, impressions=b.impressions)
    ),
    "pairwise": ListLoss(
        "pairs", lambda s, b, w: pairwise_loss(s, b.clicks, where=b.where, weights=w, pairs=b.pairs)
    ),
    "lambda": ListLoss("pages", lambda s, b, w: lambda_loss(s, b.clicks, where=b.where, weights=w)),
}
"""Losses that a method can be given by name."""


def lipschitz_penalty(o: Tensor, documents: Tensor, *, weights: Tensor, signs: Tensor) -> Tensor:
    """Mean over documents [n, D], weighted, and ranks of || grad_x o_p(x) ||^2, o [n, P], for random signs [P]."""
    (gradient,) = torch.autograd.grad((o * signs).sum(), documents, create_graph=True)
    return (weights * gradient.square().sum(-1)).sum() / (weights.sum().clamp(min=1e-12) * o.shape[-1])
