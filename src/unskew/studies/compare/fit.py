"""Learning one cell of a comparison, with a method of ours or with a package.

A tenth of the log's queries is held out whatever chooses the weights: every arm learns from the same pages.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from unskew.learning.scoring.model import Model
from unskew.learning.scoring.scorer import Scorer
from unskew.measuring import ndcg_metric, page_ndcg_metric, rank_weights
from unskew.studies.compare.arms import Point
from unskew.studies.compare.data import ListParts
from unskew.types import Array, Lists, Log
from unskew.workflows.proofs.measure_lists import finite
from unskew.workflows.runs.choosing import click_likelihood, click_ndcg
from unskew.workflows.runs.data import LogData, held_queries
from unskew.workflows.runs.run import run
from unskew.workflows.runs.settings import Settings

Fitted = tuple[dict[str, Any], Array]
"""Validation numbers, and scores of the test lists."""


def fit(point: Point, seed: int, scaling: str, log: Log, splits: ListParts) -> Fitted:
    """Learn an arm with one combination of its settings; packages take features as they are."""
    held = held_queries(log, seed)
    apart = np.isin(log.query, held)
    train, held_out = log.take(~apart), log.take(apart)
    lists = splits.validation or (log.lists.take(held) if point.reads_labels else None)
    training = point.training.model_copy(update={"seed": seed})
    scaling = "none" if point.ranker is None else scaling
    asked = Settings(method=point.method, ranker=point.ranker, scaling=scaling, training=training)
    by = "labels" if point.reads_labels and training.validate_on == "clicks" else training.validate_on
    chosen_by = {"clicks": (held_out, None), "labels": (None, lists), "nothing": (None, None)}[by]
    done = run(asked, LogData(train, *chosen_by))
    model, trained = done.model, done.fit
    if trained.status == "interrupted":
        raise KeyboardInterrupt
    found = {
        "steps": trained.step,
        "clicks": int(train.click.sum()),
        "validation_ndcg@10": None if lists is None else label_score(model, lists),
        "validation_ips_ndcg@10": page_score(model, held_out),
    }
    if not isinstance(model, Model):  # it has no click model, so held-out clicks choose by its nDCG on them
        found["validation_click_ndcg@10"] = finite(click_ndcg(model, held_out))
    else:
        found["validation_click_loglikelihood"] = None if point.reads_labels else click_score(model, held_out)
    return found, model.score(splits.test)


def label_score(model: Scorer, lists: Lists) -> float | None:
    """nDCG@10 on labelled lists."""
    values = ndcg_metric(model.score(lists), lists.labels, offsets=lists.offsets, at=10)
    return None if np.isnan(values).all() else float(np.nanmean(values))


def page_score(model: Scorer, log: Log) -> float | None:
    """nDCG@10 of the pages by their clicks, corrected for rank by the average clicks there."""
    scores, weights = model.score(log.lists)[log.row], rank_weights(log.click, log.position)
    return finite(page_ndcg_metric(scores, log.click, offsets=log.offsets, weights=weights).mean)


def click_score(model: Model, log: Log) -> float | None:
    """Mean log-probability of a click among the results of its page."""
    device = next(model.ranker.parameters()).device
    batches = LogData(log, log).held_out_batches(model, device)
    return None if batches is None else finite(click_likelihood(model, batches))
