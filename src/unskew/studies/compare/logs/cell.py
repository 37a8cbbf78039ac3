"""One cell of a comparison on a real log: a method with its settings and a seed, learned, all documents scored.

Scores of every document are kept, [N]; what chooses and what judges is read off them later, so that another
verdict costs no training.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unskew import __version__
from unskew.errors import RunError
from unskew.measuring import measure_ranking
from unskew.studies.compare.arms import Point
from unskew.studies.compare.config import Asked, CompareData
from unskew.studies.compare.keeping import hash_of, learned_by
from unskew.studies.compare.logs.parts import read_log
from unskew.types import Array, Lists, Log
from unskew.workflows.proofs.measure_lists import finite
from unskew.workflows.runs.data import split
from unskew.workflows.runs.run import Run, run
from unskew.workflows.runs.settings import Settings


@dataclass(frozen=True)
class LogCell:
    """One thing to learn; small enough to be sent to another process."""

    arm: str
    index: int
    """Which of the arm's grid points."""
    point: Point
    seed: int
    """Of the training, and of the parts where the log is cut."""
    data: CompareData
    base: Path
    key: str
    """Hash of all that the cell depends on."""

    @property
    def varied(self) -> str:
        """What its grid point set, as text."""
        return self.point.varied

    def __str__(self) -> str:
        return f"{f'{self.arm} {self.varied}'.strip()}, seed {self.seed}"

    def found(self) -> tuple[dict[str, Any], Array]:
        """What was learned, in numbers, and scores of all documents."""
        log = read_log(self.data, self.base)
        parts = log.drawn(self.seed)
        done = learned(self.point, self.seed, self.data.scaling, parts.train)
        scores, seen = done.score(log.documents), done.propensity()
        if not np.isfinite(scores).all():
            raise RunError(f"{self.arm} scores documents with what is no number; train it longer, or otherwise")
        found: dict[str, Any] = {"steps": done.fit.step, "clicks": int(parts.train.click.sum())}
        found["validation_click_loglikelihood"] = None if done.fit.best is None else finite(done.fit.best)
        found["propensity"] = None if seen is None else [float(value) for value in seen]
        found["ndcg@10"] = graded_score(done, log.graded, parts.test)
        return found, np.asarray(scores, np.float64)

    def unpacked(self, kept: Array) -> dict[str, Any]:
        """Scores of all documents."""
        return {"scores": kept}


def log_cells(asked: Asked, hashed: str) -> list[LogCell]:
    """Every cell; those of a seed stand together."""
    return [
        make_log_cell(asked, hashed, arm.label, index, point, seed)
        for seed in asked.seeds
        for arm in asked.arms
        for index, point in enumerate(arm.points)
    ]


def make_log_cell(asked: Asked, hashed: str, arm: str, index: int, point: Point, seed: int) -> LogCell:
    """The cell of this arm, grid point and seed."""
    depends = {"version": __version__, "log": hashed, "seed": seed, "scaling": asked.file.data.scaling}
    return LogCell(arm, index, point, seed, asked.file.data, asked.base, hash_of(depends | learned_by(point)))


def learned(point: Point, seed: int, scaling: str, log: Log) -> Run:
    """An arm learned with one combination of its settings; a tenth of the queries chooses weights."""
    training = point.training.model_copy(update={"seed": seed})
    scaling = "none" if point.ranker is None else scaling
    asked = Settings(method=point.method, ranker=point.ranker, scaling=scaling, training=training)
    done = run(asked, split(log, None, asked), judged=False)
    if done.fit.status == "interrupted":
        raise KeyboardInterrupt
    return done


def graded_score(done: Run, graded: Lists | None, test: Log) -> float | None:
    """nDCG@10 by labels, measured beside: of the lists that are named, else of the test queries; None without."""
    lists = test.lists.take(np.unique(test.query)) if graded is None else graded
    if not (lists.labels > 0).any():
        return None
    return finite(measure_ranking(done.score(lists), lists, ("ndcg@10",)).means["ndcg@10"])
