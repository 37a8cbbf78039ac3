"""Safe learning: a ranker that moves from the order that was shown only as far as clicks carry it.

Reference: Gupta, Oosterhuis, de Rijke, "Practical and Robust Safety Guarantees for Advanced Counterfactual
Learning to Rank", CIKM 2024 (proximal ranking policy optimisation); Gupta, Oosterhuis, de Rijke, "Safe Deployment
for Counterfactual Learning to Rank with Exposure-Based Risk Minimization", SIGIR 2023.

    m(x)    what the logging ranker thought of a document, learned from the orders that pages had:
            - sum_i [m_i - log sum_{j not above i} exp m_j]      (Plackett and Luce), i over the results of a page
    s(x)    the score of the method, learned as ever
    k, k_0  the ranks of a document by s and by m;  1 / k and 1 / k_0 are its weights in the new and the old order
    rank by 1 / k_0 times the ratio k_0 / k clipped to [1 / r, r]          ties by s

r is the reach. With r = 1 the order is that of m, the one that was shown; without a limit it is that of s, the
unsafe method. Where the ratio is clipped the order does not change with s: there is nothing to gain from moving a
document further from where it stood. A document below the first P by m, P the ranks that the log shows, keeps its
place: no page says anything of it.

Differences from the papers: there the loss is clipped and r is set, or falls with the number of clicks; here s is
learned unclipped, and then the clicks of held-out pages choose r among `REACHES`: 1, unless the lower end of an
interval of the gain lies above 0 (`unskew.workflows.runs.safety`). The ratio is clipped on both sides whatever a
document's evidence. The papers know the logging ranker; we learn it, so m is as good as features can tell it, and
a run says how good.

Legend: B rows, K results of a page, P ranks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.learning.factors import seen_at
from unskew.types import ClickBatch

UNLIMITED = 1e9
"""The reach that holds nothing back."""
REACHES = (1.0, 1.25, 1.5, 2.0, 3.0, UNLIMITED)
"""Reaches that held-out clicks choose from; the first holds everything back."""
LARGEST = 3e38
FASTER = 30.0
"""By how much the output of m is multiplied, so that it learns faster: orders are plain, and clicks are noise."""


def shown_rank(batch: ClickBatch) -> Tensor:
    """The rank that pages showed each result at, on average, [B, K]; infinite where it was never shown."""
    if batch.shown_at is None:
        return torch.where(batch.where, batch.position.to(batch.clicks), torch.inf)
    ranks = torch.arange(1, batch.shown_at.shape[-1] + 1).to(batch.clicks)
    total, shown = seen_at(ranks, batch), seen_at(torch.ones_like(ranks), batch)
    return torch.where(batch.where & (shown > 0), total / torch.where(shown > 0, shown, 1.0), torch.inf)


def imitation_loss(logging: Tensor, batch: ClickBatch) -> Tensor:
    """How badly m [B, K] tells the orders of pages, a mean over results; those never shown come last.

    It is divided by `FASTER`, so that the gradient of m is not larger than that of clicks.
    """
    rank, m = shown_rank(batch), torch.where(batch.where, FASTER * logging, 0.0)
    copies = batch.where.to(m) if batch.stands_for is None else batch.stands_for
    weighed = m + torch.where(batch.where, copies, 1.0).log()
    width = rank.shape[1] if batch.shown_at is None else batch.shown_at.shape[1]  # S, those that were shown first
    of, m, pages = rank[:, :width], m[:, :width], batch.impressions[:, :width]
    after = (rank.unsqueeze(-2) >= of.unsqueeze(-1)) & batch.where.unsqueeze(-2)  # [B, S, K] j is not above i
    rest = torch.where(after, weighed.unsqueeze(-2), -LARGEST).logsumexp(-1)
    pages = torch.where(of.isfinite(), pages, 0.0)
    loss = torch.where(of.isfinite(), pages * (rest - m), 0.0).sum()
    return loss / torch.where(pages.sum() > 0, FASTER * pages.sum(), 1.0)


@torch.no_grad()
def ranks_of(scores: Tensor, mask: Tensor) -> Tensor:
    """Ranks from 1 by descending score, [B, K]; padding comes last.

    >>> ranks_of(torch.tensor([[3.0, 9.0, 4.0]]), torch.tensor([[True, False, True]])).tolist()
    [[2, 3, 1]]
    """
    order = torch.where(mask, scores, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    ranks: Tensor = order.argsort(dim=-1, stable=True) + 1
    return ranks


@torch.no_grad()
def guarded(scores: Tensor, logging: Tensor, mask: Tensor, reach: float, depth: int) -> Tensor:
    """What to rank by, [B, K]: log weights of s clipped to those of m; 0 where padded.

    >>> s, m = torch.tensor([[0.0, 1.0, 2.0, 9.0]]), torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    >>> mask = torch.tensor([[True] * 4])
    >>> [ranks_of(guarded(s, m, mask, reach, depth=3), mask).tolist()[0] for reach in (1.0, 1.6, UNLIMITED)]
    [[1, 2, 3, 4], [1, 3, 2, 4], [3, 2, 1, 4]]
    """
    old = ranks_of(logging, mask)
    first = mask & (old <= depth)
    new = torch.where(first, ranks_of(scores, first), old)
    weight = torch.clamp(new / old, 1 / reach, reach) * old  # a rank, not always a whole one
    fraction = torch.where(first, new, old) / (mask.sum(-1, keepdim=True) + 1)  # ties go by s
    return torch.where(mask, -weight.log() - 1e-4 * fraction, 0.0)
