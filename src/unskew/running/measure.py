"""Measure a run: ranking metrics on labelled lists, a paired comparison, and how well it predicts clicks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from unskew.checking import known
from unskew.clicks.counts.batches import Batches
from unskew.clicks.counts.reduction import reduce_log
from unskew.clicks.log import read_log
from unskew.learning.model import Model, load
from unskew.learning.scorer import Scorer
from unskew.measuring import (
    DEFAULT_METRICS,
    Empty,
    auc_metric,
    click_loglikelihood_metric,
    measure_ranking,
    paired_bootstrap,
    paired_t_test,
    perplexity_by_rank_metric,
    perplexity_metric,
)
from unskew.running.choosing import click_likelihood, click_ndcg
from unskew.running.files import read_lists, texts_for
from unskew.running.run import Run
from unskew.types import Array, Lists, Log

Files = Path | str | Sequence[Path | str]
Measured = Run | Scorer | Path | str


def measure(
    run: Measured,
    lists: Lists | Files,
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    empty: str = "skip",
    against: Measured | None = None,
    log: Log | Path | str | None = None,
    doc_ids: bool = False,
) -> dict[str, Any]:
    """Ranking metrics of a run on labelled lists; a paired comparison and click metrics where asked for.

    Runs are what `learn` and `load` return, or folders; lists and the log data in memory or files. `empty` says
    what a query without a relevant document counts: skip, zero or one.
    """
    convention = cast(Empty, known("empty", empty, dict.fromkeys(("skip", "zero", "one"))))
    model = _model(run)
    if not isinstance(lists, Lists):
        files = [lists] if isinstance(lists, str | Path) else lists
        lists = read_lists(files, doc_ids, texts_for(files) if model.reads else None)
    report = measure_ranking(model.score(lists), lists, metrics, empty=convention)
    result: dict[str, Any] = {"run": _name(run), "ranking": report.to_dict()}
    if against is not None:
        other = measure_ranking(_model(against).score(lists), lists, metrics, empty=convention)
        compared = {name: _paired(report.per_query[name], other.per_query[name]) for name in report.per_query}
        result["against"] = {"run": _name(against), "metrics": compared}
    if log is not None:
        result["clicks"] = measure_clicks(model, log if isinstance(log, Log) else read_log(Path(log), lists))
    return result


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


def measure_clicks(model: Scorer, log: Log) -> dict[str, Any]:
    """How well the run's click model predicts a log; probabilities only where the method has them."""
    if not isinstance(model, Model):  # a package ranks and has no click model
        return {"nDCG@10 of clicks": finite(click_ndcg(model, log))}
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
