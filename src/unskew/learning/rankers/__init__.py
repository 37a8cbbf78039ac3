"""What scores documents; `RANKERS` lists them."""

from unskew.learning.rankers.networks import MLP as MLP
from unskew.learning.rankers.networks import DoublyRobustMLP as DoublyRobustMLP
from unskew.learning.rankers.networks import Linear as Linear
from unskew.learning.rankers.text_rankers import CrossEncoder as CrossEncoder
from unskew.learning.rankers.text_rankers import DoublyRobustMix as DoublyRobustMix
from unskew.learning.rankers.text_rankers import VanillaMix as VanillaMix
from unskew.learning.rankers.trees import Trees as Trees

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
