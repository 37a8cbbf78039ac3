"""A causal graph that is looked for while a ranker learns, and the weights that it asks for.

Weights take a cause out: impressions as they would be if relevance did not shape what the page shows ("Whole Page
Unbiased Learning to Ranking", Section 3.2). For every variable x that relevance r and clicks share, with its other
parents m,

    w = Π p(x | m) / p(x | r, m),        p(x | m) = mean over r' of p(x | r', m)

Differences from the paper: its formula for a variable with other parents is printed upside down. The product is
clipped and divided by its mean, since ratios of densities have no bounds.

Legend: X variables that relevance and clicks share, B rows, K results of a page, V variables of the page.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from unskew.diagnosis.causal.discovery import Discovery, Pool, discover, library
from unskew.diagnosis.causal.graph import CLICK, RELEVANCE, CausalGraph, graph_of
from unskew.diagnosis.causal.influence import Influence, Variable, spread
from unskew.errors import DataError


def confounding_weights(log_target: Tensor, log_source: Tensor, *, shown: Tensor, clip: float) -> Tensor:
    """w of each result, [...], mean 1 over what is shown [...], from log p(x | m) and log p(x | r, m), [X, ...].

    Before it is divided by its mean, w lies between 1/clip and clip; 0 where nothing is shown.

    >>> target, source = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    >>> [round(w, 3) for w in confounding_weights(target, source, shown=torch.ones(2), clip=10.0).tolist()]
    [1.5, 0.5]
    """
    log_ratio = (log_target - log_source).nan_to_num().sum(0).clamp(-math.log(clip), math.log(clip))
    ratio = torch.where(shown > 0, log_ratio.exp(), 0.0)
    return ratio * (shown.sum() / (shown * ratio).sum().clamp(min=1e-12))


def effective_share(weights: Tensor, *, shown: Tensor) -> Tensor:
    """(Σw)² / (n Σw²): the share of the impressions that as many without weights would say as much as.

    >>> round(effective_share(torch.tensor([1.5, 0.5]), shown=torch.ones(2)).item(), 3)
    0.8
    """
    total = (shown * weights).sum()
    return total.square() / (shown.sum() * (shown * weights.square()).sum()).clamp(min=1e-12)


RECENT = 16
"""Steps whose impressions a graph is looked for in."""


@dataclass(frozen=True)
class Seen:
    """What a batch shows, [B, K] each; nothing of it carries a gradient."""

    score: Tensor
    """What stands for relevance."""
    values: Mapping[str, Tensor]
    """Codes and numbers of the page."""
    clicks: Tensor
    shown: Tensor
    """Impressions; 0 where padded."""

    @cached_property
    def relevance(self) -> Tensor:
        """The score less its mean, in deviations, both over what is shown."""
        total, safe = self.shown.sum().clamp(min=1e-12), self.score.where(self.shown > 0, 0.0)
        mean = (self.shown * safe).sum() / total
        deviation = ((self.shown * (safe - mean).square()).sum() / total).sqrt()
        return (safe - mean) / deviation.clamp(min=1e-6)

    def rows(self, names: Sequence[str]) -> Tensor:
        """Impressions [n, 2 + V]: relevance, the page, and the click, drawn as often as there was one."""
        there = self.shown > 0
        rates = (self.clicks / self.shown.clamp(min=1e-12)).clamp(0, 1)[there]
        page = [self.values[name][there].float() for name in names]
        return torch.stack([self.relevance[there], *page, torch.bernoulli(rates)], dim=-1)


class Memory(nn.Module):
    """The latest impressions, and the latest clicked ones besides, as many as a graph is looked for in.

    Kept as bits of whole numbers: processes that train together would take the mean of fractions.
    """

    bits: Tensor
    count: Tensor

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.room = (size, size // 2)
        self.register_buffer("bits", torch.zeros(sum(self.room), width, dtype=torch.int32))
        self.register_buffer("count", torch.zeros(2, dtype=torch.int64))

    def add(self, rows: Tensor) -> None:
        """Take some of the impressions [n, width], and of the others those that are clicked."""
        rows = rows[torch.randperm(len(rows), device=rows.device)]
        some = self.room[0] // 4
        for part, new in enumerate((rows[:some], rows[some:][rows[some:, -1] > 0])):
            new = new[: self.room[part]]
            place = (self.count[part] + torch.arange(len(new), device=rows.device)) % self.room[part]
            self.bits[place + part * self.room[0]] = new.contiguous().view(torch.int32)
            self.count[part] += len(new)

    def held(self) -> tuple[Tensor, Tensor]:
        """Impressions [n, width], and which of them are there for their click alone [n]."""
        there = torch.cat(
            [torch.arange(room) < count for room, count in zip(self.room, self.count.cpu(), strict=True)]
        )
        extra = torch.arange(sum(self.room)) >= self.room[0]
        return self.bits.cpu()[there].contiguous().view(torch.float32), extra[there]


class PageCauses(nn.Module):
    """Edges among relevance, page and click, and networks of how relevance shapes the page."""

    edges: Tensor
    effective: Tensor

    def __init__(self, variables: Sequence[Variable], known: CausalGraph | None, asked: Discovery) -> None:
        """Starts with the `known` graph, or with relevance alone; then causal-learn must be there."""
        super().__init__()
        self.names = names_of(variables)
        self.influence = Influence(variables)
        self.asked = asked
        self.memory = Memory(len(self.names), asked.sample) if known is None and library() else None
        self.register_buffer("edges", self.matrix(graph_of(self.names, ()) if known is None else known))
        self.register_buffer("effective", torch.ones(()))

    def matrix(self, graph: CausalGraph) -> Tensor:
        """[2 + V, 2 + V] 1 at (cause, effect); processes that train together average theirs, and most decide."""
        found = torch.zeros(len(self.names), len(self.names))
        for edge in graph.resolved().edges:
            found[self.names.index(edge.cause), self.names.index(edge.effect)] = 1.0
        return found

    def of_click(self) -> Tensor:
        """[V] 1 for what on the page causes clicks."""
        return (self.edges[1:-1, -1] > 0.5).float()

    def follow(self, seen: Seen, step: int, every: int) -> None:
        """Remember what a batch shows where it is soon needed; look for the graph at step 0 and as often."""
        if self.memory is not None and -step % every < RECENT:
            self.memory.add(seen.rows(self.names[1:-1]))
            if step >= 0 and step % every == 0:
                self.look(step)

    def look(self, step: int) -> None:
        """Look for the graph in the latest impressions; what tells nothing, or too late, leaves it as it was."""
        if self.memory is None:
            return
        rows, extra = self.memory.held()
        columns = dict(zip(self.names, rows.T.numpy(), strict=True))
        for variable in self.influence.variables:
            if variable.kind == "categorical":  # as text, so that there is no order
                columns[variable.name] = columns[variable.name].astype(int).astype(str)
        try:
            found = discover(Pool.of(columns, extra.numpy()), self.asked.model_copy(update={"seed": step}))
        except DataError as error:
            warnings.warn(f"the causal graph stays as it is: {error}", stacklevel=3)
            return
        self.edges.copy_(self.matrix(found))

    def weigh(self, seen: Seen, *, grid: int, clip: float) -> tuple[Tensor | None, Tensor]:
        """Weights [B, K] that take relevance out of what causes clicks, and the loss of the networks for it.

        None where the graph asks for no weights.
        """
        confounded = (self.edges[0, 1:-1] * self.edges[1:-1, -1] > 0.5).nonzero().flatten().tolist()
        if not confounded:
            return None, self.edges.new_zeros(())
        parents = (self.edges[:-1, 1:-1].T > 0.5).float()  # [V, 1 + V]
        net, values, shown = self.influence, seen.values, seen.shown
        encoded, others = net.encoding(values), spread(seen.relevance, shown, grid)
        source = torch.stack([net.log_density(i, seen.relevance, encoded, values, parents) for i in confounded])
        with torch.no_grad():
            target = [net.log_marginal(i, others, encoded, values, parents) for i in confounded]
            weights = confounding_weights(torch.stack(target), source, shown=shown, clip=clip)
            if self.training:
                self.effective.lerp_(effective_share(weights, shown=shown), 0.1)
        return weights, -(shown * source).sum() / shown.sum().clamp(min=1e-12)

    def notes(self) -> dict[str, Any]:
        """The graph as it is, and how much of the sample its weights leave."""
        edges = [[self.names[i], self.names[j]] for i, j in (self.edges > 0.5).nonzero().tolist()]
        return {"graph": edges, "effective_share": round(float(self.effective), 4)}


def names_of(variables: Sequence[Variable]) -> tuple[str, ...]:
    """Relevance, the page, the click."""
    return (RELEVANCE, *(variable.name for variable in variables), CLICK)
