"""Rows of a comparison's tables, and the test of each method against naive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan

from unskew.compare_cell import METRICS
from unskew.compare_config import REFERENCES
from unskew.measuring import PairedTest, SeedSummary, holm, paired_t_test
from unskew.types import Array

SHOWN = METRICS[:4]
COLUMNS = ("method", *(name.replace("ndcg", "nDCG") for name in SHOWN), "against naive", "p", "settings")
LEVELS = {0.005: 2, 0.05: 1}
"""How many signs a p-value below this gets."""


@dataclass(frozen=True)
class Row:
    """An arm with its chosen settings, over all seeds."""

    arm: str
    index: int
    varied: str
    metrics: Mapping[str, SeedSummary]
    per_query: Array
    """nDCG@10 of each test query, mean over seeds."""
    seeds: tuple[float, ...] = ()
    """nDCG@10 of each seed."""
    against: PairedTest | None = None
    """The test against naive, its p-value after Holm's correction; none for the references."""

    @property
    def mark(self) -> str:
        """+ or - below .05, ++ or -- below .005, nothing above."""
        if self.against is None or isnan(self.against.p):
            return ""
        signs = max((count for level, count in LEVELS.items() if self.against.p < level), default=0)
        return ("+" if self.against.difference > 0 else "-") * signs

    @property
    def ndcg(self) -> SeedSummary:
        """nDCG@10."""
        return self.metrics["ndcg@10"]

    def cells(self) -> list[str]:
        """The row of a table."""
        means = [spread(self.metrics[name]) for name in SHOWN]
        test = ["", ""] if self.against is None else [f"{self.against.difference:+.4f} {self.mark}".strip(), ""]
        if self.against is not None:
            test[1] = "n/a" if isnan(self.against.p) else p_value(self.against.p)
        return [self.arm, *means, *test, self.varied]


def against_naive(rows: Sequence[Row]) -> list[Row]:
    """The rows with each method tested against naive."""
    naive = next((row for row in rows if row.arm == "naive"), None)
    methods = [row for row in rows if row.arm not in REFERENCES]
    if naive is None or not methods:
        return list(rows)
    tests = [paired_t_test(row.per_query, naive.per_query) for row in methods]
    adjusted = holm([test.p for test in tests])
    found = {
        row.arm: PairedTest(test.difference, test.t, float(p), test.queries, test.dropped)
        for row, test, p in zip(methods, tests, adjusted, strict=True)
    }
    return [replace(row, against=found.get(row.arm)) for row in rows]


def p_value(p: float, *, equals: bool = False) -> str:
    """A p-value, with no more digits than it deserves.

    >>> p_value(0.00001), p_value(0.25, equals=True)
    ('< 0.0001', 'p = 0.2500')
    """
    text = "< 0.0001" if p < 0.0001 else f"{p:.4f}"
    return text if not equals else f"p {text}" if text[0] == "<" else f"p = {text}"


def spread(summary: SeedSummary) -> str:
    """Mean and standard deviation over seeds, the mean alone where there is one seed."""
    return f"{summary.mean:.3f}" + ("" if isnan(summary.sd) else f" ± {summary.sd:.3f}")
