"""Measures with their uncertainty: click curves, held-out likelihood and nDCG, resampled by visit.

Pages of one visit are of one person and vary together, so visits are drawn, not pages. A draw is a row of weights
[R, V], how often each visit came; sums over visits are then one matrix product.

Legend: N impressions, S pages, V visits, K ranks, R draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import rankdata

from unskew import Log, Model
from unskew.learning.losses import list_log_softmax
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.reduction import reduce_log
from unskew.measuring import ndcg_metric
from unskew.tables.lists.inputs import Vectors
from unskew.types import Array


def visits_of(log: Log) -> Array:
    """The visit of each page [S], as a number from 0."""
    codes: Array = np.unique(log.columns["visit_id"][log.offsets[:-1]], return_inverse=True)[1]
    return codes


def draw_visits(visits: int, draws: int, seed: int = 0) -> Array:
    """Weights [1 + R, V]: all visits once, then R draws with replacement."""
    drawn = np.random.default_rng(seed).multinomial(visits, np.full(visits, 1 / visits), size=draws)
    return np.vstack([np.ones((1, visits)), drawn])


def by_visit(values: Array, visit: Array) -> Array:
    """Sums of pages' values [S, ...] over their visits, [V, ...]."""
    sums: Array = np.zeros((visit.max() + 1, *values.shape[1:]))
    np.add.at(sums, visit, values)
    return sums


# ---- click rate by rank ----


def click_curves(log: Log, draws: int) -> Array:
    """Click rate by rank, [1 + R, K]: of the log, and of R draws of its visits."""
    page, ranks = np.repeat(np.arange(len(log)), log.sizes), int(log.position.max())
    clicks, shown = np.zeros((2, len(log), ranks))
    clicks[page, log.position - 1], shown[page, log.position - 1] = log.click, 1
    visit = visits_of(log)
    weights = draw_visits(int(visit.max()) + 1, draws)
    curves: Array = (weights @ by_visit(clicks, visit)) / np.maximum(weights @ by_visit(shown, visit), 1)
    return curves


def fall(curves: Array) -> Array:
    """How far a curve [..., K] falls: its mean over the lower half of the page relative to the first three ranks.

    One number that hangs on many clicks, where the ratio of a single rank to rank 1 is mostly noise.

    >>> round(float(fall(np.array([1.0, 1.0, 1.0, 0.7, 0.6, 0.8]))), 6)
    0.7
    """
    half = curves.shape[-1] // 2
    ratio: Array = curves[..., half:].mean(-1) / curves[..., :3].mean(-1)
    return ratio


def interval(values: Array) -> tuple[float, float]:
    """Where the middle 95 % of values lie."""
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)


def rate_ratio(odds_ratio: Array, first: float) -> Array:
    """Ratio of click rates from a ratio of odds, where the click rate at rank 1 is `first`.

    `additive` adds in the logit, so what it knows of ranks are odds.

    >>> rate_ratio(np.array([1.0, 0.5]), 0.5).round(4).tolist()
    [1.0, 0.6667]
    """
    odds = odds_ratio * first / (1 - first)
    ratio: Array = odds / (1 + odds) / first
    return ratio


# ---- held-out pages ----


@dataclass(frozen=True)
class HeldOut:
    """What a model makes of held-out pages, [S] each; a mean over pages is a ratio of sums."""

    ndcg: Array
    """nDCG@10 on clicks of the model's own order; NaN for pages without a click."""
    slot: Array
    """Sum over clicks of the log-probability that this result of the page is the one clicked."""
    click: Array
    """Sum over results of the log-probability of click or no click; NaN for a model without such."""
    clicks: Array
    shown: Array

    def means(self, weights: Array, visit: Array) -> dict[str, Array]:
        """nDCG, log-likelihood per click and per impression, [1 + R] each."""
        scored = np.isfinite(self.ndcg)
        parts = (np.where(scored, self.ndcg, 0), scored, self.slot, self.clicks, self.click, self.shown)
        sums = [weights @ by_visit(np.asarray(part, float), visit) for part in parts]
        return {"nDCG@10": sums[0] / sums[1], "per click": sums[2] / sums[3], "per impression": sums[4] / sums[5]}


def held_out(model: Model, log: Log) -> HeldOut:
    """Score held-out pages."""
    features = np.asarray(model.scaler.apply(log.lists).features, np.float32)
    slots, clicks = [], []
    for batch in Batches(reduce_log(log, "pages"), Vectors.of(features), size=4096).in_order():
        with torch.no_grad():
            relevance = batch.pad(model.ranker(batch.documents))
            scores = model.method.click_scores(relevance, batch)
            p = model.method.click_probability(relevance, batch)
        slots.append((batch.clicks * list_log_softmax(scores, batch.where)).sum(-1).numpy())
        if p is None:
            clicks.append(np.full(len(scores), np.nan))
        else:
            p = p.clamp(1e-6, 1 - 1e-6)
            each = batch.clicks * p.log() + (1 - batch.clicks) * (-p).log1p()
            clicks.append(each.where(batch.where, torch.zeros(())).sum(-1).numpy())
    return _held_out(model.score(log.lists), log, np.concatenate(slots), np.concatenate(clicks))


def without_model(score: Array, log: Log, rate: float) -> HeldOut:
    """The same for an order that nobody learned: all results of a page equally likely, all clicked at one rate."""
    clicks = np.add.reduceat(log.click.astype(float), log.offsets[:-1])
    click = clicks * np.log(rate) + (log.sizes - clicks) * np.log1p(-rate)
    return _held_out(score, log, -clicks * np.log(log.sizes), click)


def _held_out(score: Array, log: Log, slot: Array, click: Array) -> HeldOut:
    ndcg = np.full(len(log), np.nan)
    clicks = np.add.reduceat(log.click.astype(float), log.offsets[:-1])
    some = clicks > 0
    kept = log.take(some)
    ndcg[some] = ndcg_metric(score[kept.row], kept.click, offsets=kept.offsets, at=10)
    return HeldOut(ndcg, slot, click, clicks, log.sizes)


# ---- pages whose order happens to follow popularity ----


def popularity_elsewhere(log: Log, *, prior: float = 20.0) -> Array:
    """Click rate of each shown movie among the other half of the visits, [N], drawn to the mean by `prior` views.

    Halves, not "all other pages": leaving one page out would lower the rate of just the movies clicked there.
    """
    half = np.repeat(visits_of(log) % 2, log.sizes)
    rates, mean = [], log.click.mean()
    for which in (0, 1):
        other, length = half != which, len(log.lists.features)
        clicks = np.bincount(log.row[other], weights=log.click[other], minlength=length)
        rates.append((clicks + prior * mean) / (np.bincount(log.row[other], minlength=length) + prior))
    elsewhere: Array = np.where(half == 0, rates[0][log.row], rates[1][log.row])
    return elsewhere


def agreement(log: Log, popularity: Array) -> Array:
    """Spearman correlation of each page's order with popularity [N], best first being 1; [S]."""
    found = np.zeros(len(log))
    for page, (start, stop) in enumerate(zip(log.offsets[:-1], log.offsets[1:], strict=True)):
        ranks = rankdata(-popularity[start:stop]) if stop > start + 1 else np.zeros(1)
        if np.ptp(ranks) > 0:
            found[page] = np.corrcoef(ranks, log.position[start:stop])[0, 1]
    return found
