"""How far a safe run may go from the order that was shown: as far as the clicks of held-out pages carry it.

    score of a share x   a e + x b s                    of the correction s, x = 0 is the order shown
    gain of a share      sum over held-out clicks of w (1 / log2(1 + rank with it) - 1 / log2(1 + rank as shown))
    w                    1 / examination at the rank of the click, at most 10; 1 where examination is not known
    lower bound          Student's, over queries, at risk / (number of shares)
    chosen               the share with the highest lower bound, if that is above 0; else none of the correction

A weight that is clipped, or 1, favours the order shown, so a gain against it is one. Shuffled pages, where the
comparison is fair without any weight, may speak against it, and then the order stays. The weights of engine and
correction come from one half of the held-out queries where the other half judges. Ranks are those in the whole
list: a document that no page showed takes a place and brings nothing. Clicks of pairs are not used.

Legend: N documents, I impressions, G shares, Q queries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from unskew.engine_prior import EnginePrior
from unskew.examination import Examination
from unskew.learning.scoring.combination import Combination
from unskew.learning.scoring.scorer import Scorer
from unskew.results import Result
from unskew.types import Array, Lists, Log
from unskew.workflows.runs.beginning import Begun, combine

SHARES = (0.25, 0.5, 1.0)
"""Shares of the correction that held-out clicks choose from."""
RISK, FEWEST, CLIP = 0.05, 10, 10.0
"""The chance that a change is taken that is none; queries with clicks that are needed; the largest weight."""


@dataclass(frozen=True)
class Safety(Result):
    """What held-out clicks allow a safe run."""

    share: float
    """Of the correction; 0: it ranks as was shown."""
    gain: float | None
    """What a held-out click gains over the order shown; None without one."""
    bound: float | None
    """Lower bound of the gain."""
    told = ("sentence",)

    @property
    def sentence(self) -> str:
        """What was chosen, and why."""
        if not self.share or self.gain is None or self.bound is None:
            return "Safe: held-out clicks carry no change, so it ranks as was shown."
        part = "all" if self.share == 1 else f"{self.share:.0%}"
        return (
            f"Safe: it takes {part} of the correction; a held-out click gains {self.gain:.3f} in discounted rank, "
            f"{self.bound:.3f} at least."
        )


def make_safe(model: Scorer, begun: Begun, held: Log) -> tuple[Begun, Safety]:
    """Hold a model that begins as the engine back to what held-out clicks carry."""
    combination = begun.combination
    assert combination is not None
    usual, shuffled = gains_of(model, held, combination.prior, begun.examination)
    against = shuffled.bounds(-1).max() > 0 if shuffled is not None else False
    bounds = usual.bounds()
    best = int(bounds.argmax())
    if against or not bounds[best] > 0:
        safety = Safety(0.0, None, None)
    else:
        safety = Safety(SHARES[best], float(usual.gain[best].sum() / usual.clicks.sum()), float(bounds[best]))
    model.combination = replace(combination, weight=safety.share * combination.weight)
    return replace(begun, combination=model.combination), safety


@dataclass(frozen=True)
class Gains:
    """What the clicks of each query gain with each share."""

    clicks: Array
    """[Q] clicks of the queries that have any."""
    gain: Array
    """[G, Q] sums over them."""

    def bounds(self, sign: int = 1) -> Array:
        """Lower bound of the gain of a click with each share, [G]; with sign -1 of the loss.

        >>> gain = np.array([[2.0, 2.1, 1.9] * 4, [3.0, -3.0, 2.0] * 4])
        >>> Gains(np.full(12, 10.0), gain).bounds().round(2).tolist()
        [0.19, -0.1]
        """
        n, total = len(self.clicks), self.clicks.sum()
        if n < FEWEST:
            return np.full(len(self.gain), -np.inf)
        mean = self.gain.sum(1) / total
        spread = self.gain - mean[:, None] * self.clicks
        error = np.sqrt(n / (n - 1) * np.square(spread).sum(1)) / total
        lower: Array = sign * mean - stdtrit(n - 1, 1 - RISK / len(self.gain)) * error
        return lower


def gains_of(
    model: Scorer, held: Log, prior: EnginePrior, examination: Examination | None
) -> tuple[Gains, Gains | None]:
    """Gains by all held-out clicks, weighted; and by raw ones on shuffled slots, where there are some."""
    lists, query = held.lists, np.repeat(held.query, held.sizes)
    correction, half = model.correction(lists), np.random.default_rng(0).permutation(len(lists)) % 2
    gain = np.zeros((len(SHARES), len(held.row)))
    for judged in (0, 1):
        here = half[query] == judged
        weights = combine(model, held.take(half[held.query] != judged), prior, examination)
        before = discounts(replace(weights, weight=0.0), correction, lists)
        for number, share in enumerate(SHARES):
            after = discounts(replace(weights, weight=share * weights.weight), correction, lists)
            gain[number, here] = (after - before)[held.row[here]]
    w = 1.0 if examination is None else np.minimum(1 / examination.at(held.position), CLIP)
    usual = by_query(gain, held.click * w, query)
    if held.randomized is None or not (held.click[held.randomized] > 0).any():
        return usual, None
    return usual, by_query(gain, held.click * held.randomized, query)


def by_query(gain: Array, clicks: Array, query: Array) -> Gains:
    """Sums over the clicks [I] of each query."""
    total = np.bincount(query, clicks)
    sums = np.stack([np.bincount(query, clicks * each) for each in gain])
    return Gains(total[total > 0], sums[:, total > 0])


def discounts(combination: Combination, correction: Array, lists: Lists) -> Array:
    """1 / log2(1 + rank) of every document in its list, [N]."""
    score, query = combination.scores(correction, lists), np.repeat(np.arange(len(lists)), lists.sizes)
    order = np.lexsort((-score, query))
    ranks = np.empty(len(score))
    ranks[order] = np.arange(len(score)) - lists.offsets[query[order]] + 1
    found: Array = 1 / np.log2(1 + ranks)
    return found
