"""A ranking measured on labelled lists: metrics, a paired comparison, query frequency, clicks of a log of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from unskew.errors import ConfigError, DataError, Option
from unskew.learning.scoring.model import Model
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.reduction import reduce_log
from unskew.logs.opening import StoredLog, open_log
from unskew.measuring import (
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
from unskew.measuring.cmip import left_of_logging
from unskew.measuring.frequency import bucket_means, frequency_buckets
from unskew.names import Names
from unskew.settings import known
from unskew.tables.engine.engine import connect
from unskew.tables.joining import encodable, match
from unskew.tables.schema import to_array
from unskew.tracking.tracked import with_tracked
from unskew.types import Array, Lists, Log
from unskew.workflows.inputs.lists import read_lists, texts_for
from unskew.workflows.inputs.rankings import ModelRanking, Ranking, ShownRanking
from unskew.workflows.runs.choosing import click_likelihood

# ---- Metrics by how often queries are asked: counted in a log, dealt into buckets, each bucket measured


NAMES = ("head", "middle", "tail")
"""What three buckets are called; more or fewer are numbered from 1."""


class QueryFrequency:
    """How often each query was asked, and the bucket that it falls into."""

    def __init__(
        self,
        log: Log | Path | str,
        lists: Lists,
        buckets: int | None = None,
        columns: Mapping[str, str] | None = None,
    ) -> None:
        buckets = len(NAMES) if buckets is None else buckets
        if not 1 <= buckets <= len(lists):
            raise ConfigError(
                f"give one to as many as the lists have queries, {len(lists)}", argument="buckets", value=buckets
            )
        self.pages = pages_per_query(log, lists, columns)
        """[Q] pages of the log."""
        self.bucket = frequency_buckets(self.pages, buckets)
        """[Q] from 0 for the most frequent."""
        self.names = NAMES if buckets == len(NAMES) else tuple(str(number + 1) for number in range(buckets))

    def facts(self) -> dict[str, dict[str, Any]]:
        """Queries and pages of each bucket, and how often its rarest and its commonest query was asked."""
        each = {name: self.pages[self.bucket == number] for number, name in enumerate(self.names)}
        return {
            name: {"queries": len(pages), "pages": int(pages.sum())}
            | {"least": int(pages.min()), "most": int(pages.max())}
            for name, pages in each.items()
        }


def pages_per_query(log: Log | Path | str, lists: Lists, columns: Mapping[str, str] | None = None) -> Array:
    """Pages of a log for each query of the lists, [Q]; counted on the engine where it is in files."""
    if isinstance(log, Log):
        ids, pages = encodable(log.lists.query_ids), np.bincount(log.query, minlength=len(log.lists))
    else:
        needed = ("page_id", "query_id")
        with connect() as engine, open_log(engine, log, Names.of(columns).only(needed), needed) as table:
            counted = table.group_by("query_id").aggregate(pages=table["page_id"].nunique())
            found = engine.to_arrow(counted.filter(counted["query_id"].notnull()))
        ids, pages = found["query_id"], to_array(found["pages"])
    return _of_lists(ids, pages, lists, "the log" if isinstance(log, Log) else log)


def _of_lists(ids: Any, pages: Array, lists: Lists, place: Path | str) -> Array:
    """Counts [Q] in the order of the lists."""
    at = match(ids, lists.query_ids)
    counts = np.zeros(len(lists), np.int64)
    np.add.at(counts, at[at >= 0], pages[at >= 0])
    if not counts.any():
        theirs = f"such as {ids[0].as_py()}" if len(ids) else "none at all"
        raise DataError(
            f"none of its queries ({theirs}) is one of the {len(lists)} measured, such as {lists.query_ids[0]}",
            path=place,
            hint="give the log of a time when these queries were asked",
        )
    return counts


# ----


Files = Path | str | Sequence[Path | str]
CUTS = (5, 10)
"""Cut-offs of the nDCG of logged pages."""


@dataclass(frozen=True)
class ListsAsked:
    """What is asked of labelled lists."""

    metrics: Sequence[str]
    empty: str
    outcomes: Sequence[str]
    by_frequency: Log | Path | str | None
    buckets: int | None
    columns: Mapping[str, str]
    doc_ids: bool
    tracked: Path | str | None


def measure_lists(
    asked: ListsAsked, new: Ranking, other: Ranking | None, lists: Lists | Files, log: Log | Path | str | None
) -> tuple[dict[str, Any], Log | None]:
    """Ranking metrics, a paired comparison, buckets of queries and click metrics; and the log, opened."""
    convention = cast(Empty, known("empty", asked.empty, dict.fromkeys(("skip", "zero", "one"))))
    stored = StoredLog.open(log, asked.columns, shared=True) if isinstance(log, str | Path) else None
    lists = _lists(asked, new, lists, log)
    report = measure_ranking(_scores(new, lists), lists, asked.metrics, empty=convention)
    result: dict[str, Any] = {"ranking": report.to_dict()}
    compared = None if other is None or isinstance(other, ShownRanking) else _scores(other, lists)
    if compared is not None:
        others = measure_ranking(compared, lists, asked.metrics, empty=convention).per_query
        tests = {name: _paired(report.per_query[name], others[name]) for name in report.per_query}
        result["against"] = {"metrics": tests}
    if asked.by_frequency is not None:
        frequency = QueryFrequency(asked.by_frequency, lists, asked.buckets, asked.columns)
        result["frequency"] = measure_buckets(frequency, report.per_query, None if compared is None else others)
    shown = stored.log(lists) if stored is not None else log if isinstance(log, Log) else None
    if shown is None:
        return result, None
    pages = measure_pages(_scores(new, shown.lists), shown, asked.outcomes)
    result["pages"] = {name: finite(found.mean) for name, found in pages.items()}
    if (left := left_of_logging(_scores(new, shown.lists), shown)) is not None:
        result["cmip"] = left.to_dict()
    if other is not None and compared is not None:
        beside = measure_pages(_scores(other, shown.lists), shown, asked.outcomes)
        result["against"]["pages"] = {name: _paired(pages[name].shares, beside[name].shares) for name in pages}
    if isinstance(new, ModelRanking) and isinstance(new.model, Model):  # a package ranks and has no click model
        result["clicks"] = measure_clicks(new.model, shown)
    return result, shown


def _lists(asked: ListsAsked, new: Ranking, lists: Lists | Files, log: Log | Path | str | None) -> Lists:
    """Labelled lists, with the features that a model takes."""
    model = new.model if isinstance(new, ModelRanking) else None
    if not isinstance(lists, Lists):
        files = [lists] if isinstance(lists, str | Path) else lists
        logs = [Path(log)] if isinstance(log, str | Path) else []
        texts = texts_for(files) if model is not None and model.reads else None
        taken = None if model is None else model.taken
        lists = read_lists(files, asked.doc_ids, texts, columns=asked.columns, candidates=logs, taken=taken)
    return lists if asked.tracked is None else with_tracked(lists, asked.tracked)


def _scores(ranking: Ranking, lists: Lists) -> Array:
    """A score of every document of the lists."""
    scores = ranking.of_documents(lists)
    if scores is None:
        raise ConfigError(
            (
                "what was shown has no order of whole lists: measure it by ",
                Option("log"),
                " alone, or as ",
                Option("against"),
            )
        )
    if missing := int(np.isnan(scores).sum()):
        what = f"{missing:,} of {len(scores):,} documents of {lists.name} have no score"
        raise DataError(what, path=ranking.name, hint="score all of them, or give other lists")
    return scores


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


def measure_pages(known_scores: Array, log: Log, outcomes: Sequence[str] = ()) -> dict[str, PageNdcg]:
    """How well scores of documents order the results of pages, by clicks and other columns, raw and corrected."""
    missing = [name for name in outcomes if name not in log.columns]
    if missing:
        known("outcome", missing[0], log.columns)
    scores, weights = known_scores[log.row], rank_weights(log.click, log.position)
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
