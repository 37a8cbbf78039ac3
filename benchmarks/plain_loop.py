"""The loop that published code trains with: one page after another, list by list, in plain Python.

It is written for the benchmark and shares only the network with unskew. A step draws 256 pages from the log one
at a time, appends their documents to lists, pads, stacks, and takes one Adagrad step.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unskew.types import Array, Log

BATCH = 256
STEPS = 10_000


class PlainLoop:
    """Ranker, optionally the propensities of the dual learning algorithm, and their optimiser."""

    def __init__(self, log: Log, features: Array, ranker: nn.Module, method: str, seed: int) -> None:
        self.log, self.features, self.ranker = log, features, ranker
        self.width = int(log.sizes.max())
        self.propensity = nn.Parameter(torch.zeros(self.width)) if method == "dla" else None
        parameters = [*ranker.parameters(), *([] if self.propensity is None else [self.propensity])]
        self.optimizer = torch.optim.Adagrad(parameters, lr=0.05, initial_accumulator_value=0.1)
        self.parameters = parameters
        self.order = np.random.default_rng(seed).permutation(len(log))  # every page at most once in a pass
        self.next = 0

    def batch(self) -> tuple[Tensor, Tensor, Tensor]:
        """Features [B, K, D], clicks [B, K] and mask [B, K], built list by list."""
        pages, clicks, masks = [], [], []
        nothing = np.zeros(self.features.shape[1], np.float32)
        for _ in range(BATCH):
            page = self.order[self.next % len(self.order)]
            self.next += 1
            start, stop = self.log.offsets[page], self.log.offsets[page + 1]
            documents = [self.features[row] for row in self.log.row[start:stop]]
            clicked = [float(click) for click in self.log.click[start:stop]]
            missing = self.width - len(documents)
            masks.append([True] * len(documents) + [False] * missing)
            pages.append(documents + [nothing] * missing)
            clicks.append(clicked + [0.0] * missing)
        return torch.from_numpy(np.array(pages)), torch.tensor(clicks), torch.tensor(masks)

    def step(self) -> float:
        """One optimiser step; its loss."""
        features, clicks, mask = self.batch()
        scores = self.ranker(features.flatten(0, 1)).view(clicks.shape).masked_fill(~mask, -1e9)
        if self.propensity is None:
            loss = weighted_softmax_loss(scores, clicks)
        else:
            logits = self.propensity.expand_as(scores).masked_fill(~mask, -1e9)
            loss = weighted_softmax_loss(scores, clicks * first_over(logits))
            loss = loss + weighted_softmax_loss(logits, clicks * first_over(scores))
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 5.0)
        self.optimizer.step()
        return loss.item()


def weighted_softmax_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the list softmax, averaged over the weighted clicks."""
    return -(labels * F.log_softmax(scores, -1)).sum() / labels.sum().clamp(min=1e-6)


def first_over(logits: Tensor) -> Tensor:
    """p_1 / p_k under the softmax of the logits, without gradient."""
    p = F.softmax(logits.detach(), -1)
    return p[:, :1] / p.clamp(min=1e-6)
