"""Batches from shards on disk, with two of them in memory at most: the one in use and the one that comes next.

Training stays with a shard for some steps (a visit), while a thread reads the next one. Visits are drawn as
`Batches` draws rows: systematically, in proportion to the result pages behind each shard, then shuffled; within a
shard `Batches` itself draws rows, and goes on at the next visit where it was. So in expectation a batch holds each
ranking in proportion to how often it was shown, as if all were in memory; the smaller a visit, the better it is
mixed. Everything is a function of (seed, step), so a run can resume.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from unskew.errors import ConfigError
from unskew.logs.counts.batches import Batches
from unskew.logs.counts.shards import Shards
from unskew.types import ClickBatch, Input, Lists

VISITS = 4
"""Visits of an epoch, for each shard."""


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
        """The shards of an epoch's visits, in order."""
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
