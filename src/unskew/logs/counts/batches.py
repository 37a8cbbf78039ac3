"""Reduced logs as tensors, cut into batches; a batch is a function of (seed, step) alone, so a run can resume.

Rows of a reduced log differ in weight: one may stand for a thousand pages, the next for one. So a batch draws
rows in proportion to their impressions and takes each row's clicks per impression: what drawing pages would
give, with the noise between pages of one ranking averaged out. An epoch visits rows systematically: with equal
impressions n every row comes exactly once, with unequal ones in proportion to n, rounded up or down.

Legend: R rows of the reduced log, B rows of a batch, K results of a page, D features.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unskew.errors import ConfigError
from unskew.logs.counts.reduction import Counts
from unskew.logs.counts.shards import Shards
from unskew.tables.lists.inputs import Vectors, as_tensor
from unskew.types import ClickBatch, Input, Lists

VISITS = 4
"""Visits of an epoch, for each shard."""


class Batches:
    """Shuffled batches of a reduced log, epoch after epoch, addressed by step."""

    worker, workers = 0, 1  # every so many-th row of an epoch is visited, from this worker's on

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
        self.serp = {name: as_tensor(column, self.device) for name, column in counts.serp.items()}
        further = {"pairs": counts.pairs, "shown_at": counts.shown_at, "stands_for": counts.stands_for}
        self._further = {name: as_tensor(each, self.device) for name, each in further.items() if each is not None}
        shown = self.impressions.amax(-1).to("cpu", torch.float64)  # [R] pages behind each row
        self._share = (shown / shown.sum()).cumsum(0)
        alike = round((shown.sum() ** 2 / shown.square().sum()).item())  # rows, if all weighed the same
        self._draws = max(alike, min(size, len(shown)), 1)  # a few heavy rows must not shrink the batch
        self._epoch, self._order = -1, torch.arange(0)

    def every(self, workers: int, worker: int) -> Batches:
        """The same tables, of which every so many-th row of an epoch is visited, from this worker's on."""
        part = copy.copy(self)
        part.worker, part.workers, part.size, part._epoch = worker, workers, -(-self.size // workers), -1
        return part

    def __len__(self) -> int:
        """Batches of one epoch; the last one may be smaller."""
        return -(-self._draws // (self.size * self.workers))

    def at(self, step: int) -> ClickBatch:
        """The batch of this step, from 0: rows drawn by their impressions, each scaled to one page."""
        epoch, batch = divmod(step, len(self))
        if epoch != self._epoch:
            self._order, self._epoch = self._shuffle(epoch).to(self.device), epoch
        drawn = self.rows(self._order[batch * self.size : (batch + 1) * self.size])
        pages = drawn.impressions.amax(-1, keepdim=True).clamp(min=1.0)  # [B, 1]
        of_pages = {"pairs": drawn.pairs, "shown_at": drawn.shown_at}
        scaled: dict[str, Any] = {
            name: each / pages.unsqueeze(-1) for name, each in of_pages.items() if each is not None
        }
        return replace(drawn, clicks=drawn.clicks / pages, impressions=drawn.impressions / pages, **scaled)

    def _shuffle(self, epoch: int) -> Tensor:
        """Rows of this epoch: a systematic draw by share of impressions, then shuffled."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        points = (
            torch.arange(self._draws, dtype=torch.float64) + torch.rand((), generator=generator)
        ) / self._draws
        rows = torch.searchsorted(self._share, points, right=True).clamp(max=len(self.row) - 1)
        order = rows[torch.randperm(self._draws, generator=generator)]
        if self.workers == 1:
            return order
        own = torch.arange(-(-self._draws // self.workers)) * self.workers + self.worker
        return order[own % self._draws]

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
            serp={name: column[index] for name, column in self.serp.items()},
            **{name: each[index] for name, each in self._further.items()},
        )


# ---- from shards ----


class ShardedBatches:
    """Shuffled batches over shards, addressed by step; has what training asks of `Batches`."""

    def __init__(
        self,
        shards: Shards,
        prepare: Callable[[Lists], Input],
        *,
        size: int = 256,
        seed: int = 0,
        stay: int = 32,
        device: str | torch.device = "cpu",
        group: int = 0,
        groups: int = 1,
    ) -> None:
        """Read the shards `group`, `group + groups`, ... only; `prepare` makes lists an input."""
        self.shards, self.prepare, self.size, self.seed, self.stay = shards, prepare, size, seed, stay
        self.device, self.group = torch.device(device), group
        own = np.arange(group, len(shards), groups)
        self.own = own[shards.pages[own] > 0]
        if not len(self.own):
            raise ConfigError(
                f"{int((shards.pages > 0).sum())} shards that hold pages are too few for {groups} workers; "
                "raise data.shards, or lower training.workers"
            )
        pages = shards.pages[self.own] / shards.pages.sum()
        self.share = float(pages.sum())
        """Share of all result pages that lies in this group."""
        self._edges = np.cumsum(pages / pages.sum())
        self._visits: list[tuple[int, int]] = []  # shard, and how often it was visited before
        self._seen: Counter[int] = Counter()
        self._open: tuple[int, Batches] | None = None
        self._coming: tuple[int, Future[Batches]] | None = None
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="shards")

    def at(self, step: int) -> ClickBatch:
        """The batch of this step, from 0."""
        visit, inside = divmod(step, self.stay)
        shard, before = self.visit(visit)
        batches = self._shard(shard)
        following, _ = self.visit(visit + 1)
        if following != shard and self._coming is None:
            self._coming = following, self._reader.submit(self._read, following)
        return batches.at(before * self.stay + inside)

    def visit(self, number: int) -> tuple[int, int]:
        """The shard of a visit, and how many visits it had before."""
        while len(self._visits) <= number:
            for shard in self._schedule(len(self._visits) // (VISITS * len(self.own))):
                self._visits.append((shard, self._seen[shard]))
                self._seen[shard] += 1
        return self._visits[number]

    def _schedule(self, epoch: int) -> list[int]:
        random = np.random.default_rng([self.seed, self.group, epoch])
        count = VISITS * len(self.own)
        points = (np.arange(count) + random.random()) / count
        drawn = self.own[np.searchsorted(self._edges, points, side="right").clip(max=len(self.own) - 1)]
        order: list[int] = random.permutation(drawn).tolist()
        return order

    def _shard(self, shard: int) -> Batches:
        """The shard's batches: those in use, those that were read ahead, or read now."""
        if self._open is not None and self._open[0] == shard:
            return self._open[1]
        self._open = None  # room for the next
        coming, self._coming = self._coming, None
        ahead = None if coming is None else coming[1].result()
        if coming is None or coming[0] != shard or ahead is None:
            ahead = None  # a jump, as when resuming: let go of what was read ahead first
            ahead = self._read(shard)
        self._open = shard, ahead
        return ahead

    def _read(self, shard: int) -> Batches:
        counts = self.shards.load(shard)
        seed = (self.seed * 100_003 + shard + 1) % 2**40
        return Batches(counts, self.prepare(counts.lists), size=self.size, seed=seed, device=self.device)
