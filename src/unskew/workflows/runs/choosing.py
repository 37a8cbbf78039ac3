"""What weights are chosen by: nDCG@10 on labelled lists, or held-out clicks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from unskew.errors import DataError, Option
from unskew.learning.losses import list_log_softmax
from unskew.learning.scoring.model import Model
from unskew.learning.scoring.scorer import Scorer
from unskew.logs.counts.batches import Batches
from unskew.measuring import measure_ranking
from unskew.types import Array, Lists, Log
from unskew.workflows.runs.data import TrainingData


def label_choice(scorer: Scorer, lists: Lists) -> Callable[[], float]:
    """nDCG@10 on labelled lists, prepared once."""
    if not (lists.labels > 0).any():
        raise DataError(
            "no validation document has a grade above 0, so labels cannot choose weights", path=lists.name
        )
    documents = scorer.prepared(lists)

    def choice() -> float:
        return _ndcg(scorer.score_prepared(documents, lists.sizes), lists.labels, lists.offsets)

    return choice


def click_choice(model: Model, data: TrainingData, device: torch.device) -> Callable[[], float]:
    """The likelihood of held-out clicks."""
    batches = data.held_out_batches(model, device)
    if batches is None:
        raise DataError(
            "the held-out pages have no click, so clicks cannot choose weights",
            path=data.documents.name,
            hint=("give ", Option("validation"), ", or ", Option("validate_on", "nothing")),
        )
    alone = batches.position.shape[1] == 1  # which result of a page is clicked says nothing where there is one
    return lambda: impression_likelihood(model, batches) if alone else click_likelihood(model, batches)


def click_likelihood(model: Model, batches: Batches) -> float:
    """Mean log-probability of the clicked slot among those shown, under the model's click scores."""
    total = clicks = 0.0
    with torch.no_grad():
        for batch in batches.in_order():
            scores = model.method.click_scores(batch.pad(model.ranker(batch.documents)), batch)
            total += (batch.clicks * list_log_softmax(scores, batch.where)).sum().item()
            clicks += batch.clicks.sum().item()
    return total / clicks if clicks else float("nan")


def impression_likelihood(model: Model, batches: Batches) -> float:
    """Mean log-probability of what happened to each result, clicked or not; NaN where the model has none."""
    total = shown = 0.0
    with torch.no_grad():
        for batch in batches.in_order():
            p = model.method.click_probability(batch.pad(model.ranker(batch.documents)), batch)
            if p is None:
                return float("nan")
            c, n = batch.clicks, batch.impressions
            log_p = torch.special.xlogy(c, p) + torch.special.xlog1py(n - c, -p)
            total += torch.where(batch.where, log_p, 0.0).sum().item()
            shown += n.sum().item()
    return total / shown


def click_ndcg(scorer: Scorer, log: Log) -> float:
    """nDCG@10 of the pages of a log, by their clicks: how well a model without a click model ranks them."""
    return _ndcg(scorer.score(log.lists)[log.row], log.click.astype(np.int64), log.offsets)


def _ndcg(scores: Array, labels: Array, offsets: Array) -> float:
    return measure_ranking(scores, (labels, offsets), "ndcg@10").means["ndcg@10"]
