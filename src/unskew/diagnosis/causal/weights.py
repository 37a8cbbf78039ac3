"""Weights that take a cause out: impressions as they would be if relevance did not shape what the page shows.

"Whole Page Unbiased Learning to Ranking", Section 3.2. For every variable x that relevance r and clicks share,
with its other parents m,

    w = Π p(x | m) / p(x | r, m),        p(x | m) = mean over r' of p(x | r', m)

Differences from the paper: its formula for a variable with other parents is printed upside down. The product is
clipped and divided by its mean, since ratios of densities have no bounds.

Legend: X variables that relevance and clicks share.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def confounding_weights(log_target: Tensor, log_source: Tensor, *, shown: Tensor, clip: float) -> Tensor:
    """w of each result, [...], mean 1 over what is shown [...], from log p(x | m) and log p(x | r, m), [X, ...].

    Before it is divided by its mean, w lies between 1/clip and clip; 0 where nothing is shown.

    >>> target, source = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    >>> [round(w, 3) for w in confounding_weights(target, source, shown=torch.ones(2), clip=10.0).tolist()]
    [1.5, 0.5]
    """
    log_ratio = (log_target - log_source).nan_to_num().sum(0).clamp(-math.log(clip), math.log(clip))
    ratio = torch.where(shown > 0, log_ratio.exp(), 0.0)
    return ratio * (shown.sum() / (shown * ratio).sum().clamp(min=1e-12))


def effective_share(weights: Tensor, *, shown: Tensor) -> Tensor:
    """(Σw)² / (n Σw²): the share of the impressions that as many without weights would say as much as.

    >>> round(effective_share(torch.tensor([1.5, 0.5]), shown=torch.ones(2)).item(), 3)
    0.8
    """
    total = (shown * weights).sum()
    return total.square() / (shown.sum() * (shown * weights.square()).sum()).clamp(min=1e-12)
