"""A ranking measured on labelled lists: metrics, a paired comparison, query frequency, clicks of a log of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np

from unskew.errors import ConfigError, DataError, Option
from unskew.learning.scoring.model import Model
from unskew.logs.reader import AnyLog, StoredLog, TableLog, open_log, opened, place_of
from unskew.measuring import Empty, PageNdcg, measure_ranking, page_ndcg_metric, rank_weights
from unskew.measuring.measurement import Bucket, Compared, Measurement, Paired
from unskew.measuring.ranking import known_mean
from unskew.names import NO_NAMES, Names
from unskew.settings import known
from unskew.tables.engine.engine import connect
from unskew.tables.frames import arrow_table, is_frame
from unskew.tables.joins import encodable, match
from unskew.tables.schema import to_array
from unskew.types import Array, Lists, Log
from unskew.workflows.inputs.rankings import ModelRanking, Ranking, ShownRanking, documents
from unskew.workflows.proofs.clicks import measure_clicks

NAMES = ("head", "middle", "tail")
"""What three buckets are called; more or fewer are numbered from 1."""


def measured_buckets(
    asked: Array, buckets: int | None, per_query: Mapping[str, Array], others: Mapping[str, Array] | None
) -> dict[str, Bucket]:
    """Metrics [Q] by how often each query was asked [Q], in buckets, and how another ranking differs there."""
    count = len(NAMES) if buckets is None else buckets
    if not 1 <= count <= len(asked):
        what = f"give one to as many as the lists have queries, {len(asked)}"
        raise ConfigError(what, argument="buckets", value=count)
    bucket, found = frequency_buckets(asked, count), {}
    for number in range(count):
        part = bucket == number
        pages, own = asked[part], {metric: known_mean(values[part]) for metric, values in per_query.items()}
        compared = None
        if others is not None:
            compared = {metric: Paired.of(per_query[metric][part], others[metric][part]) for metric in own}
        name = NAMES[number] if count == len(NAMES) else str(number + 1)
        found[name] = Bucket(len(pages), int(pages.sum()), int(pages.min()), int(pages.max()), own, compared)
    return found


def frequency_buckets(counts: Array, buckets: int = 10) -> Array:
    """The bucket of each query [Q], from 0 for the most frequent, as many queries in each as go; ties in order.

    >>> frequency_buckets(np.array([5, 90, 1, 30]), buckets=2).tolist()
    [1, 0, 1, 0]
    """
    found = np.empty(len(counts), np.int64)
    found[np.argsort(-counts, kind="stable")] = np.arange(len(counts)) * buckets // max(len(counts), 1)
    return found


def pages_per_query(log: AnyLog, lists: Lists, names: Names = NO_NAMES) -> Array:
    """Pages of a log for each query of the lists, [Q]; counted on the engine where it is in files."""
    if isinstance(log, Log):
        ids, pages = encodable(log.lists.query_ids), np.bincount(log.query, minlength=len(log.lists))
    else:
        needed = ("page_id", "query_id")
        names = names.within(arrow_table(log).column_names) if is_frame(log) else names.only(needed)
        with connect() as engine, open_log(engine, log, names, needed) as table:
            counted = table.group_by("query_id").aggregate(pages=table["page_id"].nunique())
            found = engine.to_arrow(counted.filter(counted["query_id"].notnull()))
        ids, pages = found["query_id"], to_array(found["pages"])
    at = match(ids, lists.query_ids)
    counts = np.zeros(len(lists), np.int64)
    np.add.at(counts, at[at >= 0], pages[at >= 0])
    if not counts.any():
        theirs = f"such as {ids[0].as_py()}" if len(ids) else "none at all"
        raise DataError(
            f"none of its queries ({theirs}) is one of the {len(lists)} measured, such as {lists.query_ids[0]}",
            path=place_of(log),
            hint="give the log of a time when these queries were asked",
        )
    return counts


Files = Path | str | Sequence[Path | str]
CUTS = (5, 10)
"""Cut-offs of the nDCG of logged pages."""


def measure_lists(
    new: Ranking,
    other: Ranking | None,
    lists: Lists | Files,
    log: AnyLog | None,
    *,
    metrics: Sequence[str],
    empty: str,
    outcomes: Sequence[str],
    by_frequency: AnyLog | None,
    buckets: int | None,
    names: Names,
    doc_ids: bool,
    tracked: Path | str | None,
) -> tuple[Measurement, Log | None]:
    """Ranking metrics, a paired comparison, buckets of queries and click metrics; and the log, opened."""
    convention = cast(Empty, known("empty", empty, dict.fromkeys(("skip", "zero", "one"))))
    judged = opened(log, names, shared=True)
    model = new.model if isinstance(new, ModelRanking) else None
    shown_by = judged.candidates if isinstance(judged, StoredLog | TableLog) else None
    how: dict[str, Any] = {"doc_ids": doc_ids, "tracked": tracked}
    lists = documents(model, lists, names, candidates=shown_by, **how)
    report = measure_ranking(_scores(new, lists), lists, metrics, empty=convention)
    against, others = None if other is None else Compared(other.name), None
    if other is not None and against is not None and not isinstance(other, ShownRanking):
        others = measure_ranking(_scores(other, lists), lists, metrics, empty=convention).per_query
        tests = {name: Paired.of(values, others[name]) for name, values in report.per_query.items()}
        against = replace(against, metrics=tests)
    found = Measurement(new.name, against, report)
    if by_frequency is not None:
        asked = pages_per_query(by_frequency, lists, names)
        found = replace(found, frequency=measured_buckets(asked, buckets, report.per_query, others))
    shown = judged.log(lists) if isinstance(judged, StoredLog | TableLog) else judged
    if not isinstance(shown, Log):
        return found, None
    scores = _scores(new, shown.lists)
    pages = measure_pages(scores, shown, outcomes)
    if other is not None and against is not None and others is not None:
        beside = measure_pages(_scores(other, shown.lists), shown, outcomes)
        compared = {name: Paired.of(pages[name].shares, beside[name].shares) for name in pages}
        found = replace(found, against=replace(against, pages=compared))
    # a package ranks and has no click model
    clicks = measure_clicks(model, shown) if isinstance(model, Model) else None
    means = {name: each.mean for name, each in pages.items()}
    return replace(found, pages=means, clicks=clicks), shown


def _scores(ranking: Ranking, lists: Lists) -> Array:
    scores = ranking.of_documents(lists)
    if scores is None:
        what = "what was shown has no order of whole lists: measure it by "
        raise ConfigError((what, Option("log"), " alone, or as ", Option("against")))
    if missing := int(np.isnan(scores).sum()):
        what = f"{missing:,} of {len(scores):,} documents of {lists.name} have no score"
        raise DataError(what, path=ranking.name, hint="score all of them, or give other lists")
    return scores


def measure_pages(known_scores: Array, log: Log, outcomes: Sequence[str] = ()) -> dict[str, PageNdcg]:
    """How well scores of documents order the results of pages, by clicks and other columns, raw and corrected."""
    for name in outcomes:
        known("outcome", name, log.columns)
    scores, weights = known_scores[log.row], rank_weights(log.click, log.position)
    found = {}
    for name, column in {"clicks": log.click, **{name: log.columns[name] for name in outcomes}}.items():
        for at, kind in product(CUTS, ("nDCG", "IPS-nDCG")):
            by, values = weights if kind == "IPS-nDCG" else None, outcome_values(name, column)
            ndcg = page_ndcg_metric(scores, values, offsets=log.offsets, weights=by, at=at)
            found[f"{kind}@{at} of {name}"] = ndcg
    return found


def outcome_values(name: str, column: Array) -> Array:
    """A column as numbers from 0, none where it is empty."""
    try:
        values = np.nan_to_num(np.asarray(column, np.float64), nan=0.0)
    except (TypeError, ValueError):
        raise DataError(f"column {name} is no outcome: it has other values than numbers") from None
    if not (np.isfinite(values) & (values >= 0)).all():
        raise DataError(f"column {name} is no outcome: it has values below 0")
    return values
