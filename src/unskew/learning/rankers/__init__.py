"""What scores documents; `RANKERS` lists them."""

from unskew.learning.rankers.networks import MLP, DoublyRobustMLP, Linear
from unskew.learning.rankers.text_rankers import CrossEncoder, DoublyRobustMix, VanillaMix
from unskew.learning.rankers.trees import Trees

Ranker = MLP | Linear | Trees | DoublyRobustMLP | CrossEncoder | VanillaMix | DoublyRobustMix
RANKERS: dict[str, type[Ranker]] = {
    "mlp": MLP,
    "linear": Linear,
    "trees": Trees,
    "doubly_robust_mlp": DoublyRobustMLP,
    "cross_encoder": CrossEncoder,
    "vanilla_mix": VanillaMix,
    "doubly_robust_mix": DoublyRobustMix,
}
"""Rankers that can be asked for by name."""

__all__ = [
    "MLP",
    "RANKERS",
    "CrossEncoder",
    "DoublyRobustMLP",
    "DoublyRobustMix",
    "Linear",
    "Ranker",
    "Trees",
    "VanillaMix",
]
