"""Reduced logs as tensors, cut into batches; a batch is a function of (seed, step) alone, so a run can resume.

Rows of a reduced log differ in weight: one may stand for a thousand pages, the next for one. So a batch draws
rows in proportion to their impressions and takes each row's clicks per impression: what drawing pages would
give, with the noise between pages of one ranking averaged out. An epoch visits rows systematically: with equal
impressions n every row comes exactly once, with unequal ones in proportion to n, rounded up or down.

Legend: R rows of the reduced log, B rows of a batch, K results of a page, D features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from unskew.logs.counts.reduction import Counts
from unskew.tables.lists.inputs import Vectors, as_tensor
from unskew.types import ClickBatch, Input


class Batches:
    """Shuffled batches of a reduced log, epoch after epoch, addressed by step."""

    def __init__(
        self,
        counts: Counts,
        input: Input | None = None,
        *,
        size: int = 256,
        seed: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        """Keep the tables on `device`; `input` has the prepared documents, features as they are if None."""
        self.size, self.seed, self.device = size, seed, torch.device(device)
        self.input = Vectors.of(counts.lists.features, self.device) if input is None else input
        self.row = as_tensor(counts.row, self.device)
        self.position = as_tensor(counts.position, self.device)
        self.clicks = as_tensor(counts.clicks, self.device)
        self.impressions = as_tensor(counts.impressions, self.device)
        self.pairs = None if counts.pairs is None else as_tensor(counts.pairs, self.device)
        self.serp = {name: as_tensor(column, self.device) for name, column in counts.serp.items()}
        self.shown_at = None if counts.shown_at is None else as_tensor(counts.shown_at, self.device)
        self.stands_for = None if counts.stands_for is None else as_tensor(counts.stands_for, self.device)
        shown = self.impressions.amax(-1).to("cpu", torch.float64)  # [R] pages behind each row
        self._share = (shown / shown.sum()).cumsum(0)
        alike = round((shown.sum() ** 2 / shown.square().sum()).item())  # rows, if all weighed the same
        self._draws = max(alike, min(size, len(shown)), 1)  # a few heavy rows must not shrink the batch
        self._epoch, self._order = -1, torch.arange(0)

    def __len__(self) -> int:
        """Batches of one epoch; the last one may be smaller."""
        return -(-self._draws // self.size)

    def at(self, step: int) -> ClickBatch:
        """The batch of this step, from 0: rows drawn by their impressions, each scaled to one page."""
        epoch, batch = divmod(step, len(self))
        if epoch != self._epoch:
            self._order, self._epoch = self._shuffle(epoch).to(self.device), epoch
        drawn = self.rows(self._order[batch * self.size : (batch + 1) * self.size])
        pages = drawn.impressions.amax(-1, keepdim=True).clamp(min=1.0)  # [B, 1]
        return replace(
            drawn,
            clicks=drawn.clicks / pages,
            impressions=drawn.impressions / pages,
            pairs=None if drawn.pairs is None else drawn.pairs / pages.unsqueeze(-1),
            shown_at=None if drawn.shown_at is None else drawn.shown_at / pages.unsqueeze(-1),
        )

    def _shuffle(self, epoch: int) -> Tensor:
        """Rows of this epoch: a systematic draw by share of impressions, then shuffled."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        points = (
            torch.arange(self._draws, dtype=torch.float64) + torch.rand((), generator=generator)
        ) / self._draws
        rows = torch.searchsorted(self._share, points, right=True).clamp(max=len(self.row) - 1)
        return rows[torch.randperm(self._draws, generator=generator)]

    def in_order(self) -> Iterator[ClickBatch]:
        """Every row once, in table order, for evaluation."""
        for start in range(0, len(self.row), self.size):
            stop = min(start + self.size, len(self.row))
            yield self.rows(torch.arange(start, stop, device=self.device))

    def rows(self, index: Tensor) -> ClickBatch:
        """The given rows as a batch, with their counts as they are."""
        row = self.row[index]
        where = row >= 0
        packed = where.flatten().nonzero().squeeze(-1)
        return ClickBatch(
            input=self.input,
            rows=row.flatten()[packed],
            packed=packed,
            position=self.position[index],
            clicks=self.clicks[index],
            impressions=self.impressions[index],
            where=where,
            pairs=None if self.pairs is None else self.pairs[index],
            serp={name: column[index] for name, column in self.serp.items()},
            shown_at=None if self.shown_at is None else self.shown_at[index],
            stands_for=None if self.stands_for is None else self.stands_for[index],
        )
