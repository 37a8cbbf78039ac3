"""Team-draft interleaving of two rankings while serving, with the chance of every result at its slot.

Drafting is that of `unskew.team_draft`. A page follows from one coin per round; after a round it only matters
which results are taken, so chances are added up over the sets that can be taken, 2^(depth / 2) of them at most.

With a cap the second ranking is first brought within the cap of the first. Then no interleaved page moves a
result further either: what stands above a result of rank a in the first and b in the second ranking is among
the first a - 1 of one and b - 1 of the other. The comparison is then one of the first ranking with the second
as it was capped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from unskew.errors import DataError
from unskew.serving.explore.policy import DrawnPage, Policy, RankedRequest, with_tail
from unskew.types import Array


class TeamDraft(Policy):
    """Two rankings in one page; the log says in `team` which of them each result is for.

    >>> page = TeamDraft().rank([0, 1, 2], [3.0, 2.0, 1.0], other=[1, 0, 2], request_id="a")
    >>> page.order.tolist(), page.propensity.tolist(), page.team
    ([1, 0, 2], [0.5, 0.5, 1.0], ('second', 'first', 'second'))
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
        """One draft."""
        # it brings scipy, which other policies do without
        from unskew.measuring.experiments.interleaving import team_draft

        second, candidates = self._second(ranked), len(ranked.order)
        page = team_draft(range(candidates), second, length=ranked.depth, seed=rng)
        team = [(self.first, self.second)[each] for each in page.teams]
        ranks = with_tail(np.array(page.items), candidates)
        return DrawnPage(ranks, team=(*team, *[None] * (candidates - len(team))))

    def chance(self, ranked: RankedRequest, ranks: Array) -> Array:
        """Over all coins."""
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
