"""What scores documents; `RANKERS` lists them."""

from unskew.learning.rankers.networks import MLP, Linear
from unskew.learning.rankers.text.rankers import CrossEncoder, DoublyRobustMix, VanillaMix
from unskew.learning.rankers.trees import Trees

Ranker = MLP | Linear | Trees | CrossEncoder | VanillaMix | DoublyRobustMix
RANKERS: dict[str, type[Ranker]] = {
    "mlp": MLP,
    "linear": Linear,
    "trees": Trees,
    "cross_encoder": CrossEncoder,
    "vanilla_mix": VanillaMix,
    "doubly_robust_mix": DoublyRobustMix,
}
"""Rankers that can be asked for by name."""

__all__ = ["MLP", "RANKERS", "CrossEncoder", "DoublyRobustMix", "Linear", "Ranker", "Trees", "VanillaMix"]
