"""Why a document has its score: the slope of each method's score by the outputs of its ranker, in numpy.

    most              w                                                      exact
    vectorization     b of the request's candidates                          exact with b held
    approximated_dr   y_aff' (1 - tanh z),  tanh z y_imp',  (1 - tanh^2 z) (y_imp - y_aff)
    doubly_robust     1,  sig(-(g + l))
    safe methods      that of the score before it is held near the shown order

What a feature adds is then the slope times what it adds to each output: Shapley values of trees, weight x input of
a linear ranker, gradient x input of a network. `reasons` of an answer says which. The first two add up to the
score but for a constant, one for each list with a base vector; where the score is not linear in the outputs none
do.

Legend: n documents, O outputs, D features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from unskew.errors import ConfigError
from unskew.learning.boosters import Forest
from unskew.learning.scoring.scorer import LINEAR
from unskew.serving.scoring.method_scores import Outputs, base_vectors, estimates_of, sigmoid
from unskew.serving.scoring.networks import NetworkGraph
from unskew.types import Array

HELD = "base vector held"
UNGUARDED = "of the score before it is held near the shown order"


def reasons_of(
    trees: Forest | None, network: NetworkGraph | None, rows: Array, given: Outputs
) -> tuple[str, Array]:
    """How they were found, and what each feature of rows [n, D] adds to the score, [n, D].

    The outputs of trees stand before those of a network; who has no part in the score is passed over.
    """
    linear = LINEAR in given.numbers or given.method["name"] == "vectorization"
    by_trees, by_network = np.split(slope_of(given), [0 if trees is None else len(trees.start)], axis=1)
    kinds, found = list[str](), np.zeros(rows.shape, np.float64)
    if trees is not None and (by_trees.any() or network is None):
        kinds.append("shapley" if linear else "shapley x slope")
        found += trees.reasons(rows, by_trees)
    if network is not None and (by_network.any() or trees is None):
        slope, straight = network.slope(rows, by_network)
        kinds.append("weight x input" if straight and linear else "gradient x input")
        found += slope * rows
    told = [" and ".join(kinds)]
    told += [HELD] if LINEAR not in given.numbers and linear else []
    told += [UNGUARDED] if "method.reach" in given.numbers else []
    return ", ".join(told), found


def slope_of(given: Outputs) -> Array:
    """The gradient [n, O] of each score by its own outputs, base vectors held."""
    found = np.zeros(given.values.shape)
    if LINEAR in given.numbers:
        found[:, : len(given.numbers[LINEAR])] = given.numbers[LINEAR]
        return found
    name = str(given.method["name"])
    if name not in SLOPES:
        raise ConfigError(f"the method {name} has no reasons by feature")
    own = SLOPES[name](given)
    found[:, : own.shape[1]] = own
    return found


def vectorization(given: Outputs) -> Array:
    """b of each list."""
    return given.each(base_vectors(given, int(given.method["dimension"])))


def approximated_dr(given: Outputs) -> Array:
    """Of y by i, a and z; by i alone where nothing is known of clicks."""
    imputed, affine, share = estimates_of(given)
    published = given.method["combination"] == "published"
    by_imputed, by_affine = imputed * (1 - imputed), affine * (1 - affine)
    slopes = np.stack(
        [
            share * by_imputed,
            by_affine if published else by_affine * (1 - share),
            (1 - share**2) * (imputed if published else imputed - affine),
        ],
        axis=1,
    )
    if given.seen is not None:
        slopes[~given.seen] = 0.0
        slopes[~given.seen, 0] = by_imputed[~given.seen]
    return slopes


def ipw(given: Outputs) -> Array:
    """1 for the first output."""
    return np.eye(1, given.values.shape[1]).repeat(len(given.values), axis=0)


def doubly_robust(given: Outputs) -> Array:
    """1 for f, and sig(-(g + l)) for g, the last output."""
    slopes = ipw(given)
    slopes[:, -1] = sigmoid(-(given.values[:, -1] + given.numbers["method.level"]))
    return slopes


SLOPES: Mapping[str, Callable[[Outputs], Array]] = {
    "approximated_dr": approximated_dr,
    "doubly_robust": doubly_robust,
    "ipw": ipw,
    "vectorization": vectorization,
}
"""Slopes of scores that are not linear in the outputs, by method."""
