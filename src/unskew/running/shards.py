"""Shards on disk as the data of a run, in the place of a log in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from unskew.clicks.counts.reduction import Counts
from unskew.clicks.counts.shard_batches import ShardedBatches
from unskew.clicks.counts.shard_writing import FACTS
from unskew.clicks.counts.shards import Shards
from unskew.clicks.lists.scaling import Scaler
from unskew.learning.fitting.distributed import Parts
from unskew.learning.fitting.loop import Training
from unskew.learning.methods import Context
from unskew.types import Array, Lists, Log


@dataclass(frozen=True)
class ShardData:
    """What a run learns from and is chosen by, on disk."""

    shards: Shards
    held_out: int | None
    """The shard whose clicks choose weights."""
    validation: Lists | None
    """Labelled lists, to choose weights by nDCG@10."""
    stay: int = 32
    """Steps before another shard is taken up."""

    def context(self) -> Context:
        """What a method may look at before training: a stand-in for the log, as long and with its click rate.

        It has no shuffled pages and no further columns, so methods that need those say that they are missing.
        """
        about, lists = self.shards.totals(), Lists(*_nothing(self.shards.dim), name=self.shards.name)
        log = Log(
            lists=lists,
            query=np.broadcast_to(np.int64(0), (about["pages"],)),  # takes no memory
            offsets=np.zeros(1, np.int64),
            row=np.zeros(0, np.int64),
            position=np.zeros(0, np.int16),
            click=np.array([about["clicks"] / max(about["impressions"], 1)]),
        )
        sizes = {name: highest + 1 for name, highest in self.shards.serp.items()}
        return Context(self.shards.positions, log, sizes)

    def batches(self, scaler: Scaler, training: Training, device: torch.device, workers: int) -> Any:
        """Batches over all shards, or the parts of a step, each over its own shards."""

        def scale(lists: Lists) -> Array:
            scaled: Array = scaler.apply(lists, out=lists.features).features  # in its place: a shard is large
            return scaled

        def draws(worker: int) -> ShardedBatches:
            return ShardedBatches(
                self.shards,
                scale,
                size=-(-training.batch // workers),
                seed=training.seed,
                stay=self.stay,
                device=device,
                group=worker,
                groups=workers,
            )

        pages = self.shards.pages
        shares = [float(pages[worker::workers].sum() / pages.sum()) for worker in range(workers)]
        return draws(0) if workers == 1 else Parts(shares, draws, device)

    def held_counts(self) -> Counts | None:
        """The shard whose clicks choose weights; None where it has no click."""
        clicks = 0 if self.held_out is None else self.shards.facts[self.held_out, FACTS.index("clicks")]
        return None if self.held_out is None or not clicks else self.shards.load(self.held_out)

    def in_numbers(self) -> dict[str, int]:
        """The training shards in numbers."""
        about = self.shards.totals()
        return {name: about[name] for name in ("pages", "impressions", "clicks", "queries")} | {
            "shards": len(self.shards)
        }


def _nothing(width: int) -> tuple[Array, Array, Array, Array]:
    """Lists without a query: features, offsets, labels, ids."""
    return np.zeros((0, width), np.float32), np.zeros(1, np.int64), np.zeros(0, np.int16), np.zeros(0, np.int64)
