"""What rankers look at, from inside: gains of trees and weights of linear rankers, by feature.

Legend: D features as they are, E encoded ones, O relevance outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.learning.scoring.scorer import Scorer, TreeScorer
from unskew.tables.features.encoding import Encoding
from unskew.tables.features.fields import NumberField
from unskew.types import Array

if TYPE_CHECKING:
    from unskew.learning.scoring.model import Model

LINEAR_SCALINGS = ("none", "standard", "minmax")
"""Those that multiply each feature by one number."""


def gains(scorer: Scorer) -> Array | None:
    """What the splits by each encoded feature gained, [E]; None where there are no trees.

    Those of several outputs are added, each times the square of its weight in the score.
    """
    if isinstance(scorer, TreeScorer):
        boosters, kept, weights = scorer.boosters, scorer.kept, scorer.weights
    else:
        found = _tree_ranker(scorer)
        if found is None:
            return None
        boosters, kept, weights = found
    total = np.zeros(scorer.card.features)
    for booster, count, weight in zip(boosters, kept, weights, strict=False):
        if count:
            total += float(weight) ** 2 * _gain(booster, count, len(total))
    return total


def _gain(booster: Any, count: int, width: int) -> Array:
    """Total gain of each feature in the first trees of a booster of either package."""
    if hasattr(booster, "feature_importance"):
        return np.asarray(booster.feature_importance("gain", iteration=count), np.float64)
    found = booster[:count].get_score(importance_type="total_gain")
    return np.array([found.get(f"f{at}", 0.0) for at in range(width)])


def _tree_ranker(scorer: Scorer) -> tuple[list[Any], list[int], Array] | None:
    """The boosters of a model of ours, where it has any."""
    model = _model(scorer)
    if model is None:
        return None
    from unskew.learning.rankers.trees import tree_rankers

    for trees in tree_rankers(model.ranker):
        weights = model.method.score_weights()
        ones = np.ones(len(trees.boosters))
        return trees.boosters, trees.kept.tolist(), ones if weights is None else weights.detach().cpu().numpy()
    return None


def _model(scorer: Scorer) -> Model | None:
    if isinstance(scorer, TreeScorer):
        return None
    from unskew.learning.scoring.model import Model

    return scorer if isinstance(scorer, Model) else None


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
    model = _model(scorer)
    ranker = scorer.card.ranker or {}
    if model is None or ranker.get("name") != "linear" or ranker.get("input_norm"):
        return None
    outputs, layer = model.method.score_weights(), getattr(model.ranker, "0", None)
    if outputs is None or layer is None:
        return None
    weights: Array = (outputs.detach().cpu() @ layer.weight.detach().cpu()).double().numpy()
    return weights
