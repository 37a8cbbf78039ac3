"""Examination: how often a place of the page is looked at, relative to the first, and files of it.

Files are JSON or CSV and have a number for every rank from 1 on; ranks beyond the last take its number.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, overload

import numpy as np

from unskew.errors import ConfigError, DataError
from unskew.files import write_text
from unskew.results import Result, plain
from unskew.types import Array

SOURCES = {
    "shuffled": "shuffled pages",
    "swaps": "documents shown at several ranks",
    "pivot": "documents at rank 1 and another",
    "adjacent": "documents at neighbouring ranks",
}
"""What a log is measured by, the best first, in words."""
POSITIVE = "give one positive number per rank, rank 1 first"


@dataclass(frozen=True)
class Examination(Result):
    """How often each rank is looked at, relative to rank 1, and how sure that is.

    >>> seen = Examination.of([0.8, 0.4], "numbers")
    >>> seen.theta, seen.at(2), seen.at(np.array([1, 2, 9])).tolist()
    ((1.0, 0.5), 0.5, [1.0, 0.5, 0.5])
    """

    theta: tuple[float | None, ...]
    """By rank from 1; None where it is not told."""
    source: str
    """What it comes from: one of `SOURCES`, "numbers", a file, a run or a method."""
    lower: tuple[float | None, ...] = ()
    upper: tuple[float | None, ...] = ()
    """Ends of the 95 % intervals, where there are any."""
    reason: tuple[str | None, ...] = ()
    """Why a rank is not told; it may tell of ranks past the last one."""
    leaning: tuple[int, ...] = ()
    """Ranks with few clicks, which are drawn to their neighbours."""
    clicks: int | None = None
    """Clicks that it rests on."""
    share: float = 1.0
    """Share of the log's queries that was looked at."""
    effective_clicks: float | None = None
    """Clicks of equal weight that tell as much as those of the log weighted by 1 / theta."""
    max_weight: float | None = None
    """What weights of clicks are clipped at."""
    draws: Array | None = field(default=None, repr=False, compare=False)
    """[R, P] theta as chance may have made it, where that is known."""
    untold: ClassVar = ("draws", "theta")

    def __post_init__(self) -> None:
        numbers = [value for value in self.theta if value is not None]
        drawn = numbers if self.draws is None else np.asarray(self.draws)
        if not numbers or not all(np.all(np.isfinite(each) & (np.asarray(each) > 0)) for each in (numbers, drawn)):
            raise ConfigError(POSITIVE, argument="examination")

    @classmethod
    def of(cls, theta: Array | Sequence[float], source: str, **more: Any) -> Examination:
        """Numbers by rank, divided by the first of them."""
        values = np.asarray(theta, np.float64)
        if values.ndim != 1 or not len(values) or not (np.isfinite(values) & (values > 0)).all():
            raise ConfigError(POSITIVE, argument="examination")
        return cls(tuple((values / values[0]).tolist()), source, **more)

    # ---- what it says ----

    @property
    def position(self) -> range:
        """Ranks from 1."""
        return range(1, len(self.theta) + 1)

    @property
    def values(self) -> Array:
        """[P] theta, NaN where it is not told."""
        return np.asarray(self.theta, np.float64)

    @property
    def known(self) -> int:
        """Number of ranks whose examination is told."""
        return sum(value is not None for value in self.theta)

    @property
    def interval(self) -> tuple[tuple[float, float] | None, ...]:
        """Both ends by rank; None where there are none."""
        ends = zip(self.lower, self.upper, strict=True)
        found = tuple(None if low is None or high is None else (low, high) for low, high in ends)
        return found or (None,) * len(self.theta)

    @property
    def found_by(self) -> str:
        """What it comes from, in words."""
        return SOURCES.get(self.source, self.source)

    @property
    def why(self) -> str | None:
        """The first reason that a rank is not told."""
        return next(filter(None, self.reason), None)

    @property
    def note(self) -> str | None:
        """Which ranks are left out at the end, and why."""
        first, last = len(self.theta) + 1, len(self.reason)
        ranks = f"rank {first} is" if first == last else f"ranks {first} to {last} are"
        return f"{ranks} left out. Rank {first}: {self.reason[first - 1]}" if last >= first else None

    @overload
    def at(self, rank: int) -> float | None: ...
    @overload
    def at(self, rank: Array) -> Array: ...
    def at(self, rank: int | Array) -> float | Array | None:
        """Theta of a rank from 1, or of an array of them; ranks past the last one have its value."""
        if isinstance(rank, int):
            return self.theta[min(rank, len(self.theta)) - 1]
        found: Array = self.values[np.clip(rank, 1, len(self.theta)) - 1]
        return found

    @property
    def weight(self) -> Array:
        """[P] the weight of a click: 1 / theta, clipped where that was asked for."""
        weight: Array = 1 / self.values
        return weight if self.max_weight is None else np.minimum(weight, self.max_weight)

    def weights(self, position: Array) -> Array:
        """The weight of a click at each of these ranks; ranks past the last one take its weight."""
        found: Array = self.weight[np.clip(np.asarray(position), 1, len(self.theta)) - 1]
        return found

    def usable(self, clicks: Sequence[int] = ()) -> Examination:
        """As far down as it is told without a gap, which learners need; `clicks` are those of the log by rank."""
        end = self.theta.index(None) if None in self.theta else len(self.theta)
        cut = replace(self, theta=self.theta[:end], lower=self.lower[:end], upper=self.upper[:end])
        return replace(cut, effective_clicks=effective_clicks(cut.values, clicks))

    def reaching(self, ranks: int) -> Examination:
        """A curve that never rises, down to so many ranks, for whom numbers of single ranks are too uncertain.

        Past the last rank theta falls on as a power of the rank, as it fell before.

        >>> Examination.of([1.0, 0.5, 0.55], "numbers").reaching(6).values.round(3).tolist()
        [1.0, 0.524, 0.524, 0.431, 0.369, 0.326]
        """
        from scipy.optimize import isotonic_regression  # takes long to import

        value, log_rank = np.log(self.values), np.log(np.arange(1, max(ranks, len(self.theta)) + 1))
        ends = np.array([pair or (np.nan, np.nan) for pair in self.interval], float)
        error = np.nan_to_num(np.log(ends[:, 1] / ends[:, 0]) / 4, nan=0.3)
        error[0] = 0.01  # it is 1 by definition
        found = isotonic_regression(value, weights=1 / np.maximum(error, 0.01) ** 2, increasing=False).x
        found = found - found[0]
        known, weights = log_rank[: len(found)], 1 / (error**2 + 0.05)
        power = float((weights * known * found).sum() / max((weights * known**2).sum(), 1e-9))
        past = found[-1] + power * (log_rank[len(found) :] - known[-1])
        return Examination.of(np.exp(np.r_[found, past]), self.source)

    # ---- files ----

    def to_dict(self) -> dict[str, Any]:
        """For JSON; learners read the numbers under `examination`."""
        ranks = {"position": self.position, "examination": self.theta}
        more = {"found_by": self.found_by, "note": self.note, "weight": self.weight}
        return plain(ranks) | super().to_dict() | plain(more)  # type: ignore[no-any-return]

    @classmethod
    def from_dict(cls, told: Any) -> Examination:
        """The examination that is read back from the dict that `to_dict` made."""
        names = {each.name for each in fields(cls)} & set(told)
        given: dict[str, Any] = {
            name: tuple(told[name]) if isinstance(told[name], list) else told[name] for name in names
        }
        return cls(theta=tuple(told["examination"]), **given)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Inside of other results it is read as `from_dict` does."""
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls.from_dict)

    def csv_text(self) -> str:
        """As CSV: position, examination, weight, and the ends of intervals where there are any."""
        names = ("position", "examination", "weight", *(("lower", "upper") if self.lower else ()))
        found = self.to_dict()
        rows = zip(*(found[name] for name in names), strict=True)
        return "\n".join([",".join(names), *(",".join(f"{each:.6g}" for each in row) for row in rows), ""])

    def write(self, path: Path | str) -> None:
        """Write a file, .json or .csv."""
        text = self.csv_text() if Path(path).suffix == ".csv" else self.to_json(1) + "\n"
        write_text(Path(path), text)

    @classmethod
    def read(cls, path: Path | str) -> Examination:
        """Read a file: JSON (a list, or under `examination`) or CSV (position, examination)."""
        path = Path(path)
        try:
            if path.suffix == ".csv":
                with path.open(encoding="utf-8", newline="") as file:
                    return cls.of(_in_order(csv.DictReader(file)), str(path))
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls.of(content["examination"] if isinstance(content, dict) else content, str(path))
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", path=path) from error
        except (ValueError, KeyError, TypeError, ConfigError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            what = POSITIVE if isinstance(error, ConfigError) else what
            hint = "one positive number per rank, from 1"
            raise DataError(f"no propensities: {what}", path=path, hint=hint) from error


def _in_order(rows: Iterable[dict[str, str]]) -> list[float]:
    """Numbers of rows with position and examination, by position."""
    found = sorted((int(row["position"]), float(row["examination"])) for row in rows)
    if [position for position, _ in found] != list(range(1, len(found) + 1)):
        raise ValueError("positions must run 1, 2, 3, ...")
    return [value for _, value in found]


def effective_clicks(theta: Array | Sequence[float], clicks: Sequence[int]) -> float | None:
    """(sum c w)^2 / sum c w^2 with w = 1 / theta, over the ranks that have both; None without clicks.

    >>> effective_clicks((1.0, 0.5), (100, 50))
    133.33333333333334
    """
    pairs = [(c, 1 / float(seen)) for c, seen in zip(clicks, theta, strict=False)]
    squares = sum(c * w * w for c, w in pairs)
    return sum(c * w for c, w in pairs) ** 2 / squares if squares else None
