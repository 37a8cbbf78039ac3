"""How relevance and the page shape what the page shows: p(x | parents) of every variable, by networks.

"Whole Page Unbiased Learning to Ranking", Section 3.1: the input is the vector of all variables, of which a mask
keeps the parents, so a network outlives a change of the graph (Eq. 4); by maximum likelihood (Eq. 5).

| variable      | goes in as                                    | comes out as                |
|---------------|-----------------------------------------------|-----------------------------|
| `categorical` | an embedding, one of them for missing values  | probabilities of its values |
| `ordinal`     | its Bradley-Terry score, 0 where missing      | probabilities of its values |
| `continuous`  | itself, standardised, 0 where missing         | a Gaussian                  |

Differences from the paper: ordinal variables come out as probabilities, since ranks are nothing like a Gaussian.

Legend: B rows, K results of a page, V variables of the page, E width of an encoding, H hidden units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unskew.diagnosis.causal.graph import POSITION
from unskew.diagnosis.causal.variables import order_scores
from unskew.logs.presentation import Kind, Presentation

WIDTH = 4
"""E, what each variable goes in as."""
HIDDEN = 16
"""H of a network."""
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
