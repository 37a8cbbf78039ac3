"""Users who read from the top, result after result, and may leave after each: what five click models share.

Legend: R distinct rankings, K results of the longest, P pairs of query and document. Rounds go down the ranks, so
arrays of rankings are [K, R].

    P(e_1) = 1,  P(c_k | e_k) = a_k,  P(e_{k+1} | e_k, no click) = g,  P(e_{k+1} | click at k) = d_k

Everything down to the last click was examined, so it is only counted. What follows the last click at l is
hidden, and depends on the ranking and l alone. With N_k = P(no click from k on | k examined), N = 1 below the
page,

    N_k = (1 - a_k)(1 - g + g N_{k+1}),        P(nothing after l) = 1 - d_l + d_l N_{l+1}.

So a log becomes counts by pair and, for each distinct ranking, how many pages had their last click at each
result: a round costs R times K, however many pages and click patterns there are. Given that nothing follows, a
user went on after the click at l with probability d_l N_{l+1} / (1 - d_l + d_l N_{l+1}), and after a skipped k
with g N_{k+1} / (1 - g + g N_{k+1}). N is kept as a logarithm.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from unskew.diagnosis.click_models.contract import ClickModel, rank_index
from unskew.diagnosis.click_models.em import Expected, Parameters
from unskew.diagnosis.click_models.pages import ClickPages, added, same_rows
from unskew.types import Array


@dataclass(frozen=True)
class ChainCounts:
    """A log, reduced for models that read from the top."""

    pair: Array
    """[K, R] int64 pair of each result; pairs (one more than there are) where padded."""
    key: Array
    """[K, R] int64 what going on after a click depends on: the pair, or the rank."""
    after: Array
    """[K, R] bool, true where another result follows."""
    none: Array
    """[R] pages without a click."""
    last: Array
    """[K, R] pages whose last click was here."""
    clicks: Array
    """[P + 1] clicks."""
    skips: Array
    """[P + 1] shown above the last click of a page, and not clicked."""
    followed: Array
    """[keys] clicks that another click follows."""

    @property
    def pairs(self) -> int:
        """Entries of a parameter of pairs."""
        return len(self.clicks)


@dataclass(frozen=True)
class ChainIndex:
    """Pages laid out for a chain."""

    pages: ClickPages
    first: Array
    """[R] a page of each ranking."""
    number: Array
    """[S] the ranking of each page."""
    key: Array
    """[S, K]."""
    keys: int

    def counts(self, weight: Array) -> ChainCounts:
        """Pages of these weights, added up."""
        pages, width = self.pages, self.pages.pair.shape[1]
        end = last_slot(pages.click)
        above = np.arange(width) < end[:, None]
        cells = np.bincount(self.number * (width + 1) + end + 1, weight, minlength=len(self.first) * (width + 1))
        cells = cells.reshape(-1, width + 1).T.copy()
        size = pages.bound
        pair = pages.pair[self.first].T
        return ChainCounts(
            pair=np.where(pair < 0, size, pair),
            key=self.key[self.first].T.copy(),
            after=pages.after[self.first].T.copy(),
            none=cells[0],
            last=cells[1:],
            clicks=added(pages.pair, pages.click, weight, size),
            skips=added(pages.pair, above & ~pages.click & pages.where, weight, size),
            followed=added(self.key, above & pages.click, weight, self.keys),
        )


class Smoothed(NamedTuple):
    """What happened after the last click, given that nothing more was clicked."""

    log_none: Array
    """[K + 1, R] log N."""
    log_end: Array
    """[K, R] log P(nothing after a click here)."""
    click_on: Array
    """[K, R] P(read on after the last click here)."""
    skip_on: Array
    """[K, R] P(read on after a skip here)."""
    reached: Array
    """[K, R] pages on which this was examined after the last click, expected."""


class ChainModel(ClickModel):
    """A click model of somebody who reads from the top."""

    by_rank: ClassVar[bool] = False
    """Whether going on after a click depends on the rank, and else on the pair."""

    @abstractmethod
    def moves(self, parameters: Parameters) -> tuple[float, Array]:
        """Chance g of going on after a skip, and d after a click, by pair or rank."""

    @abstractmethod
    def latent(self, counts: ChainCounts, parameters: Parameters, went: Went) -> dict[str, tuple[Array, Array]]:
        """Successes and trials of all parameters."""

    def keys(self, pages: ClickPages) -> tuple[Array, int]:
        """What going on after a click depends on, [S, K], and how many of it there are."""
        if self.by_rank:
            return rank_index(pages.rank, self.ranks), self.ranks
        return np.maximum(pages.pair, 0), pages.bound

    def prepared(self, pages: ClickPages) -> ChainIndex:
        """Distinct rankings."""
        return ChainIndex(pages, *same_rows(pages), *self.keys(pages))

    def smoothed(self, counts: ChainCounts, parameters: Parameters) -> Smoothed:
        """Backwards for N, forwards for who reached what."""
        g, table = self.moves(parameters)
        skipped = np.append(np.log1p(-parameters["attractiveness"]), 0.0)[counts.pair]
        width = len(skipped)
        log_none = np.zeros((width + 1, skipped.shape[1]))
        skip_on = np.ones_like(skipped)
        for k in range(width - 1, -1, -1):
            stay = log_none[k + 1]
            if g < 1:
                on = g * np.exp(stay)
                stay = np.log(1 - g + on)
                skip_on[k] = on / (1 - g + on)
            log_none[k] = skipped[k] + stay
        d = table[counts.key]
        on = d * np.exp(log_none[1:])
        end = 1 - d + on
        click_on = np.where(counts.after, on / end, 0.0)
        skip_on = np.where(counts.after, skip_on, 0.0)
        reached = forward(counts.none, counts.last * click_on, skip_on)
        return Smoothed(log_none, np.log(end), click_on, skip_on, reached)

    def expect(self, counts: ChainCounts, parameters: Parameters) -> Expected:
        """Counts above the last click, expectations below."""
        found = self.smoothed(counts, parameters)
        a, (g, d) = parameters["attractiveness"], self.moves(parameters)
        known = counts.clicks @ np.log(a) + counts.skips @ np.log1p(-a)
        known += xlogy(counts.followed, d) + xlogy(counts.skips.sum(), np.asarray(g))
        hidden = counts.none @ found.log_none[0] + float((counts.last * found.log_end).sum())
        return Expected(float(known + hidden), self.latent(counts, parameters, Went.of(counts, found)))

    def uncertain(self, counts: ChainCounts, parameters: Parameters) -> dict[str, Array]:
        """Σ q(1 - q) / (1 - a)²: examined or not, after the last click."""
        found = self.smoothed(counts, parameters)
        squares = forward(counts.none, counts.last * found.click_on**2, found.skip_on**2)
        spread = by_pair(counts, found.reached - squares)
        return {"attractiveness": spread / (1 - parameters["attractiveness"]) ** 2}

    def conditional(self, parameters: Parameters, pages: ClickPages) -> Array:
        """a_k P(e_k | clicks above); after a skip P(e_{k+1}) = g e(1 - a)/(1 - e a), after a click d."""
        a, (g, table) = parameters["attractiveness"][pages.pair], self.moves(parameters)
        d = table[self.keys(pages)[0]]
        examined, p = np.ones(len(pages)), np.zeros(a.shape)
        for k in range(a.shape[1]):
            p[:, k] = examined * a[:, k]
            missed = g * (examined - p[:, k]) / np.maximum(1 - p[:, k], 1e-12)
            examined = np.where(pages.click[:, k], d[:, k], missed)
        return np.where(pages.where, p, 0.0)

    def marginal(self, parameters: Parameters, pages: ClickPages) -> Array:
        """a_k ∏_{j<k} (a_j d_j + (1 - a_j) g)."""
        a, (g, table) = parameters["attractiveness"][pages.pair], self.moves(parameters)
        d = table[self.keys(pages)[0]]
        on = np.cumprod(a * d + (1 - a) * g, axis=1)[:, :-1]
        return np.where(pages.where, a * np.concatenate([np.ones((len(a), 1)), on], axis=1), 0.0)


class Went(NamedTuple):
    """How often users went on or left, where another result followed."""

    examined: Array
    """[P + 1] examinations, clicks among them."""
    on: Array
    """[keys] after a click, on."""
    left: Array
    """[keys] after a click, away."""
    skipped_on: float
    """After a skip, on."""
    skipped_left: float
    """After a skip, away."""

    @classmethod
    def of(cls, counts: ChainCounts, found: Smoothed) -> Went:
        """Add up what is known and what is expected."""
        keys = len(counts.followed)
        on = np.bincount(counts.key.ravel(), (counts.last * found.click_on).ravel(), minlength=keys)
        all_last = np.bincount(counts.key.ravel(), (counts.last * counts.after).ravel(), minlength=keys)
        skipped_on = float((found.reached * found.skip_on).sum())
        skipped = float((found.reached * counts.after).sum())
        return cls(
            counts.clicks + counts.skips + by_pair(counts, found.reached),
            counts.followed + on,
            all_last - on,
            float(counts.skips.sum()) + skipped_on,
            skipped - skipped_on,
        )


def forward(begin: Array, joining: Array, on: Array) -> Array:
    """Mass that reaches each result, [K, R]: what came down from above, and who joined there."""
    reached = np.empty_like(joining)
    here = begin
    for k in range(len(joining)):
        reached[k] = here
        here = here * on[k] + joining[k]
    return reached


def by_pair(counts: ChainCounts, values: Array) -> Array:
    """Sums of [K, R] over the pairs, [P + 1]; padding is left out."""
    return np.bincount(counts.pair.ravel(), values.ravel(), minlength=counts.pairs + 1)[: counts.pairs]


def last_slot(click: Array) -> Array:
    """Index of the last click of each page, [S]; -1 for none."""
    width = click.shape[1]
    return np.where(click.any(1), width - 1 - np.argmax(click[:, ::-1], axis=1), -1)


def xlogy(count: Array, p: Array) -> float:
    """Σ count log p, 0 where there is no count."""
    return float(np.sum(np.where(count > 0, count * np.log(np.where(count > 0, p, 1.0)), 0.0)))
