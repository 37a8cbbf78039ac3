"""What scores documents; `RANKERS` lists them."""

from unskew.learning.rankers.networks import MLP, Linear
from unskew.learning.rankers.trees import Trees

Ranker = MLP | Linear | Trees
RANKERS: dict[str, type[MLP] | type[Linear] | type[Trees]] = {"mlp": MLP, "linear": Linear, "trees": Trees}
"""Rankers that can be asked for by name."""

__all__ = ["MLP", "RANKERS", "Linear", "Ranker", "Trees"]
