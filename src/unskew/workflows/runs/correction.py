"""A model put on top of the engine: how far its correction and a pair's own clicks go is said by held-out clicks.

The examination of ranks comes from `Evidence`: where a log links no rank to rank 1 nobody can say how much of its
clicks is relevance and how much is place, and a run begins as the engine only if it is told to.

A safe run goes no further from that order than held-out clicks carry it:

    score of a share x   a e + x (b s + c x v)          of the correction, x = 0 is the order shown
    gain of a share      sum over held-out clicks of w (1 / log2(1 + rank with it) - 1 / log2(1 + rank as shown))
    w                    1 / examination at the rank of the click, at most 10; 1 where examination is not known
    lower bound          Student's, over queries, at risk / 2 / (number of shares)
    chosen               the share with the highest lower bound, if that is above MARGIN
    else                 the same of c x v alone by all queries of training, each by what features say by others

A weight that is clipped, or 1, favours the order shown, so a gain against it is one. Shuffled pages, where the
comparison is fair without any weight, may speak against it, and then the order stays. The weights of engine and
correction come from one half of the held-out queries where the other half judges. What lies below the last rank
of the log stays below, since no click speaks for it. Clicks of pairs are not used.

Legend: M pairs that pages showed, N documents, I impressions, G shares, Q queries.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from scipy.special import stdtrit

from unskew.diagnosis.evidence.evidence import chosen_curve
from unskew.engine_prior import EnginePrior, leaning
from unskew.examination import Examination
from unskew.learning.fitting.choices import Shows, within
from unskew.learning.fitting.straight import FEWEST_CLICKS, Straight, straight
from unskew.learning.scoring.combination import Combination
from unskew.learning.scoring.scorer import Scorer
from unskew.logs.counts.reduction import rank_counts
from unskew.options.runs import Beginning
from unskew.results import Result
from unskew.types import Array, Lists, Log
from unskew.workflows.runs.data import LogData, TrainingData
from unskew.workflows.runs.settings import Settings


@dataclass(frozen=True)
class Begun(Result):
    """How a score starts from the engine's order: weights of engine, correction and a pair's own clicks."""

    combination: Combination | None
    """What was put together; None with a reason."""
    reason: str | None = None
    examination: Examination | None = field(default=None, repr=False)
    line: Straight | None = field(default=None, repr=False)
    told = ("sentence",)
    untold = ("examination", "line")

    @property
    def sentence(self) -> str:
        """What the score is made of."""
        if self.combination is None:
            return f"The score does not begin as the order shown: {self.reason}."
        return self.score_said + self.guess_said

    @property
    def guess_said(self) -> str:
        """What was taken for examination where the log tells none."""
        if self.combination is None or self.combination.prior.reason is None or self.examination is None:
            return ""
        why = self.combination.prior.reason
        return f" The log tells no examination, {why}: most of the fall of click rates by rank is taken for it."

    @property
    def score_said(self) -> str:
        """What the score is made of, where it begins as the order shown."""
        assert self.combination is not None
        found = self.combination
        ranks, fall = len(found.prior.relevance), found.prior.steepness
        steep = f"mean relevance falls {fall:.1f} times from rank 1 to rank {ranks}"
        if not found.moved:
            return f"The score is the order shown ({steep}): {found.clicks:,} clicks carry no correction."
        kept = " and the clicks of each pair" if found.pairs is not None and found.pairs.gains.any() else ""
        if found.scale < 0.005:
            return f"The score is by features{kept}: {found.clicks:,} clicks leave nothing of the order."
        begins = f"The score begins as the order shown ({steep}), at {found.scale:.2f} of what that says"
        return f"{begins}, corrected by features{kept}, as far as {found.clicks:,} clicks carry it."

    def remember(self, model: Scorer, data: TrainingData, *, clicks: bool = True) -> Begun:
        """Keep ranks of pairs, and what their clicks add, of all pages; held-out ones have done their judging."""
        if model.combination is None or not isinstance(data, LogData):
            return self
        logs = [log for log in (data.train, data.held_out) if log is not None and log.lists is data.train.lists]
        alone = replace(model.combination, pairs=None)
        score = alone.scores(model.sides(data.train.lists), data.train.lists).astype(float)
        model.combination = replace(alone, pairs=Shows.of(logs, self.examination).pairs(score, clicks=clicks))
        return replace(self, combination=model.combination)


def begin(model: Scorer, log: Log, held: Log, engine: Beginning) -> Begun:
    """Let a trained model begin as the engine by these pages, where that can be known; held-out ones judge it."""
    prior, examination, reason = engine_of(log, engine)
    if prior is None:
        return Begun(None, f'the log tells no examination, {reason}; engine "shown" begins there all the same')
    line = straight(partial(Scorer.prepared, model), model.card.features, log, prior, examination)
    slope = 0.0 if line.weights is None else 1.0
    begun = Combination(prior, line.scale, 0.0, line.middle, line.clicks, slope, line.weights)
    model.combination = begun  # so that the model can tell what features say
    apart = said_apart(model, line, held.lists) if held is log else None
    model.combination = combine(model, begun, held, examination, apart)
    return Begun(model.combination, None, examination, line)


def pages_of(data: TrainingData) -> tuple[Log | None, Log | None]:
    """The pages that order and features are looked at in, and those that judge the model; of shards the same."""
    if isinstance(data, LogData):
        return data.train, data.held_out
    held = data.held_out_pages()
    held = None if held is None else held.with_ranks()
    return held, held


def said_apart(model: Scorer, line: Straight, lists: Lists) -> Array:
    """What features say along straight lines of documents [N], by pages of other queries."""
    query = np.repeat(np.arange(len(lists)), lists.sizes)
    return line.apart(np.zeros(len(query)), Scorer.prepared(model, lists)[:, : model.card.features], query)


def begins_as(asked: Settings, data: LogData, prior: EnginePrior, examination: Examination | None) -> Array:
    """What the order shown and features along straight lines say of documents [N], by pages of other queries."""
    data = data.encoded(data.fit_encoding(asked.encoding))
    scaler, log = data.fit_scaler(asked.scaling), data.train
    found = straight(lambda some: scaler.apply(some).features, scaler.width, log, prior, examination)
    assert log.lists.shown is not None, "a log to learn from has ranks"
    query = np.repeat(np.arange(len(log.lists)), log.lists.sizes)
    return found.apart(prior.log_at(log.lists.shown), scaler.apply(log.lists).features, query)


def engine_of(log: Log, engine: Beginning) -> tuple[EnginePrior | None, Examination | None, str | None]:
    """What the order shown says, by slots that were not filled at random, examination, or why it is not known.

    No prior where a run is not to begin there: it was told so, or examination is not known and nobody insists. Who
    insists has most of the fall of click rates for examination (`leaning`), so that the little that is left orders
    what features cannot tell apart; a safe run takes all ranks for looked at alike, which trusts the order most.
    """
    examination, reason = (None, None) if engine == "none" else examination_of(log)
    if engine == "none" or (examination is None and engine == "auto"):
        return None, None, reason
    usual = np.ones(len(log.row), bool) if log.randomized is None else ~log.randomized.astype(bool)
    usual = usual if usual.any() else ~usual
    shown, clicked = rank_counts(log.position[usual], np.ones(int(usual.sum())), log.click[usual])
    if examination is None and engine == "shown":
        examination = Examination.of(leaning(shown, clicked, None), "numbers").reaching(len(shown))
    return EnginePrior.of(shown, clicked, examination, reason), examination, reason


def examination_of(log: Log) -> tuple[Examination | None, str | None]:
    """Examination of all ranks as the log tells it, or why it does not."""
    curve, reason = chosen_curve(log)
    return (None, reason) if curve is None else (curve.usable().reaching(int(log.position.max())), None)


def combine(
    model: Scorer, begun: Combination, held: Log, examination: Examination | None, apart: Array | None = None
) -> Combination:
    """The weights of all that was found and of the model, by pages that the model has not learned from.

    `apart` is what features say along straight lines, where these pages were looked at for it.
    """
    shows, lists = Shows.of([held], examination), held.lists
    clicks = int(shows.clicks.sum())
    assert lists.shown is not None, "a log to learn from has ranks"
    begun = replace(begun, clicks=begun.clicks + (clicks if apart is None else 0))
    if clicks < FEWEST_CLICKS:
        return begun
    own, line = model.sides(lists).astype(float).T
    line = line if apart is None else apart
    engine = begun.prior.log_at(lists.shown)
    found = begun.scale * np.where(np.isnan(engine), begun.middle, engine) + begun.slope * line
    spread = max(within(own[shows.rows], shows.query), 1e-9)
    a, b = shows.choices(found, own / spread).doubted()
    return replace(begun, scale=a * begun.scale, slope=a * begun.slope, weight=b / spread)


# ---- safe ----


SHARES = (0.25, 0.5, 1.0)
"""Shares of the correction that held-out clicks choose from."""
RISK, JUDGES, FEWEST, CLIP = 0.05, 2, 10, 10.0
"""The chance that a change is taken that is none; how many may take one; queries with clicks that are needed; the
largest weight.
"""
MARGIN = 0.005
"""Discounted rank that a click gains at least: less may come of what draws clicks beside rank and relevance."""


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


def started(model: Scorer, data: TrainingData, engine: Beginning) -> tuple[Begun | None, Safety | None]:
    """Let a trained model begin as the engine as it was asked for; and what held-out clicks allow it, if safe."""
    if engine == "none":
        return None, None
    log, held = pages_of(data)
    if log is None or held is None:
        return Begun(None, "no clicks were held out that say how far"), None
    begun = begin(model, log, held, engine)
    if engine != "safe" or begun.combination is None:
        return begun, None
    return make_safe(model, begun, log, held)


def make_safe(model: Scorer, begun: Begun, train: Log, held: Log) -> tuple[Begun, Safety]:
    """Hold a model that begins as the engine back to what clicks carry that it has not seen.

    Held-out pages judge all of the correction, unless features were looked at in them too. If they carry none,
    what features say along straight lines is judged by all pages that it is of, each query by what others said.
    """
    assert begun.combination is not None
    combination, line = replace(begun.combination, depth=int(train.position.max())), begun.line
    safety = Safety(0.0, None, None)
    if held is not train:
        safety = carried(*gains_of(model, combination, held, begun.examination))
    if not safety.share and line is not None and line.others is not None:
        combination = replace(combination, scale=line.scale, weight=0.0, slope=1.0)
        safety = carried(*gains_along(model, combination, line, train, begun.examination))
    scale = combination.scale if safety.share else 1.0  # what features made superfluous is all that is left
    model.combination = replace(combination.times(safety.share), scale=scale)
    return replace(begun, combination=model.combination), safety


def carried(usual: Gains, shuffled: Gains | None) -> Safety:
    """The share that clicks carry."""
    against = shuffled is not None and shuffled.bounds(-1).max() > 0
    bounds = usual.bounds()
    best = int(bounds.argmax())
    if against or not bounds[best] > MARGIN:
        return Safety(0.0, None, None)
    return Safety(SHARES[best], float(usual.gain[best].sum() / usual.clicks.sum()), float(bounds[best]))


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
        [0.19, -0.14]
        """
        n, total = len(self.clicks), self.clicks.sum()
        if n < FEWEST:
            return np.full(len(self.gain), -np.inf)
        mean = self.gain.sum(1) / total
        spread = self.gain - mean[:, None] * self.clicks
        error = np.sqrt(n / (n - 1) * np.square(spread).sum(1)) / total
        lower: Array = sign * mean - stdtrit(n - 1, 1 - RISK / JUDGES / len(self.gain)) * error
        return lower


def gains_of(
    model: Scorer, combination: Combination, held: Log, examination: Examination | None
) -> tuple[Gains, Gains | None]:
    """Gains by all held-out clicks, weighted; and by raw ones on shuffled slots, where there are some."""
    lists, query = held.lists, np.repeat(held.query, held.sizes)
    sides, half = model.sides(lists), np.random.default_rng(0).permutation(len(lists)) % 2
    gain = np.zeros((len(SHARES), len(held.row)))
    for judged in (0, 1):
        here = half[query] == judged
        weights = combine(model, combination, held.take(half[held.query] != judged), examination)
        before = discounts(replace(weights.times(0.0), scale=1.0), sides, lists)
        for number, share in enumerate(SHARES):
            after = discounts(weights.times(share), sides, lists)
            gain[number, here] = (after - before)[held.row[here]]
    return weighed(gain, held, examination)


def gains_along(
    model: Scorer, combination: Combination, line: Straight, log: Log, examination: Examination | None
) -> tuple[Gains, Gains | None]:
    """The same of what features say along straight lines, each query judged by what the others said."""
    lists = log.lists
    sides = np.zeros((len(lists.features), 2))
    sides[:, 1] = said_apart(model, line, lists)
    before = discounts(replace(combination.times(0.0), scale=1.0), sides, lists)
    after = np.stack([discounts(combination.times(share), sides, lists) for share in SHARES])
    return weighed((after - before)[:, log.row], log, examination)


def weighed(gain: Array, log: Log, examination: Examination | None) -> tuple[Gains, Gains | None]:
    """Gains [G, I] of the clicks of a log, weighted; and of raw ones on shuffled slots, where there are some."""
    query = np.repeat(log.query, log.sizes)
    w = 1.0 if examination is None else np.minimum(1 / examination.at(log.position), CLIP)
    usual = by_query(gain, log.click * w, query)
    if log.randomized is None or not (log.click[log.randomized] > 0).any():
        return usual, None
    return usual, by_query(gain, log.click * log.randomized, query)


def by_query(gain: Array, clicks: Array, query: Array) -> Gains:
    """Sums over the clicks [I] of each query."""
    total = np.bincount(query, clicks)
    sums = np.stack([np.bincount(query, clicks * each) for each in gain])
    return Gains(total[total > 0], sums[:, total > 0])


def discounts(combination: Combination, sides: Array, lists: Lists) -> Array:
    """1 / log2(1 + rank) of every document in its list, [N]."""
    score, query = combination.scores(sides, lists), np.repeat(np.arange(len(lists)), lists.sizes)
    order = np.lexsort((-score, query))
    ranks = np.empty(len(score))
    ranks[order] = np.arange(len(score)) - lists.offsets[query[order]] + 1
    found: Array = 1 / np.log2(1 + ranks)
    return found
