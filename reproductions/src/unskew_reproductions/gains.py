"""Gains over a base in per cent, by how often queries are asked, beside those that a paper prints.

A gain is that of means over the queries of a bucket: mean of the arm / mean of the base - 1. Queries differ from
seed to seed in how often they are asked, so an order is tested over all queries of all seeds; p is never below
that of a t-test over the means of seeds.

Legend: S seeds, Q queries of a seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf, isnan, nan
from typing import Any

import numpy as np

from unskew.measuring import PairedTest, SeedSummary, mean_over_seeds, paired_t_test
from unskew.pages.numbers import Value, metric_title, with_best
from unskew.pages.page import Section, Table
from unskew.studies.compare.report import SD_OVER_SEEDS
from unskew.studies.compare.verdict import marked
from unskew.studies.terms import FROM_CLICKS
from unskew.types import Array
from unskew_reproductions.claims import CLAIM_COLUMNS, Judged, judge_values, tally
from unskew_reproductions.data import DataSet
from unskew_reproductions.recipe import Recipe, claims_for

BEHAVIOUR = "search engine"
"""What the paper's numbers are filed under."""


@dataclass(frozen=True)
class Measured:
    """What every arm is worth on every query."""

    values: Sequence[Mapping[str, Mapping[str, Array]]]
    """Of each seed: arm, metric, [Q]."""
    searches: Sequence[Array]
    """Of each seed, [Q]: how often the query was asked."""
    baselines: Sequence[str]
    """Arms of which the best is what the others are marked against."""

    def within(self, arm: str, metric: str, low: float, high: float) -> list[Array]:
        """Values of the queries that were asked from `low` to less than `high` times, seed by seed."""
        return [
            run[arm][metric][(often >= low) & (often < high)]
            for run, often in zip(self.values, self.searches, strict=True)
        ]


@dataclass(frozen=True)
class GainTables:
    """What came out on one data set."""

    section: Section
    records: list[dict[str, Any]]
    """Rows of numbers.parquet."""
    judged: list[Judged]


def gain_section(recipe: Recipe, source: DataSet, measured: Measured) -> GainTables:
    """A table of gains, and one of orders, for every bucket of queries."""
    assert recipe.search_engine is not None
    tables, records, judged, texts = list[Table](), list[dict[str, Any]](), list[Judged](), list[str]()
    for bucket, low, high in bounds(recipe.search_engine.buckets):
        cells = _cells(recipe, source, measured, bucket, (low, high))
        records += [record for each in cells.values() for record in each.records]
        tables += _gain_tables(recipe, bucket, cells)
        values = {arm: measured.within(arm, recipe.metric, low, high) for arm in measured.values[0]}
        found = judge_values(values, list(claims_for(recipe, source.name, bucket, BEHAVIOUR)), pooled_t_test)
        if found:
            title = f"{bucket}: orders, tested on {metric_title(recipe.metric)}"
            tables.append(Table(CLAIM_COLUMNS, [one.cells() for one in found], title, text=("here",)))
        judged += found
        texts.append(f"{bucket}: {np.mean([len(part) for part in next(iter(values.values()))]):,.0f} queries")
    text = f"{tally(judged)} Queries of a seed, on average: {', '.join(texts)}."
    return GainTables(Section(source.title, text, tables), records, judged)


def bounds(buckets: Mapping[str, int]) -> list[tuple[str, float, float]]:
    """Name, least and first too large number of searches of each bucket, the most frequent first.

    >>> bounds({"high": 1000, "tail": 0})
    [('high', 1000, inf), ('tail', 0, 1000)]
    """
    ends = [inf, *buckets.values()]
    return [(name, low, high) for name, (high, low) in zip(buckets, pairwise(ends), strict=True)]


def pooled_t_test(first: Sequence[Array], second: Sequence[Array]) -> PairedTest:
    """A paired t-test over all queries of all seeds, with p from one over the means of seeds where that is larger.

    >>> one, other = [np.array([1.0, 2.0, 3.0]), np.array([2.0])], [np.array([0.0, 1.0, 2.5]), np.array([1.0])]
    >>> print(pooled_t_test(one, other))
    +0.8750 (t = 7.00, p = 0.0577, 4 queries)
    """
    test = paired_t_test(np.concatenate(first), np.concatenate(second))
    means = [[float(part.mean()) for part in side if len(part)] for side in (first, second)]
    alone = paired_t_test(*means).p if len(means[0]) > 1 else 0.0
    return test if isnan(alone) or isnan(test.p) else replace(test, p=max(test.p, alone))


@dataclass(frozen=True)
class _Cells:
    """An arm in one bucket: texts by metric, and records."""

    paper: dict[str, str] = field(default_factory=dict)
    here: dict[str, str] = field(default_factory=dict)
    values: dict[str, tuple[Value | None, Value | None]] = field(default_factory=dict)
    """Gains that the paper prints, and ours."""
    records: list[dict[str, Any]] = field(default_factory=list)


def _cells(
    recipe: Recipe, source: DataSet, measured: Measured, bucket: str, ends: tuple[float, float]
) -> dict[str, _Cells]:
    assert recipe.search_engine is not None
    made = {arm: _Cells() for arm in measured.values[0]}
    for metric in recipe.metrics:
        values = {arm: measured.within(arm, metric, *ends) for arm in made}
        marks, base = _marks(values, measured.baselines), values[recipe.search_engine.base]
        for arm, cells in made.items():
            gain = gains(values[arm], base)
            mean = _over([float(part.mean()) for part in values[arm] if len(part)]).mean
            paper = recipe.printed(source.name, bucket, BEHAVIOUR, arm, metric)
            cells.paper[metric] = "" if paper is None else f"{paper.value:+.2f} % {paper.mark}".strip()
            cells.here[metric] = f"{_percent(gain, mean, arm == recipe.search_engine.base)} {marks[arm]}".strip()
            cells.values[metric] = (None if paper is None else Value(paper.value), Value.of(gain))
            about = {"data": source.name, "panel": bucket, "behaviour": BEHAVIOUR, "method": arm, "metric": metric}
            printed = {"paper_gain": None if paper is None else paper.value}
            ours = {"measured": mean, "gain": gain.mean, "gain_sd": gain.sd, "seeds": gain.seeds}
            cells.records.append(about | ours | {"mark": marks[arm]} | printed)
    return made


def gains(values: Sequence[Array], base: Sequence[Array]) -> SeedSummary:
    """100 (mean / mean of the base - 1) over seeds; NaN where a bucket is empty.

    >>> print(gains([np.array([1.0, 2.0])], [np.array([1.0, 1.0])]))
    50.0000 ± nan (1 seed)
    """
    pairs = [(float(a.mean()), float(b.mean())) for a, b in zip(values, base, strict=True) if len(a)]
    return _over([100 * (a / b - 1) for a, b in pairs if b])


def _over(values: Sequence[float]) -> SeedSummary:
    """Mean and deviation over seeds; NaN where there are none."""
    return mean_over_seeds(values) if values else SeedSummary(nan, nan, 0)


def _percent(gain: SeedSummary, mean: float, is_base: bool) -> str:
    if isnan(gain.mean):
        return "no queries"
    if is_base:
        return f"{mean:.3f}"
    return f"{gain.mean:+.2f}" + ("" if isnan(gain.sd) else f" ± {gain.sd:.2f}") + " %"


def _marks(values: Mapping[str, Sequence[Array]], baselines: Sequence[str]) -> dict[str, str]:
    """The mark of each arm that is no baseline against the best of those."""
    best = max(baselines, key=lambda arm: float(np.concatenate(values[arm]).sum()))
    return {
        arm: "" if arm in baselines else marked(pooled_t_test(found, values[best]))
        for arm, found in values.items()
    }


def _gain_tables(recipe: Recipe, bucket: str, cells: Mapping[str, _Cells]) -> list[Table]:
    """The main metric, paper and here, and all others in a table for the files."""
    main, others = recipe.metric, [metric for metric in recipe.metrics if metric != recipe.metric]
    made = [_gain_table([main], ("paper", "here"), cells, f"{bucket}: {metric_title(main)}")]
    if others:
        heads = [f"{metric_title(metric)}: {whose}" for metric in others for whose in ("paper", "here")]
        title = f"{bucket}: other metrics"
        made.append(replace(_gain_table(others, heads, cells, title), printed=False))
    return made


def _gain_table(metrics: Sequence[str], heads: Sequence[str], cells: Mapping[str, _Cells], title: str) -> Table:
    """Gains of these metrics, paper and here, the highest of each column marked."""
    rows = [
        [arm, *(text for metric in metrics for text in (each.paper[metric], each.here[metric]))]
        for arm, each in cells.items()
    ]
    pairs = [[each.values[metric] for each in cells.values()] for metric in metrics]
    columns = [[pair[side] for pair in column] for column in pairs for side in (0, 1)]
    table = Table(("method", *heads), rows, title)
    return with_best(table, dict(enumerate(columns, start=1)), among=FROM_CLICKS, spread=SD_OVER_SEEDS)
