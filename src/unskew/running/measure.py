"""Measure a run: ranking metrics on labelled lists, a paired comparison, and how well it predicts clicks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from unskew.checking import known
from unskew.clicks.counts.batches import Batches
from unskew.clicks.counts.reduction import reduce_log
from unskew.clicks.log import read_log
from unskew.clicks.naming import Columns
from unskew.clicks.opening import check_log
from unskew.errors import ConfigError, DataError
from unskew.learning.model import Model, load
from unskew.learning.scorer import Scorer
from unskew.measuring import (
    DEFAULT_METRICS,
    Empty,
    PageNdcg,
    auc_metric,
    click_loglikelihood_metric,
    measure_ranking,
    page_ndcg_metric,
    paired_bootstrap,
    paired_t_test,
    perplexity_by_rank_metric,
    perplexity_metric,
    rank_weights,
)
from unskew.measuring.frequency import bucket_means
from unskew.running.choosing import click_likelihood
from unskew.running.frequency import QueryFrequency
from unskew.running.lists import read_lists, texts_for, tracked_lists
from unskew.running.naming import names_for
from unskew.running.run import Run
from unskew.types import Array, Lists, Log

Files = Path | str | Sequence[Path | str]
Measured = Run | Scorer | Path | str
CUTS = (5, 10)
"""Cut-offs of the nDCG of logged pages."""


def measure(
    run: Measured,
    lists: Lists | Files,
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    empty: str = "skip",
    against: Measured | None = None,
    log: Log | Path | str | None = None,
    outcomes: Sequence[str] = (),
    by_frequency: Log | Path | str | None = None,
    buckets: int | None = None,
    doc_ids: bool = False,
    tracked: Path | str | None = None,
    columns: Columns | None = None,
) -> dict[str, Any]:
    """Ranking metrics of a run on labelled lists; a paired comparison and click metrics where asked for.

    Runs are what `learn` and `load` return, or folders; lists and the log data in memory or files. `empty` says
    what a query without a relevant document counts: skip, zero or one. `outcomes` are columns of the log, such as
    installs, that the pages are measured by besides clicks. `by_frequency` is a log that says how often each query
    is asked: metrics then come for so many `buckets` of queries too; the usual three are head, middle and tail.
    `tracked` is a tracking store whose clicks are features of the lists, as those that the run was trained with.
    `columns` says theirs for ours where files have other names.
    """
    if buckets is not None and by_frequency is None:
        raise ConfigError("buckets= are of queries by frequency: give by_frequency= too")
    if outcomes and log is None:
        raise ConfigError("outcomes= are columns of a log: give log= too")
    convention = cast(Empty, known("empty", empty, dict.fromkeys(("skip", "zero", "one"))))
    model, columns = _model(run), names_for(run, columns)
    named = None if log is None or isinstance(log, Log) else check_log(Path(log), columns)
    if not isinstance(lists, Lists):
        files = [lists] if isinstance(lists, str | Path) else lists
        logs = [Path(log)] if isinstance(log, str | Path) else []
        texts = texts_for(files) if model.reads else None
        lists = read_lists(files, doc_ids, texts, columns=columns, candidates=logs, taken=model.taken)
    lists = tracked_lists(model, lists, tracked)
    report = measure_ranking(model.score(lists), lists, metrics, empty=convention)
    result: dict[str, Any] = {"run": _name(run), "ranking": report.to_dict()}
    if against is not None:
        other = measure_ranking(_model(against).score(lists), lists, metrics, empty=convention)
        compared = {name: _paired(report.per_query[name], other.per_query[name]) for name in report.per_query}
        result["against"] = {"run": _name(against), "metrics": compared}
    if by_frequency is not None:
        frequency = QueryFrequency(by_frequency, lists, buckets, columns)
        both = report.per_query, None if against is None else other.per_query
        result["frequency"] = measure_buckets(frequency, *both)
    if log is not None:
        shown = log if isinstance(log, Log) else read_log(Path(log), lists, columns=named)
        pages = measure_pages(model, shown, outcomes)
        result["pages"] = {name: finite(found.mean) for name, found in pages.items()}
        if against is not None:
            others = measure_pages(_model(against), shown, outcomes)
            result["against"]["pages"] = {name: _paired(pages[name].shares, others[name].shares) for name in pages}
        if isinstance(model, Model):  # a package ranks and has no click model
            result["clicks"] = measure_clicks(model, shown)
    return result


def measure_buckets(
    frequency: QueryFrequency, per_query: Mapping[str, Array], others: Mapping[str, Array] | None = None
) -> dict[str, Any]:
    """Metrics [Q] of each bucket of queries, and how they differ from another run's."""
    means = bucket_means(per_query, frequency.bucket, len(frequency.names))
    found = frequency.facts()
    for number, name in enumerate(frequency.names):
        part = frequency.bucket == number
        found[name]["means"] = {metric: finite(values[number]) for metric, values in means.items()}
        if others is not None:
            paired = {metric: _paired(per_query[metric][part], others[metric][part]) for metric in per_query}
            found[name]["against"] = paired
    return found


def _model(run: Measured) -> Scorer:
    return run.model if isinstance(run, Run) else run if isinstance(run, Scorer) else load(run)


def _name(run: Measured) -> str:
    scorer = run.model if isinstance(run, Run) else run
    return str(scorer.card.method["name"]) if isinstance(scorer, Scorer) else str(scorer)


def _paired(first: Array, second: Array) -> dict[str, Any]:
    test, interval = paired_t_test(first, second), paired_bootstrap(first, second)
    return {
        "difference": finite(test.difference),
        "interval": [finite(interval.low), finite(interval.high)],
        "p": finite(test.p),
    }


def finite(value: float) -> float | None:
    """The number, None in the place of one that JSON does not have."""
    return float(value) if np.isfinite(value) else None


def measure_pages(model: Scorer, log: Log, outcomes: Sequence[str] = ()) -> dict[str, PageNdcg]:
    """How well a run orders the results of the pages, by clicks and other columns, raw and corrected for rank."""
    missing = [name for name in outcomes if name not in log.columns]
    if missing:
        known("outcome", missing[0], log.columns)
    scores, weights = model.score(log.lists)[log.row], rank_weights(log.click, log.position)
    found = {}
    for name, column in {"clicks": log.click, **{name: log.columns[name] for name in outcomes}}.items():
        for at, kind in product(CUTS, ("nDCG", "IPS-nDCG")):
            by = weights if kind == "IPS-nDCG" else None
            found[f"{kind}@{at} of {name}"] = page_ndcg_metric(
                scores, outcome_values(name, column), offsets=log.offsets, weights=by, at=at
            )
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


def measure_clicks(model: Model, log: Log) -> dict[str, Any]:
    """How well the run's click model predicts a log; probabilities only where the method has them."""
    model.ranker.cpu()
    model.method.cpu()
    counts = reduce_log(log, presentation=model.presentation)
    batches = Batches(counts, model.input(log.lists), size=4096)
    result: dict[str, Any] = {"log-likelihood of a click in its list": finite(click_likelihood(model, batches))}
    with torch.no_grad():
        found = [
            model.method.click_probability(batch.pad(model.ranker(batch.documents)), batch)
            for batch in batches.in_order()
        ]
    parts = [part for part in found if part is not None]
    if len(parts) == len(found):
        p, n, c = torch.cat(parts).numpy(), counts.impressions, counts.clicks
        by_rank = perplexity_by_rank_metric(p, c, positions=counts.position, impressions=n)
        result |= {
            "log-likelihood of an impression": finite(click_loglikelihood_metric(p, c, impressions=n)),
            "perplexity": finite(perplexity_metric(p, c, impressions=n)),
            "perplexity by rank": [finite(value) for value in by_rank],
            "AUC": finite(auc_metric(p, c, impressions=n)),
        }
    return result
