"""TAL: the trust-bias click model with its two probabilities per rank learned together with the ranker.

Reference: Agarwal et al., "Addressing Trust Bias for Unbiased Learning-to-Rank", WWW 2019, as the trust-aware
learning baseline.

    P(c = 1) = z+_k g + z-_k (1 - g)        g = sig(f(x) + l),  z+ = theta eps+,  z- = theta eps-;  rank by f

Differences from the paper: theta, eps+ and eps- are three numbers per rank of which clicks determine two. We learn
z+ = sig(u) and z- = z+ sig(v), so z+ >= z- and relevance cannot change its sign.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unskew.learning.bias import PositionTable
from unskew.learning.curves import Curve, trust_curves
from unskew.learning.methods.contract import Context, ImpressionConfig
from unskew.learning.methods.skeletons import ClickProbabilities, LevelConfig
from unskew.types import ClickBatch


class TALMethod(ClickProbabilities):
    """Cross-entropy of the trust-bias click probability."""

    def __init__(self, config: TAL, context: Context) -> None:
        super().__init__(config, context)
        seen, level = context.factored_rates(0.9)
        self.relevant, self.level = PositionTable(context.positions, seen), nn.Parameter(level)
        self.trusted = PositionTable(context.positions, start=-2.0)

    def log_click(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """log P(c = 1) = log z+ + log(g + (1 - g) sig(v))."""
        f, v = self.score(relevance, batch.where) + self.level, self.trusted(batch.position)
        either = torch.logaddexp(F.logsigmoid(f), F.logsigmoid(-f) + F.logsigmoid(v))
        return F.logsigmoid(self.relevant(batch.position)) + either

    def affine(self) -> tuple[Tensor, Tensor]:
        """alpha_k = z+ - z- and beta_k = z-, up to the scale that g takes up."""
        plus = self.relevant.values.detach().sigmoid()
        minus = plus * self.trusted.values.detach().sigmoid()
        return plus - minus, minus

    def curves(self) -> tuple[Curve, ...]:
        """alpha and beta; clicks do not tell how much of them is examination."""
        alpha, beta = self.affine()
        return trust_curves(alpha.tolist(), beta.tolist())


class TAL(LevelConfig, ImpressionConfig):
    """Let high ranks be clicked for being high, too."""

    module = TALMethod
    name: Literal["tal"] = "tal"
