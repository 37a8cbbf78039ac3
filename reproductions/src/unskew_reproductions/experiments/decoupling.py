"""How far observation can be decoupled from relevance in a world that is known: the bounds of LBD's theorems.

Reference: Chen et al., "LBD: Decouple Relevance and Observation for Individual-Level Unbiased Learning to Rank",
NeurIPS 2022, appendix B.

A model fits the clicks of a world where r^(x) o^_p(x) = r(x) o_p(x) for every document x and rank p, with all four
between 0 and 1 (Assumption 1). Among such models, with click rates c = r o,

    a b-Lipschitz o^ needs      b >= inf_{m, n >= 1} max_p |m c_p(x1) - n c_p(x2)| / |x1 - x2|      (Theorem 2)
    o^ >= t everywhere needs    t <= min_p o_p(x) / max_p o_p(x)                                    (Theorem 4)
    o^ >= t gives r^(x1) <= r^(x2)    where t >= c_p(x1) / c_p(x2) for some p                       (Theorem 3)

Differences from the paper: Theorem 3 has the stricter condition t >= r(x1) / r(x2) (1 + a |x1 - x2| / o_p(x2)),
a the Lipschitz constant of o, from which its proof derives the one above. Theorem 1, a condition under which the
order of two documents is kept, needs the model's own o^ and is not here; the tests check it.

Legend: N documents or pairs of them, P ranks.
"""

from __future__ import annotations

import numpy as np

from unskew.types import Array

_ROUNDS = 80  # each leaves two thirds of the bracket


def largest_drop(o: Array) -> Array:
    """The largest t with which the observation o [N, P] of each document can be fitted, [N] (Theorem 4).

    >>> largest_drop(np.array([[0.8, 0.4, 0.2]])).tolist()
    [0.25]
    """
    largest: Array = o.min(-1) / o.max(-1)
    return largest


def turned_round(first: Array, second: Array, t: float) -> Array:
    """Whether o^ >= t forces r^(x1) <= r^(x2), from the click rates [N, P] of both (Theorem 3).

    >>> turned_round(np.array([[0.3, 0.01]]), np.array([[0.5, 0.4]]), 0.1).tolist()
    [True]
    """
    return np.asarray((first <= t * second).any(-1))


def least_slope(first: Array, second: Array, distance: Array) -> Array:
    """The least Lipschitz constant of an o^ that fits the click rates [N, P] of pairs, [N] (Theorem 2).

    Scaling m and n down together only helps, so one of them is 1 and the other the minimum of a convex function.

    >>> least_slope(np.array([[0.5, 0.1]]), np.array([[0.25, 0.1]]), np.array([2.0])).round(6).tolist()
    [0.035714]
    """
    slope: Array = np.minimum(_least_gap(first, second), _least_gap(second, first)) / distance
    return slope


def _least_gap(a: Array, b: Array) -> Array:
    """min_{m >= 1} max_p |m a_p - b_p|, [N], by ternary search."""
    low, high = np.ones(len(a)), np.maximum((b / a).max(-1), 1.0)

    def gap(m: Array) -> Array:
        worst: Array = np.abs(m[:, None] * a - b).max(-1)
        return worst

    for _ in range(_ROUNDS):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        better = gap(left) < gap(right)
        low, high = np.where(better, low, left), np.where(better, right, high)
    return gap((low + high) / 2)
