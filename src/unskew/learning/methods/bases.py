"""What methods share: a loss by name, levels, click logits, and a model of bias by factors with what is reported.

Naming a factor adds it to the rank. A logit of bias is a sum over factors, a probability of being seen a product:

    e = e_k + e_v + ...        P(seen) = sig(e_k) sig(e_v) ...

so in both the ratio between two values of a factor is the same at every rank; a tower may let them interact, and
what it says of one factor holds where the others are at their reference.

Legend: B rows, K results of a page, P ranks, W width of an output.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from unskew.learning.curves import EXAMINATION, POSITION, Curve
from unskew.learning.factors import PAGE_NUMBER, Bias, BiasTable, BiasTower, Factors, Values, at_rank
from unskew.learning.losses import LOSSES, LossName
from unskew.learning.methods.contract import Context, ImpressionConfig, MethodConfig, MethodModule
from unskew.logs.counts.reduction import Reduction
from unskew.types import ClickBatch

# ---- levels, and clicks from logits ----


class LevelConfig(ImpressionConfig):
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

    config: LevelConfig
    fits_levels = True
    centre: Tensor

    def __init__(self, config: LevelConfig, context: Context) -> None:
        super().__init__(config, context)
        self.register_buffer("centre", torch.zeros(1))

    def from_mean(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Relevance outputs [B, K, outputs] less their mean over what is shown, where that is asked for."""
        if not (self.fits_levels and self.config.centred):
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

    def __init__(self, config: LevelConfig, context: Context) -> None:
        self.loss: LossName = config.loss if isinstance(config, LossConfig) else "sigmoid"
        self.fits_levels = self.loss == "sigmoid"  # which one of a page is clicked has no level
        super().__init__(config, context)

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


# ---- bias by factors ----


class FactorConfig(MethodConfig):
    """Base of the configs that say what bias depends on."""

    factors: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Columns of the log that bias depends on besides the rank, such as serp_device."""
    position: bool = True
    """Whether bias depends on the rank; false leaves it to the factors alone."""
    page_size: Annotated[int, Field(ge=1)] | None = None
    """Results of a page of results, where a log has several: the rank on its page and page_number are factors."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        own = (POSITION,) if self.page_size is None else (POSITION, PAGE_NUMBER)
        twice = [name for name in self.factors if name in own or self.factors.count(name) > 1]
        if twice:
            raise ValueError(f"factors: {twice[0]} is one already")
        if not self.position and (not self.factors or self.page_size is not None):
            raise ValueError("position = false needs factors in its place, and no page_size")
        return self

    @property
    def serp(self) -> tuple[str, ...]:
        """The factors that are columns of the log."""
        return self.factors


class BiasConfig(FactorConfig):
    """Base of the configs that choose what models bias."""

    bias: Literal["table", "tower"] = "table"
    """Free numbers for the values of each factor, or a small network on all of them, which may interact."""

    @property
    def bins(self) -> int:
        """A network takes numbers as they are."""
        return 0 if self.bias == "tower" else super().bins

    def model(self, factors: Factors, starts: dict[str, Tensor], level: Tensor) -> Bias:
        """A table or a tower that starts here; at `level` where no factor becomes codes."""
        if self.bias == "tower":
            return BiasTower(factors, starts, level, sizes=(16, 16) if level.ndim else (8, 4))
        return BiasTable(factors, starts)


class ListBiasConfig(BiasConfig):
    """Base of the configs whose loss may see only which result of a page is clicked."""

    @property
    def compared(self) -> tuple[str, ...]:
        """What is the same for a whole page cancels, unless a tower lets it interact with the rank."""
        return self.factors if self.takes_weights and self.bias == "table" else ()


class Biased(MethodModule):
    """A method whose bias depends on factors, and which reports the ratios of `log_seen`."""

    meaning = EXAMINATION
    """What the ratios are; nothing is reported where it is empty."""

    def __init__(self, config: FactorConfig, context: Context) -> None:
        super().__init__(config, context)
        self.factors = Factors(context.positions, context.presentation, config.position, config.page_size)

    def log_seen(self, values: Values) -> Tensor:
        """The log of what is reported, up to a constant, at these values of the factors."""
        raise TypeError(f"{type(self).__name__} does not say what is seen")

    def ratios(self, values: Values) -> Tensor:
        """What is reported relative to the first of these values."""
        with torch.no_grad():
            log = self.log_seen(values)
        return (log - log[0]).exp()

    def by_rank(self, model: Bias, batch: ClickBatch | None = None) -> Tensor:
        """The model at every rank: [P] at the reference of columns, [B, K, P] at those of a batch."""
        found: Tensor = model(self.factors.ranks())
        if batch is None or not self.factors.presentation.names:
            return found
        own: Tensor = model(self.factors.of(batch))
        return found + (own - at_rank(found, batch.position)).unsqueeze(-1)

    def propensity(self) -> Tensor | None:
        """The ratios by rank, where they are examination and bias depends on the rank."""
        return self.ratios(self.factors.ranks()) if self.meaning == EXAMINATION and self.factors.rank else None

    def curves(self) -> tuple[Curve, ...]:
        """The ratios by rank, and by the values of every other factor; none where they mean nothing."""
        factors, found = self.factors, []
        if self.meaning and factors.rank:
            found.append(Curve.of(self.meaning, self.ratios(factors.ranks()).tolist()))
        for name in (*factors.sizes, *factors.numbers) if self.meaning else ():
            if name != POSITION:
                values, names = factors.each(name)
                found.append(Curve.of(self.meaning, self.ratios(values).tolist(), name, names))
        return tuple(found)


class LogitBias(Biased):
    """A method with one logit e of bias: by default log click = score + e."""

    def __init__(self, config: BiasConfig, context: Context) -> None:
        super().__init__(config, context)
        start = context.click_rates().logit() if self.fits_levels else torch.zeros(context.positions)
        self.bias = config.model(self.factors, self.factors.shares(start), start.mean())

    def e(self, batch: ClickBatch) -> Tensor:
        """e of each shown result, [B, K]."""
        return self.log_seen(self.factors.of(batch))

    def log_seen(self, values: Values) -> Tensor:
        """e at these values."""
        found: Tensor = self.bias(values)
        return found

    def click_scores(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """Relevance times examination, in log space."""
        return relevance[..., 0] + self.e(batch)


def apart(dimension: int, around: float = 1.0) -> Tensor:
    """Where embeddings of bias start, [d]: apart, so that the coordinates of r, which start at 0, part too."""
    return around + 0.3 * torch.randn(dimension)


def seen_model(
    config: BiasConfig, context: Context, factors: Factors, top: float = 0.9, *, trained: bool = True
) -> tuple[Bias, nn.Parameter]:
    """Logits of being seen, and one of being clicked once seen: together they start at the click rates.

    The value of each factor that is clicked most is seen with probability `top`. A table that is not `trained` by
    gradient has buffers.
    """
    rates, tower = context.click_rates(), config.bias == "tower"
    starts = {}
    for index, (name, part) in enumerate(factors.shares(rates.log()).items()):
        share = part - part.max()
        starts[name] = share if tower and index else (top * share.exp()).clamp(1e-3, top).logit()
    once_seen = (rates.max() / top ** (1 if tower else len(starts))).clamp(max=0.9).logit()
    usual = torch.tensor(top).logit()
    model = config.model(factors, starts, usual) if trained else BiasTable(factors, starts, trained=False)
    return model, nn.Parameter(torch.zeros(()) if context.facts is None else once_seen)


def log_product(parts: Sequence[Tensor]) -> Tensor:
    """log of the product of sig(e) over the factors."""
    return torch.stack([F.logsigmoid(part) for part in parts]).sum(0)
