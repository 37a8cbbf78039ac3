"""What rankers look at, from inside: gains of trees and weights of linear rankers, by feature.

Legend: D features as they are, E encoded ones, O relevance outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unskew.learning.scoring.scorer import Scorer
from unskew.tables.features.encoding import Encoding
from unskew.tables.features.fields import NumberField
from unskew.types import Array

if TYPE_CHECKING:
    pass

LINEAR_SCALINGS = ("none", "standard", "minmax")
"""Those that multiply each feature by one number."""


def gains(scorer: Scorer) -> Array | None:
    """What the splits by each encoded feature gained, [E]; None where there are no trees."""
    forest = scorer.forest()
    return None if forest is None else forest.gains(scorer.card.features)


def linear_weights(scorer: Scorer) -> Array | None:
    """How much each feature moves the score of a linear ranker, [D]: the spread of what it adds in training.

    None where the ranker is not linear, or where the scaling is not or the spread is not known.
    """
    weights, encoding = _linear(scorer), scorer.card.encoding
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


def _linear(scorer: Scorer) -> Array | None:
    """The weight of each encoded feature in the score, [E]; None where it is not linear in them."""
    ranker = scorer.card.ranker or {}
    if ranker.get("name") != "linear" or ranker.get("input_norm"):
        return None
    from unskew.learning.scoring.model import Model  # with torch, which trees do without

    model = scorer
    if not isinstance(model, Model):
        return None
    outputs, layer = model.method.score_weights(), getattr(model.ranker, "0", None)
    if outputs is None or layer is None:
        return None
    weights: Array = (outputs.detach().cpu() @ layer.weight.detach().cpu()).double().numpy()
    return weights
