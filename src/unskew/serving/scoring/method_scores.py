"""The score of each method from the outputs of its ranker, in numpy, as `MethodModule.score` gives it by torch.

    most              outputs . w                                w saved with the model
    vectorization     r . b, b of the request's candidates       base_vectors.py, Eq. 8, or Eq. 6 by factors
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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.errors import ConfigError
from unskew.learning.scoring.scorer import LINEAR, below
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
    if given.method["project"] == "factor":
        return factor_vectors(given, d)
    mu = given.values[:, d : 2 * d]
    weight = np.exp(-np.clip(given.values[:, 2 * d :], -10, 10))
    total = np.add.reduceat(weight, given.starts, axis=0)
    found: Array = np.add.reduceat(weight * mu, given.starts, axis=0) / np.maximum(total, 1e-12)
    return found


def factor_vectors(given: Outputs, d: int) -> Array:
    """o at the most likely value of each factor of each list; numbers among the factors at their mean, 0."""
    tower = "method.observation.bias" in given.numbers
    own = "method.observation.codes." if tower else "method.observation."
    tables = tables_below(given.numbers, own)
    ends = np.cumsum([len(table) for table in tables])[:-1]
    likely = [
        np.add.reduceat(log_softmax(logits), given.starts, axis=0).argmax(1)
        for logits in np.split(given.values[:, d:], ends, axis=1)
    ]
    found: Array = sum((table[at] for table, at in zip(tables, likely, strict=True)), np.zeros((1, 1), np.float32))
    return tower_vectors(below(given.numbers, "method.observation."), found, likely) if tower else found


def tower_vectors(numbers: Mapping[str, Array], coded: Array, likely: Sequence[Array]) -> Array:
    """What a bias tower (learning/factors.py) gives, from the sum of what its codes give."""
    value = coded + numbers["bias"]
    layers = sorted({int(name.split(".")[1]) for name in numbers if name.startswith("layers.")})
    for at in layers:
        value = elu(value) @ numbers[f"layers.{at}.weight"].T + numbers[f"layers.{at}.bias"]
    start = tables_below(numbers, "start.")
    found: Array = sum((table[at] for table, at in zip(start, likely, strict=True)), value)
    return found


def tables_below(numbers: Mapping[str, Array], prefix: str) -> list[Array]:
    """The tables of a bias, in the order of its factors."""
    own = below(numbers, f"{prefix}table")
    return [own[str(at)] for at in range(len(own))]


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


def log_softmax(values: Array) -> Array:
    """log of exp(v) over its sum, by row."""
    found: Array = values - np.logaddexp.reduce(values, axis=1, keepdims=True)
    return found


def elu(values: Array) -> Array:
    """v above 0, and exp(v) - 1 below.

    >>> elu(np.array([-1.0, 0.0, 2.0])).round(4).tolist()
    [-0.6321, 0.0, 2.0]
    """
    return np.where(values > 0, values, np.expm1(np.minimum(values, 0)))


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
