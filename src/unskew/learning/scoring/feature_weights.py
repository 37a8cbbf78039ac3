"""What linear rankers look at, by feature.

Legend: D features as they are, E encoded ones, O relevance outputs.
"""

from __future__ import annotations

import numpy as np

from unskew.learning.scoring.scorer import Scorer
from unskew.tables.features.encoding import Encoding
from unskew.tables.features.fields import NumberField
from unskew.types import Array

LINEAR_SCALINGS = ("none", "standard", "minmax")
"""Those that multiply each feature by one number."""


def linear_weights(scorer: Scorer) -> Array | None:
    """How much each feature moves the score of a linear ranker, [D]: the spread of what it adds in training.

    None where the ranker is not linear, or where the scaling is not or the spread is not known.
    """
    weights, encoding = scorer.feature_weights(), scorer.card.encoding
    if weights is None or scorer.scaler.kind not in LINEAR_SCALINGS:
        return None
    if encoding is None or not encoding.fields:
        return np.abs(weights) if scorer.scaler.kind == "standard" else None  # a spread of 1 each
    per_unit = weights / scorer.scaler.statistics.get("scale", np.ones(len(weights)))
    return np.array([_moved(encoding, at, per_unit) for at in range(len(encoding.fields))])


def _moved(encoding: Encoding, at: int, weights: Array) -> float:
    """The standard deviation of what one feature adds to the score."""
    field, own = encoding.fields[at], weights[encoding.origins == at]
    if isinstance(field, NumberField):  # filled with the mean, it has no covariance with being missing
        flag = own[1] if len(own) > 1 else 0.0
        return float(np.hypot(own[0] * field.spread, flag * np.sqrt(field.missing * (1 - field.missing))))
    shares = np.array(field.shares)
    return float(np.sqrt(max((shares * own**2).sum() - (shares * own).sum() ** 2, 0.0)))
