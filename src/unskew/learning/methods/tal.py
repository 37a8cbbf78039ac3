"""TAL: the trust-bias click model with its two probabilities per rank learned together with the ranker.

Reference: Agarwal et al., "Addressing Trust Bias for Unbiased Learning-to-Rank", WWW 2019, as the trust-aware
learning baseline.

    P(c = 1) = z+_k g + z-_k (1 - g)        g = sig(f(x) + l),  z+ = theta eps+,  z- = theta eps-;  rank by f

Differences from the paper: theta, eps+ and eps- are three numbers per rank of which clicks determine two. We learn
z+ = sig(u) and z- = z+ sig(v), so z+ >= z- and relevance cannot change its sign. Both start from the click rates,
a quarter of which trust explains. With further factors z+ is a product and v a sum over them.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from unskew.learning.curves import ALPHA, POSITION, Curve, trust_curves
from unskew.learning.factors import Values
from unskew.learning.losses import log_odds
from unskew.learning.methods.bases import BiasConfig, Biased, ClickLogits, LevelConfig, log_product, seen_model
from unskew.learning.methods.contract import Context
from unskew.types import ClickBatch


def shared_start(level: Tensor) -> tuple[Tensor, Tensor]:
    """Logits v and l so that z-/z+ = p / 4 and g + (1 - g) z-/z+ = p, where p = sig(level) are clicked once seen.

    Started higher, trust alone would explain more clicks than there are, and g would fall to 0 before it tells
    documents apart.

    >>> [round(logit.sigmoid().item(), 6) for logit in shared_start(torch.tensor(0.2).logit())]  # 0.15 / 0.95
    [0.05, 0.157895]
    """
    p = level.sigmoid()
    return (p / 4).logit(), (0.75 * p / (1 - p / 4)).logit()


class TALMethod(ClickLogits, Biased):
    """Cross-entropy of the trust-bias click probability."""

    meaning = ALPHA  # clicks do not tell how much of it is examination

    def __init__(self, config: TAL, context: Context) -> None:
        super().__init__(config, context)
        self.relevant, level = seen_model(config, context, self.factors)
        trusted, level.data = shared_start(level.data)
        self.level = level
        self.trusted = config.model(self.factors, self.factors.shares(trusted.expand(self.positions)), trusted)

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The logit of P(c = 1), with log P(c = 1) = log z+ + log(g + (1 - g) sig(v))."""
        values = self.factors.of(batch)
        f, v = self.score(relevance, batch.where) + self.level, self.trusted(values)
        either = torch.logaddexp(F.logsigmoid(f), F.logsigmoid(-f) + F.logsigmoid(v))
        return log_odds(log_product(self.relevant.parts(values)) + either)

    def log_seen(self, values: Values) -> Tensor:
        """log alpha = log z+ (1 - sig(v))."""
        return log_product(self.relevant.parts(values)) + F.logsigmoid(-self.trusted(values))

    def affine(self) -> tuple[Tensor, Tensor]:
        """alpha_k = z+ - z- and beta_k = z- by rank, up to the scale that g takes up."""
        values = self.factors.ranks()
        with torch.no_grad():
            plus, trust = log_product(self.relevant.parts(values)).exp(), self.trusted(values).sigmoid()
        return plus * (1 - trust), plus * trust

    def curves(self) -> tuple[Curve, ...]:
        """alpha and beta by rank, alpha by the values of other factors."""
        alpha, beta = self.affine()
        own = trust_curves(alpha.tolist(), beta.tolist()) if self.factors.rank else ()
        return (*own, *(curve for curve in super().curves() if curve.factor != POSITION))


class TAL(BiasConfig, LevelConfig):
    """Let high ranks be clicked for being high, too."""

    module = TALMethod
    name: Literal["tal"] = "tal"
