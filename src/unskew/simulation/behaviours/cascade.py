"""Cascade model: users read from the top and leave with their first click.

N. Craswell et al., "An experimental comparison of click position-bias models", WSDM 2008.

    P(e_1) = 1,   P(e_k | no click above) = 1,   P(e_k | a click above) = 0,   P(c_k | e_k) = γ_y
"""

from unskew.simulation.behaviours.behaviour import Sequential, Shown, masked, reached
from unskew.types import Array


class Cascade(Sequential):
    """Users examine every rank down to their first and only click."""

    called = "cascade"

    def move_on(self, rank: int, state: Array, click: Array, relevance: Array) -> Array:
        """Nobody looks further after a click."""
        return state * ~click

    def click_probability(self, shown: Shown) -> Array:
        """γ_k ∏_{j<k} (1 - γ_j), as nothing above may have been clicked."""
        gamma = masked(shown, self.relevance(shown))
        return masked(shown, gamma * reached(1 - gamma))
