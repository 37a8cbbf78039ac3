"""A model put on top of the engine: how far its correction and a pair's own clicks go is said by held-out clicks.

The examination of ranks comes from `Evidence`: where a log links no rank to rank 1 nobody can say how much of its
clicks is relevance and how much is place, and a run begins as the engine only if it is told to.

Legend: M pairs that pages showed, N documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from unskew.diagnosis.evidence.evidence import chosen_curve
from unskew.diagnosis.evidence.tables import open_tables
from unskew.engine_prior import EnginePrior, factors, levels, strength
from unskew.examination import Examination
from unskew.learning.scoring.combination import BELIEF, Combination, KnownPairs, QueryChoices
from unskew.learning.scoring.scorer import Scorer
from unskew.logs.counts.reduction import rank_counts
from unskew.results import Result
from unskew.types import Array, Lists, Log
from unskew.workflows.runs.data import LogData, TrainingData
from unskew.workflows.runs.settings import Beginning

FEWEST = 30
"""Held-out clicks below which the engine's order is kept as it is."""


@dataclass(frozen=True)
class Shows:
    """What pages tell of pairs, added up."""

    lists: Lists
    rows: Array
    """[M] of the lists, ascending, so query after query."""
    exposure: Array
    """[M] the sum of examination over its shows."""
    clicks: Array
    """[M]"""

    @classmethod
    def of(cls, logs: Sequence[Log], examination: Examination | None) -> Shows:
        """Of the pages of logs that have the same lists."""
        lists = logs[0].lists
        exposure, clicks = np.zeros((2, len(lists.features)))
        for log in logs:
            seen = np.ones(len(log.row)) if examination is None else examination.at(log.position)
            exposure += np.bincount(log.row, seen, minlength=len(exposure))
            clicks += np.bincount(log.row, log.click, minlength=len(clicks))
        rows = np.flatnonzero(exposure > 0)
        return cls(lists, rows, exposure[rows], clicks[rows])

    @property
    def query(self) -> Array:
        """[M] index into the lists."""
        found: Array = np.searchsorted(self.lists.offsets, self.rows, side="right") - 1
        return found

    def some(self, mask: Array) -> Shows:
        """The pairs where a mask [M] holds."""
        return replace(self, rows=self.rows[mask], exposure=self.exposure[mask], clicks=self.clicks[mask])

    def choices(self, *columns: Array) -> QueryChoices:
        """Which pair of a query is clicked, by columns [N] of all documents."""
        return QueryChoices(np.stack(columns, 1)[self.rows], self.exposure, self.clicks, self.query)

    def pairs(self, score: Array, *, clicks: bool) -> KnownPairs | None:
        """What is kept of pairs, with what their clicks add to scores [N], logs of relevance; None without ids."""
        if self.lists.doc_ids is None or not self.clicks.any():
            return None
        if not clicks:
            return KnownPairs.of(self.lists, self.rows, np.zeros(len(self.rows)))
        expected = self.exposure * np.exp(score[self.rows] - score[self.rows].max())
        expected *= self.clicks.sum() / expected.sum()
        expected *= levels(self.clicks, expected, self.query)
        found = np.log(factors(self.clicks, expected, strength(self.clicks, expected)))
        return KnownPairs.of(self.lists, self.rows, found)


@dataclass(frozen=True)
class Begun(Result):
    """How a score begins as the engine."""

    combination: Combination | None
    """What was put together; None with a reason."""
    reason: str | None = None
    examination: Examination | None = field(default=None, repr=False)
    told = ("sentence",)
    untold = ("examination",)

    @property
    def sentence(self) -> str:
        """What the score is made of."""
        if self.combination is None:
            return f"The score does not begin as the order shown: {self.reason}."
        found = self.combination
        ranks, fall = len(found.prior.relevance), found.prior.steepness
        steep = f"mean relevance falls {fall:.1f} times from rank 1 to rank {ranks}"
        if not found.weight:
            return f"The score is the order shown ({steep}): {found.clicks:,} held-out clicks carry no correction."
        kept = " and the clicks of each pair" if found.pairs is not None and found.pairs.gains.any() else ""
        return (
            f"The score begins as the order shown ({steep}), at {found.scale:.2f} of what that says, corrected by "
            f"features{kept}; {found.clicks:,} held-out clicks say so."
        )

    def remember(self, model: Scorer, data: TrainingData, *, clicks: bool = True) -> None:
        """Keep ranks of pairs, and what their clicks add, of all pages; held-out ones have done their judging."""
        if model.combination is None or not isinstance(data, LogData):
            return
        logs = [log for log in (data.train, data.held_out) if log is not None and log.lists is data.train.lists]
        alone = replace(model.combination, pairs=None)
        score = alone.scores(model.correction(data.train.lists), data.train.lists).astype(float)
        model.combination = replace(alone, pairs=Shows.of(logs, self.examination).pairs(score, clicks=clicks))
        object.__setattr__(self, "combination", model.combination)


def begin(model: Scorer, data: TrainingData, engine: Beginning) -> Begun | None:
    """Let a trained model begin as the engine, where that is asked for and can be known; None where it is not."""
    if engine == "none":
        return None
    if not isinstance(data, LogData) or data.held_out is None:
        what = "no clicks were held out that say how far" if isinstance(data, LogData) else "the log is in shards"
        return Begun(None, what)
    examination, reason = examination_of(data.train)
    if examination is None and engine == "auto":
        return Begun(None, f"the log tells no examination, {reason}")
    prior = engine_prior(data.train, examination, reason)
    model.combination = combine(model, data.held_out, prior, examination)
    return Begun(model.combination, None, examination)


def examination_of(log: Log) -> tuple[Examination | None, str | None]:
    """Examination by rank as the log tells it, or why it does not."""
    with open_tables(log, threads=1) as tables:
        curve, reason = chosen_curve(tables)
    return (None, reason) if curve is None else (curve.usable(), None)


def combine(model: Scorer, held: Log, prior: EnginePrior, examination: Examination | None) -> Combination:
    """The weights of engine and correction, by pages that the model has not learned from."""
    shows = Shows.of([held], examination)
    lists, clicks = held.lists, int((held.click > 0).sum())
    assert lists.shown is not None, "a log to learn from has ranks"
    engine = prior.log_at(lists.shown)
    ranked = shows.rows[~np.isnan(engine[shows.rows])]
    middle = float(engine[ranked].mean()) if len(ranked) else float(prior.log_at(np.ones(1))[0])
    if clicks < FEWEST:
        return Combination(prior, 1.0, 0.0, middle, clicks)
    engine = np.where(np.isnan(engine), middle, engine)
    correction = model.correction(lists).astype(float)
    spread = max(float(within(correction[shows.rows], shows.query)), 1e-9)
    mean, deviation = np.array([1.0, 0.0]), BELIEF / np.array([1.0, spread])
    scale, weight = np.maximum(shows.choices(engine, correction).fit(mean, deviation), 0.0)
    return Combination(prior, float(scale), float(weight), middle, clicks)


def within(values: Array, query: Array) -> float:
    """Standard deviation of values [M] within their queries."""
    _, place = np.unique(query, return_inverse=True)
    mean = np.bincount(place, values) / np.bincount(place)
    return float(np.sqrt(np.square(values - mean[place]).mean()))


def engine_prior(log: Log, examination: Examination | None, reason: str | None) -> EnginePrior:
    """Mean relevance by rank, of slots that were not filled at random."""
    usual = np.ones(len(log.row), bool) if log.randomized is None else ~log.randomized.astype(bool)
    usual = usual if usual.any() else np.ones(len(log.row), bool)
    shown, clicked = rank_counts(log.position[usual], np.ones(int(usual.sum())), log.click[usual])
    return EnginePrior.of(shown, clicked, examination, reason)
