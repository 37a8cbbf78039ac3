"""BAL with a graph that is given and not found: the baselines of its paper.

Reference: Mao et al., "Whole Page Unbiased Learning to Rank", WWW 2024.

    pb_bal    position -> click <- relevance
    fb_bal    relevance -> x -> click for every x that the page shows, and relevance -> click

Differences from the paper: those of `bal`.
"""

from __future__ import annotations

from typing import Literal

from unskew.diagnosis.causal.graph import CLICK, POSITION, CausalGraph, full_graph, graph_of
from unskew.learning.methods.bal import BALConfig


class PBBAL(BALConfig):
    """BAL with the graph of position bias: the rank and relevance alone cause clicks."""

    name: Literal["pb_bal"] = "pb_bal"

    def known(self, names: tuple[str, ...]) -> CausalGraph:
        """The graph in which the rank causes clicks, and nothing else does but relevance."""
        return graph_of(names, [(POSITION, CLICK)])


class FBBAL(BALConfig):
    """BAL with the full graph: relevance causes all that the page shows, and all of it causes clicks."""

    name: Literal["fb_bal"] = "fb_bal"

    def known(self, names: tuple[str, ...]) -> CausalGraph:
        """relevance -> x -> click for every x."""
        return full_graph(names)
