"""Position-based model: a result is clicked if its rank is examined and it is found relevant.

T. Joachims et al., "Accurately interpreting clickthrough data as implicit feedback", SIGIR 2005 (the curve);
M. Richardson et al., "Predicting clicks", WWW 2007 (the model).

    P(c_k) = θ_k^η γ_y
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from unskew.clicks.simulate.behaviour import EYE_TRACKING, Curve, Examined, Shown, at_ranks
from unskew.types import Array


class PositionBias(Examined):
    """Users examine each rank with a probability of its own.

    >>> PositionBias(curve=(1.0, 0.5), severity=2.0).examination(3).tolist()
    [1.0, 0.25, 0.25]
    """

    curve: Curve = EYE_TRACKING
    """Examination probability θ of ranks 1, 2, ...; ranks beyond its end reuse the last value."""
    severity: Annotated[float, Field(ge=0.0)] = 1.0
    """Power η of the curve: 0 is no bias, 2 is a strong one."""

    def examination(self, ranks: int) -> Array:
        """θ_k^η of ranks 1 to `ranks`, float32."""
        return (at_ranks(self.curve, ranks) ** self.severity).astype(np.float32)

    def theta(self, shown: Shown) -> Array:
        """θ_k^η, [K]."""
        return self.examination(shown.where.shape[1])
