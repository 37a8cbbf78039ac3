"""What several methods share: a loss by name, levels, click logits, click probabilities.

Legend: B rows, K results of a page.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from unskew.learning.losses import LOSSES, LossName, log1mexp, page_count
from unskew.learning.methods.contract import Context, MethodConfig, MethodModule
from unskew.logs.counts.reduction import Reduction
from unskew.types import ClickBatch


class LevelConfig(MethodConfig):
    """Base of the configs whose loss fits how often anything is clicked."""

    centred: bool = True
    """Count relevance from its mean over what is shown, which the level takes up: the same model, but weights that
    move every document at once no longer stand in the way of those that tell documents apart. Read where the loss
    fits levels. Chosen on generated lists of 140, shown on fresh seeds of them: see EXPERIMENTS.md."""


class LossConfig(LevelConfig):
    """Base of the configs that choose a ranking loss."""

    loss: LossName = "softmax"
    """Which ranking loss to use."""

    @property
    def reduction(self) -> Reduction:
        """What the chosen loss can take."""
        return LOSSES[self.loss].reduction

    @property
    def needs_clickless(self) -> bool:
        """Only the pointwise loss reads them."""
        return self.loss == "sigmoid"

    @property
    def takes_weights(self) -> bool:
        """List softmax losses are linear in the clicks; the others count, or compare, them."""
        return self.loss in ("softmax", "softmax_list")


class Levelled(MethodModule):
    """A method whose loss fits levels, with relevance counted from its mean.

    In training that is the mean of the batch; afterwards a running mean stands in, as in batch normalisation.
    """

    centre: Tensor

    def __init__(self, config: MethodConfig, context: Context) -> None:
        super().__init__(config, context)
        self.register_buffer("centre", torch.zeros(1))

    def from_mean(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Relevance outputs [B, K, outputs] less their mean over what is shown, where that is asked for."""
        if not (self.fits_levels and isinstance(self.config, LevelConfig) and self.config.centred):
            return relevance
        if not self.training:
            return relevance - self.centre
        mean = shown_mean(relevance, batch)
        with torch.no_grad():
            self.centre.lerp_(mean, 0.1)
        return relevance - mean


def shown_mean(relevance: Tensor, batch: ClickBatch) -> Tensor:
    """Mean of each relevance output over impressions, [outputs]."""
    shown = torch.where(batch.where, batch.impressions, 0.0).unsqueeze(-1)
    total = (shown * relevance.where(shown > 0, 0.0)).sum((0, 1))
    return total / shown.sum().clamp(min=1e-12)


class ClickLogits(Levelled):
    """A method whose `logits` are those of clicks: P(click) = sig(z), or a list softmax of z, as its loss says."""

    @property
    def loss(self) -> LossName:
        """The config's, or the pointwise loss."""
        return self.config.loss if isinstance(self.config, LossConfig) else "sigmoid"

    @property
    def fits_levels(self) -> bool:
        """Whether a result is clicked has a level, which one of a page is clicked has none."""
        return self.loss == "sigmoid"

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """z of each shown result, [B, K]."""
        raise TypeError(f"{type(self).__name__} has no click logits")

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The loss of the click logits."""
        return LOSSES[self.loss].function(self.logits(self.from_mean(relevance, batch), batch), batch, None)

    def click_probability(self, relevance: Tensor, batch: ClickBatch) -> Tensor | None:
        """sig(z) under the pointwise loss."""
        z = self.logits(self.from_mean(relevance, batch), batch)
        return z.sigmoid() if self.loss == "sigmoid" else None

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """log sig(z) under the pointwise loss, else z itself."""
        z = self.logits(self.from_mean(relevance, batch), batch)
        return F.logsigmoid(z) if self.loss == "sigmoid" else z


class ClickProbabilities(Levelled):
    """A method that gives log P(click) of each result."""

    @property
    def fits_levels(self) -> bool:
        """A probability has a level."""
        return True

    def log_click(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """log P(click) of each shown result, [B, K]."""
        raise TypeError(f"{type(self).__name__} has no click probabilities")

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """log P(click)."""
        return self.log_click(self.from_mean(relevance, batch), batch)

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Cross-entropy of every result shown."""
        return log_probability_loss(self.click_scores(relevance, batch), batch)

    def click_probability(self, relevance: Tensor, batch: ClickBatch) -> Tensor | None:
        """P(click)."""
        return self.click_scores(relevance, batch).exp()


def log_probability_loss(log_p: Tensor, batch: ClickBatch) -> Tensor:
    """-(c log p + (n - c) log(1 - p)) summed over pages and averaged over pages, from log p [B, K]."""
    log_p = torch.where(batch.where, log_p, -1.0)
    loss = batch.clicks * log_p + (batch.impressions - batch.clicks) * log1mexp(log_p)
    return -torch.where(batch.where, loss, 0.0).sum() / page_count(batch.where, batch.impressions)
