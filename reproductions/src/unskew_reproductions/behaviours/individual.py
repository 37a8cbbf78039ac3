"""Individual (contextual) bias: how closely users look at a rank depends on the document's features.

M. Chen et al., "LBD: decouple relevance and observation for individual-level unbiased learning to rank",
NeurIPS 2022; the simulation that was published with its code.

    P(c_k) = θ_k^a(x) γ_y,   a(x) = max(η w·x_sub + 1, 0)

x_sub are ten features, scaled to [-1, 1]; w is the published vector. η = 0 is the position-based model.

Differences from the paper: features come scaled there; here a chosen feature that leaves [-1, 1] is scaled by
its range over the lists. With fewer than ten features chosen the first entries of w are used.
"""

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field

from unskew.errors import DataError
from unskew.simulation.behaviours.behaviour import EYE_TRACKING, Curve, Graded, Independent, Shown, at_ranks
from unskew.types import Array, Lists

WEIGHTS = (-1.0, -0.05693, -0.32078, -0.61168, 0.63808, 1.0, 0.20537, -0.61057, 0.56496, -0.15535)
"""The published w at η = 1."""

Column = Annotated[int, Field(ge=0)]


class IndividualBias(Graded, Independent):
    """Users examine by rank, more or less closely from document to document."""

    called = "individual bias"

    curve: Curve = EYE_TRACKING
    """Examination probability θ of ranks 1, 2, ...; ranks beyond its end reuse the last value."""
    severity: Annotated[float, Field(ge=0.0)] = 0.1
    """Coupling η: the weights are multiplied by it; 0 is the position-based model."""
    weights: Annotated[tuple[float, ...], Field(min_length=1, strict=False)] = WEIGHTS
    """w, one entry for each chosen feature."""
    features: Annotated[tuple[Column, ...] | None, Field(strict=False)] = None
    """Columns of the chosen features; None chooses them as the next field says."""
    choose: Literal["importance", "random"] = "importance"
    """"importance": the most important of an ExtraTrees fit to the grades; "random": a seeded draw."""
    seed: int = 0
    """Seed of the choice."""
    trees: Annotated[int, Field(ge=1)] = 250
    """Trees of the ExtraTrees fit."""
    sample: Annotated[int, Field(ge=1)] = 2000
    """Documents of the ExtraTrees fit, drawn at random; the published choice used all."""

    def prepare(self, lists: Lists) -> Self:
        """Return this behaviour with its features chosen."""
        if self.features is None:
            count, rng = min(len(self.weights), lists.dim), np.random.default_rng(self.seed)
            random = self.choose == "random"
            chosen = rng.choice(lists.dim, count, replace=False) if random else choose_important(lists, self)
            return self.model_copy(update={"features": tuple(int(column) for column in chosen)})
        if len(self.features) > len(self.weights) or max(self.features, default=0) >= lists.dim:
            raise DataError(
                f"features {self.features} must be columns of {lists.dim}, at most {len(self.weights)} of them",
                path=lists.name,
                hint="give other columns, or none to have them chosen",
            )
        return self

    def document_terms(self, lists: Lists) -> Array:
        """Return a(x) of every document, [N] float32."""
        columns = np.asarray(self.prepare(lists).features, int)
        chosen = scaled(np.asarray(lists.features[:, columns], np.float32))
        weights = np.float32(self.severity) * np.asarray(self.weights[: len(columns)], np.float32)
        power: Array = np.maximum(chosen @ weights + np.float32(1), np.float32(0))
        return power

    def causes(self, shown: Shown) -> tuple[Array, Array, Array]:
        """θ_k^a(x) γ_y, and both factors; padding has exponent 1."""
        powers = self.document_terms(shown.lists) if shown.terms is None else shown.terms
        power = np.append(powers, np.float32(1))[shown.rows]  # row -1 is padding
        with np.errstate(divide="ignore", invalid="ignore"):
            log_theta = np.log(at_ranks(self.curve, shown.where.shape[1])).astype(np.float32)
            theta = np.exp(power * log_theta)
        theta, gamma = np.where(power > 0, theta, np.float32(1)), self.relevance(shown)
        return theta * gamma, theta, gamma


def scaled(features: Array) -> Array:
    """Every column that leaves [-1, 1] scaled to it by its range.

    >>> scaled(np.array([[0.0, 10.0], [0.5, 20.0]], np.float32)).tolist()
    [[0.0, -1.0], [0.5, 1.0]]
    """
    if not features.size:
        return features
    low, high = features.min(0), features.max(0)
    outside = (low < -1) | (high > 1)
    width = np.where(high > low, high - low, 1)
    return np.where(outside, 2 * (features - low) / width - 1, features)


def choose_important(lists: Lists, behaviour: IndividualBias) -> Array:
    """The columns with the largest importances in a forest that predicts the grades, most important first."""
    from sklearn.ensemble import ExtraTreesClassifier

    count = min(behaviour.sample, len(lists.features))
    rows = np.sort(np.random.default_rng(behaviour.seed).choice(len(lists.features), count, replace=False))
    forest = ExtraTreesClassifier(behaviour.trees, random_state=behaviour.seed)
    forest.fit(lists.features[rows], lists.labels[rows])
    order = np.argsort(-forest.feature_importances_, kind="stable")
    return order[: len(behaviour.weights)]
