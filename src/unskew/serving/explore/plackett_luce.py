"""Plackett-Luce: slot after slot a result is drawn from those that are left, by the softmax of their scores.

R. L. Plackett, "The analysis of permutations", 1975; R. D. Luce, "Individual choice behavior", 1959.

    P(d next) = w_d / (sum of w over what is left),        w_d = exp(score_d / temperature)

The chance of a result at a slot: let every result arrive at a time T_d that is exponential with rate w_d; the
order of arrival has this distribution. So with F_j(t) = 1 - exp(-w_j t)

    P(d at k) = integral over t of  w_d exp(-w_d t) P(k - 1 of the others have arrived by t)

where the number of arrivals is Poisson-binomial. With t = exp(x) the integrand is smooth and falls off at both
ends, and the trapezoid rule is exact to 1e-9 with steps of 0.2, smaller for long pages.

With a cap, what is drawn at slot k is among ranks up to k + cap, and rank k - cap comes now where it is still
left. Ranks below k - cap are then gone and those above k + cap - 1 are left, so few sets of results can be left
at a slot, and the chances are added up over them exactly.

Differences from the papers: weights are at least exp(-50) of the largest, in drawing and in chances.
"""

from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from unskew.serving.explore.policy import DrawnPage, Policy, RankedRequest, unmoved, with_tail
from unskew.types import Array

STEP, LEFT, RIGHT = 0.2, 37.0, 4.0
"""The trapezoid rule: its step, and how far it goes beyond the times of the fastest and of the slowest result."""
SPAN = 50.0
"""Largest difference of log weights."""
WIDEST = 5
"""Largest cap whose sets of results are added up while somebody waits: 252 of them at a slot."""


class PlackettLuce(Policy):
    """Results drawn by their scores.

    >>> drawn = PlackettLuce().rank([0, 1], [np.log(3.0), 0.0], request_id="a")
    >>> drawn.order.tolist(), drawn.propensity.round(6).tolist()
    ([0, 1], [0.75, 0.75])
    """

    name: ClassVar[str] = "plackett_luce"
    depth: Annotated[int, Field(ge=1, le=40)] = 10
    """First results of the ranking that take part; chances of 40 take a hundred times as long as those of 10."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Scores are divided by it: the higher, the more random."""

    @model_validator(mode="after")
    def _countable(self) -> Self:
        if self.cap is not None and WIDEST < self.cap < self.depth - 1:
            raise ValueError(f"a cap is at most {WIDEST} here, or at least depth - 1, or none")
        return self

    def draw(self, ranked: RankedRequest, rng: np.random.Generator) -> DrawnPage:
        """A page drawn rank by rank, each result with a chance that grows with its score."""
        weights, cap = self._weights(ranked), self._cap(ranked)
        placed, ranks = 0, []
        for slot in range(ranked.depth):
            choices = left_at(slot, placed, cap, ranked.depth)
            chances = weights[choices]
            at = np.searchsorted(np.cumsum(chances), rng.random() * chances.sum(), side="right")
            ranks.append(choices[min(int(at), len(choices) - 1)])
            placed |= 1 << ranks[-1]
        return DrawnPage(with_tail(np.array(ranks), len(ranked.order)))

    def chance(self, ranked: RankedRequest, ranks: Array) -> Array:
        """By the integral, or with a cap by the sets of what is left."""
        weights, cap, shown = self._weights(ranked), self._cap(ranked), ranks[: ranked.depth]
        chance, inside = unmoved(ranks), shown < ranked.depth  # nothing comes from further down
        shown = np.where(inside, shown, 0)
        if cap >= ranked.depth - 1:
            own = arrival_chances(weights, shown)
        else:
            own = capped_chances(weights, cap)[shown, np.arange(ranked.depth)]
        chance[: ranked.depth] = np.where(inside, own, 0.0)
        return chance

    def _weights(self, ranked: RankedRequest) -> Array:
        logits = ranked.logits[: ranked.depth] / self.temperature
        weights: Array = np.exp(np.maximum(logits - logits.max(), -SPAN))
        return weights

    def _cap(self, ranked: RankedRequest) -> int:
        return ranked.depth if self.cap is None else self.cap


def left_at(slot: int, placed: int, cap: int, ranks: int) -> list[int]:
    """Ranks that may stand at a slot, all from 0; `placed` has a bit for each that stands above.

    >>> left_at(1, 0b010, 1, 4), left_at(1, 0b001, 1, 4)
    ([0], [1, 2])
    """
    due = slot - cap
    if due >= 0 and not placed >> due & 1:
        return [due]
    return [rank for rank in range(max(due, 0), min(slot + cap + 1, ranks)) if not placed >> rank & 1]


def capped_chances(weights: Array, cap: int) -> Array:
    """P(rank r at slot k) under a cap, [D, D]."""
    ranks = len(weights)
    chances, states = np.zeros((ranks, ranks)), {0: 1.0}
    for slot in range(ranks):
        after: dict[int, float] = {}
        for placed, chance in states.items():
            choices = left_at(slot, placed, cap, ranks)
            total = sum(float(weights[rank]) for rank in choices)
            for rank in choices:
                step = chance * float(weights[rank]) / total
                chances[rank, slot] += step
                after[placed | 1 << rank] = after.get(placed | 1 << rank, 0.0) + step
        states = after
    return chances


def arrival_chances(weights: Array, ranks: Array) -> Array:
    """P(rank ranks[k] at slot k), [D], by the integral over times."""
    log_w = np.log(weights)
    step = STEP * min(1.0, (10 / len(ranks)) ** 0.5)  # on long pages a slot is filled within a shorter time
    x = np.arange(-log_w.max() - LEFT, -log_w.min() + RIGHT, step)  # [X]
    arrived = -np.expm1(-weights[:, None] * np.exp(x))  # [D, X]
    slots = np.arange(len(ranks))
    # [D slots, X, D arrivals]: how many of the others have arrived, the result of the slot left out
    count = np.zeros((len(ranks), len(x), len(ranks)))
    count[:, :, 0] = 1.0
    for rank, share in enumerate(arrived):
        p = np.where(ranks[:, None] == rank, 0.0, share)[:, :, None]
        more = count[:, :, :-1] * p
        count *= 1 - p
        count[:, :, 1:] += more
    own = weights[ranks, None] * np.exp(x - weights[ranks, None] * np.exp(x))
    chances: Array = step * (own * count[slots, :, slots]).sum(1)
    return chances
