"""Rows of a comparison's tables, and the tests of each method against naive and against the best baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan

from unskew.measuring import ClickEvidence, GainEstimate, PairedTest, SeedSummary, crossed_t_test, holm
from unskew.pages.numbers import metric_title, p_value, spread
from unskew.studies.compare.arms import REFERENCES
from unskew.studies.compare.simulated import MEASURED
from unskew.types import Array

NAIVE = REFERENCES[0]
SHOWN = MEASURED[:4]
COLUMNS = ("method", *map(metric_title, SHOWN), "against naive", "p", "settings")
LEVELS = {0.005: 2, 0.05: 1}
"""How many signs a p-value below this gets."""
LESS_IS_BETTER = ("arp", "arp_legacy")
"""Metrics of where relevant documents stand."""


@dataclass(frozen=True)
class Row:
    """An arm with its chosen settings, over all seeds."""

    arm: str
    varied: str
    metrics: Mapping[str, SeedSummary]
    values: Mapping[str, Array]
    """Every metric of each seed and test query, [S, Q]."""
    seeds: tuple[float, ...] = ()
    """nDCG@10 of each seed."""
    against: PairedTest | None = None
    """The test against naive, its p-value after Holm's correction; none for the references."""
    versus: PairedTest | None = None
    """The same against the best baseline; none for baselines, and where naive is the best."""

    @property
    def mark(self) -> str:
        """The mark of the test against naive."""
        return marked(self.against)

    @property
    def ndcg(self) -> SeedSummary:
        """nDCG@10."""
        return self.metrics["ndcg@10"]

    def cells(self) -> list[str]:
        """The row of a table."""
        means = [spread(self.metrics[name]) for name in SHOWN]
        return [self.arm, *means, *_tested(self.against), *_tested(self.versus), self.varied]


def columns(rows: Sequence[Row], baselines: Sequence[str]) -> list[str]:
    """The head of a table; `Row.cells` has as many."""
    best = best_baseline(rows, baselines)
    return [*COLUMNS[:-1], f"against {'best baseline' if best is None else best.arm}", "p", COLUMNS[-1]]


def best_baseline(rows: Sequence[Row], baselines: Sequence[str], metric: str = "ndcg@10") -> Row | None:
    """The baseline that is best on the test lists, as papers take it; none where there is none."""
    found, sign = [row for row in rows if row.arm in baselines], -1 if metric in LESS_IS_BETTER else 1
    return max(found, key=lambda row: sign * row.metrics[metric].mean, default=None)


def marks(rows: Sequence[Row], baselines: Sequence[str], metric: str) -> dict[str, str]:
    """The mark of each method that is no baseline, against the best of those: + is better, - is worse."""
    best, turned = best_baseline(rows, baselines, metric), str.maketrans("+-", "-+")
    methods = [row for row in rows if row.arm not in (*REFERENCES[1:], *baselines)]
    found = {arm: marked(test) for arm, test in _tests(methods, best, metric).items()}
    return {arm: mark.translate(turned) if metric in LESS_IS_BETTER else mark for arm, mark in found.items()}


def with_tests(rows: Sequence[Row], baselines: Sequence[str] = ("naive",)) -> list[Row]:
    """The rows, each method tested against naive, and each that is no baseline against the best of those."""
    methods = [row for row in rows if row.arm not in REFERENCES]
    naive = next((row for row in rows if row.arm == "naive"), None)
    best = best_baseline(rows, baselines)
    against = _tests(methods, naive)
    others = [row for row in methods if row.arm not in baselines]
    versus = {} if best is None or best.arm == "naive" else _tests(others, best)
    return [replace(row, against=against.get(row.arm), versus=versus.get(row.arm)) for row in rows]


def _tests(rows: Sequence[Row], other: Row | None, metric: str = "ndcg@10") -> dict[str, PairedTest]:
    """The test of each row against another, p-values after Holm's correction."""
    if other is None or not rows:
        return {}
    found = [crossed_t_test(row.values[metric], other.values[metric]) for row in rows]
    adjusted = holm([test.p for test in found])
    return {row.arm: replace(test, p=float(p)) for row, test, p in zip(rows, found, adjusted, strict=True)}


def marked(test: PairedTest | None) -> str:
    """+ or - below .05, ++ or -- below .005, nothing above."""
    if test is None or isnan(test.p):
        return ""
    signs = max((count for level, count in LEVELS.items() if test.p < level), default=0)
    return ("+" if test.difference > 0 else "-") * signs


def _tested(test: PairedTest | None) -> list[str]:
    """Difference with its mark, and p."""
    if test is None:
        return ["", ""]
    return [f"{test.difference:+.4f} {marked(test)}".strip(), p_value(test.p)]


@dataclass(frozen=True)
class LogRow:
    """An arm with its chosen settings, over all seeds."""

    arm: str
    varied: str
    naive: ClickEvidence | None
    """Held against naive; None for naive itself."""
    shown: ClickEvidence
    """Held against what was shown."""
    graded: SeedSummary | None
    """nDCG@10 by labels, where there are some; beside."""


def leading(evidence: ClickEvidence) -> GainEstimate | None:
    """The estimate that stands for all: what decided, random slots, another with an interval, raw clicks last."""
    told = [one for one in evidence.estimates if one.interval is not None and one.difference is not None]
    first = [one for name in (*evidence.decided_by, "direct") for one in told if one.name == name]
    return next(iter([*first, *sorted(told, key=lambda one: one.grounds == "shown")]), None)


def name_of(one: GainEstimate) -> str:
    """What an estimate is called in sentences."""
    return "raw clicks" if one.grounds == "shown" else one.name
