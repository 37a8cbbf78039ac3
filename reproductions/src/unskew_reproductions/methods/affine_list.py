"""List-wise affine model: the score is stretched and shifted by two numbers per rank before the click softmax.

Reference: the affine baseline in the published code of Chen et al., "Scalar is Not Enough: Vectorization-based
Unbiased Learning to Rank", KDD 2022; after Vardasbi et al., CIKM 2020.

    z_k = a_k f(x_k) + b_k        minimise the list softmax loss of z on clicks;  rank by f

It is vectorization with d = 2 whose second relevance coordinate is 1 and whose base vector is (1, 0).

Differences from the paper: a_k = exp(u_k) is positive, where the published code leaves its sign free, and f may
come out turned round; the EM method of Vardasbi et al. is `affine`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from unskew.learning.curves import Curve
from unskew.learning.factors import at_rank
from unskew.learning.methods.contract import Context, ListConfig, MethodModule
from unskew.types import ClickBatch


class AffineListMethod(MethodModule):
    """Softmax loss of a f + b."""

    def __init__(self, config: AffineList, context: Context) -> None:
        super().__init__(config, context)
        self.stretch = nn.Parameter(torch.zeros(context.positions))  # log a
        self.shift = nn.Parameter(torch.ones(context.positions))  # b

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """a_k f + b_k."""
        log_a, b = (at_rank(values, batch.position) for values in (self.stretch, self.shift))
        return log_a.exp() * self.score(relevance, batch.where) + b

    def curves(self) -> tuple[Curve, ...]:
        """a_k and b_k."""
        tables = (("stretch of the score", self.stretch.exp()), ("shift of the score", self.shift))
        return tuple(Curve.of(what, table.tolist(), relative=False) for what, table in tables)


class AffineList(ListConfig):
    """Stretch and shift the score by two numbers per rank."""

    module = AffineListMethod
    name: Literal["affine_list"] = "affine_list"
