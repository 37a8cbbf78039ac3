"""Values looked up and summed by rank, and examination measured on a log.

Legend: B rows, K results of a page, P ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unskew.errors import DataError, Option
from unskew.examination import Examination
from unskew.types import ClickBatch, Log


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


def randomized_propensity(log: Log) -> Examination:
    """Examination from slots that were shuffled, as `diagnose` measures it.

    In a shuffled list every rank holds the same mix of documents, so clicks at rank k over clicks at rank 1 of the
    lists that reach rank k estimate theta_k / theta_1.
    """
    if log.randomized is None or not log.randomized.any():
        raise DataError(
            "the log has no randomized pages",
            hint='mark shuffled pages, or take propensity = "swaps", numbers, or the method dla',
        )
    return measured_examination(log, "shuffled")


def swapped_propensity(log: Log) -> Examination:
    """Examination from documents that the log shows at several ranks, as `diagnose` has it."""
    return measured_examination(log, "swaps")


def measured_examination(log: Log, source: str) -> Examination:
    """Examination by rank of a log, as good as it can be told, as far down as ranks hang together."""
    from unskew.diagnosis.evidence.evidence import best_guess  # these take long to import
    from unskew.diagnosis.evidence.tables import open_tables

    with open_tables(log, threads=1) as tables:
        return best_guess(tables, source)


def oracle_propensity(log: Log) -> Examination:
    """Examination as the simulator knew it: the mean of `true_examination` at each rank."""
    if "true_examination" not in log.columns:
        raise DataError(
            "the log does not say the true examination", hint=("simulate with ", Option("truth", True))
        )
    shown = np.bincount(log.position)[1:]
    total = np.bincount(log.position, weights=log.columns["true_examination"])[1:]
    return Examination.of(total / np.maximum(shown, 1), "the simulator")


Measurement = Literal["randomized", "swaps", "oracle"]
"""How propensities can be measured on a log."""
MEASURES: dict[Measurement, Callable[[Log], Examination]] = {
    "randomized": randomized_propensity,
    "swaps": swapped_propensity,
    "oracle": oracle_propensity,
}
"""What measures them, by name."""
