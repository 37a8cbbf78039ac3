"""List-wise affine model: the score is stretched and shifted by two numbers per rank before the click softmax.

Reference: the affine baseline in the published code of Chen et al., "Scalar is Not Enough: Vectorization-based
Unbiased Learning to Rank", KDD 2022; after Vardasbi et al., CIKM 2020.

    z_k = a_k f(x_k) + b_k        minimise the list softmax loss of z on clicks;  rank by f

It is vectorization with d = 2 whose second relevance coordinate is 1 and whose base vector is (1, 0).

Differences from the paper: none known; the EM method of Vardasbi et al. is `affine`.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from unskew.learning.bias import PositionTable
from unskew.learning.losses import softmax_loss
from unskew.learning.methods.contract import Context, MethodConfig, MethodModule
from unskew.types import ClickBatch


class AffineList(MethodConfig):
    """Stretch and shift the score by two numbers per rank."""

    name: Literal["affine_list"] = "affine_list"

    def build(self, context: Context) -> AffineListMethod:
        """The method, with two numbers per rank of the log."""
        return AffineListMethod(context.positions)


class AffineListMethod(MethodModule):
    """Softmax loss of a f + b."""

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.stretch = PositionTable(positions, start=1.0)
        self.shift = PositionTable(positions, start=1.0)

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """a_k f + b_k."""
        z: Tensor = self.stretch(batch.position) * self.score(relevance, batch.where) + self.shift(batch.position)
        return z

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The list softmax loss on clicks."""
        return softmax_loss(self.click_scores(relevance, batch), batch.clicks, where=batch.where)
