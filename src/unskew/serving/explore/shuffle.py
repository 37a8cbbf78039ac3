"""Bounded shuffle: the first results are cut into blocks, and each block is brought into a random order.

A block has 1 + cap results, so nothing moves further than the cap. Where the first block ends is drawn with equal
chances, so that every two neighbours are in one block at times and the log links all ranks. With blocks B_o(r) for
the cut o = 0 .. cap:

    P(r at k) = 1 / (1 + cap)  sum over o of [B_o(r) = B_o(k)] / |B_o(k)|

Without a cap, or with one as long as the page, there is one block: every order is as likely, and all its slots are
marked as randomized. With smaller blocks nothing is marked: slots of several blocks have different results.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from unskew.serving.explore.policy import DrawnPage, Policy, RankedRequest, unmoved
from unskew.types import Array


class BoundedShuffle(Policy):
    """Blocks in random order.

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
