"""Bias-agnostic learning: find what on the page causes clicks, take relevance out of it, and learn what is left.

Reference: Mao et al., "Whole Page Unbiased Learning to Rank", WWW 2024.

With r the score, x the page and c the click:

    graph     PC under tiers on a sample of (r, x, c), again every `refresh` steps     (`diagnosis/causal`)
    p(x | parents)      by networks, maximum likelihood                                (Eq. 5)
    w = Π p(x | m) / p(x | r, m)     over the x that r causes and that cause clicks    (`weights`)
    minimise  mean w (-log p(c | r, x; phi))     over phi, and the ranker by r alone    (Eq. 8, 9); rank by r

Differences from the paper: clicks are sig(exp(a(x)) r + b(x)), a and b by a network on the parents of c, so that a
better score never lowers the click; Eq. 8 and 9 step at the same time; the naive method over the first `warmup`
steps is the warm start, where the paper pretrains; the weights are repaired as `weights` says.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from unskew.diagnosis.causal.discovery import Discovery, Edges
from unskew.diagnosis.causal.graph import POSITION, CausalGraph, graph_of
from unskew.diagnosis.causal.page import HIDDEN, WIDTH, PageCauses, PageEncoding, Seen, names_of, page_variables
from unskew.learning.losses import page_count
from unskew.learning.methods.bases import ClickLogits, LevelConfig
from unskew.learning.methods.contract import Context
from unskew.types import ClickBatch


class BALMethod(ClickLogits):
    """A weighted click model over what a causal graph says that clicks depend on."""

    rate_factor = 0.1  # networks, which take steps as those of the ranker
    config: BALConfig
    step: Tensor

    def __init__(self, config: BALConfig, context: Context) -> None:
        super().__init__(config, context)
        variables = page_variables(context.positions, context.presentation, config.factors)
        known = config.known(names_of(variables))
        self.causes, self.encoding = PageCauses(variables, known, config.discovery), PageEncoding(variables)
        self.page = nn.Sequential(nn.Linear(len(variables) * WIDTH, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 2))
        for parameter in self.page[2].parameters():
            nn.init.zeros_(parameter)
        self.level = nn.Parameter(context.click_rates().mean().logit())
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def values(self, batch: ClickBatch) -> dict[str, Tensor]:
        """What the page shows of each result, [B, K] each; ranks count from 0."""
        return {**batch.serp, POSITION: (batch.position - 1).clamp(0, self.positions - 1)}

    def logits(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """exp(a(x)) r + b(x), x the parents of the click once the warm start is over."""
        parents = self.causes.of_click() * (self.step >= self.config.warmup)
        slope, level = self.page((self.encoding(self.values(batch)) * parents[:, None]).flatten(-2)).unbind(-1)
        logit: Tensor = slope.clamp(-3, 3).exp() * self.score(relevance, batch.where) + level + self.level
        return logit

    def forward(self, relevance: Tensor, batch: ClickBatch) -> Tensor:
        """The weighted click loss, and the likelihood of what the page shows."""
        shown = batch.impressions.where(batch.where, 0.0)
        seen = Seen(relevance[..., 0].detach(), self.values(batch), batch.clicks, shown)
        since = int(self.step) - self.config.warmup
        if self.training:
            self.causes.follow(seen, since, self.config.refresh)
        weights, shaping = None, torch.zeros(())
        if since >= 0:
            weights, shaping = self.causes.weigh(seen, grid=self.config.grid, clip=self.config.clip)
        z = self.logits(self.from_mean(relevance, batch), batch)
        each = batch.clicks * F.softplus(-z) + (shown - batch.clicks) * F.softplus(z)
        each = torch.where(batch.where, each if weights is None else weights * each, 0.0)
        if self.training:
            self.step += 1
        return each.sum() / page_count(batch.where, batch.impressions) + shaping

    def notes(self) -> dict[str, Any]:
        """The graph, and how much of the sample the weights leave."""
        return self.causes.notes()


class BALConfig(LevelConfig):
    """What all variants may be told."""

    module = BALMethod
    bins: ClassVar[int] = 0  # numbers go in as they are
    factors: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Columns of the log that say how a result looks, such as serp_media; the rank is always one."""
    clip: Annotated[float, Field(ge=1)] = 10.0
    """Weights lie between 1/clip and clip, before they are divided by their mean."""
    grid: Annotated[int, Field(ge=2)] = 16
    """Values of relevance that p(x | m) is a mean over."""
    warmup: Annotated[int, Field(ge=0)] = 10
    """Steps of the naive method at first: enough to know what stands for relevance, not to learn the bias."""
    refresh: Annotated[int, Field(ge=1)] = 100
    """Steps between two graphs."""
    discovery: Discovery = Discovery(alpha=0.1)
    """How a graph is looked for; a cause that is missed costs more here than one too many, so alpha is larger."""

    @property
    def serp(self) -> tuple[str, ...]:
        """The columns that say how a result looks."""
        return self.factors

    @abstractmethod
    def known(self, names: tuple[str, ...]) -> CausalGraph | None:
        """The graph, where it is not to be looked for."""


class BAL(BALConfig):
    """Find what on the page causes clicks, and learn relevance apart from it."""

    name: Literal["bal"] = "bal"
    graph: Edges | None = None
    """Edges by hand, such as ("position", "click"), in the place of those that are found."""

    def known(self, names: tuple[str, ...]) -> CausalGraph | None:
        """The graph of the edges given by hand; None where it is to be found."""
        return None if self.graph is None else graph_of(names, self.graph)
