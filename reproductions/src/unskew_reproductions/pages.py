"""What learning from whole pages does to head and tail queries, to single documents, and to the causal graph.

Table 2 and Figures 3 and 4a of "Whole Page Unbiased Learning to Rank". Queries are asked as often as a power law
says, so that there is a head and a tail; they are measured on the lists that were shown, with labels that no
method has read. Queries fall into ten buckets by how often they are asked, the most frequent first; the first half
of the buckets is the head, the rest the tail.

Legend: Q queries, N documents, P ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from unskew.diagnosis.causal.graph import CausalGraph, graph_of
from unskew.errors import DataError
from unskew.learning.fitting.loop import Fit
from unskew.measuring import SeedSummary, mean_over_seeds
from unskew.measuring.ranked_lists import RankedLists
from unskew.measuring.ranking import known_mean, measure_ranking
from unskew.pages.documents.inspections import graph_figure
from unskew.pages.figures import line_legend, palette
from unskew.pages.numbers import Value, metric_title, spread, with_best
from unskew.pages.page import Figure, Section, Table
from unskew.pages.svg import WIDTH
from unskew.settings import listed
from unskew.studies.compare.arms import Point
from unskew.studies.compare.report import SD_OVER_SEEDS
from unskew.studies.compare.simulated import read_data
from unskew.studies.compare.verdict import LESS_IS_BETTER
from unskew.types import Array, Lists, Log
from unskew.workflows.proofs.measure_lists import frequency_buckets
from unskew.workflows.runs.learn import learn
from unskew_reproductions.data import DataSet
from unskew_reproductions.recipe import Recipe
from unskew_reproductions.trial import How, Tried, arm_terms

LABELS = "labels"
"""The order that labels give, beside those of the methods."""
TEXT = (
    "Head and tail are the halves of ten buckets of queries by how often they were asked. A point is where "
    "documents that naive ranks there come to stand on average. The graphs are those that BAL went through."
)
TOP = 10
"""Ranks whose documents are followed."""
METRICS = tuple(f"{name}@{cutoff}" for name in ("dcg", "err") for cutoff in (1, 3, 5, 10))
"""What the paper reports."""


@dataclass(frozen=True)
class Learned:
    """What one arm gave with one seed."""

    scores: Array
    fit: Fit


def follow_pages(recipe: Recipe, chosen: Sequence[DataSet], how: How) -> Tried:
    """Train every arm with every seed, and look at head and tail, positions and graphs."""
    found = [_followed(recipe, source, how) for source in chosen]
    records = [record for _, records in found for record in records]
    return Tried(
        [section for section, _ in found], records, terms=arm_terms(how.asked(recipe, chosen[0]), labels=False)
    )


def _followed(recipe: Recipe, source: DataSet, how: How) -> tuple[Section, list[dict[str, Any]]]:
    asked = how.asked(recipe, source)
    lists, label = read_data(asked.file.data, Path()).train, next(iter(asked.behaviours))
    points = {arm.label: arm.points[0] for arm in asked.arms if not arm.points[0].reads_labels}
    total, runs, buckets = len(asked.seeds) * len(points), list[dict[str, Learned]](), list[Array]()
    for seed in asked.seeds:
        log = by_power_law(asked.simulation(label, seed).draw(lists), seed)
        buckets.append(frequency_buckets(np.bincount(log.query, minlength=len(lists))))
        runs.append({})
        for name, point in points.items():
            if how.tell is not None:
                how.tell(sum(map(len, runs)), total, [f"{name}, seed {seed}"])
            runs[-1][name] = _learned(point, log, seed)
    if how.tell is not None:
        how.tell(total, total, [])
    table, records = frequency_table(recipe, source, lists, runs, buckets)
    moved = _positions(lists, runs)
    graphs = [Figure(chart, scales=False) for chart in sequence_figures(graphs_of(runs[0].get("bal")))]
    records += [_record(source, p["method"], f"new position of rank {p['original']}", p["over"]) for p in moved]
    return Section(source.title, TEXT, [table], [Figure(position_figure(moved)), *graphs]), records


def _record(source: DataSet, method: str, metric: str, over: SeedSummary) -> dict[str, Any]:
    """A row of numbers.parquet."""
    measured = {"measured": over.mean, "sd": None if isnan(over.sd) else over.sd, "seeds": over.seeds}
    return {"data": source.name, "method": method, "metric": metric} | measured


def by_power_law(log: Log, seed: int, exponent: float = 1.0) -> Log:
    """As many pages of a log, drawn so that the k-th of its queries, in random order, is asked as 1/k is to 1."""
    rng = np.random.default_rng([seed, 11])
    queries = np.unique(log.query)
    share = np.zeros(queries.max() + 1)
    share[queries] = rng.permutation(1.0 / np.arange(1, len(queries) + 1) ** exponent)
    weight = share[log.query]
    kept = rng.choice(len(log), len(log), replace=True, p=weight / weight.sum())
    return log.take(np.sort(kept))


def _learned(point: Point, log: Log, seed: int) -> Learned:
    training = point.training.model_copy(update={"seed": seed})
    run = learn(log, point.method, ranker=point.ranker, training=training, engine="none")
    return Learned(run.score(log.lists), run.fit)


def frequency_table(
    recipe: Recipe, source: DataSet, lists: Lists, runs: Sequence[Mapping[str, Learned]], buckets: Sequence[Array]
) -> tuple[Table, list[dict[str, Any]]]:
    """Means of head and tail over seeds, and the same as records."""
    columns = [(metric, part) for metric in recipe.metrics for part in ("head", "tail")]
    rows, records, means = [], [], list[list[Value]]()
    for name in runs[0]:
        found = [
            measure_by_frequency(run[name].scores, lists, bucket, recipe.metrics)
            for run, bucket in zip(runs, buckets, strict=True)
        ]
        over = [mean_over_seeds([getattr(report, part)[metric] for report in found]) for metric, part in columns]
        for (metric, part), summary in zip(columns, over, strict=True):
            records.append(_record(source, name, f"{metric} {part}", summary))
        rows.append([name, *map(spread, over)])
        means.append([Value.of(summary) for summary in over])
    table = Table(
        ["method", *(f"{metric_title(metric)} {part}" for metric, part in columns)], rows, "Head and tail"
    )
    by_column = dict(enumerate((list(column) for column in zip(*means, strict=True)), start=1))
    lowest = [index for index, (metric, _) in enumerate(columns, start=1) if metric in LESS_IS_BETTER]
    return with_best(table, by_column, among="the methods", spread=SD_OVER_SEEDS, lowest=lowest), records


def _positions(lists: Lists, runs: Sequence[Mapping[str, Learned]]) -> list[dict[str, Any]]:
    """New position by original position of every arm and of labels, averaged over seeds."""
    points = []
    for name in (*(name for name in runs[0] if name != "naive"), LABELS):
        each = []
        for run in runs:
            scores = lists.labels if name == LABELS else run[name].scores
            each.append(new_positions(run["naive"].scores, scores, lists, TOP)[0])
        summaries = [mean_over_seeds(values) for values in np.transpose(each)]
        for rank, over in enumerate(summaries, start=1):
            if not isnan(over.mean):  # no list is as long
                points.append({"method": name, "original": rank, "new": over.mean, "over": over})
    return points


def sequence_figures(graphs: Sequence[tuple[int, CausalGraph]]) -> list[Any]:
    """The graphs of a training by step, those left out that repeat the one before."""
    drawn, before = [], None
    for step, graph in graphs:
        now = {(edge.cause, edge.effect, edge.directed) for edge in graph.edges}
        if now != before:
            drawn.append(graph_figure(graph, f"step {step}"))
        before = now
    return drawn


def position_figure(points: Sequence[Mapping[str, Any]]) -> Any:
    """Lines of new position by original position."""
    drawn = [
        {key: point[key] for key in ("method", "original", "new")}
        | {"says": f"{point['method']}: from {point['original']} to {point['new']:.2f}"}
        for point in points
    ]
    names = list(dict.fromkeys(point["method"] for point in points))
    colours = palette(["labeled" if name == LABELS else name for name in names])
    base = alt.Chart({"values": drawn}).encode(
        x=alt.X("original:Q", title="position under naive"),
        y=alt.Y("new:Q", title="average new position"),
        color=alt.Color(
            "method:N",
            scale=alt.Scale(domain=names, range=list(colours.values())),
            sort=names,
            legend=line_legend(),
        ),
        description="says:N",
    )
    told = f"Average new position by position under naive, of {listed(names)}; the numbers are in numbers.parquet."
    about = {"title": "Where documents move to", "description": told}
    return base.mark_line(point=True).properties(width=WIDTH, height=260, **about)


def graphs_of(learned: Learned | None) -> list[tuple[int, CausalGraph]]:
    """The graphs that a training went through, by step."""
    found = []
    for point in [] if learned is None else learned.fit.curve:
        edges = [(cause, effect) for cause, effect in point["notes"].get("graph", ())]
        names = dict.fromkeys(["relevance", *(end for edge in edges for end in edge), "click"])
        found.append((point["step"], graph_of(list(names), edges)))
    return found


# ---- by frequency, and where documents move to ----


@dataclass(frozen=True)
class FrequencyReport:
    """Means of each metric by how often queries are asked."""

    buckets: Mapping[str, Array]
    """[buckets] for each metric; NaN where a bucket has no query."""
    head: Mapping[str, float]
    tail: Mapping[str, float]
    queries: Array
    """[buckets] how many queries each has."""


def measure_by_frequency(
    scores: Array, lists: Lists, bucket: Array, metrics: Sequence[str] = METRICS, *, head: int | None = None
) -> FrequencyReport:
    """Metrics of a ranking [N] by the bucket of each query [Q]; the first `head` buckets, or half, are the head.

    Queries without a relevant document count 0, as DCG and ERR say.
    """
    bucket = np.asarray(bucket)
    if bucket.shape != (len(lists),) or (len(bucket) and (bucket < 0).any()):
        raise DataError(f"give a bucket from 0 on for each of {len(lists)} queries", path=lists.name)
    count = int(bucket.max(initial=-1)) + 1
    edge = -(-count // 2) if head is None else head
    per_query = measure_ranking(scores, lists, list(metrics), empty="zero").per_query
    return FrequencyReport(
        buckets=bucket_means(per_query, bucket, count),
        head={name: known_mean(values[bucket < edge]) for name, values in per_query.items()},
        tail={name: known_mean(values[bucket >= edge]) for name, values in per_query.items()},
        queries=np.bincount(bucket, minlength=count),
    )


def bucket_means(per_query: Mapping[str, Array], bucket: Array, count: int) -> dict[str, Array]:
    """The mean of each metric [Q] in each of so many buckets, without queries that are NaN.

    >>> bucket_means({"mrr": np.array([1.0, 0.5, np.nan])}, np.array([0, 1, 1]), 2)["mrr"].tolist()
    [1.0, 0.5]
    """
    return {name: np.array([known_mean(v[bucket == b]) for b in range(count)]) for name, v in per_query.items()}


def new_positions(original: Array, scores: Array, lists: Lists, top: int = 10) -> tuple[Array, Array]:
    """Where documents at the first ranks of `original` scores [N] come to stand by `scores`: mean and deviation.

    Both have an entry for each of the ranks 1 to `top`, [P]; NaN where no list is as long.

    >>> lists = Lists(np.zeros((3, 1)), np.array([0, 3]), np.zeros(3), np.array([1]))
    >>> new_positions(np.array([3, 2, 1]), np.array([1, 2, 3]), lists, top=2)[0].tolist()
    [3.0, 2.0]
    """
    before, after = ranks(original, lists), ranks(scores, lists)
    means, deviations = np.full((2, top), np.nan)
    for rank in range(1, top + 1):
        found = after[before == rank]
        if len(found):
            means[rank - 1], deviations[rank - 1] = found.mean(), found.std()
    return means, deviations


def ranks(scores: Array, lists: Lists) -> Array:
    """The rank of each document in its list by descending score, [N] from 1; ties in the order of the file."""
    by_place = RankedLists(np.asarray(scores, float), lists.offsets)
    order = np.lexsort((-by_place.labels, by_place.query))
    found = np.empty(len(order), np.int64)
    found[order] = by_place.rank
    return found
