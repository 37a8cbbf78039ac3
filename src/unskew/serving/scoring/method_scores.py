"""The score of each method from the outputs of its ranker, in numpy, as `MethodModule.score` gives it by torch.

    most              outputs . w                                w saved with the model
    vectorization     r . b, b of the request's candidates       base_vectors.py, Eq. 8
    approximated_dr   y_aff + tanh(z) (y_imp - y_aff)            approximated_dr.py; y_imp where no click is known
    doubly_robust     f + log sig(g + l)                         doubly_robust.py

A constant that a method adds to every score is left out where w is saved; it changes no ranking. The slope of each
score by the outputs, which reasons are made of:

    most              w                                                      exact
    vectorization     b                                                      exact with b held
    approximated_dr   y_aff' (1 - tanh z),  tanh z y_imp',  (1 - tanh^2 z) (y_imp - y_aff)
    doubly_robust     1,  sig(-(g + l))

Legend: n documents of lists one after another, O outputs, d length of an embedding.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.errors import ConfigError
from unskew.learning.scoring.scorer import LINEAR
from unskew.types import Array


@dataclass(frozen=True)
class Outputs:
    """What the ranker says of lists, and what the method learned."""

    values: Array
    """[n, O]"""
    sizes: Array
    """Documents of each list."""
    method: Mapping[str, Any]
    """Its settings."""
    numbers: Mapping[str, Array]
    """Its weights, below `method.`, and w."""
    positions: int
    seen: Array | None = None
    """[n] whether clicks of the document are known; None where all are."""

    @property
    def starts(self) -> Array:
        """Where each list begins; lists have a document at least."""
        starts: Array = np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)
        return starts


Found = tuple[Array, Array]
"""Scores [n], and the slope of each by its own first outputs, [n, at most O]."""


def method_score(given: Outputs) -> Array:
    """Scores [n], higher is better."""
    scores, _ = scorer_of(given.method, given.numbers)(given)
    return np.asarray(scores, np.float32)


def method_slope(given: Outputs) -> Array:
    """The gradient [n, O] of each score by its own outputs, base vectors held."""
    _, own = scorer_of(given.method, given.numbers)(given)
    found = np.zeros(given.values.shape)
    found[:, : own.shape[1]] = own
    return found


def scorer_of(method: Mapping[str, Any], numbers: Mapping[str, Array]) -> Callable[[Outputs], Found]:
    """The score of a method, or an error where there is none without torch."""
    if LINEAR in numbers:
        return linear
    name = str(method["name"])
    if name not in SCORES:
        raise ConfigError(f"scores of the method {name} are not known without torch")
    return SCORES[name]


def linear(given: Outputs) -> Found:
    """outputs . w; those of a second network come after and have no part in it."""
    w = given.numbers[LINEAR]
    return given.values[:, : len(w)] @ w, w[None]


def vectorization(given: Outputs) -> Found:
    """r . b with the base vector of each list."""
    d = int(given.method["dimension"])
    b = np.repeat(base_vectors(given, d), given.sizes, axis=0)
    return (given.values[:, :d] * b).sum(1), b


def base_vectors(given: Outputs, d: int) -> Array:
    """The base vector b of each list, which its documents are projected on to be ranked."""
    if not given.numbers["method.ready"]:
        return np.repeat(given.numbers["method.common.mean"][None], len(given.sizes), axis=0)
    mu = given.values[:, d : 2 * d]
    weight = np.exp(-np.clip(given.values[:, 2 * d :], -10, 10))
    total = np.add.reduceat(weight, given.starts, axis=0)
    found: Array = np.add.reduceat(weight * mu, given.starts, axis=0) / np.maximum(total, 1e-12)
    return found


def approximated_dr(given: Outputs) -> Found:
    """y; the imputation alone where nothing is known of clicks."""
    centre = given.numbers["method.centre"] if given.method.get("centred", True) else 0.0
    estimates = np.exp(log_sigmoid(given.values[:, :2] - centre + given.numbers["method.levels"]))
    (imputed, affine), share = estimates.T, np.tanh(given.values[:, 2])
    published = given.method["combination"] == "published"
    other = imputed if published else imputed - affine
    y = affine + share * other
    by_imputed, by_affine = imputed * (1 - imputed), affine * (1 - affine)
    by_affine = by_affine if published else by_affine * (1 - share)
    slopes = np.stack([share * by_imputed, by_affine, (1 - share**2) * other], axis=1)
    if given.seen is None:
        return y, slopes
    alone = by_imputed[:, None] * [1.0, 0.0, 0.0]
    return np.where(given.seen, y, imputed), np.where(given.seen[:, None], slopes, alone)


def doubly_robust(given: Outputs) -> Found:
    """log R + f; g is the last output."""
    f, g = given.values[:, 0], given.values[:, -1] + given.numbers["method.level"]
    slopes = np.zeros(given.values.shape)
    slopes[:, 0], slopes[:, -1] = 1.0, np.exp(log_sigmoid(-g))
    return f + log_sigmoid(g), slopes


def log_sigmoid(values: Array) -> Array:
    """log of 1 / (1 + exp(-v)).

    >>> np.exp(log_sigmoid(np.array([-1000.0, 0.0, 1000.0]))).tolist()
    [0.0, 0.5, 1.0]
    """
    found: Array = -np.logaddexp(0.0, -values)
    return found


SCORES: Mapping[str, Callable[[Outputs], Found]] = {
    "approximated_dr": approximated_dr,
    "doubly_robust": doubly_robust,
    "vectorization": vectorization,
}
"""Those that are not linear in the outputs, by method."""
