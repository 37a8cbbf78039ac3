"""How good a ranking is, by the clicks of a log, by labelled lists, or by both: what `unskew.measure` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unskew.measuring.counterfactual.evidence import ClickEvidence
from unskew.measuring.experiments.tests import paired_bootstrap, paired_t_test
from unskew.measuring.ranking import RankingReport
from unskew.results import Result
from unskew.types import Array


@dataclass(frozen=True)
class Paired(Result):
    """How values of two rankings differ, query by query or page by page."""

    difference: float
    interval: tuple[float, float]
    """95 %, by bootstrap."""
    p: float
    """Of the t-test."""

    @classmethod
    def of(cls, first: Array, second: Array) -> Paired:
        """The first less the second, [Q] each."""
        test, interval = paired_t_test(first, second), paired_bootstrap(first, second)
        return cls(test.difference, (interval.low, interval.high), test.p)


@dataclass(frozen=True)
class Bucket(Result):
    """Queries that are asked about equally often, and the metrics of them alone."""

    queries: int
    pages: int
    least: int
    """Pages of the rarest of them."""
    most: int
    """Pages of the commonest."""
    means: Mapping[str, float]
    against: Mapping[str, Paired] | None = None
    """Differences from another ranking, by metric."""
    absent = ("against",)


@dataclass(frozen=True)
class Compared(Result):
    """What a ranking is held against."""

    run: str
    metrics: Mapping[str, Paired] | None = None
    """Of labelled lists."""
    pages: Mapping[str, Paired] | None = None
    """Of logged pages."""
    absent = ("metrics", "pages")


@dataclass(frozen=True)
class Measurement(Result):
    """All that was measured of a ranking; None what was not asked for."""

    run: str
    against: Compared | None = None
    ranking: RankingReport | None = None
    """On labelled lists."""
    frequency: Mapping[str, Bucket] | None = None
    """The same by how often queries are asked."""
    pages: Mapping[str, float] | None = None
    """How well it orders the results of logged pages, by name of the metric."""
    clicks: Mapping[str, float | list[float]] | None = None
    """How well the run's click model foretells a log."""
    evidence: ClickEvidence | None = None
    """What clicks say of it, with a verdict."""
    absent = ("against", "ranking", "frequency", "pages", "clicks", "evidence")
