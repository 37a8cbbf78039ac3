"""Policies that leave scores aside: a random first slot, shuffled blocks, swaps of two ranks, and team draft.

Swaps are those of the plan of `diagnose`: on a share of pages the results of two ranks change places, half of the
time. For the swaps (k, j) with shares s_kj of all pages, a page in one of them at most:

    P(k at j) = P(j at k) = s_kj / 2,        P(r at r) = 1 - the sum of s / 2 over the swaps of r

Nothing is marked as randomized: `diagnose` reads swaps through documents at several ranks, and leaves out marked
slots there. A page that ends above a rank of its swap is shown as it is.

Drafting of teams is that of `unskew.team_draft`. A page follows from one coin per round; after a round it only
matters which results are taken, so chances are added up over the sets that can be taken, 2^(depth / 2) at most.

With a cap the second ranking is first brought within the cap of the first. Then no interleaved page moves a
result further either: what stands above a result of rank a in the first and b in the second ranking is among
the first a - 1 of one and b - 1 of the other. The comparison is then one of the first ranking with the second
as it was capped.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from unskew.errors import DataError
from unskew.files import read_json
from unskew.serving.explore.policy import DrawnPage, Policy, RankedRequest, unmoved, with_tail
from unskew.settings import Config
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
        """The chance of each result at its slot, by the formula at the head of the class."""
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


Rank = Annotated[int, Field(ge=1)]


class SwappedRanks(Config):
    """Two ranks, and the share of all pages that takes part."""

    ranks: Annotated[tuple[Rank, Rank], Field(strict=False)]
    """From 1."""
    share: Annotated[float, Field(ge=0, le=1)]
    """Of these pages half are swapped."""


class SwapRanks(Policy):
    """Swaps of two ranks each.

    >>> plan = SwapRanks(swaps=[{"ranks": [1, 2], "share": 0.5}])
    >>> plan.rank([0, 1, 2], [3.0, 2.0, 1.0], request_id="b").propensity.tolist()
    [0.75, 0.75, 1.0]
    """

    name: ClassVar[str] = "swaps"
    swaps: Annotated[tuple[SwappedRanks, ...], Field(strict=False, min_length=1)]
    """What `swap_plan` of a diagnosis lists."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if sum(swap.share for swap in self.swaps) > 1 + 1e-9:
            raise ValueError("a page carries one swap: the shares add up to more than 1")
        pairs = [tuple(sorted(swap.ranks)) for swap in self.swaps]
        if any(low == high for low, high in pairs) or len(set(pairs)) < len(pairs):
            raise ValueError("a swap is of two different ranks, and stands here once")
        for low, high in pairs:
            if high > self.depth:
                raise ValueError(f"ranks {low} and {high}: depth is {self.depth}; set it to {high}")
            if self.cap is not None and high - low > self.cap:
                raise ValueError(f"ranks {low} and {high} are further apart than the cap of {self.cap}")
        return self

    @property
    def policy_id(self) -> str:
        """The name and the ranks of the swaps."""
        pairs = ",".join("{}-{}:{:g}".format(*sorted(swap.ranks), swap.share) for swap in self.swaps)
        return f"{self.name}({pairs})" if self.share == 1 else f"{self.name}({pairs},share={self.share})"

    @property
    def taking_part(self) -> float:
        """Share of pages in any of the swaps."""
        return self.share * sum(swap.share for swap in self.swaps)

    @classmethod
    def plan_of(cls, path: Path | str, *, depth: int | None = None) -> dict[str, object]:
        """What a file of `unskew diagnose --json` holds: swaps, and a depth that reaches them unless given."""
        plan = read_json(Path(path)).get("swap_plan")
        if not plan:
            hint = "its `evidence.graph` says why; a log whose ranks are linked needs none"
            raise DataError("the diagnosis has no swap_plan", path=path, hint=hint)
        try:
            deepest = max(max(int(rank) for rank in swap["ranks"]) for swap in plan)
        except (TypeError, ValueError, KeyError):
            hint = "write it again with `unskew diagnose LOG --json FILE`"
            raise DataError("damaged: swap_plan is no list of ranks and shares", path=path, hint=hint) from None
        return {"swaps": plan, "depth": max(deepest, 10) if depth is None else depth}

    def draw(self, ranked: RankedRequest, rng: np.random.Generator) -> DrawnPage:
        """The page with one pair of ranks swapped, or as it was."""
        ranks, at, heads = np.arange(len(ranked.order)), rng.random(), rng.random() < 0.5
        for swap in self.swaps:
            if 0 <= at < swap.share and heads and max(swap.ranks) <= len(ranks):
                i, j = swap.ranks[0] - 1, swap.ranks[1] - 1
                ranks[[i, j]] = ranks[[j, i]]
            at -= swap.share
        return DrawnPage(ranks)

    def chance(self, ranked: RankedRequest, ranks: Array) -> Array:
        """The formulas above."""
        chance = unmoved(ranks)
        for swap in self.swaps:
            if max(swap.ranks) <= len(ranks):
                for i, j in (swap.ranks, swap.ranks[::-1]):
                    chance[i - 1] += swap.share / 2 * (-1.0 if ranks[i - 1] == i - 1 else ranks[i - 1] == j - 1)
        return chance


class TeamDraft(Policy):
    """Two rankings in one page; the log says in `team` which of them each result is for.

    >>> page = TeamDraft().rank([0, 1, 2], [3.0, 2.0, 1.0], other=[1, 0, 2], request_id="a")
    >>> page.order.tolist(), page.propensity.tolist(), page.team
    ([1, 0, 2], [0.5, 0.5, 1.0], ('second', 'first', 'first'))
    """

    name: ClassVar[str] = "team_draft"
    interleaves: ClassVar[bool] = True
    depth: Annotated[int, Field(ge=1, le=20)] = 10
    """Results that are drafted; below them the first ranking goes on."""
    first: str = "first"
    """What the log calls the ranking that is served anyway."""
    second: str = "second"
    """What it calls the other one."""

    def draw(self, ranked: RankedRequest, rng: np.random.Generator) -> DrawnPage:
        """A page that the two rankings picked results for in turn."""
        # it brings scipy, which other policies do without
        from unskew.measuring.experiments.interleaving import team_draft

        second, candidates = self._second(ranked), len(ranked.order)
        page = team_draft(range(candidates), second, length=ranked.depth, seed=rng)
        team = [(self.first, self.second)[each] for each in page.teams]
        ranks = with_tail(np.array(page.items), candidates)
        return DrawnPage(ranks, team=(*team, *[None] * (candidates - len(team))))

    def chance(self, ranked: RankedRequest, ranks: Array) -> Array:
        """The chance of each result at its slot, over all falls of the coins that say who picks first."""
        chance = np.zeros(len(ranks))
        taken: dict[frozenset[int], float] = {frozenset(): 1.0}
        second = self._second(ranked)
        for slot in range(0, ranked.depth, 2):
            after: dict[frozenset[int], float] = {}
            for before, weight in taken.items():
                for picks in _rounds(before, second):
                    picks = picks[: ranked.depth - slot]
                    for at, rank in enumerate(picks):
                        chance[slot + at] += weight / 2 * (ranks[slot + at] == rank)
                    key = before.union(picks)
                    after[key] = after.get(key, 0.0) + weight / 2
            taken = after
        for drafted, weight in taken.items():
            tail = with_tail(np.array(sorted(drafted)), len(ranks))[ranked.depth :]
            chance[ranked.depth :] += weight * (ranks[ranked.depth :] == tail)
        return chance

    def _second(self, ranked: RankedRequest) -> list[int]:
        if ranked.other is None:
            raise DataError("team_draft interleaves two rankings and was given one", hint="name a second model")
        other: list[int] = ranked.other.tolist()
        return other if self.cap is None else within(other, self.cap)


def _rounds(taken: frozenset[int], second: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The results of one round for either coin."""
    one = [rank for rank in range(len(taken) + 2) if rank not in taken and rank < len(second)][:2]
    two = list(islice((rank for rank in second if rank not in taken), 2))
    for order in ((one, two), (two, one)):
        leader = order[0][0]
        yield (leader, *[rank for rank in order[1] if rank != leader][:1])


def within(ranking: Sequence[int], cap: int) -> list[int]:
    """A ranking of 0, 1, ... as near as slot by slot can be, with nothing further than the cap from its number.

    >>> within([4, 3, 2, 1, 0], 1)
    [1, 0, 3, 2, 4]
    """
    left, made = dict.fromkeys(ranking), list[int]()
    for slot in range(len(ranking)):
        due = slot - cap
        pick = due if due in left else next(rank for rank in left if rank <= slot + cap)
        made.append(pick)
        del left[pick]
    return made
