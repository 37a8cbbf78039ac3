"""How well a model foretells clicks: their likelihood, their perplexity by rank, and how it tells them apart."""

import torch

from unskew.learning.losses import list_log_softmax
from unskew.learning.scoring.model import Model
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.reduction import reduce_log
from unskew.measuring import auc_metric, click_loglikelihood_metric, perplexity_by_rank_metric, perplexity_metric
from unskew.types import Log


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


def measure_clicks(model: Model, log: Log) -> dict[str, float | list[float]]:
    """How well the run's click model predicts a log; probabilities only where the method has them."""
    model.ranker.cpu()
    model.method.cpu()
    counts = reduce_log(log, presentation=model.presentation)
    batches = Batches(counts, model.input(log.lists), size=4096)
    result: dict[str, float | list[float]] = {}
    result["log-likelihood of a click in its list"] = click_likelihood(model, batches)
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
            "log-likelihood of an impression": click_loglikelihood_metric(p, c, impressions=n),
            "perplexity": perplexity_metric(p, c, impressions=n),
            "perplexity by rank": by_rank.tolist(),
            "AUC": auc_metric(p, c, impressions=n),
        }
    return result
