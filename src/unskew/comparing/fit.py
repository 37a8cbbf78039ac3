"""Learning one cell of a comparison: with a method of ours, or with one of the packages' own rankers.

A tenth of the log's queries is held out whatever chooses the weights: every arm learns from the same pages.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from unskew.clicks.batches import Batches
from unskew.clicks.counts import reduce_log
from unskew.comparing.arms import Point
from unskew.comparing.data import Splits
from unskew.config import Settings
from unskew.learning.baselines import Baseline, BaselineConfig, fit_baseline
from unskew.learning.methods import MethodConfig
from unskew.learning.model import Model
from unskew.learning.rankers import Ranker
from unskew.measuring import ndcg_metric
from unskew.run import Data, click_likelihood, held_queries, run
from unskew.types import Array, Lists, Log

Found = tuple[dict[str, Any], Array]
"""Validation numbers, and scores of the test lists."""


def fit(point: Point, seed: int, scaling: str, log: Log, splits: Splits) -> Found:
    """Learn an arm with one combination of its settings."""
    held = held_queries(log, seed)
    apart = np.isin(log.query, held)
    train, held_out = log.take(~apart), log.take(apart)
    if isinstance(point.method, BaselineConfig):
        return _with_package(point, seed, train, held_out, splits)
    lists = splits.validation or (log.lists.take(held) if point.reads_labels else None)
    return _with_method(point, seed, scaling, Data(train, held_out, lists), splits.test)


def _with_method(point: Point, seed: int, scaling: str, data: Data, test: Lists) -> Found:
    """Learn with one of METHODS."""
    method, training = cast(MethodConfig, point.method), point.training.model_copy(update={"seed": seed})
    asked = Settings(method=method, ranker=cast(Ranker, point.ranker), scaling=scaling, training=training)
    by_labels = point.reads_labels or training.validate_on == "labels"
    chosen_on = Data(data.train, None, data.validation) if by_labels else Data(data.train, data.held_out, None)
    nothing = training.validate_on == "nothing"
    model, trained = run(asked, Data(data.train, None, None) if nothing else chosen_on)
    if trained.status == "interrupted":
        raise KeyboardInterrupt
    held_out = None if point.reads_labels else data.held_out
    found = {
        "steps": trained.step,
        "clicks": int(data.train.click.sum()),
        "validation_ndcg@10": None if data.validation is None else label_score(model, data.validation),
        "validation_click_loglikelihood": None if held_out is None else click_score(model, held_out),
    }
    return found, model.score(test)


def _with_package(point: Point, seed: int, train: Log, held_out: Log, splits: Splits) -> Found:
    """Learn with one of BASELINES; it has no click model, so held-out clicks choose by its nDCG on them."""
    method, on = cast(BaselineConfig, point.method), point.training.validate_on
    chosen_by = {"clicks": held_out, "labels": splits.validation, "nothing": None}[on]
    options = method.model_dump(exclude={"name"}) | {"threads": method.threads or point.training.threads}
    model = fit_baseline(method.name, train, chosen_by, seed, **options)
    found = {
        "steps": model.rounds,
        "clicks": int(train.click.sum()),
        "validation_ndcg@10": None if splits.validation is None else label_score(model, splits.validation),
        "validation_click_ndcg@10": click_ndcg(model, held_out),
    }
    return found, model.score(splits.test)


def label_score(model: Model | Baseline, lists: Lists) -> float | None:
    """nDCG@10 on labelled lists."""
    return _mean(ndcg_metric(model.score(lists), lists.labels, offsets=lists.offsets, at=10))


def click_ndcg(model: Baseline, log: Log) -> float | None:
    """nDCG@10 of the pages of a log, by their clicks."""
    scores = model.score(log.lists)[log.row]
    return _mean(ndcg_metric(scores, log.click.astype(np.int64), offsets=log.offsets, at=10))


def _mean(values: Array) -> float | None:
    return None if np.isnan(values).all() else float(np.nanmean(values))


def click_score(model: Model, log: Log) -> float | None:
    """Mean log-probability of a click among the results of its page."""
    scaled = np.asarray(model.scaler.apply(log.lists).features, np.float32)
    parameter = next(iter(model.ranker.parameters()), None)  # trees have none
    counts = reduce_log(log, serp=model.method_config.serp)
    batches = Batches(counts, scaled, size=4096, device="cpu" if parameter is None else parameter.device)
    value = click_likelihood(model, batches)
    return float(value) if np.isfinite(value) else None
