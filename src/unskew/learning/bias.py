"""Values looked up and summed by rank, and propensities measured on a log or read from a file.

Legend: B rows, K results of a page, P ranks.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unskew.errors import ConfigError, DataError, Key, Option
from unskew.types import Array, ClickBatch, Log


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


def randomized_propensity(log: Log) -> Array:
    """Examination relative to rank 1, from slots that were shuffled, as `diagnose` measures it.

    In a shuffled list every rank holds the same mix of documents, so clicks at rank k over clicks at rank 1 of the
    lists that reach rank k estimate theta_k / theta_1.
    """
    if log.randomized is None or not log.randomized.any():
        raise DataError(
            "the log has no randomized pages",
            hint='mark shuffled pages, or take propensity = "swaps", numbers, or the method dla',
        )
    return measured_examination(log, "shuffled")


def swapped_propensity(log: Log) -> Array:
    """Examination relative to rank 1, from documents that the log shows at several ranks, as `diagnose` has it."""
    return measured_examination(log, "all_pairs")


def measured_examination(log: Log, method: str) -> Array:
    """Examination by rank of a log, as good as it can be told, as far down as ranks hang together."""
    from unskew.diagnosis.evidence.estimates import measure  # these take long to import
    from unskew.diagnosis.evidence.tables import open_tables
    from unskew.diagnosis.propensities import best_guess

    with open_tables(log, threads=1) as tables:
        return best_guess(measure(tables, method))


def read_propensities(path: Path) -> Array:
    """Examination by rank from a file: JSON (a list, or under `examination`) or CSV (position, examination)."""
    try:
        if path.suffix == ".csv":
            with path.open(encoding="utf-8", newline="") as file:
                rows = sorted((int(row["position"]), float(row["examination"])) for row in csv.DictReader(file))
            if [position for position, _ in rows] != list(range(1, len(rows) + 1)):
                raise ValueError("positions must run 1, 2, 3, ...")
            values = [value for _, value in rows]
        else:
            content = json.loads(path.read_text(encoding="utf-8"))
            values = content["examination"] if isinstance(content, dict) else content
        return checked_propensities(np.asarray(values, np.float64))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=path) from error
    except (ValueError, KeyError, TypeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else error
        raise DataError(
            f"no propensities: {what}", path=path, hint="one positive number per rank, from 1"
        ) from error


def checked_propensities(theta: Array) -> Array:
    """One positive number per rank, rank 1 first."""
    if theta.ndim != 1 or len(theta) == 0 or not np.all(np.isfinite(theta) & (theta > 0)):
        raise ConfigError("give one positive number per rank, rank 1 first", argument=Key("method.propensity"))
    return theta


def oracle_propensity(log: Log) -> Array:
    """Examination relative to rank 1 as the simulator knew it: the mean of `true_examination` at each rank."""
    if "true_examination" not in log.columns:
        raise DataError(
            "the log does not say the true examination", hint=("simulate with ", Option("truth", True))
        )
    shown = np.bincount(log.position)[1:]
    total = np.bincount(log.position, weights=log.columns["true_examination"])[1:]
    theta: Array = total / np.maximum(shown, 1)
    ratio: Array = theta / theta[0]
    return ratio


Measurement = Literal["randomized", "swaps", "oracle"]
"""How propensities can be measured on a log."""
MEASURES: dict[Measurement, Callable[[Log], Array]] = {
    "randomized": randomized_propensity,
    "swaps": swapped_propensity,
    "oracle": oracle_propensity,
}
"""What measures them, by name."""
