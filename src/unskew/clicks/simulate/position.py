"""Position-based model: a result is clicked if its rank is examined and it is found relevant.

T. Joachims et al., "Accurately interpreting clickthrough data as implicit feedback", SIGIR 2005 (the curve);
M. Richardson et al., "Predicting clicks", WWW 2007 (the model).

    P(c_k) = θ_k^η γ_y
"""

from __future__ import annotations

from unskew.clicks.simulate.behaviour import Examined, RankCurve, Shown
from unskew.types import Array


class PositionBias(RankCurve, Examined):
    """Users examine each rank with a probability of its own.

    >>> PositionBias(curve=(1.0, 0.5), severity=2.0).examination(3).tolist()
    [1.0, 0.25, 0.25]
    """

    def theta(self, shown: Shown) -> Array:
        """θ_k^η, [K]."""
        return self.examination(shown.where.shape[1])
