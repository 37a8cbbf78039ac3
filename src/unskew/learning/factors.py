"""What bias depends on - the rank shown, the page of results, columns of the log - and tables and networks of it.

    table    a number (or a vector) for each value of a factor; those of several factors are added up
    tower    a small network on all factors together, so that they may interact; numbers go in as they are

Where there are pages of results, `position` is the rank on its page, and `page_number` which page it is on.

Legend: B rows, K results of a page, P ranks, W width of an output.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unskew.learning.curves import POSITION
from unskew.logs.presentation import NO_COLUMNS, Presentation
from unskew.types import ClickBatch

PAGE_NUMBER = "page_number"
"""The factor that `page_size` adds, and the usual name of such a column."""
Values = Mapping[str, Tensor]
"""What each factor is, of equal shapes: codes from 0, or numbers around 0."""


def at_rank(values: Tensor, position: Tensor) -> Tensor:
    """values[P] looked up at 1-based ranks [B, K]; padding (0) reads rank 1, ranks past the end the last.

    >>> at_rank(torch.tensor([1.0, 0.5]), torch.tensor([[1, 2, 3, 0]])).tolist()
    [[1.0, 0.5, 0.5, 1.0]]
    """
    return values[(position - 1).clamp(0, len(values) - 1)]


def sums_at(values: Tensor, codes: Tensor, where: Tensor, size: int) -> Tensor:
    """Sum of values [B, K] at every code from 0, [size]; codes past the end count as the last one.

    >>> sums_at(torch.tensor([[1.0, 2.0]]), torch.tensor([[0, 2]]), torch.tensor([[True, True]]), 2).tolist()
    [1.0, 2.0]
    """
    flat = torch.where(where, values, 0.0).flatten()
    return flat.new_zeros(size).index_add_(0, codes.clamp(0, size - 1).flatten(), flat)


def seen_at(values: Tensor, batch: ClickBatch) -> Tensor:
    """sum_k n_k values_k of each result, n_k the pages that showed it at rank k, [B, K]."""
    if batch.shown_at is None:  # a row of a ranking shows it at one rank
        return batch.impressions * at_rank(values, batch.position)
    ranks = torch.arange(1, batch.shown_at.shape[-1] + 1, device=values.device)
    seen = batch.shown_at @ at_rank(values, ranks)  # [B, S]
    return F.pad(seen, (0, batch.where.shape[1] - seen.shape[1]))


@dataclass(frozen=True)
class Factors:
    """The factors of a bias, in the order in which they are named: position and page number first."""

    positions: int
    """P, how many ranks the log shows."""
    presentation: Presentation = NO_COLUMNS
    """How the columns are encoded."""
    rank: bool = True
    """Whether bias depends on the rank."""
    page_size: int | None = None
    """Results of a page of results; None where there is one page alone."""

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many codes each factor has that becomes codes."""
        ranks = min(self.positions, self.page_size or self.positions)
        own = {POSITION: ranks} if self.rank else {}
        own |= {} if self.page_size is None else {PAGE_NUMBER: -(-self.positions // self.page_size)}
        return own | self.presentation.sizes

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that are numbers around 0."""
        return tuple(name for name in self.presentation.names if name not in self.sizes)

    def of(self, batch: ClickBatch) -> Values:
        """What the factors of each shown result are, [B, K] each."""
        columns = {name: batch.serp[name] for name in self.presentation.names}
        codes = {name: column.long() for name, column in columns.items() if name in self.sizes}
        return self.at(batch.position) | columns | codes

    def at(self, position: Tensor) -> dict[str, Tensor]:
        """What the factors that follow from ranks (from 1) are."""
        rank = (position - 1).clamp(0, self.positions - 1)
        if self.page_size is None:
            return {POSITION: rank} if self.rank else {}
        return {POSITION: rank % self.page_size, PAGE_NUMBER: rank // self.page_size}

    def ranks(self) -> Values:
        """Every rank, [P], the columns at their reference: the first value, or the mean."""
        return self.reference(self.positions) | self.at(torch.arange(1, self.positions + 1))

    def each(self, name: str) -> tuple[Values, tuple[str, ...]]:
        """One factor at each of its values, the others at their reference, and the names of its values."""
        if name in self.numbers:
            values = self.reference(3) | {name: torch.tensor([-1.0, 0.0, 1.0])}
            return values, ("a deviation below the mean", "the mean", "a deviation above")
        if name in self.presentation.names:
            codes, names = self.presentation.shown(name)
        else:
            codes = list(range(self.sizes[name]))
            names = tuple(str(code + 1) for code in codes)
        return self.reference(len(codes)) | {name: torch.tensor(codes)}, names

    def reference(self, count: int) -> dict[str, Tensor]:
        """All factors at their reference, so many times."""
        codes = {name: torch.zeros(count, dtype=torch.int64) for name in self.sizes}
        return codes | {name: torch.zeros(count) for name in self.numbers}

    def shares(self, by_rank: Tensor) -> dict[str, Tensor]:
        """Numbers by rank [P] as a sum over the factors that become codes; columns take no part in it.

        >>> found = Factors(4, page_size=2).shares(torch.tensor([0.0, -1.0, -2.0, -3.0]))
        >>> {name: part.tolist() for name, part in found.items()}
        {'position': [0.0, -1.0], 'page_number': [0.0, -2.0]}
        """
        parts = {name: torch.zeros(size) for name, size in self.sizes.items()}
        if not self.rank:
            first = next(iter(parts), None)
            return parts if first is None else parts | {first: by_rank.mean().expand(parts[first].shape).clone()}
        parts[POSITION] = by_rank[: len(parts[POSITION])].clone()
        if self.page_size is not None:
            values = self.at(torch.arange(1, self.positions + 1))
            below = by_rank - parts[POSITION][values[POSITION]]
            pages = parts[PAGE_NUMBER]
            shown = torch.zeros_like(pages).index_add_(0, values[PAGE_NUMBER], torch.ones_like(below))
            parts[PAGE_NUMBER] = pages.index_add(0, values[PAGE_NUMBER], below) / shown
        return parts


class BiasTable(nn.Module):
    """A number, or a vector, for each value of each factor; values past the end of a table take its last one."""

    def __init__(
        self, factors: Factors, starts: Mapping[str, Tensor] | None = None, *, trained: bool = True
    ) -> None:
        """`starts` [n] or [n, W] for each factor, else 0; where it is not `trained` by gradient, in buffers."""
        super().__init__()
        starts = factors.shares(torch.zeros(factors.positions)) if starts is None else starts
        self._names = tuple(factors.sizes)
        for index, name in enumerate(self._names):
            start = starts[name].clone()
            if trained:
                self.register_parameter(f"table{index}", nn.Parameter(start))
            else:
                self.register_buffer(f"table{index}", start)

    @property
    def tables(self) -> dict[str, Tensor]:
        """The table of each factor."""
        return {name: getattr(self, f"table{index}") for index, name in enumerate(self._names)}

    def parts(self, values: Values) -> list[Tensor]:
        """What each factor gives, of the shape of the values, or [..., W]."""
        return [at_rank(table, values[name].to(table.device) + 1) for name, table in self.tables.items()]

    def forward(self, values: Values) -> Tensor:
        """The sum over factors."""
        first, *others = self.parts(values)
        return sum(others, first)


class BiasTower(nn.Module):
    """A network from all factors to what is added to where it starts."""

    rate_factor = 0.1
    """A tenth of the step of free numbers, as the ranker takes: more drives its units out of their range."""
    level: Tensor

    def __init__(
        self, factors: Factors, starts: Mapping[str, Tensor], level: Tensor, *, sizes: tuple[int, ...] = (8, 4)
    ) -> None:
        """`starts` as those of a table; where no factor becomes codes it starts at `level`, a number or [W]."""
        super().__init__()
        coded, self.numbers = factors.sizes, factors.numbers
        self.start = BiasTable(factors, starts, trained=False) if coded else None
        inputs = sum(coded.values()) + len(self.numbers)
        bound = 1 / math.sqrt(max(inputs, 1))  # as a linear layer on one-hot codes

        def drawn(*shape: int) -> Tensor:
            return torch.empty(*shape).uniform_(-bound, bound)

        self.codes = (
            BiasTable(factors, {name: drawn(size, sizes[0]) for name, size in coded.items()}) if coded else None
        )
        self.weights = nn.Parameter(drawn(len(self.numbers), sizes[0]))
        self.bias = nn.Parameter(drawn(sizes[0]))
        hidden = [m for a, b in itertools.pairwise(sizes) for m in (nn.ELU(), nn.Linear(a, b))]
        self.layers = nn.Sequential(*hidden, nn.ELU(), nn.Linear(sizes[-1], level.numel()))
        self.register_buffer("level", level.clone())

    def forward(self, values: Values) -> Tensor:
        """The output, of the shape of the values, or [..., W]."""
        first: Tensor = self.bias
        if self.codes is not None:
            first = first + self.codes(values)
        if self.numbers:
            numbers = torch.stack([values[name].to(first) for name in self.numbers], dim=-1)
            first = first + numbers @ self.weights
        output: Tensor = self.layers(first)
        output = output if self.level.ndim else output.squeeze(-1)
        return output + (self.level if self.start is None else self.start(values))

    def parts(self, values: Values) -> list[Tensor]:
        """One part: a network does not say what each factor gives."""
        return [self(values)]


Bias = BiasTable | BiasTower
Kind = Literal["table", "tower"]
