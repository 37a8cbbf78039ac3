"""Click matrix: one click probability for each grade at each rank, with no assumption about how they combine.

The default is the matrix that M. Chen et al., "Scalar is not enough: vectorization-based unbiased learning to
rank", KDD 2022, measured in the TianGong-ST search log.

    P(c_k) = A[y_k, k]

Beyond the last rank of the matrix nothing is clicked; grades beyond its last row use that row. A matrix has no
examination and relevance of its own: the truth of a log holds the nearest product, A ≈ γ θᵀ in least squares,
scaled so that the largest γ is 1.
"""

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from unskew.simulation.behaviours.behaviour import Curve, Independent, Shown
from unskew.types import Array

TIANGONG = (
    (0.59053, 0.08679, 0.08583, 0.06622, 0.02232, 0.00341, 0.00400, 0.00232, 0.00147, 0.00229),
    (0.49623, 0.15182, 0.01446, 0.06691, 0.00372, 0.00661, 0.00515, 0.00305, 0.00256, 0.00257),
    (0.54165, 0.09721, 0.03520, 0.02163, 0.01423, 0.00722, 0.01151, 0.01428, 0.00854, 0.00412),
    (0.61141, 0.12386, 0.07421, 0.02911, 0.05537, 0.05033, 0.00477, 0.00799, 0.02830, 0.01494),
    (0.74206, 0.16262, 0.24199, 0.03975, 0.01389, 0.03205, 0.00833, 0.00206, 0.00976, 0.00393),
)
"""Click rate of grades 0 to 4 (rows) at ranks 1 to 10 (columns) in TianGong-ST."""


class ClickMatrix(Independent):
    """Users click by grade and rank as a table says.

    >>> ClickMatrix(matrix=((0.1, 0.0), (0.5, 0.2))).table(3).tolist()
    [[0.1, 0.0, 0.0], [0.5, 0.2, 0.0]]
    """

    called = "click matrix"

    matrix: Annotated[tuple[Curve, ...], Field(min_length=1, strict=False)] = TIANGONG
    """Click probabilities: a row for each grade from 0, a column for each rank from 1."""

    @model_validator(mode="after")
    def _is_rectangular(self) -> Self:
        if len({len(row) for row in self.matrix}) != 1:
            raise ValueError(f"rows of the matrix must be of one length, not {[len(row) for row in self.matrix]}")
        return self

    def table(self, ranks: int) -> Array:
        """The matrix at ranks 1 to `ranks`, [grades, ranks] float64, 0 beyond its last rank."""
        given = np.asarray(self.matrix)[:, :ranks]
        return np.pad(given, [(0, 0), (0, ranks - given.shape[1])])

    def product(self, ranks: int) -> tuple[Array, Array]:
        """The nearest product: examination [ranks] and relevance [grades], float32."""
        left, size, right = np.linalg.svd(self.table(ranks), full_matrices=False)
        gamma, theta = np.abs(left[:, 0]), size[0] * np.abs(right[0])
        top = gamma.max()
        return (theta * top).astype(np.float32), (gamma / top).astype(np.float32)

    def causes(self, shown: Shown) -> tuple[Array, Array, Array]:
        """A[y_k, k], and the factors of the nearest product."""
        table = self.table(shown.where.shape[1])
        theta, gamma = self.product(table.shape[1])
        grades = np.clip(shown.labels, 0, len(table) - 1)
        return table[grades, np.arange(table.shape[1])], theta, gamma[grades]
