"""Values looked up and summed by rank, and propensities measured on a log or read from a file.

Legend: B rows, K results of a page, P ranks.
"""

from __future__ import annotations

import csv
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from unskew.errors import ConfigError, DataError
from unskew.learning.swaps import swap_propensity
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
    """Examination relative to rank 1, from pages whose list was shuffled.

    In a shuffled list every rank holds the same mix of documents, so clicks at rank k over clicks at rank 1 of the
    lists that reach rank k estimate theta_k / theta_1.
    """
    if log.randomized is None or not log.randomized.any():
        raise DataError(
            "the log has no randomized pages",
            hint='mark shuffled pages, or take propensity = "swaps", numbers, or the method dla',
        )
    page = np.repeat(np.arange(len(log)), log.sizes)
    top = log.randomized & (log.position == 1)
    has_top, top_click = np.zeros(len(log), dtype=bool), np.zeros(len(log))
    has_top[page[top]], top_click[page[top]] = True, log.click[top]
    used = log.randomized & has_top[page]
    rank = log.position[used] - 1
    clicks = np.bincount(rank, weights=log.click[used])
    at_top = np.bincount(rank, weights=top_click[page[used]])  # clicks at rank 1 of the lists that reach rank k
    for place, some in (("at", clicks[:1]), ("below", clicks[1:] if len(clicks) > 1 else clicks)):
        if not some.any():
            raise DataError(f"no click {place} rank 1 in the randomized pages", hint="randomize more pages")
    starts = pooled_ranks(clicks, at_top)
    if len(starts) < len(clicks):
        warnings.warn(
            f"the randomized pages have too few clicks for each of {len(clicks)} ranks: some share their "
            f"examination with their neighbours, {len(starts)} values in all; randomize more pages",
            stacklevel=2,
        )
    shared: Array = np.add.reduceat(clicks, starts) / np.add.reduceat(at_top, starts)
    return np.repeat(shared, np.diff([*starts, len(clicks)]))


def pooled_ranks(clicks: Array, at_top: Array) -> list[int]:
    """Where ranks [P] are cut so that every part has clicks and clicks at the top: 0, then from rank 2 on.

    >>> pooled_ranks(np.array([8, 2, 0, 1, 0]), np.array([8, 8, 8, 4, 4]))
    [0, 1, 2]
    """
    starts, enough = [0], True
    for rank in range(1, len(clicks)):
        if enough:
            starts.append(rank)
        enough = bool(clicks[starts[-1] : rank + 1].any() and at_top[starts[-1] : rank + 1].any())
    return starts if enough else starts[:-1]


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
        raise ConfigError("method.propensity: give one positive number per rank, rank 1 first")
    return theta


def oracle_propensity(log: Log) -> Array:
    """Examination relative to rank 1 as the simulator knew it: the mean of `true_examination` at each rank."""
    if "true_examination" not in log.columns:
        raise DataError("the log does not say the true examination", hint="simulate with truth=True")
    shown = np.bincount(log.position)[1:]
    total = np.bincount(log.position, weights=log.columns["true_examination"])[1:]
    theta: Array = total / np.maximum(shown, 1)
    ratio: Array = theta / theta[0]
    return ratio


def swapped_propensity(log: Log) -> Array:
    """Examination relative to rank 1, from documents that the log shows at several ranks: see `swaps`."""
    query = np.repeat(log.query, log.sizes).astype(np.int64)
    return swap_propensity(query * (int(log.row.max(initial=0)) + 1) + log.row, log.position, log.click)


Measured = Literal["randomized", "swaps", "oracle"]
"""How propensities can be measured on a log."""
MEASURES: dict[Measured, Callable[[Log], Array]] = {
    "randomized": randomized_propensity,
    "swaps": swapped_propensity,
    "oracle": oracle_propensity,
}
"""What measures them, by name."""
