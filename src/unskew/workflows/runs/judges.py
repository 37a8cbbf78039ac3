"""Which of several rankers to take, by pages that none of them learned from, without labels.

What decides is how likely each makes the clicks of held-out queries: which document of a query is clicked,

    P(i | a click of q) = E_i exp(a e_i + b s_i) / sum over the documents of q that pages showed

with s the ranker's score, E_i the examination of its shows, or their number where examination is not known, and
e_i, where scores begin as the engine, what the order shown and features along straight lines say by the pages of
other queries (`straight`). The weights a and b come from one half of the queries where the other half is judged.

Legend: N documents of the log's lists, Q queries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unskew.examination import Examination
from unskew.learning.fitting.choices import BELIEF, Shows, within
from unskew.learning.methods import Learner, found_as
from unskew.learning.rankers import Ranker
from unskew.results import Result
from unskew.settings import Table
from unskew.types import Array, Log


@dataclass(frozen=True)
class Ranked:
    """What held-out clicks say of rankers."""

    values: Mapping[str, float]
    """Mean log-likelihood of a click with each."""
    order: tuple[str, ...]
    """The rankers, best first; the earlier name where two are level."""
    clicks: int
    """Held-out clicks that were looked at."""
    alone: float
    """The same without any of them: by the order shown, or by chance."""


@dataclass(frozen=True)
class Pick(Result):
    """The method that was taken of several, and why."""

    choice: str
    method: Learner
    because: str
    """Why it was taken, in a sentence."""
    candidates: tuple[str, ...] | None = None
    """Those that were judged, best first."""
    likelihood: Mapping[str, float] | None = None
    """Mean log-likelihood of a held-out click with each."""
    alone: float | None = None
    """The same by the order shown alone."""
    clicks: int | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Candidates that could not learn from this log, and why."""
    ranker: Ranker | None = None
    """What it was taken with, where no ranker was named."""
    absent = ("candidates", "likelihood", "alone", "clicks", "ranker")

    def to_dict(self) -> dict[str, Any]:
        """The choice as metrics.json has it."""
        ranker = {} if self.ranker is None else {"ranker": named_table(self.ranker)}
        return super().to_dict() | {"method": named_table(self.method)} | ranker

    def in_short(self) -> Table:
        """The choice as run.toml has it."""
        return {"choice": self.choice, "candidates": list(self.candidates or ()), "because": self.because}


def named_table(config: Learner | Ranker) -> Table:
    """A method or ranker as a run file has it."""
    name = found_as(config) if isinstance(config, Learner) else config.name
    return {"name": name, **config.model_dump(mode="json", exclude_defaults=True, exclude={"name"})}


class Contest:
    """Adds up what held-out clicks say of rankers, one part of the pages after another."""

    def __init__(
        self, names: Sequence[str], begins: Array | None = None, examination: Examination | None = None
    ) -> None:
        """Where scores begin as the engine, `begins` says as what: e of every document [N]."""
        self.names, self.begins, self.examination = tuple(names), begins, examination
        self.sums, self.alone, self.clicks = dict.fromkeys(self.names, 0.0), 0.0, 0.0

    def add(self, log: Log, scores: Mapping[str, Array]) -> None:
        """Pages that these rankers did not learn from, and a score [N] of every document by each."""
        shows = Shows.of([log], self.examination)
        for name in self.names:
            self.sums[name] += self._likelihood(shows, scores[name])
        self.alone += self._likelihood(shows, np.zeros(len(log.lists.features)))
        self.clicks += float(shows.clicks.sum())

    def finish(self) -> Ranked:
        """What the clicks added so far say: rankers from best to worst, with their mean likelihoods."""
        means = {name: total / max(self.clicks, 1e-12) for name, total in self.sums.items()}
        order = tuple(sorted(self.names, key=lambda name: -means[name]))
        return Ranked(means, order, round(self.clicks), self.alone / max(self.clicks, 1e-12))

    def _likelihood(self, shows: Shows, score: Array) -> float:
        """Of the clicks of all queries, each half by weights of the other."""
        spread = max(within(score[shows.rows], shows.query), 1e-9)
        columns, mean, deviation = [score / spread], np.zeros(1), BELIEF[1:]
        if self.begins is not None:
            columns, mean, deviation = [self.begins, *columns], np.array([1.0, 0.0]), BELIEF
        half = np.unique(shows.query, return_inverse=True)[1] % 2
        parts = [shows.some(half == number).choices(*columns) for number in (0, 1)]
        pairs = ((parts[0], parts[1]), (parts[1], parts[0]))
        weights = [np.maximum(other.fit(mean, deviation), 0.0) for _, other in pairs]
        return float(sum(part.likelihood(each).sum() for (part, _), each in zip(pairs, weights, strict=True)))
