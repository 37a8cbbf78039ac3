"""Ordered values as continuous scores, by a Bradley-Terry model of their order.

R. A. Bradley and M. E. Terry, "Rank analysis of incomplete block designs", Biometrika 1952; as "Whole Page
Unbiased Learning to Ranking" turns positions into numbers:

    maximise  Σ_{i<j} log sig(s_j - s_i) - prior/2 Σ_i s_i²        value j is the higher one of i and j

Differences from the paper: it has no prior, and then no finite scores, since every pair is decided the same way.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from unskew.types import Array

STEPS = 100
"""Newton steps at most; a dozen are enough."""


def order_scores(count: int, prior: float = 1.0) -> Array:
    """Scores s of `count` ordered values, ascending, [count] float64; they sum to 0.

    With two values sig(-(s_2 - s_1)) = prior s_2 and s_1 = -s_2.

    >>> order_scores(2).round(4).tolist(), order_scores(1).tolist()
    ([-0.3374, 0.3374], [0.0])
    """
    place = np.arange(count)
    higher = np.sign(place[:, None] - place)  # 1 where i is the higher value
    scores = np.zeros(count)
    for _ in range(STEPS):
        lost = expit(-higher * (scores[:, None] - scores)) * np.abs(higher)
        gradient = (higher * lost).sum(1) - prior * scores
        if np.abs(gradient).max(initial=0.0) < 1e-10:
            break
        spread = lost * (1 - lost) * np.abs(higher)
        hessian = np.diag(spread.sum(1) + prior) - spread
        scores += np.linalg.solve(hessian, gradient)
    return scores
