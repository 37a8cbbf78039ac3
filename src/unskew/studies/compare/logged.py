"""A real log for a comparison: what is learned from, what chooses and what judges.

In a folder that `unskew split` wrote these are its parts, the same for every seed. Another log is cut by query,
anew with every seed: a fifth of the queries judges, a fifth chooses; pages, where there are few queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from unskew import __version__
from unskew.errors import DataError, RunError
from unskew.learning.scoring.scorer import Scorer
from unskew.measuring import LoggedPages, ndcg_metric
from unskew.measuring.counterfactual.pages import Clusters, usual_cluster
from unskew.results import plain
from unskew.studies.compare.arms import Point
from unskew.studies.compare.cells import Cell, hash_of, learned_by
from unskew.studies.compare.config import Asked, CompareData
from unskew.types import Array, Lists, Log
from unskew.workflows.runs.auto import FEW_QUERIES
from unskew.workflows.runs.data import split
from unskew.workflows.runs.folder import fingerprint
from unskew.workflows.runs.request import logs_of
from unskew.workflows.runs.run import Run, run
from unskew.workflows.runs.settings import DataFiles
from unskew.workflows.runs.sources import RunFiles

SHARE = 5
"""One in so many queries goes into each part that is cut off."""


@dataclass(frozen=True)
class DrawnParts:
    """The parts of one seed."""

    train: Log
    validation: Log
    """Chooses."""
    test: Log
    """Judges."""


@dataclass(frozen=True)
class RealLog:
    """A log with its documents."""

    train: Log
    validation: Log | None
    test: Log | None
    graded: Lists | None
    """Labelled lists that are measured beside, where some are named."""
    hash: str
    """Of all that learning and measuring depend on."""
    cluster: Clusters
    """What is drawn again for intervals."""

    @property
    def documents(self) -> Lists:
        """What all parts show."""
        return self.train.lists

    @property
    def missing(self) -> list[str]:
        """Parts that are cut off the training pages."""
        return [name for name in ("validation", "test") if getattr(self, name) is None]

    def judging(self, seeds: Sequence[int]) -> list[Log]:
        """For each seed the test pages that its rankers are judged on: no page judges two seeds.

        Were it judged by all of them, the same clicks would count as often as there are seeds.
        """
        if self.test is not None:
            number = np.unique(self.pages(self.test).cluster, return_inverse=True)[1] % len(seeds)
            return [self.test.take(number == index) for index in range(len(seeds))]
        parts, before = [], np.zeros(len(self.train), bool)
        for flags in self._test_flags(seeds):
            parts.append(self.train.take(flags & ~before))
            before |= flags
        return parts

    def judging_whole(self, seeds: Sequence[int]) -> LoggedPages:
        """The test pages of all seeds."""
        whole = self.train.take(np.any(self._test_flags(seeds), axis=0)) if self.test is None else self.test
        return self.pages(whole)

    def _test_flags(self, seeds: Sequence[int]) -> list[Array]:
        return [cuts(self.train, len(self.missing), seed)[-1] for seed in seeds]

    def drawn(self, seed: int) -> DrawnParts:
        """The parts that a seed learns from, is chosen by and judged on."""
        train, missing = self.train, self.missing
        cut = cuts(train, len(missing), seed)
        given = {name: train.take(part) for name, part in zip(missing, cut, strict=True)}
        left = train.take(~np.any(cut, axis=0)) if cut else train
        return DrawnParts(left, given.get("validation") or self.validation, given.get("test") or self.test)  # type: ignore[arg-type]

    def pages(self, log: Log) -> LoggedPages:
        """The pages of a part, to be judged by."""
        return LoggedPages.from_log(log, cluster=self.cluster)


def cuts(log: Log, count: int, seed: int) -> list[Array]:
    """Flags [S] of the pages of each part that is cut off."""
    if not count:
        return []
    rng, queries = np.random.default_rng([seed, 19]), np.unique(log.query)
    by_query = len(queries) >= FEW_QUERIES
    order = rng.permutation(len(queries) if by_query else len(log))
    size = max(1, len(order) // SHARE)
    if len(order) <= count * size:
        raise DataError(
            f"{len(log)} pages are too few to be cut into what is learned from, what chooses and what judges",
            path=log.lists.name,
        )
    number = np.full(len(order), -1)
    for part in range(count):
        number[order[part * size : (part + 1) * size]] = part
    of_page = number[np.searchsorted(queries, log.query)] if by_query else number
    return [of_page == part for part in range(count)]


@lru_cache(maxsize=1)
def read_log(data: CompareData, base: Path) -> RealLog:
    """The log that a compare file names; kept while the process runs."""
    files = DataFiles(
        log=data.log,
        features=data.features,
        columns=data.columns,
        feedback=data.feedback,
        missing_features=data.missing_features,
        doc_ids=data.doc_ids,
    )
    logs = logs_of(base, files)
    opening = RunFiles(base, files, logs)
    train, validation, test = (opening.log(path) for path in (logs.train, logs.validation, logs.test))
    assert train is not None
    if not train.click.any():
        raise DataError("nothing is clicked, so nothing can be compared", path=str(data.log))
    graded = None if data.test is None else opening.lists(data.test)
    told = f"{fingerprint(train, validation, test)}-{fingerprint(graded, labels=True)}"
    return RealLog(train, validation, test, graded, told, usual_cluster(train))


@dataclass(frozen=True)
class LogCell(Cell):
    """A cell whose clicks are real.

    Scores of every document are kept, [N]; what chooses and what judges is read off them later, so that another
    verdict costs no training.
    """

    def found(self) -> tuple[dict[str, Any], Array]:
        """What was learned, in numbers, and scores of all documents."""
        log = read_log(self.data, self.base)
        parts = log.drawn(self.seed)
        assert self.point is not None, "every arm of a real log learns"
        asked = self.point.settings(self.seed, self.data.scaling)
        done = run(asked, split(parts.train, None, asked), judged=False)
        if done.fit.status == "interrupted":
            raise KeyboardInterrupt
        scores, seen = done.score(log.documents), done.propensity()
        if not np.isfinite(scores).all():
            raise RunError(f"{self.arm} scores documents with what is no number; train it longer, or otherwise")
        found: dict[str, Any] = {"steps": done.fit.step, "clicks": int(parts.train.click.sum())}
        found["validation_click_loglikelihood"] = None if done.fit.best is None else plain(done.fit.best)
        found["propensity"] = None if seen is None else [float(value) for value in seen]
        graded = parts.test.lists.take(np.unique(parts.test.query)) if log.graded is None else log.graded
        found["ndcg@10"] = label_score(done, graded)  # beside: it chooses nothing
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
    key = hash_of(depends | learned_by(point))
    return LogCell("", arm, index, point, seed, asked.file.data, asked.base, key)


def label_score(model: Scorer | Run, lists: Lists) -> float | None:
    """nDCG@10 on labelled lists; None where no list has a relevant document."""
    values = ndcg_metric(model.score(lists), lists.labels, offsets=lists.offsets, at=10)
    return None if np.isnan(values).all() else float(np.nanmean(values))
