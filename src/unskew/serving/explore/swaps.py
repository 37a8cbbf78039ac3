"""The swap plan of `diagnose`: on a share of pages the results of two ranks change places, half of the time.

For the swaps (k, j) with shares s_kj of all pages, a page in one of them at most:

    P(k at j) = P(j at k) = s_kj / 2,        P(r at r) = 1 - the sum of s / 2 over the swaps of r

Nothing is marked as randomized: `diagnose` reads swaps through documents at several ranks, and leaves out marked
slots there. A page that ends above a rank of its swap is shown as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from unskew.errors import DataError
from unskew.files import read_json
from unskew.serving.explore.policy import DrawnPage, Policy, RankedRequest, unmoved
from unskew.settings import Config
from unskew.types import Array

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
        """One swap at most."""
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
