"""PAL: P(click) = P(seen at this rank) * P(clicked if seen), both learned together.

Reference: Guo et al., "PAL: A Position-bias Aware Learning Framework for CTR Prediction in Live Recommender
Systems", RecSys 2019.

    P(c = 1) = sig(e_k) sig(f(x_k) + l)        cross-entropy over every result shown;  rank by f

With further factors P(seen) is a product over them.

Differences from the paper: the level l is apart from relevance, and with e_k starts at the click rates; the
product is taken in log space, log(1 - p) through log1mexp.
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from unskew.learning.factors import Values
from unskew.learning.losses import log_odds
from unskew.learning.methods.bases import BiasConfig, Biased, ClickLogits, LevelConfig, log_product, seen_model
from unskew.learning.methods.contract import Context
from unskew.types import ClickBatch


class PALMethod(ClickLogits, Biased):
    """Cross-entropy of a product of two probabilities."""

    def __init__(self, config: PAL, context: Context) -> None:
        super().__init__(config, context)
        self.seen, self.level = seen_model(config, context, self.factors)

    def log_seen(self, values: Values) -> Tensor:
        """log sig(e) at these values of the factors."""
        return log_product(self.seen.parts(values))

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The logit of sig(e) sig(f + l)."""
        f = self.score(relevance, batch.where) + self.level
        return log_odds(self.log_seen(self.factors.of(batch)) + F.logsigmoid(f))


class PAL(BiasConfig, LevelConfig):
    """Multiply the probability of being seen with that of being clicked once seen."""

    module = PALMethod
    name: Literal["pal"] = "pal"
