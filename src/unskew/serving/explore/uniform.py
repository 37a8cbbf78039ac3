"""Policies that draw with equal chances, whatever the scores: a random first slot, and shuffled blocks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from unskew.serving.explore.policy import DrawnPage, Policy, RankedRequest, unmoved, with_tail
from unskew.types import Array


class TopOne(Policy):
    """A random result in the first slot: on a share of pages one drawn with equal chances, the others keep order.

    With c results that may be drawn, 1 + cap or all of the first `depth`, ranks r and slots k from 1:

        P(r at 1) = 1 / c,    P(r at r) = (r - 1) / c for 1 < r,    P(r at r + 1) = (c - r) / c,    r <= c

    What was drawn moves up, what stood above it moves down by one. Only the first slot is marked as randomized;
    `training.learn_from = "randomized"` learns from such rows.

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


class BoundedShuffle(Policy):
    """The first results are cut into blocks, and each block is brought into a random order.

    A block has 1 + cap results, so nothing moves further than the cap. Where the first block ends is drawn with
    equal chances, so that every two neighbours are in one block at times and the log links all ranks. With blocks
    B_o(r) for the cut o = 0 .. cap:

        P(r at k) = 1 / (1 + cap)  sum over o of [B_o(r) = B_o(k)] / |B_o(k)|

    Without a cap, or with one as long as the page, there is one block: every order is as likely, and all its slots
    are marked as randomized. With smaller ones nothing is marked: slots of several blocks have different results.

    >>> BoundedShuffle(cap=1).rank([0, 1, 2], [3.0, 2.0, 1.0], request_id="c").order.tolist()
    [1, 0, 2]
    """

    name: ClassVar[str] = "shuffle"

    def draw(self, ranked: RankedRequest, rng: np.random.Generator) -> DrawnPage:
        """Blocks by a random cut, each shuffled."""
        blocks = self._blocks(ranked.depth)
        block = blocks[rng.integers(len(blocks))]
        ranks = np.arange(len(ranked.order))
        ranks[: ranked.depth] = np.lexsort((rng.random(ranked.depth), block))
        return DrawnPage(ranks, randomized=ranked.depth if len(blocks) == 1 else 0)

    def chance(self, ranked: RankedRequest, ranks: Array) -> Array:
        """The formula above."""
        blocks, depth = self._blocks(ranked.depth), ranked.depth
        inside = ranks[:depth] < depth  # what comes from further down is in no block
        same = (np.take(blocks, np.where(inside, ranks[:depth], 0), axis=1) == blocks) & inside  # [cuts, D]
        size = (blocks[:, :, None] == blocks[:, None, :]).sum(2)
        chance = unmoved(ranks)
        chance[:depth] = (same / size).mean(0)
        return chance

    def _blocks(self, depth: int) -> Array:
        """The block of each slot for every cut, [cuts, D]; one cut where one block holds all."""
        if self.cap is None or self.cap >= depth - 1:
            return np.zeros((1, depth), np.int64)
        length = self.cap + 1
        blocks: Array = (np.arange(depth)[None, :] + np.arange(length)[:, None]) // length
        return blocks
