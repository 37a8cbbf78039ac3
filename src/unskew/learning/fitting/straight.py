"""What the order shown and features say of clicks along straight lines, by all pages that are learned from.

    a e + c t + x v         e: log of mean relevance at the rank shown; x: prepared features
    t = x h                 what features say of e, by the ranks of all that was shown, without clicks

t knows the engine's habits without the chance of each place: where clicks are few, nothing else tells as much of
features. a, c and v are fitted as `choices` says, with a, c ~ N((1, 0), BELIEF) and v, of features with standard
deviation 1, ~ N(0, s^2), s by the marginal likelihood (Laplace's). How far c t + x v is believed is said by clicks
that it has not seen: queries are dealt out into folds, each is judged by what the others say, and DOUBT standard
errors are taken off.

Legend: M pairs, N documents, D features, Q queries, K folds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unskew.engine_prior import EnginePrior
from unskew.examination import Examination
from unskew.learning.fitting.choices import BELIEF, QueryChoices, Shows, within
from unskew.types import Array, Lists, Log

FEWEST_CLICKS = 30
"""Clicks below which the engine's order is kept as it is."""
SPREADS = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Standard deviations s that weights of features may have."""
FOLDS, FEWEST_QUERIES = 5, 10
"""Folds, and queries below which there are none, and features say nothing."""
WORK, PAIRS, WIDEST = 5e8, (5_000, 200_000), 1000
"""Products of a step, about, which say how many pairs are looked at; the fewest and most; features beyond which
none are.
"""
RIDGE = 30.0
"""How many documents say that a feature means nothing for the engine."""


@dataclass(frozen=True)
class Straight:
    """What the order shown and features say, and how it was found."""

    middle: float
    """e of a document without a rank."""
    clicks: int
    """Those that were looked at."""
    scale: float = 1.0
    """a"""
    weights: Array | None = None
    """What each prepared feature adds, [D]; None where nothing was found."""
    others: Array | None = None
    """[K, D] the same by the pages of all folds but one."""
    fold: Array | None = None
    """[Q] that a query is in; where it was not looked at, any."""

    def apart(self, engine: Array, x: Array, query: Array) -> Array:
        """Scores [N] of documents by pages of other queries than their own."""
        score: Array = self.scale * np.where(np.isnan(engine), self.middle, engine)
        if self.others is None or self.fold is None:
            return score
        for number, weights in enumerate(self.others):
            here = self.fold[query] == number
            score[here] += x[here] @ weights
        return score


def straight(
    prepare: Callable[[Lists], Array], width: int, log: Log, prior: EnginePrior, examination: Examination | None
) -> Straight:
    """What a log's order and the first `width` prepared features say."""
    assert log.lists.shown is not None, "a log to learn from has ranks"
    shows = Shows.of([log], examination)
    ranks = log.lists.shown[shows.rows]
    known = ranks[~np.isnan(ranks)]
    middle = float(prior.log_at(known if len(known) else np.ones(1)).mean())
    clicks, queries = int(shows.clicks.sum()), np.unique(shows.query)
    if clicks < FEWEST_CLICKS or len(queries) < FEWEST_QUERIES or not 0 < width <= WIDEST:
        return Straight(middle, clicks)
    shows = shows.sample(int(np.clip(WORK / (width + 2) ** 2, *PAIRS)))
    queries = np.unique(shows.query)
    lists, query = log.lists.take(queries), np.searchsorted(queries, shows.query)
    rows = lists.offsets[query] + shows.rows - log.lists.offsets[shows.query]
    assert lists.shown is not None, "as those that they are taken from"
    x, engine = prepare(lists)[:, :width].astype(float), prior.log_at(lists.shown)
    columns, turn = _columns(x, rows, query, np.where(np.isnan(engine), middle, engine), habits(x, lists, prior))
    pairs = QueryChoices(columns[rows], shows.exposure, shows.clicks, query)
    weights, mean, deviation = _fit(pairs)
    fold = np.random.default_rng(0).permutation(len(queries)) % FOLDS
    others, unseen = np.zeros((FOLDS, len(weights))), np.zeros(len(rows))
    for number in range(FOLDS):
        here = fold[query] == number
        rest = pairs.some(~here).tempered(mean, deviation, weights)
        others[number] = rest.fit(mean, deviation, weights)
        unseen[here] = pairs.columns[here, 1:] @ others[number, 1:]
    spread = max(within(unseen, query), 1e-9)
    both = QueryChoices(np.stack([pairs.columns[:, 0], unseen / spread], 1), pairs.exposure, pairs.clicks, query)
    a, b = both.doubted()
    if not b:
        return Straight(middle, clicks)
    of_all = np.zeros(len(log.lists), np.int64)
    of_all[queries] = fold
    found = b / spread * np.vstack([weights, others])[:, 1:] @ turn
    return Straight(middle, clicks, a, found[0].astype(np.float32), found[1:], of_all)


def _columns(x: Array, rows: Array, query: Array, engine: Array, habit: Array) -> tuple[Array, Array]:
    """e, and t and features that differ with deviation 1, [N, C]; what these are of features, [C - 1, D]."""
    deviation = x[rows].std(0)
    differ = np.flatnonzero(deviation > 1e-9)
    turn = np.zeros((1 + len(differ), x.shape[1]))
    turn[0] = habit / max(within(x[rows] @ habit, query), 1e-9)
    turn[1 + np.arange(len(differ)), differ] = 1 / deviation[differ]
    return np.column_stack([engine, x @ turn.T]), turn


def _fit(pairs: QueryChoices) -> tuple[Array, Array, Array]:
    """Weights [C] with their prior, whose deviation of features makes clicks most likely."""
    size = pairs.columns.shape[1]
    mean = np.append(1.0, np.zeros(size - 1))
    priors = [np.concatenate([BELIEF, np.full(size - 2, spread)]) for spread in SPREADS]
    tempered = pairs
    for _ in range(2):
        found = [tempered.evidence(mean, deviation) for deviation in priors]
        best = max(range(len(found)), key=lambda number: found[number][0])
        weights, deviation = found[best][1], priors[best]
        tempered = pairs.tempered(mean, deviation, weights)
    return tempered.fit(mean, deviation, weights), mean, deviation


def habits(x: Array, lists: Lists, prior: EnginePrior) -> Array:
    """What each feature [D] says of where the engine puts documents of a query, linear, from no click.

    What no page of a query shows counts as below the last rank.
    """
    assert lists.shown is not None, "a log to learn from has ranks"
    below = float(len(prior.relevance) + 1)
    both = np.column_stack([prior.log_at(np.where(np.isnan(lists.shown), below, lists.shown)), x])
    filled = lists.sizes > 0
    means = np.add.reduceat(both, lists.offsets[:-1][filled]) / lists.sizes[filled, None]
    both -= np.repeat(means, lists.sizes[filled], axis=0)
    products = both[:, 1:].T @ both
    spread = np.diag(products[:, 1:]) / len(both)
    found: Array = np.linalg.solve(products[:, 1:] + np.diag(RIDGE * spread + 1e-9), products[:, 0])
    return found
