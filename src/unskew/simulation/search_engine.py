"""The traffic of a search engine: months of pages, a long tail of queries, screens that tell what was seen.

Legend: Q queries, S pages, K results of a page, M documents of the longest list.

The world of L. Zou et al., "Approximated doubly robust search relevance estimation", CIKM 2022, Section 2, which
click tracking, examination models and relevance estimators are tried on:

    P(query) ∝ rank^-s                                long-tailed
    e_k ~ θ_k, r ~ g, P(c_k) = e_k (ε⁺_k r + ε⁻_k (1 - r))      so that P(c_k) = α_k g + β_k, see `trust`
    display time > 5 s mostly where e_k = 1, < 1 s mostly where e_k = 0

Whether a result is examined is decided page by page: most people read from the top down to where they stop, the
others look here and there; either way θ_k is the share of pages on which rank k is examined, whatever is shown.

Differences from the paper: its log is not public, so every number here is ours.
"""

from collections.abc import Iterator
from datetime import date
from typing import Annotated, TypedDict

import numpy as np
from pydantic import ConfigDict, Field, SerializeAsAny

from unskew.errors import DataError
from unskew.options.logs import TrafficOptions
from unskew.simulation.behaviours.behaviour import Outcome, Probability, Shown, at_ranks
from unskew.simulation.behaviours.trust import TrustBias
from unskew.simulation.logger import Logger, SvmLogger, logging_scores
from unskew.simulation.simulation import DRAWN_CELLS, Chunk, assemble, flat
from unskew.types import Array, Lists, Log

DAY = 86_400_000_000
"""Microseconds."""
BLURRED, MISTAKEN = 0.15, 0.03
"""Shares of display times that lie between 1 and 5 seconds and tell nothing, and that tell the wrong thing."""
SCREEN = TrustBias(
    curve=(0.98, 0.90, 0.78, 0.66, 0.56, 0.48, 0.42, 0.37, 0.34, 0.38),
    irrelevant=tuple(0.3 / k for k in range(1, 11)),
)
"""A first page whose end is looked at a little more often than the ranks above it."""


class TrafficKeywords(TypedDict, total=False):
    """The fields of `Traffic` but who ranks, as keywords."""

    pages: int
    days: float
    start: date | str
    skew: float
    trust: TrustBias
    reading: float
    jitter: float
    shuffled: float
    random_top: float
    cutoff: int
    timed: float
    seed: int


class Traffic(TrafficOptions):
    """All that the log of a simulated search engine depends on besides its lists."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    trust: TrustBias = SCREEN
    """θ, ε⁺, ε⁻ of the ranks, and relevance g of the grades."""
    reading: Probability = 0.8
    """Share of pages that are read from the top without a gap; on the others each rank is looked at by itself."""
    logger: SerializeAsAny[Logger] = SvmLogger()
    """What ranks the pages."""
    jitter: Annotated[float, Field(ge=0)] = 0.5
    """How much the order of a query changes from page to page: Gumbel noise, in standard deviations of a score."""
    cutoff: Annotated[int, Field(ge=1, le=32_767)] = 10
    """Results of a page."""
    timed: Probability = 0.7
    """Share of pages whose screen reports display times; they are missing elsewhere."""

    def draw(self, lists: Lists) -> Log:
        """The log, in the order of time, with the columns timestamp, display_time, dwell_time, and the truth.

        `true_examined` is what happened on the page, `true_examination` is θ, `true_relevance` g.
        """
        parts = [flat(chunk, True) for chunk in _Pages(self, lists).chunks()]
        return assemble(lists, parts, with_randomized=True)


class _Pages:
    """The pages of a traffic, chunk after chunk; every kind of chance has a stream of its own."""

    def __init__(self, traffic: Traffic, lists: Lists) -> None:
        self.traffic, self.lists = traffic, lists
        filled = np.flatnonzero(lists.sizes > 0)
        if not len(filled):
            raise DataError("no query has a document", path=lists.name, hint="give lists with documents")
        seeds = np.random.SeedSequence(traffic.seed).spawn(9)
        (self.query, self.time, self.order, self.kind, self.top, self.look, self.mind, self.screen, self.dwell) = (
            np.random.default_rng(each) for each in seeds
        )
        # the r-th most popular query has r^-s, and which it is, is drawn
        popular = np.arange(1, len(filled) + 1, dtype=float) ** -traffic.skew
        self.filled, self.shares = filled, self.query.permutation(popular / popular.sum())
        scores = logging_scores(lists, traffic.logger, traffic.seed)
        self.spread = float(np.std(scores)) or 1.0
        self.table = np.full((len(lists), int(lists.sizes.max())), -np.inf)
        """Scores by query and place in the list, [Q, M]; -inf where there is no document."""
        self.table[np.arange(self.table.shape[1]) < lists.sizes[:, None]] = scores
        self.ranks = min(traffic.cutoff, self.table.shape[1])
        self.times = timestamps(traffic, self.time)

    def chunks(self) -> Iterator[Chunk]:
        """Pages with their clicks and further columns; one empty chunk where no page is asked for."""
        step = max(1, DRAWN_CELLS // self.table.shape[1])
        for start in range(0, max(self.traffic.pages, 1), step):
            yield self._chunk(self.times[start : start + step])

    def _chunk(self, times: Array) -> Chunk:
        pages = len(times)
        query = self.filled[np.searchsorted(np.cumsum(self.shares)[:-1], self.query.random(pages), side="right")]
        shown, randomized = self._shown(query)
        clicks, found, examined = self._people(shown)
        # seconds on the document after a click: a minute where it is relevant, else some seconds
        dwelt = np.where(found, 60.0, 8.0) * np.exp(0.8 * self.dwell.standard_normal(clicks.shape))
        theta = np.broadcast_to(self.traffic.trust.examination(self.ranks), clicks.shape)
        looks = {
            "randomized": randomized,
            "timestamp": np.broadcast_to(times[:, None], clicks.shape),
            "display_time": self._displayed(examined),
            "dwell_time": np.where(clicks, dwelt, np.nan),
            "true_examined": examined,
        }
        outcome = Outcome(clicks, theta, self.traffic.trust.relevance(shown), looks)
        return Chunk(query, np.zeros(pages, bool), shown, outcome)

    def _shown(self, query: Array) -> tuple[Shown, Array]:
        kind = self.kind.random(len(query))
        shuffled = kind < self.traffic.shuffled
        random_top = ~shuffled & (kind < self.traffic.shuffled + self.traffic.random_top)
        chance = self.order.gumbel(size=(len(query), self.table.shape[1]))
        base = self.table[query]
        scores = np.where(shuffled[:, None], np.where(np.isneginf(base), base, 0.0), base)
        scores = scores + np.where(shuffled[:, None], 1.0, self.traffic.jitter * self.spread) * chance
        promoted = (self.top.random(len(query)) * self.lists.sizes[query]).astype(np.int64)
        scores[random_top, promoted[random_top]] = np.inf
        place = np.argsort(-scores, axis=1, kind="stable")[:, : self.ranks]
        where = np.arange(self.ranks) < self.lists.sizes[query][:, None]
        rows = np.where(where, self.lists.offsets[query][:, None] + place, -1)
        labels = np.where(where, np.asarray(self.lists.labels)[rows], 0)
        randomized = np.repeat(shuffled[:, None], self.ranks, axis=1)
        randomized[:, 0] |= random_top
        return Shown(self.lists, rows, labels, where), randomized & where

    def _people(self, shown: Shown) -> tuple[Array, Array, Array]:
        """Clicks, whether the result is relevant to this person, and whether it was examined; [S, K] bool each."""
        trust, (pages, ranks) = self.traffic.trust, shown.where.shape
        chance = self.look.random((pages, ranks + 2))
        depth = np.repeat(chance[:, :1], ranks, axis=1)
        each = np.where(chance[:, 1:2] < self.traffic.reading, depth, chance[:, 2:])
        examined = (each < trust.examination(ranks)) & shown.where
        thought = self.mind.random((pages, 2, ranks))
        found = (thought[:, 0] < trust.relevance(shown)) & shown.where
        plus, minus = at_ranks(trust.relevant, ranks), at_ranks(trust.irrelevant, ranks)
        return examined & (thought[:, 1] < np.where(found, plus, minus)), found, examined

    def _displayed(self, examined: Array) -> Array:
        traffic, (pages, ranks) = self.traffic, examined.shape
        drawn = self.screen.random((pages, 2 * ranks + 1))
        reported: Array = drawn[:, :1] < traffic.timed
        chance = drawn[:, 1:].reshape(pages, ranks, 2)
        long = 5 - 6 * np.log1p(-chance[..., 1])  # 5 s and an exponential time of 6 s on average
        blurred = chance[..., 0] < BLURRED
        turned = chance[..., 0] >= 1 - MISTAKEN
        seconds = np.where(examined ^ turned, long, 0.999 * chance[..., 1])
        seconds = np.where(blurred, 1 + 4 * chance[..., 1], seconds)
        return np.where(reported, seconds, np.nan)


def timestamps(traffic: Traffic, rng: np.random.Generator) -> Array:
    """When the pages were shown, [S] datetime64[us], ascending: three times as many at 15:00 as at 3:00."""
    day, hour, chance = rng.random((traffic.pages, 3)).T
    # a moment x of the day has density f(x) = 1 - cos(2π(x - 3/24))/2, and f(x) + f(x + 1/2) = 2: so of a drawn x
    # and its opposite one is taken, each by its share
    density = 1 - 0.5 * np.cos(2 * np.pi * (hour - 3 / 24))
    hour = np.where(2 * chance < density, hour, (hour + 0.5) % 1)
    moment = (np.floor(day * np.ceil(traffic.days)) + hour) % traffic.days
    start = np.datetime64(traffic.start, "us")
    moments: Array = start + np.sort(np.floor(moment * DAY)).astype(np.int64).astype("timedelta64[us]")
    return moments
