"""What a learner is: a frozen config; and what a method is: a config that builds a module with a few functions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from unskew.errors import ConfigError
from unskew.examination import Examination
from unskew.learning.curves import EXAMINATION, Curve
from unskew.learning.losses import softmax_loss
from unskew.logs.counts.reduction import Counts, Facts, Reduction, by_query, reduce_log
from unskew.logs.presentation import NO_COLUMNS, Presentation
from unskew.settings import Config
from unskew.types import ClickBatch, Log

Choice = Literal["labels", "clicks", "nothing"]
"""What weights are chosen by: labelled lists, held-out clicks, or the last step."""
Measurement = Literal["randomized", "swaps", "oracle"]
"""How propensities can be measured on a log."""
LearnFrom = Literal["everything", "displayed", "randomized"]
"""Which impressions are learned from: all, those in view, or those that were shown first at random."""


@dataclass(frozen=True)
class Context:
    """What a method may know before training: never the log itself."""

    positions: int
    """How many ranks the log shows."""
    facts: Facts | None = None
    """The log in numbers; None where trained weights are about to be loaded."""
    presentation: Presentation = NO_COLUMNS
    """How the columns that the method takes as bias factors besides the rank are encoded."""
    propensities: Examination | None = None
    """Examination by rank, measured as the method asked for; None where it asked for nothing."""

    def click_rates(self) -> Tensor:
        """Click rate at each rank, [P], where levels start, so that relevance need not learn them; a half unknown.

        A rank that was seldom shown leans towards the rate of the log, as if shown ten times more at that rate.
        """
        if self.facts is None:
            return torch.full((self.positions,), 0.5)
        shown, clicked = torch.zeros(2, self.positions)
        counts = torch.as_tensor(self.facts.by_rank[:, : self.positions], dtype=torch.float32)
        shown[: counts.shape[1]], clicked[: counts.shape[1]] = counts
        rates: Tensor = (clicked + 10 * self.facts.click_rate) / (shown + 10)
        return rates.clamp(1e-4, 1 - 1e-4)


class Learner(Config):
    """Base of all that `method =` may name: frozen, strict, unknown keys forbidden."""

    name: str
    target: ClassVar[Literal["clicks", "labels"]] = "clicks"
    fitted_by: ClassVar[Literal["ranker", "package"]] = "ranker"
    """Who is trained: a ranker of ours, or a package that brings its own."""
    usual_scaling: ClassVar[str] = "standard"
    usual_rows: ClassVar[LearnFrom] = "everything"
    """What is learned from unless the settings say."""
    click_metric: ClassVar[str] = "clicks"
    """What held-out clicks choose by, as reports name it."""

    @property
    def serp(self) -> tuple[str, ...]:
        """Columns of the log that the method takes as bias factors besides the rank."""
        return ()

    @property
    def compared(self) -> tuple[str, ...]:
        """Columns that must differ between the results of a page, as the method compares only these."""
        return ()

    @property
    def bins(self) -> int:
        """How many bins a continuous factor is cut into; 0 leaves it as it is."""
        return 10

    @property
    def needs_clickless(self) -> bool:
        """Whether pages without a click must be in the log."""
        return False

    @property
    def takes_weights(self) -> bool:
        """Whether feedback may be a weight (purchases, seconds) and not a click: losses linear in the clicks."""
        return False

    @property
    def settles(self) -> bool:
        """Whether it takes something from labelled validation lists, as it was asked to."""
        return False

    @property
    def measured(self) -> Measurement | None:
        """How the log's propensities are to be measured before training; None where the method needs none."""
        return None

    def usual_choice(self, *, labels: bool, clicks: bool = False) -> Choice:
        """What chooses the weights unless the settings say: validation lists, else held-out clicks."""
        return "labels" if labels else "clicks"

    def refused(self, *, ranker: bool, training: frozenset[str]) -> ConfigError | None:
        """What is wrong with a setting that was given and would not be heeded; None where all are."""
        return None

    def located(self, folder: Path) -> Self:
        """The same with relative paths taken from this folder; most name no files."""
        return self


class MethodConfig(Learner):
    """Base of the configs that train any ranker with a loss of their own."""

    module: ClassVar[type[MethodModule]]
    """The method that it is the config of."""

    @property
    def reduction(self) -> Reduction:
        """How far the log may be reduced before this loss without changing its gradient."""
        return "counts"

    @property
    def unseen(self) -> int | None:
        """How many documents that were never shown join those of a query, a row for each query; None: none do."""
        return None

    @property
    def averages(self) -> tuple[str, ...]:
        """Columns of numbers whose mean over the pages of a row the method reads, where the log has them."""
        return ()

    def table(self, log: Log, presentation: Presentation = NO_COLUMNS) -> Counts:
        """The rows of a log that the method trains on."""
        counts = reduce_log(log, self.reduction, presentation=presentation, averages=self.averages)
        return counts if self.unseen is None else by_query(counts, self.unseen)

    def build(self, context: Context) -> MethodModule:
        """The module with this config's settings, its parameters at their start."""
        return self.module(self, context)


class ImpressionConfig(MethodConfig):
    """Base of the configs whose method models every impression, clicked or not."""

    @property
    def needs_clickless(self) -> bool:
        """Pages without a click say as much as the others."""
        return True


class ListConfig(MethodConfig):
    """Base of the configs whose loss is a list softmax of clicks, which is linear in them."""

    takes_weights: ClassVar[bool] = True


@dataclass(frozen=True)
class Side:
    """A second network that a method wants beside the ranker, on the same documents."""

    sizes: tuple[int, ...]
    """Its hidden units."""
    width: int
    """How many outputs it has."""
    later: bool
    """Goes on alone when the ranker is trained."""
    penalty: float
    """lambda, the L2 penalty on its weights."""


class MethodModule(nn.Module):
    """Turns relevance outputs [B, K, outputs] and clicks into one loss; what it knows of bias is its parameters.

    The defaults are what most methods share: one output that is itself the score, and no propensities.
    """

    outputs = 1
    """Width of the relevance tower that it needs."""
    input_gradient = False
    """Whether the loss differentiates the relevance outputs with respect to the documents."""
    boosted: int | None = None
    """How many outputs, from the first on, trees give; a network beside them gives the rest. None: all of them."""
    at_zero: slice = slice(0, 0)
    """Outputs that a network gives as 0 before it is trained."""
    side: Side | None = None
    fits_levels = False
    """Whether the loss fits how often anything is clicked, which then has parameters of its own."""
    linear = True
    """Whether the score is linear in the outputs."""

    def __init__(self, config: MethodConfig, context: Context) -> None:
        """What it learns starts from the config and from what is known of the log."""
        super().__init__()
        self.config, self.positions = config, context.positions

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The loss of a batch: here the list softmax loss of what it takes for the log of click rates."""
        return softmax_loss(self.click_scores(relevance, batch), batch.clicks, where=batch.where)

    def score_weights(self) -> Tensor | None:
        """w [outputs] where the score is relevance . w + constant; None where it is not linear."""
        return torch.eye(self.outputs)[0] if self.linear else None

    def score(self, relevance: Tensor, where: Tensor) -> Tensor:
        """What serving ranks by, [B, K]: the first relevance output, 0 where padded."""
        return relevance[..., 0].where(where, 0.0)

    def side_loss(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """What the second network learns when it goes on alone."""
        raise TypeError(f"{type(self).__name__} has no second network to train alone")

    def settle(self, relevance: Tensor, labels: Tensor, where: Tensor) -> None:
        """Take from a few labelled lists, grades [B, K], what the method was asked to take from labels."""
        raise TypeError(f"{type(self).__name__} takes nothing from labels")

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Log click rate of each shown result up to a constant per list, [B, K]; here clicks follow the score."""
        return self.score(relevance, batch.where)

    def click_probability(self, relevance: Tensor, batch: ClickBatch) -> Tensor | None:
        """P(click) of each shown result, [B, K]; None where the method models only which result is clicked."""
        return None

    def propensity(self) -> Tensor | None:
        """Examination relative to rank 1, [P]; None where the method has no such thing."""
        return None

    def curves(self) -> tuple[Curve, ...]:
        """All that it learned of bias, for the report; examination first, where it has one."""
        seen = self.propensity()
        return () if seen is None else (Curve.of(EXAMINATION, seen.tolist()),)

    def notes(self) -> dict[str, Any]:
        """What else a report of training should say of it as it is now, for JSON."""
        return {}
