"""Dynamic Bayesian network model: users read on until a click satisfies them or they lose patience.

O. Chapelle and Y. Zhang, "A dynamic Bayesian network click model for web search ranking", WWW 2009.

    P(e_1) = 1,   P(c_k | e_k) = γ_y,   P(s_k | c_k) = σ γ_y,
    P(e_{k+1} | e_k, not s_k) = λ,   P(e_{k+1} | s_k or not e_k) = 0

Satisfaction and examination are never seen; the state kept here is the examination probability given the
clicks so far, which draws from the same law:

    click:     P(e_{k+1}) = λ (1 - σ γ)
    no click:  P(e_{k+1}) = λ e_k (1 - γ)/(1 - e_k γ)

Differences from the paper: satisfaction is a fixed multiple of attractiveness, not a parameter per document.
"""

import numpy as np

from unskew.simulation.behaviours.behaviour import Probability, Sequential, Shown, masked, reached
from unskew.types import Array


class DynamicBayesian(Sequential):
    """Users leave when satisfied or out of patience."""

    called = "dynamic bayesian"

    satisfaction: Probability = 0.7
    """Factor σ: a clicked result satisfies with probability σ γ. The default is our choice."""
    continuation: Probability = 0.9
    """Probability λ of going on to the next rank when not satisfied; 0.9 is the usual choice."""

    def move_on(self, rank: int, state: Array, click: Array, relevance: Array) -> Array:
        """Chance that users go on, after a click and after none."""
        missed = state * (1 - relevance) / np.maximum(1 - state * relevance, np.float32(1e-12))
        return np.float32(self.continuation) * np.where(
            click, 1 - np.float32(self.satisfaction) * relevance, missed
        )

    def click_probability(self, shown: Shown) -> Array:
        """γ_k ∏_{j<k} λ (1 - σ γ_j²)."""
        gamma = masked(shown, self.relevance(shown))
        return masked(shown, gamma * reached(self.continuation * (1 - self.satisfaction * gamma**2)))
