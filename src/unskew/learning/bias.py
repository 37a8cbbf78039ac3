"""Values looked up and summed by rank, and propensities measured on a log or read from a file.

Legend: B rows, K results of a page, P ranks.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from unskew.errors import ConfigError, DataError
from unskew.types import Array, Log


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


def randomized_propensity(log: Log) -> Array:
    """Examination relative to rank 1, from pages whose list was shuffled.

    In a shuffled list every rank holds the same mix of documents, so clicks at rank k over clicks at rank 1 of the
    lists that reach rank k estimate theta_k / theta_1.
    """
    if log.randomized is None or not log.randomized.any():
        raise DataError(
            "the log has no randomized pages",
            hint='simulate with randomized=0.05, or give propensities, or use method "dla"',
        )
    page = np.repeat(np.arange(len(log)), log.sizes)
    top = log.randomized & (log.position == 1)
    has_top, top_click = np.zeros(len(log), dtype=bool), np.zeros(len(log))
    has_top[page[top]], top_click[page[top]] = True, log.click[top]
    used = log.randomized & has_top[page]
    rank = log.position[used] - 1
    clicks = np.bincount(rank, weights=log.click[used])
    at_top = np.bincount(rank, weights=top_click[page[used]])  # clicks at rank 1 of the lists that reach rank k
    if not len(clicks) or (clicks == 0).any() or (at_top == 0).any():
        thin = np.flatnonzero((clicks == 0) | (at_top == 0)) + 1
        place = f"at rank {thin[0]}" if len(thin) else "at rank 1"
        raise DataError(f"no click {place} in the randomized pages", hint="randomize more pages")
    ratio: Array = clicks / at_top
    return ratio


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


MEASURES = {"randomized": randomized_propensity, "oracle": oracle_propensity}
"""How propensities can be measured on a log, by name."""
