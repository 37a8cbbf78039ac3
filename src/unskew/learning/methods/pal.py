"""PAL: P(click) = P(seen at this rank) * P(clicked if seen), both learned together.

Reference: Guo et al., "PAL: A Position-bias Aware Learning Framework for CTR Prediction in Live Recommender
Systems", RecSys 2019.

    P(c = 1) = sig(e_k) sig(f(x_k) + l)        cross-entropy over every result shown;  rank by f

Differences from the paper: the level l is apart from relevance, and with e_k starts at the click rates; the
product is taken in log space, log(1 - p) through log1mexp.
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from unskew.learning.bias import PositionTable
from unskew.learning.methods.contract import Context, ImpressionConfig
from unskew.learning.methods.skeletons import ClickProbabilities, LevelConfig
from unskew.types import ClickBatch


class PALMethod(ClickProbabilities):
    """Cross-entropy of a product of two probabilities."""

    def __init__(self, config: PAL, context: Context) -> None:
        super().__init__(config, context)
        seen, level = context.factored_rates(0.9)
        self.seen, self.level = PositionTable(context.positions, seen), nn.Parameter(level)

    def log_click(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """log sig(e) + log sig(f + l)."""
        f = self.score(relevance, batch.where) + self.level
        return F.logsigmoid(self.seen(batch.position)) + F.logsigmoid(f)

    def propensity(self) -> Tensor:
        """sig(e_k) / sig(e_1)."""
        seen = self.seen.values.detach().sigmoid()
        return seen / seen[0]


class PAL(LevelConfig, ImpressionConfig):
    """Multiply the probability of being seen with that of being clicked once seen."""

    module = PALMethod
    name: Literal["pal"] = "pal"
