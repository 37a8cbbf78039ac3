"""What every method is: a frozen config that builds a module, and the module's few functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from unskew.clicks.counts.batches import Batches
from unskew.clicks.counts.reduction import Reduction
from unskew.types import ClickBatch, Log


@runtime_checkable
class Method(Protocol):
    """Turns relevance outputs and clicks into one loss; what it knows of bias is its own parameters."""

    outputs: int
    """Width of the relevance tower that it needs."""

    def __call__(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The loss of relevance outputs [B, K, outputs] on a batch."""

    def score(self, relevance: Tensor, where: Tensor) -> Tensor:
        """What serving ranks by, [B, K]."""

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Log click rate of each shown result up to a constant per list, [B, K]: the method's click model."""

    def click_probability(self, relevance: Tensor, batch: ClickBatch) -> Tensor | None:
        """P(click) of each shown result, [B, K]; None where the method models only which result is clicked."""

    def propensity(self) -> Tensor | None:
        """Examination relative to rank 1, [P], for the report; None where the method has no such thing."""


@dataclass(frozen=True)
class Context:
    """What a method may look at before training."""

    positions: int
    """How many ranks the log shows."""
    log: Log | None
    """The log, whose labels no method reads; None where trained weights are about to be loaded."""
    factors: Mapping[str, int] = field(default_factory=dict)
    """Number of values of each bias factor besides the rank, for methods that name some."""


class MethodConfig(BaseModel):
    """Base of all method configs: frozen, strict, unknown keys forbidden."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    target: ClassVar[Literal["clicks", "labels"]] = "clicks"

    @property
    def reduction(self) -> Reduction:
        """How far the log may be reduced before this loss without changing its gradient."""
        return "counts"

    @property
    def serp(self) -> tuple[str, ...]:
        """Columns of the log that the method takes as bias factors besides the rank."""
        return ()

    @property
    def needs_clickless(self) -> bool:
        """Whether pages without a click must be in the log."""
        return False

    def build(self, context: Context) -> MethodModule:
        """The method, ready to train."""
        raise TypeError(f"{type(self).__name__} does not build a method")


class ImpressionConfig(MethodConfig):
    """Base of the configs whose method models every impression, clicked or not."""

    @property
    def needs_clickless(self) -> bool:
        """Pages without a click say as much as the others."""
        return True


class MethodModule(nn.Module):
    """Defaults that most methods share: one relevance output that is itself the score, and no propensities."""

    outputs = 1
    input_gradient = False
    """Whether the loss differentiates the relevance outputs with respect to the features."""
    boosted: int | None = None
    """How many outputs, from the first on, trees give; a network beside them gives the rest. None: all of them."""

    def tower(self, ranker: nn.Module, features: int) -> nn.Module:
        """The ranker as this method needs it; most take it as it is."""
        return ranker

    def finish(self, ranker: nn.Module, batches: Batches, steps: int) -> None:
        """What remains to be learned once the ranker has its final weights; mostly nothing."""

    def score(self, relevance: Tensor, where: Tensor) -> Tensor:
        """The first relevance output, 0 where padded."""
        return relevance[..., 0].where(where, 0.0)

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Clicks follow the score alone."""
        return self.score(relevance, batch.where)

    def click_probability(self, relevance: Tensor, batch: ClickBatch) -> Tensor | None:
        """No probabilities."""
        return None

    def propensity(self) -> Tensor | None:
        """No propensities."""
        return None
