"""One cell of a comparison: a behaviour, a method with its settings, and a seed.

A cell simulates its log, learns, and measures; every metric of each test query is kept.

Nothing here chooses anything on test lists. A tenth of the log's queries is always held out; their clicks, and the
grades of the validation lists, are what settings may be chosen on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unskew import __version__
from unskew.measuring import cmip_metric, measure_ranking
from unskew.simulation import Logger, ScoresLogger, Simulation, SvmLogger
from unskew.studies.compare.arms import Point
from unskew.studies.compare.config import Asked, CompareData
from unskew.studies.compare.data import ListParts, read_data
from unskew.studies.compare.fit import fit
from unskew.studies.compare.keeping import dumped, hash_of, learned_by
from unskew.studies.compare.logs.parts import read_log
from unskew.types import Array, Lists, Log

MEASURED = (
    *("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "err@10", "arp", "arp_legacy"),
    *("err@1", "err@3", "err@5", "dcg@1", "dcg@3", "dcg@5", "dcg@10"),
)
"""What every cell measures on the test lists; lists of all parts have slots for the longest of them."""
PERMUTATIONS = 30
"""Of CMIP: enough for its mean by chance; comparisons ask for no p-value."""


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

    def found(self) -> tuple[dict[str, Any], Array]:
        """Validation and test numbers, and every metric of each test query."""
        found, splits = dict[str, Any](), read_data(self.data, self.base)
        if self.point is None:
            scores = _unlearned(self, splits)
        else:
            log = simulated(self, splits.train)
            found, scores = fit(self.point, self.seed, self.data.scaling, log, splits)
        report = measure_ranking(scores, splits.test, MEASURED, slots=splits.longest)
        found |= {"test": report.to_dict()["means"], "queries": report.queries}
        found |= {"without_relevant": report.without_relevant, "cmip": _left(self, scores, splits)}
        return found, np.asarray(np.stack([report.per_query[name] for name in MEASURED]), np.float64)

    def unpacked(self, kept: Array) -> dict[str, Any]:
        """Every metric of each test query, by name."""
        return {"per_query": dict(zip(MEASURED, kept, strict=True))}


def make_cell(asked: Asked, hashes: tuple[str, ...], behaviour: str, arm: str, index: int, seed: int) -> Cell:
    """The cell of this behaviour, arm, grid point and seed."""
    simulation = asked.simulation(behaviour, seed)
    log = {"data": hashes[0], "seed": seed, "logger": dumped(asked.logger)}
    clicked = log | {"behaviour": dumped(simulation.behaviour), "clicked": dumped(simulation)}
    point = next((found.points[index].at(behaviour) for found in asked.arms if found.label == arm), None)
    depends: dict[str, Any] = {"version": __version__, "test": hashes[2], "seed": seed}
    if point is not None:
        depends |= {"log": clicked, "validation": hashes[1], "scaling": asked.file.data.scaling}
        depends |= learned_by(point)
    else:
        depends |= {"arm": arm} | ({} if arm == "random" else {"log": log})
    made = (simulation, hash_of(clicked), asked.file.data, asked.base)
    return Cell(behaviour, arm, index, point, *made, hash_of(depends))


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
    read_log.cache_clear()
    _kept.clear()
    _logged_kept.clear()


def has_logging_scores(logger: Logger) -> bool:
    """Whether the logging ranker can rank other lists than those it logged."""
    return not isinstance(logger, ScoresLogger)


def _unlearned(cell: Cell, splits: ListParts) -> Array:
    """Scores of the test lists by the logging ranker, or at random."""
    if cell.arm == "random":
        return np.random.default_rng([cell.seed, 11]).random(len(splits.test.features))
    return _logged(cell, splits)


def _left(cell: Cell, scores: Array, splits: ListParts) -> float | None:
    """What scores of the test lists still know of the logging ranking, given grades; None without its scores."""
    if not has_logging_scores(cell.simulation.logger) or len(scores) < 2:
        return None
    test = splits.test
    query = np.repeat(np.arange(len(test)), test.sizes)
    return cmip_metric(scores, _logged(cell, splits), test.labels, query=query, permutations=PERMUTATIONS).value


_logged_kept: dict[tuple[str, int], Array] = {}  # of the log that the cells of one process go through


def _logged(cell: Cell, splits: ListParts) -> Array:
    """Scores of the test lists by the logging ranker."""
    key = (cell.log, cell.seed)
    if key not in _logged_kept:
        _logged_kept.clear()
        _logged_kept[key] = _ranked_by(cell, splits)
    return _logged_kept[key]


def _ranked_by(cell: Cell, splits: ListParts) -> Array:
    logger = cell.simulation.logger
    if isinstance(logger, SvmLogger):
        return logger.fit(splits.train, cell.seed).scores(splits.test)
    return logger.scores(splits.test, cell.seed)
