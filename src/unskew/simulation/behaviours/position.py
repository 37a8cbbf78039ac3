"""Position-based model: a result is clicked if its rank is examined and it is found relevant.

T. Joachims et al., "Accurately interpreting clickthrough data as implicit feedback", SIGIR 2005 (the curve);
M. Richardson et al., "Predicting clicks", WWW 2007 (the model).

    P(c_k) = θ_k^η γ_y

Where ranks go over several pages of results of n each, the curve begins anew on every page, for those readers
who turn to it:

    P(c_k) = θ_i^η τ^p γ_y        i = (k - 1) mod n + 1,  p = (k - 1) div n
"""

from typing import Annotated

import numpy as np
from pydantic import Field

from unskew.simulation.behaviours.behaviour import Independent, Probability, RankCurve, Shown
from unskew.types import Array


class PositionBias(RankCurve, Independent):
    """Users examine each rank with a probability of its own.

    >>> PositionBias(curve=(1.0, 0.5), severity=2.0).examination(3).tolist()
    [1.0, 0.25, 0.25]
    >>> PositionBias(curve=(1.0, 0.5), page_size=2, next_page=0.25).examination(4).tolist()
    [1.0, 0.5, 0.25, 0.125]
    """

    called = "position bias"

    page_size: Annotated[int, Field(ge=1)] | None = None
    """n, results of a page of results, where a list goes over several."""
    next_page: Probability = 0.5
    """τ, share of the readers of a page of results who turn to the next."""

    def examination(self, ranks: int) -> Array:
        """θ of ranks 1 to `ranks`, float32."""
        if self.page_size is None:
            return super().examination(ranks)
        page, place = np.divmod(np.arange(ranks), self.page_size)
        theta: Array = super().examination(self.page_size)[place] * np.float32(self.next_page) ** page
        return theta.astype(np.float32)

    def causes(self, shown: Shown) -> tuple[Array, Array, Array]:
        """θ_k^η γ_y, and both factors."""
        theta, gamma = self.examination(shown.where.shape[1]), self.relevance(shown)
        return theta * gamma, theta, gamma
