"""A causal graph that is looked for while a ranker learns, and the weights that it asks for.

Weights take a cause out: impressions as they would be if relevance did not shape what the page shows ("Whole Page
Unbiased Learning to Ranking", Section 3.2). For every variable x that relevance r and clicks share, with its other
parents m,

    w = Π p(x | m) / p(x | r, m),        p(x | m) = mean over r' of p(x | r', m)

Networks tell p(x | parents) of every variable of the page (Section 3.1): the input is the vector of all of them,
of which a mask keeps the parents, so a network outlives a change of the graph (Eq. 4); by maximum likelihood
(Eq. 5).

| variable      | goes in as                                    | comes out as                |
|---------------|-----------------------------------------------|-----------------------------|
| `categorical` | an embedding, one of them for missing values  | probabilities of its values |
| `ordinal`     | its Bradley-Terry score, 0 where missing      | probabilities of its values |
| `continuous`  | itself, standardised, 0 where missing         | a Gaussian                  |

Differences from the paper: its formula for a variable with other parents is printed upside down. The product is
clipped and divided by its mean, since ratios of densities have no bounds. Ordinal variables come out as
probabilities, since ranks are nothing like a Gaussian.

Legend: X variables that relevance and clicks share, B rows, K results of a page, V variables of the page, E width
of an encoding, H hidden units.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from unskew.diagnosis.causal.discovery import Discovery, Pool, discover, library
from unskew.diagnosis.causal.graph import CLICK, POSITION, RELEVANCE, CausalGraph, full_graph, graph_of
from unskew.diagnosis.causal.variables import order_scores
from unskew.errors import DataError
from unskew.logs.presentation import Kind, Presentation

WIDTH = 4
"""E, what each variable goes in as."""
HIDDEN = 16  # H
FAR = 8.0
"""Deviations from the mean that a number is taken as at most."""


@dataclass(frozen=True)
class Variable:
    """Something that the page shows."""

    name: str
    kind: Kind
    size: int
    """Number of codes; 0 for numbers."""


def page_variables(positions: int, presentation: Presentation, names: Sequence[str]) -> tuple[Variable, ...]:
    """The rank, and these of the columns that are encoded."""
    encoders = [(name, presentation.encoders[name]) for name in names]
    columns = [Variable(name, each.kind, each.size or 0) for name, each in encoders]
    return (Variable(POSITION, "ordinal", positions + 2), *columns)


class PageEncoding(nn.Module):
    """What each variable goes into a network as."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        super().__init__()
        self.variables = tuple(variables)
        self.tables = nn.ParameterList()
        for variable in variables:
            table = torch.zeros(max(variable.size, 1), WIDTH)
            if variable.kind == "ordinal" and variable.size > 3:  # the last two are for unknown and missing values
                scores = order_scores(variable.size - 2)
                table[:-2, 0] = torch.as_tensor(scores / scores.std(), dtype=torch.float32)
            elif variable.kind == "categorical":
                table = 0.5 * torch.randn(variable.size, WIDTH)
            self.tables.append(nn.Parameter(table, requires_grad=variable.kind == "categorical"))

    def forward(self, values: Mapping[str, Tensor]) -> Tensor:
        """[..., V, E] of codes and numbers [...]."""
        parts = []
        for variable, table in zip(self.variables, self.tables, strict=True):
            value = values[variable.name]
            if variable.size:
                parts.append(table[value.long().clamp(0, variable.size - 1)])
            else:
                number = value.float().clamp(-FAR, FAR).unsqueeze(-1)
                parts.append(torch.cat([number, number.new_zeros(*number.shape[:-1], WIDTH - 1)], dim=-1))
        return torch.stack(parts, dim=-2)


class Conditional(nn.Module):
    """log p(x | relevance, page) of one variable."""

    def __init__(self, variable: Variable, variables: int) -> None:
        super().__init__()
        self.variable = variable
        self.page = nn.Linear(variables * WIDTH, HIDDEN)
        self.relevance = nn.Linear(1, HIDDEN, bias=False)
        self.out = nn.Sequential(
            nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, variable.size or 2)
        )

    def forward(self, relevance: Tensor, encoded: Tensor, value: Tensor, parents: Tensor) -> Tensor:
        """The log-density at `value`; relevance may have dimensions before those of encoded [..., V, E].

        `parents` [1 + V] says what it depends on, relevance first.
        """
        page = self.page((encoded * parents[1:, None]).flatten(-2))
        found = self.out(page + self.relevance((relevance * parents[0]).unsqueeze(-1)))
        if self.variable.size:
            codes = value.long().clamp(0, self.variable.size - 1).expand(found.shape[:-1])
            log_p: Tensor = found.log_softmax(-1).gather(-1, codes.unsqueeze(-1)).squeeze(-1)
            return log_p
        mean, log_deviation = found[..., 0], found[..., 1].clamp(-4, 3)
        away = (value.float().clamp(-FAR, FAR) - mean) * torch.exp(-log_deviation)
        gaussian: Tensor = -0.5 * away.square() - log_deviation - 0.5 * math.log(2 * math.pi)
        return gaussian


class Influence(nn.Module):
    """log p(x | parents) of every variable of the page."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        super().__init__()
        self.variables = tuple(variables)
        self.encoding = PageEncoding(variables)
        self.conditionals = nn.ModuleList(Conditional(variable, len(variables)) for variable in variables)

    def log_density(
        self, index: int, relevance: Tensor, encoded: Tensor, values: Mapping[str, Tensor], parents: Tensor
    ) -> Tensor:
        """log p of one variable; `parents` [V, 1 + V] has a row for each."""
        name = self.variables[index].name
        found: Tensor = self.conditionals[index](relevance, encoded, values[name], parents[index])
        return found

    def log_marginal(
        self, index: int, others: Tensor, encoded: Tensor, values: Mapping[str, Tensor], parents: Tensor
    ) -> Tensor:
        """log p of one variable given its parents but relevance: the mean over `others` [R] of relevance."""
        relevance = others.view(-1, *(1,) * (encoded.dim() - 2))
        each = self.log_density(index, relevance, encoded, values, parents)
        return each.logsumexp(0) - math.log(len(others))


def spread(relevance: Tensor, shown: Tensor, count: int) -> Tensor:
    """So many values that stand for the distribution of relevance [B, K] over what is shown: its quantiles.

    >>> spread(torch.tensor([[3.0, 1.0, 9.0]]), torch.tensor([[1.0, 1.0, 0.0]]), 2).tolist()
    [1.0, 3.0]
    """
    flat, weight = relevance.flatten(), shown.flatten().double()
    order = flat.argsort()
    below = weight[order].cumsum(0)
    points = (torch.arange(count, device=flat.device) + 0.5) / count * below[-1]
    return flat[order][torch.searchsorted(below, points).clamp(max=len(flat) - 1)]


# ---- graph and weights ----


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
        self.memory = Memory(len(self.names), asked.size) if known is None and library() else None
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
        """Look for the graph in the latest impressions; one that was found stays where they tell nothing.

        Where none was, all that the page shows is taken for a cause.
        """
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
            there = self.of_click().any()
            what = "the causal graph stays as it is" if there else "all that the page shows is taken for a cause"
            warnings.warn(f"{what}: {error}", stacklevel=3)
            if there:
                return
            found = full_graph(self.names)
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
