"""Whole pages of which chance decides what causes what: the worlds that causal discovery is tried on."""

from __future__ import annotations

import numpy as np

from unskew.simulation import WholePage


def random_page(seed: int) -> WholePage:
    """A page of which chance decides what causes what, and how strongly; one cause of clicks there is always."""
    rng = np.random.default_rng([seed, 13])

    def strength(low: float, high: float, there: float = 0.6) -> float:
        return float(rng.uniform(low, high) * (rng.random() < there))

    top, severity, sees = strength(0.5, 0.8), strength(0.8, 1.2), strength(1.0, 2.0)
    return WholePage(
        lure=(0.0, top / 2, top),
        severity=severity or float(not (top or sees)),
        sees=sees,
        by_feature=strength(0.5, 1.5),
        by_relevance=strength(0.8, 1.5),
        by_rank=strength(0.5, 1.0),
        tall=strength(0.6, 1.2),
        grows=strength(0.6, 1.2),
    )
