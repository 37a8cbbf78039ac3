"""Users who read from the top, result after result, and may leave after each: five click models.

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

Cascade: N. Craswell et al., "An experimental comparison of click position-bias models", WSDM 2008.
DCM: F. Guo, C. Liu and Y. M. Wang, "Efficient multiple-click models in web search", WSDM 2009.
DBN and SDBN: O. Chapelle and Y. Zhang, "A dynamic Bayesian network click model for web search ranking", WWW
2009.
CCM: F. Guo et al., "Click chain model in web search", WWW 2009.

               after a skip    after a click
    cascade    g = 1           d = 0
    DCM        g = 1           d = λ_k               by rank
    SDBN       g = 1           d = 1 - s_qd          satisfied by the document
    DBN        g = γ           d = γ(1 - s_qd)
    CCM        g = α1          d = α2(1 - a_qd) + α3 a_qd

Differences from the papers: DCM and SDBN are published with closed forms that take nobody to read on after the
last click; here what follows it is hidden and fitted, as the models have it, and `closed_form` gives the
published SDBN. CCM is published with a distribution for each relevance; here it has a prior and is a point. The
relevance of DBN and SDBN is a s, as in section 4 of their paper. A cascade is fitted on the first click of each
page; where there is a second one, the model holds it for impossible.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.special import xlogy

from unskew.diagnosis.click_models.contract import RANK_PRIOR, ClickModel, rank_index
from unskew.diagnosis.click_models.em import Expected, Parameters, Prior
from unskew.diagnosis.click_models.pages import ClickPages, added, same_rows
from unskew.types import Array

BEGIN = {"attractiveness": 0.3, "satisfaction": 0.5}
"""Where parameters of pairs start."""


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

    def by_pair(self, values: Array) -> Array:
        """Sums of [K, R] over the pairs, [P + 1]; padding is left out."""
        return np.bincount(self.pair.ravel(), values.ravel(), minlength=len(self.clicks) + 1)[:-1]

    def by_key(self, values: Array) -> Array:
        """Sums of [K, R] over the keys."""
        return np.bincount(self.key.ravel(), values.ravel(), minlength=len(self.followed))


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

    def latent(self, counts: ChainCounts, parameters: Parameters, went: Went) -> dict[str, tuple[Array, Array]]:
        """Successes and trials of all parameters."""
        return {"attractiveness": (counts.clicks, went.examined)}

    def start(self, pages: ClickPages) -> Parameters:
        """The same attractiveness, and the same satisfaction, for every pair."""
        return {name: np.full(pages.bound, BEGIN[name]) for name in self.of_pairs}

    def keys(self, pages: ClickPages) -> tuple[Array, int]:
        """What going on after a click depends on, [S, K], and how many of it there are."""
        if self.by_rank:
            return rank_index(pages.rank, self.ranks), self.ranks
        return np.maximum(pages.pair, 0), pages.bound

    def counter(self, pages: ClickPages) -> Callable[[Array], ChainCounts]:
        """Counts by distinct ranking and where its last click was."""
        first, number = same_rows(pages)
        key, keys = self.keys(pages)
        width, size = pages.pair.shape[1], pages.bound
        end = np.where(pages.click.any(1), width - 1 - np.argmax(pages.click[:, ::-1], axis=1), -1)
        above = np.arange(width) < end[:, None]  # the last click
        pair = pages.pair[first].T

        def counts(weight: Array) -> ChainCounts:
            cells = np.bincount(number * (width + 1) + end + 1, weight, minlength=len(first) * (width + 1))
            cells = cells.reshape(-1, width + 1).T.copy()
            return ChainCounts(
                pair=np.where(pair < 0, size, pair),
                key=key[first].T.copy(),
                after=pages.after[first].T.copy(),
                none=cells[0],
                last=cells[1:],
                clicks=added(pages.pair, pages.click, weight, size),
                skips=added(pages.pair, above & ~pages.click & pages.where, weight, size),
                followed=added(key, above & pages.click, weight, keys),
            )

        return counts

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
        known += xlogy(counts.followed, d).sum() + xlogy(counts.skips.sum(), g)
        hidden = counts.none @ found.log_none[0] + float((counts.last * found.log_end).sum())
        return Expected(float(known + hidden), self.latent(counts, parameters, Went.of(counts, found)))

    def uncertain(self, counts: ChainCounts, parameters: Parameters) -> dict[str, Array]:
        """Σ q(1 - q) / (1 - a)²: examined or not, after the last click."""
        found = self.smoothed(counts, parameters)
        squares = forward(counts.none, counts.last * found.click_on**2, found.skip_on**2)
        return {
            "attractiveness": counts.by_pair(found.reached - squares) / (1 - parameters["attractiveness"]) ** 2
        }

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
    """[keys] times that people went on after a click."""
    left: Array
    """[keys] times that people left after a click."""
    skipped_on: float
    """Times that people went on after a skip."""
    skipped_left: float
    """Times that people left after a skip."""

    @classmethod
    def of(cls, counts: ChainCounts, found: Smoothed) -> Went:
        """Add up what is known and what is expected."""
        on = counts.by_key(counts.last * found.click_on)
        skipped_on = float((found.reached * found.skip_on).sum())
        skipped = float((found.reached * counts.after).sum())
        return cls(
            counts.clicks + counts.skips + counts.by_pair(found.reached),
            counts.followed + on,
            counts.by_key(counts.last * counts.after) - on,
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


# ---- models ----


Counted = dict[str, tuple[Array, Array]]


class CascadeModel(ChainModel):
    """Cascade model: everything is read down to the first click, and nothing after it."""

    by_rank: ClassVar[bool] = True

    def moves(self, parameters: Parameters) -> tuple[float, Array]:
        """Chances to go on: 1 after a skip, 0 after a click."""
        return 1.0, np.zeros(self.ranks)

    def counter(self, pages: ClickPages) -> Callable[[Array], ChainCounts]:
        """Pages down to their first clicks."""
        seen = pages.where & (np.cumsum(pages.click, axis=1) - pages.click == 0)  # no click above
        pair, rank = np.where(seen, pages.pair, -1), np.where(seen, pages.rank, 0)
        return super().counter(replace(pages, pair=pair, rank=rank, click=pages.click & seen))


class DCM(ChainModel):
    """Dependent click model: after a click users go on with a chance that depends on the rank."""

    kinds: ClassVar[tuple[str, ...]] = ("attractiveness", "continuation")
    by_rank: ClassVar[bool] = True
    continuation: Prior = RANK_PRIOR
    """Of the chance to go on after a click."""

    def start(self, pages: ClickPages) -> Parameters:
        """A chance of one half, at every rank, to go on after a click."""
        return super().start(pages) | {"continuation": np.full(self.ranks, 0.5)}

    def moves(self, parameters: Parameters) -> tuple[float, Array]:
        """Chances to go on: 1 after a skip, λ of the rank after a click."""
        return 1.0, parameters["continuation"]

    def latent(self, counts: ChainCounts, parameters: Parameters, went: Went) -> Counted:
        """Who went on after a click."""
        return super().latent(counts, parameters, went) | {"continuation": (went.on, went.on + went.left)}


class DBN(ChainModel):
    """Dynamic Bayesian network: users go on until a clicked document satisfies them or they lose patience."""

    kinds: ClassVar[tuple[str, ...]] = ("attractiveness", "satisfaction", "continuation")
    of_pairs: ClassVar[tuple[str, ...]] = ("attractiveness", "satisfaction")
    hidden: ClassVar[tuple[str, ...]] = ("satisfaction",)
    satisfaction: Prior = Prior()
    """Of the chance that a clicked document satisfies."""
    continuation: Prior = RANK_PRIOR
    """Of the chance that who is not satisfied goes on."""

    def start(self, pages: ClickPages) -> Parameters:
        """A chance of 0.9 that whoever is not satisfied goes on."""
        return super().start(pages) | {"continuation": np.array([0.9])}

    def moves(self, parameters: Parameters) -> tuple[float, Array]:
        """Chances to go on: γ after a skip, γ(1 - s) after a click."""
        gamma = float(parameters["continuation"][0])
        return gamma, gamma * (1 - parameters["satisfaction"])

    def latent(self, counts: ChainCounts, parameters: Parameters, went: Went) -> Counted:
        """Who left after a click was satisfied with probability s/(1 - γ(1 - s)), and else out of patience."""
        s, (_, d) = parameters["satisfaction"], self.moves(parameters)
        satisfied = went.left * s / (1 - d)
        on = went.on.sum() + went.skipped_on
        away = (went.left - satisfied).sum() + went.skipped_left
        return super().latent(counts, parameters, went) | {
            "satisfaction": (satisfied, went.on + went.left),
            "continuation": (np.array([on]), np.array([on + away])),
        }

    def uncertain(self, counts: ChainCounts, parameters: Parameters) -> dict[str, Array]:
        """Satisfied or not, after the last click: Σ r(1 - r)(1/s + 1/(1 - s))²."""
        found = self.smoothed(counts, parameters)
        s, (_, d) = parameters["satisfaction"], self.moves(parameters)
        r = np.where(counts.after, (1 - found.click_on) * (s / (1 - d))[counts.key], 0.0)
        spread = counts.by_key(counts.last * r * (1 - r))
        return super().uncertain(counts, parameters) | {"satisfaction": spread * (1 / s + 1 / (1 - s)) ** 2}


class SDBN(DBN):
    """Simplified dynamic Bayesian network: who is not satisfied always goes on."""

    kinds: ClassVar[tuple[str, ...]] = ("attractiveness", "satisfaction")
    closed_form: bool = False
    """Take nobody to have read on after the last click, as published: two ratios, and no rounds."""

    def start(self, pages: ClickPages) -> Parameters:
        """Without patience, which has no end."""
        return ChainModel.start(self, pages)

    def moves(self, parameters: Parameters) -> tuple[float, Array]:
        """Chances to go on: 1 after a skip, 1 - s after a click."""
        return 1.0, 1 - parameters["satisfaction"]

    def latent(self, counts: ChainCounts, parameters: Parameters, went: Went) -> Counted:
        """Who left after a click was satisfied; or what was published, which has clicks alone."""
        if not self.closed_form:
            satisfied = {"satisfaction": (went.left, went.on + went.left)}
            return ChainModel.latent(self, counts, parameters, went) | satisfied
        unclicked = counts.by_pair(np.broadcast_to(counts.none, counts.pair.shape))
        seen = counts.clicks + counts.skips + unclicked
        return {
            "attractiveness": (counts.clicks, seen),
            "satisfaction": (counts.by_key(counts.last), counts.clicks),
        }


class CCM(ChainModel):
    """Click chain model: after a click users go on the less, the more relevant it was."""

    kinds: ClassVar[tuple[str, ...]] = ("attractiveness", "continuation")
    continuation: Prior = RANK_PRIOR
    """Of the chances to go on: after a skip, after a click that was not relevant, and after one that was."""

    def start(self, pages: ClickPages) -> Parameters:
        """The three chances to go on, α1 after a skip, α2 and α3 after a click, where the rounds begin."""
        return super().start(pages) | {"continuation": np.array([0.9, 0.8, 0.4])}

    def moves(self, parameters: Parameters) -> tuple[float, Array]:
        """α1, and α2(1 - a) + α3 a."""
        (skip, poor, good), a = parameters["continuation"], parameters["attractiveness"]
        return float(skip), poor * (1 - a) + good * a

    def latent(self, counts: ChainCounts, parameters: Parameters, went: Went) -> Counted:
        """A click was relevant with probability α3 a/d where users went on, (1 - α3)a/(1 - d) where they left."""
        good, a, (_, d) = parameters["continuation"][2], parameters["attractiveness"], self.moves(parameters)
        good_on, good_left = went.on * good * a / d, went.left * (1 - good) * a / (1 - d)
        on = np.array([went.skipped_on, (went.on - good_on).sum(), good_on.sum()])
        left = np.array([went.skipped_left, (went.left - good_left).sum(), good_left.sum()])
        known = went.on + went.left
        return {
            "attractiveness": (counts.clicks + good_on + good_left, went.examined + known),
            "continuation": (on, on + left),
        }

    def uncertain(self, counts: ChainCounts, parameters: Parameters) -> dict[str, Array]:
        """Relevant or not, after every click that something follows: Σ r(1 - r)(1/a + 1/(1 - a))²."""
        found = self.smoothed(counts, parameters)
        good, a, (_, d) = parameters["continuation"][2], parameters["attractiveness"], self.moves(parameters)
        on, left = good * a / d, (1 - good) * a / (1 - d)
        r = found.click_on * on[counts.key] + (1 - found.click_on) * left[counts.key]
        spread = counts.by_key(counts.last * counts.after * r * (1 - r)) + counts.followed * on * (1 - on)
        examined = super().uncertain(counts, parameters)["attractiveness"]
        return {"attractiveness": examined + spread * (1 / a + 1 / (1 - a)) ** 2}
