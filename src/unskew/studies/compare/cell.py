"""One cell of a comparison: a behaviour, a method with its settings, and a seed.

A cell simulates its log, learns, and measures. What it found is kept under a name that is a hash of all it depends
on, so a cell is run once and never again until something that it depends on changes:

    cells/<hash>.json    settings, validation and test numbers, seconds; or the error
    cells/<hash>.npy     every metric of each test query

Nothing here chooses anything on test lists. A tenth of the log's queries is always held out; their clicks, and the
grades of the validation lists, are what settings may be chosen on.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unskew import __version__
from unskew.clicks.simulate import Logger, ScoresLogger, Simulation, SvmLogger
from unskew.disk import complete_file, read_json, write_json
from unskew.errors import DataError, UnskewError
from unskew.measuring import measure_ranking
from unskew.studies.compare.arms import Point
from unskew.studies.compare.config import Asked, CompareData
from unskew.studies.compare.data import ListParts, read_data
from unskew.studies.compare.fit import fit
from unskew.types import Array, Lists, Log

MEASURED = (
    *("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "err@10", "arp", "arp_legacy"),
    *("err@1", "err@3", "err@5", "dcg@1", "dcg@3", "dcg@5", "dcg@10"),
)
"""What every cell measures on the test lists; lists of all parts have slots for the longest of them."""


@dataclass(frozen=True)
class Cell:
    """One thing to learn and measure; small enough to be sent to another process."""

    behaviour: str
    arm: str
    index: int
    """Which of the arm's grid points."""
    point: Point | None
    """None for the arms that do not learn: random and logging."""
    simulation: Simulation
    log: str
    """Hash of the simulation and of the lists."""
    data: CompareData
    base: Path
    key: str
    """Hash of all that the cell depends on."""

    @property
    def seed(self) -> int:
        """Seed of its log and of its training."""
        return self.simulation.seed

    @property
    def varied(self) -> str:
        """What its grid point set, as text."""
        return "" if self.point is None else self.point.varied

    def __str__(self) -> str:
        return f"{self.behaviour}: {f'{self.arm} {self.varied}'.strip()}, seed {self.seed}"


def make_cell(asked: Asked, hashes: tuple[str, ...], behaviour: str, arm: str, index: int, seed: int) -> Cell:
    """The cell of this behaviour, arm, grid point and seed."""
    simulation = asked.simulation(behaviour, seed)
    log = {"data": hashes[0], "seed": seed, "logger": dumped(asked.logger)}
    clicked = log | {"behaviour": dumped(simulation.behaviour), "clicked": dumped(simulation)}
    point = next((found.points[index].at(behaviour) for found in asked.arms if found.label == arm), None)
    depends: dict[str, Any] = {"version": __version__, "test": hashes[2], "seed": seed}
    if point is not None:
        depends |= {"log": clicked, "validation": hashes[1], "scaling": asked.file.data.scaling}
        depends |= {"method": dumped(point.method)}
        if point.ranker is None:
            depends |= {"validate_on": point.training.validate_on}
        else:
            depends |= {"training": dumped(point.training), "ranker": dumped(point.ranker)}
    else:
        depends |= {"arm": arm} | ({} if arm == "random" else {"log": log})
    made = (simulation, hash_of(clicked), asked.file.data, asked.base)
    return Cell(behaviour, arm, index, point, *made, hash_of(depends))


def hash_of(depends: dict[str, Any]) -> str:
    """A name for all that something depends on."""
    text = json.dumps(depends, sort_keys=True, default=_plain)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def dumped(config: Any) -> dict[str, Any]:
    """What was set, so that a setting added later, at its default, reruns nothing."""
    return {"kind": type(config).__name__} | dict(config.model_dump(exclude_defaults=True))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


_kept: dict[str, Log] = {}  # the log of a behaviour and seed, for the cells that follow


def simulated(cell: Cell, lists: Lists) -> Log:
    """The log of a cell."""
    if cell.log not in _kept:
        _kept.clear()
        _kept[cell.log] = cell.simulation.draw(lists)
    return _kept[cell.log]


def forget() -> None:
    """Drop lists and logs that were kept, as their files may have changed."""
    read_data.cache_clear()
    _kept.clear()


def has_logging_scores(logger: Logger) -> bool:
    """Whether the logging ranker can rank other lists than those it logged."""
    return not isinstance(logger, ScoresLogger)


def run_cell(cell: Cell, folder: Path) -> str | None:
    """Run a cell and keep what it found in the folder; the message where it failed."""
    began, splits = time.perf_counter(), read_data(cell.data, cell.base)
    found: dict[str, Any] = {}
    try:
        if cell.point is None:
            scores = _unlearned(cell, splits)
        else:
            log = simulated(cell, splits.train)
            found, scores = fit(cell.point, cell.seed, cell.data.scaling, log, splits)
        report = measure_ranking(scores, splits.test, MEASURED, slots=splits.longest)
    except Exception as error:  # whatever a cell dies of, the others go on
        message = str(error) if isinstance(error, UnskewError) else f"{type(error).__name__}: {error}"
        _write(folder, cell, {"status": "failed", "error": message}, None)
        return message
    found |= {"status": "finished", "test": report.to_dict()["means"], "queries": report.queries}
    found |= {"without_relevant": report.without_relevant, "seconds": round(time.perf_counter() - began, 3)}
    found |= {"largest_mb": peak_memory()}
    _write(folder, cell, found, np.stack([report.per_query[name] for name in MEASURED]))
    return None


def _unlearned(cell: Cell, splits: ListParts) -> Array:
    """Scores of the test lists by the logging ranker, or at random."""
    if cell.arm == "random":
        return np.random.default_rng([cell.seed, 11]).random(len(splits.test.features))
    logger = cell.simulation.logger
    if isinstance(logger, SvmLogger):
        return logger.fit(splits.train, cell.seed).scores(splits.test)
    return logger.scores(splits.test, cell.seed)


def peak_memory() -> float | None:
    """The most memory that this process has had so far, in MB; None where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def _write(folder: Path, cell: Cell, found: dict[str, Any], per_query: Array | None) -> None:
    """The numbers first, then the text: where there is text, the cell is whole."""
    about = {"cell": str(cell), "settings": settings_of(cell), "seed": cell.seed, "version": __version__}
    if per_query is not None:
        with complete_file(folder / f"{cell.key}.npy") as path, path.open("wb") as file:
            np.save(file, np.asarray(per_query, np.float64))
    write_json(folder / f"{cell.key}.json", about | found)


def settings_of(cell: Cell) -> dict[str, Any]:
    """Settings of the cell's method and training, ready for JSON."""
    if cell.point is None:
        return {}
    point, method = cell.point, cell.point.method.model_dump(mode="json")
    if point.ranker is None:
        return {"method": method, "training": {"validate_on": point.training.validate_on}}
    training = point.training.model_dump(mode="json", exclude={"seed", "threads", "device"})
    return {"method": method, "ranker": point.ranker.model_dump(mode="json"), "training": training}


def read_cell(folder: Path, cell: Cell) -> dict[str, Any] | None:
    """What a cell found; None where it has not been run, or not to its end."""
    try:
        found = read_json(folder / f"{cell.key}.json")
        if found["status"] == "finished":
            kept = np.load(folder / f"{cell.key}.npy", allow_pickle=False)
            found["per_query"] = dict(zip(MEASURED, kept, strict=True))
    except (OSError, ValueError, KeyError, DataError):
        return None
    return found
