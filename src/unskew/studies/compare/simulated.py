"""One cell of a comparison: a behaviour, a method with its settings, and a seed.

A cell simulates its log, learns, and measures; every metric of each test query is kept.

Nothing here chooses anything on test lists. A tenth of the log's queries is always held out; their clicks, and the
grades of the validation lists, are what settings may be chosen on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew import __version__
from unskew.learning.scoring.model import Model
from unskew.learning.scoring.scorer import Scorer
from unskew.measuring import cmip_metric, measure_ranking, page_ndcg_metric, rank_weights
from unskew.results import plain
from unskew.simulation import Logger, ScoresLogger, Simulation, SvmLogger
from unskew.studies.compare.arms import Point
from unskew.studies.compare.cells import Cell, dumped, hash_of, learned_by
from unskew.studies.compare.config import Asked
from unskew.studies.compare.data import ListParts, read_data
from unskew.studies.compare.logged import label_score, read_log
from unskew.types import Array, Lists, Log
from unskew.workflows.proofs.clicks import click_likelihood
from unskew.workflows.runs.data import LogData, held_queries
from unskew.workflows.runs.fitters import click_ndcg
from unskew.workflows.runs.run import run

Fitted = tuple[dict[str, Any], Array]
"""Validation numbers, and scores of the test lists."""


def fit(point: Point, seed: int, scaling: str, log: Log, splits: ListParts) -> Fitted:
    """Learn an arm with one combination of its settings.

    A tenth of the log's queries is held out whatever chooses the weights: every arm learns from the same pages.
    """
    held = held_queries(log, seed)
    apart = np.isin(log.query, held)
    train, held_out = log.take(~apart), log.take(apart)
    lists = splits.validation or (log.lists.take(held) if point.reads_labels else None)
    by = "labels" if point.reads_labels and point.training.validate_on == "clicks" else point.training.validate_on
    chosen_by = {"clicks": (held_out, None), "labels": (None, lists), "nothing": (None, None)}[by]
    done = run(point.settings(seed, scaling), LogData(train, *chosen_by))
    model, trained = done.model, done.fit
    if trained.status == "interrupted":
        raise KeyboardInterrupt
    found = {
        "steps": trained.step,
        "clicks": int(train.click.sum()),
        "validation_ndcg@10": None if lists is None else label_score(model, lists),
        "validation_ips_ndcg@10": page_score(model, held_out),
    }
    if not isinstance(model, Model):  # it has no click model, so held-out clicks choose by its nDCG on them
        found["validation_click_ndcg@10"] = plain(click_ndcg(model, held_out))
    else:
        found["validation_click_loglikelihood"] = None if point.reads_labels else click_score(model, held_out)
    return found, model.score(splits.test)


def page_score(model: Scorer, log: Log) -> float | None:
    """nDCG@10 of the pages by their clicks, corrected for rank by the average clicks there."""
    scores, weights = model.score(log.lists)[log.row], rank_weights(log.click, log.position)
    found: float | None = plain(page_ndcg_metric(scores, log.click, offsets=log.offsets, weights=weights).mean)
    return found


def click_score(model: Model, log: Log) -> float | None:
    """Mean log-probability of a click among the results of its page."""
    device = next(model.ranker.parameters()).device
    batches = LogData(log, log).held_out_batches(model, device)
    return None if batches is None else plain(click_likelihood(model, batches))


MEASURED = (
    *("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "err@10", "arp", "arp_legacy"),
    *("err@1", "err@3", "err@5", "dcg@1", "dcg@3", "dcg@5", "dcg@10"),
)
"""What every cell measures on the test lists; lists of all parts have slots for the longest of them."""
PERMUTATIONS = 30
"""Of CMIP: enough for its mean by chance; comparisons ask for no p-value."""


@dataclass(frozen=True)
class SimulatedCell(Cell):
    """A cell whose clicks are simulated."""

    simulation: Simulation
    log: str
    """Hash of the simulation and of the lists."""

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


def make_cell(
    asked: Asked, hashes: tuple[str, ...], behaviour: str, arm: str, index: int, seed: int
) -> SimulatedCell:
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
    about = (behaviour, arm, index, point, seed, asked.file.data, asked.base, hash_of(depends))
    return SimulatedCell(*about, simulation, hash_of(clicked))


_kept: dict[str, tuple[str, Any]] = {}  # the last log of this process, and the logging ranker's scores beside it


def _once(what: str, cell: SimulatedCell, make: Callable[[], Any]) -> Any:
    """Made for the first cell of a log, and kept for those that follow."""
    key = f"{cell.log} {cell.seed}"
    if what not in _kept or _kept[what][0] != key:
        _kept[what] = (key, make())
    return _kept[what][1]


def simulated(cell: SimulatedCell, lists: Lists) -> Log:
    """The log of a cell."""
    log: Log = _once("log", cell, lambda: cell.simulation.draw(lists))
    return log


def forget() -> None:
    """Drop lists and logs that were kept, as their files may have changed."""
    read_data.cache_clear()
    read_log.cache_clear()
    _kept.clear()


def has_logging_scores(logger: Logger) -> bool:
    """Whether the logging ranker can rank other lists than those it logged."""
    return not isinstance(logger, ScoresLogger)


def _unlearned(cell: SimulatedCell, splits: ListParts) -> Array:
    """Scores of the test lists by the logging ranker, or at random."""
    if cell.arm == "random":
        return np.random.default_rng([cell.seed, 11]).random(len(splits.test.features))
    return _logged(cell, splits)


def _left(cell: SimulatedCell, scores: Array, splits: ListParts) -> float | None:
    """What scores of the test lists still know of the logging ranking, given grades; None without its scores."""
    if not has_logging_scores(cell.simulation.logger) or len(scores) < 2:
        return None
    test = splits.test
    query = np.repeat(np.arange(len(test)), test.sizes)
    return cmip_metric(scores, _logged(cell, splits), test.labels, query=query, permutations=PERMUTATIONS).value


def _logged(cell: SimulatedCell, splits: ListParts) -> Array:
    """Scores of the test lists by the logging ranker."""
    scores: Array = _once("scores", cell, lambda: _ranked_by(cell, splits))
    return scores


def _ranked_by(cell: SimulatedCell, splits: ListParts) -> Array:
    logger = cell.simulation.logger
    if isinstance(logger, SvmLogger):
        return logger.fit(splits.train, cell.seed).scores(splits.test)
    return logger.scores(splits.test, cell.seed)
