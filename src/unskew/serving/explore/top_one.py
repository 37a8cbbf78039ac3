"""Random first slot: on a share of pages a result drawn with equal chances comes first, the others keep order.

With c results that may be drawn, 1 + cap or all of the first `depth`, ranks r and slots k from 1:

    P(r at 1) = 1 / c,    P(r at r) = (r - 1) / c for 1 < r,    P(r at r + 1) = (c - r) / c,    r <= c

What was drawn moves up, what stood above it moves down by one. Only the first slot is marked as randomized;
`training.learn_from = "randomized"` learns from such rows.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from unskew.serving.explore.policy import DrawnPage, Policy, RankedRequest, with_tail
from unskew.types import Array


class TopOne(Policy):
    """A random result in the first slot.

    >>> TopOne(share=0.5, cap=1).rank([0, 1, 2], [3.0, 2.0, 1.0], request_id="a").propensity.tolist()
    [0.75, 0.75, 1.0]
    """

    name: ClassVar[str] = "top_one"

    def draw(self, ranked: RankedRequest, rng: np.random.Generator) -> DrawnPage:
        """One of the first results moves to the top."""
        ranks = np.array([rng.integers(self._drawable(ranked))])
        return DrawnPage(with_tail(ranks, len(ranked.order)), randomized=1)

    def chance(self, ranked: RankedRequest, ranks: Array) -> Array:
        """The formulas above."""
        c, slots = self._drawable(ranked), np.arange(len(ranks))
        stays = np.where(ranks >= c, 1.0, ranks / c)
        moves_down = np.where(ranks + 1 == slots, np.maximum(c - 1 - ranks, 0) / c, 0.0)
        below = np.where(ranks == slots, stays, moves_down)
        return np.where(slots == 0, (ranks < c) / c, below)

    def _drawable(self, ranked: RankedRequest) -> int:
        return ranked.depth if self.cap is None else min(ranked.depth, self.cap + 1)
