"""User browsing model: examination depends on the rank and on the distance to the last click above it.

G. Dupret and B. Piwowarski, "A user browsing model to predict search engine click data", SIGIR 2008.

    P(c_r | last click at l) = β_{r, r-l}^η γ_y,   l = 0 where nothing has been clicked yet

Differences from the paper: the table is given, not fitted, and it ends at rank 10. A rank beyond it reuses the
last row: its entry for the same distance (at most 9 ranks), or its last entry where nothing was clicked yet.
"""

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from unskew.simulation.behaviours.behaviour import Curve, Sequential, Shown, masked
from unskew.types import Array

BROWSING = (
    (1.0,),
    (0.98, 1.0),
    (1.0, 0.62, 0.95),
    (1.0, 0.77, 0.42, 0.82),
    (1.0, 0.92, 0.55, 0.31, 0.69),
    (1.0, 0.96, 0.63, 0.40, 0.22, 0.54),
    (1.0, 0.99, 0.73, 0.46, 0.29, 0.17, 0.47),
    (1.0, 1.0, 0.89, 0.52, 0.35, 0.24, 0.14, 0.43),
    (1.0, 1.0, 0.95, 0.68, 0.40, 0.29, 0.19, 0.12, 0.41),
    (1.0, 1.0, 1.0, 0.96, 0.52, 0.36, 0.27, 0.18, 0.12, 0.43),
)
"""Row r, entry d: examination of rank r at distance d from the last click; a row's last entry: no click yet."""


class UserBrowsing(Sequential):
    """Users read on after a click, less the further they are from it.

    >>> model = UserBrowsing()
    >>> [round(float(model.examination(3, last)), 2) for last in (0, 1, 2)]
    [0.95, 0.62, 1.0]
    """

    called = "user browsing"

    table: Annotated[tuple[Curve, ...], Field(min_length=1, strict=False)] = BROWSING
    """Examination probability: row r has r entries, for distances 1 to r from the last click."""
    severity: Annotated[float, Field(ge=0.0)] = 1.0
    """Power η of the table: 0 is no bias."""

    @model_validator(mode="after")
    def _is_triangular(self) -> Self:
        for rank, row in enumerate(self.table, start=1):
            if len(row) != rank:
                raise ValueError(f"row {rank} of the table must have {rank} entries, not {len(row)}")
        return self

    def examination(self, rank: int, last: int) -> float:
        """Examination of a rank whose last click above was at `last` (0: none)."""
        row = self.table[min(rank, len(self.table)) - 1]
        distance = len(row) if last == 0 else min(rank - last, max(len(row) - 1, 1))
        return float(row[distance - 1] ** self.severity)

    def begin(self, pages: int) -> Array:
        """The state is the rank of the last click, 0 for none."""
        return np.zeros(pages, np.int64)

    def examine(self, rank: int, state: Array) -> Array:
        """The table's entry for this rank and the last click."""
        row = np.array([self.examination(rank, last) for last in range(rank)], np.float32)
        return row[state]

    def move_on(self, rank: int, state: Array, click: Array, relevance: Array) -> Array:
        """A click becomes the last one."""
        return np.where(click, rank, state)

    def click_probability(self, shown: Shown) -> Array:
        """Forward recursion over the rank of the last click: P(l = j before rank r), [S, r]."""
        gamma = masked(shown, self.relevance(shown))
        last = np.ones((len(gamma), 1))
        clicks = np.zeros_like(gamma)
        for k in range(gamma.shape[1]):
            row = np.array([self.examination(k + 1, j) for j in range(k + 1)])
            click = last * row * gamma[:, k : k + 1]
            clicks[:, k] = click.sum(1)
            last = np.concatenate([last - click, clicks[:, k : k + 1]], axis=1)
        return clicks
