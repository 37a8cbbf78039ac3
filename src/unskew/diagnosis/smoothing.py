"""Examination where ranks have few clicks: they lean on their neighbours in log rank, more so the fewer.

The likelihood l of `harvesting` with a prior: steps of log theta from rank to rank are those of a power law, give
or take WANDER per unit of log rank. Errors hold both the chance of the clicks and how far a curve may stray.

Legend: B buckets of queries, P ranks. Everything is on the scale of log theta.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unskew.diagnosis.harvesting import maximum, slopes, tied
from unskew.types import Array

PAIRS: dict[str, Callable[[int], Array]] = {
    "all_pairs": lambda ranks: np.ones((ranks, ranks), bool),
    "pivot": lambda ranks: np.arange(ranks)[:, None] * np.arange(ranks) == 0,
    "adjacent": lambda ranks: np.abs(np.arange(ranks)[:, None] - np.arange(ranks)) == 1,
}
"""Pairs of ranks that l goes over, [P, P], by estimator."""
WANDER = 1.0
"""How far a curve strays from a power law: the standard deviation of its steps, per unit of log rank."""
OWN = 30.0
"""Clicks of a rank that count as much for its variance as all ranks do."""


def roughness(ranks: Array) -> Array:
    """Omega [P, P]: log theta' Omega log theta is 0 for a power law of the rank, and grows with steps off it.

    Steps of log theta from rank to rank over the root of those of log rank, less what their mean slope explains.

    >>> rough = roughness(np.array([1, 2, 4]))
    >>> value = np.array([0.0, -1.0, -2.0])
    >>> abs(round(float(value @ rough @ value), 9)), round(float(np.array([0, -1, -1]) @ rough @ [0, -1, -1]), 4)
    (0.0, 0.7213)
    """
    gap = np.diff(np.log(ranks))
    steps = np.diff(np.eye(len(ranks)), axis=0) / np.sqrt(gap)[:, None]
    slope = np.sqrt(gap / max(float(gap.sum()), 1e-300))
    left = steps - np.outer(slope, slope @ steps)
    rough: Array = left.T @ left
    return rough


def smooth(up: Array, clicks: Array, looked: Array) -> tuple[Array, Array]:
    """log theta and standard errors [P] of evidence by bucket [B, P, P]; NaN where no link leads to rank 1.

    The maximum of l / phi - log theta' Omega log theta / (2 WANDER^2): phi is the variance of the slope of l, by
    buckets, over its curvature, so that l says as much as it knows. A rank with many clicks stays what it is; one
    with few is drawn to its neighbours in log rank. With A the curvature of the sum and J the variance of that
    slope,

        errors^2 = diag A^-1 (J / phi^2 + Omega / WANDER^2) A^-1

    chance of the clicks, and how far a curve may be from what is drawn through it. `clicks` [P] say how far the
    variance of a rank is its own, `looked` [P, P] which pairs are.
    """
    some, part, prior = _linked(up, looked)
    value, error = np.full(len(clicks), np.nan), np.full(len(clicks), np.nan)
    value[0], error[0] = 0.0, 0.0
    if len(some) > 1:
        value[some], error[some] = _smoothed(part, clicks[some], prior)
    return value, error


def _linked(up: Array, looked: Array) -> tuple[Array, Array, Array]:
    """Ranks (from 0) that links lead to, what they have, and how far they are held together."""
    used = up * looked
    whole = used.sum(axis=0)
    some = tied(whole + whole.T > 0)
    return some, used[np.ix_(np.arange(len(up)), some, some)], roughness(some + 1) / WANDER**2


def _smoothed(up: Array, clicks: Array, prior: Array) -> tuple[Array, Array]:
    """log theta and errors of tied ranks; errors are 0 where clicks do not vary."""
    whole, phi = up.sum(axis=0)[None], 1.0
    for _ in range(3):
        value = maximum(whole, phi * prior)
        by_bucket, curve = slopes(up, np.repeat(value, len(up), axis=0))[0], slopes(whole, value)[1][0]
        spread = _slope_variance(by_bucket)
        phi = max(float(np.trace(spread[1:, 1:]) / np.trace(curve[1:, 1:])), 1e-3)
    if np.trace(spread) < 1e-9 * np.trace(curve):
        return value[0], np.zeros(len(clicks))
    own = np.sqrt((clicks + OWN * phi * np.diag(curve) / np.maximum(np.diag(spread), 1e-12)) / (clicks + OWN))
    spread = spread * np.outer(own, own)
    bread = np.linalg.inv((curve / phi + prior)[1:, 1:] + 1e-9 * np.eye(len(clicks) - 1))
    covariance = bread @ (spread / phi**2 + prior)[1:, 1:] @ bread
    return value[0], np.append(0.0, np.sqrt(np.diag(covariance)))


def _slope_variance(given: Array) -> Array:
    """Variance of the sum of slopes [B, P] over buckets that have any."""
    used = given[np.abs(given).sum(axis=1) > 0]
    left = used - used.mean(axis=0) if len(used) else used
    spread: Array = left.T @ left * len(used) / max(len(used) - 1, 1)
    return spread
