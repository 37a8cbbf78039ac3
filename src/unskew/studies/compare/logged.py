"""A comparison on a real log: what is learned from, what chooses and what judges, and what was found.

In a folder that `unskew split` wrote these are its parts, the same for every seed. Another log is cut by query,
anew with every seed: a fifth of the queries judges, a fifth chooses; pages, where there are few queries.

One contest (`workflows/runs/judges.py`) over all arms and settings chooses; `measuring/counterfactual` then holds
each arm against naive and what was shown. docs/how_to/compare.md has the rules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from unskew import __version__
from unskew.errors import DataError, RunError
from unskew.learning.scoring.scorer import Scorer
from unskew.measuring import ClickEvidence, Judge, LoggedPages, mean_over_seeds, ndcg_metric, places, shown_places
from unskew.measuring import examination_of as counted_examination
from unskew.measuring.counterfactual.pages import Clusters, usual_cluster
from unskew.options.runs import DataFiles, LogFiles
from unskew.results import plain
from unskew.studies.compare.cells import Cell, Comparison, Finding, hash_of, learned_by
from unskew.studies.compare.config import Asked, CompareData
from unskew.studies.compare.verdict import NAIVE, LogRow
from unskew.types import Array, Lists, Log
from unskew.workflows.inputs.logs import PARTS
from unskew.workflows.runs.auto import FEW_QUERIES
from unskew.workflows.runs.correction import examination_of
from unskew.workflows.runs.data import split
from unskew.workflows.runs.folder import fingerprint
from unskew.workflows.runs.judges import Contest
from unskew.workflows.runs.run import Run, run
from unskew.workflows.runs.sources import RunSources, within

SHARE = 5
"""One in so many queries goes into each part that is cut off."""


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
    def missing(self) -> list[str]:
        """Parts that are cut off the training pages."""
        return [name for name in ("validation", "test") if getattr(self, name) is None]

    def judging(self, seeds: Sequence[int]) -> tuple[list[Log], Log]:
        """For each seed the test pages that its rankers are judged on, and those of all: no page judges two seeds.

        Were it judged by all of them, the same clicks would count as often as there are seeds.
        """
        if self.test is not None:
            number = np.unique(self.pages(self.test).cluster, return_inverse=True)[1] % len(seeds)
            return [self.test.take(number == index) for index in range(len(seeds))], self.test
        parts, before = [], np.zeros(len(self.train), bool)
        for seed in seeds:
            flags = cuts(self.train, len(self.missing), seed)[-1]
            parts.append(self.train.take(flags & ~before))
            before |= flags
        return parts, self.train.take(before)

    def drawn(self, seed: int) -> tuple[Log, Log, Log]:
        """The parts that a seed learns from, is chosen by and judged on."""
        train, missing = self.train, self.missing
        cut = cuts(train, len(missing), seed)
        given = {name: train.take(part) for name, part in zip(missing, cut, strict=True)}
        left = train.take(~np.any(cut, axis=0)) if cut else train
        validation, test = given.get("validation", self.validation), given.get("test", self.test)
        assert validation is not None
        assert test is not None
        return left, validation, test

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
    shared = {name: getattr(data, name) for name in LogFiles.model_fields}
    sources = RunSources.of_files(DataFiles(log=data.log, **shared), base)
    train, validation, test = (sources.log(name) for name in PARTS)
    assert train is not None
    if not train.click.any():
        raise DataError("nothing is clicked, so nothing can be compared", path=str(data.log))
    graded = None if data.test is None else sources.lists(within(base, data.test))
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
        train, _, test = log.drawn(self.seed)
        assert self.point is not None, "every arm of a real log learns"
        asked = self.point.settings(self.seed, self.data.scaling)
        done = run(asked, split(train, None, asked), judged=False)
        if done.fit.status == "interrupted":
            raise KeyboardInterrupt
        scores, seen = done.score(log.train.lists), done.propensity()
        if not np.isfinite(scores).all():
            raise RunError(f"{self.arm} scores documents with what is no number; train it longer, or otherwise")
        found: dict[str, Any] = {"steps": done.fit.step, "clicks": int(train.click.sum())}
        found["validation_click_loglikelihood"] = None if done.fit.best is None else plain(done.fit.best)
        found["propensity"] = None if seen is None else [float(value) for value in seen]
        graded = test.lists.take(np.unique(test.query)) if log.graded is None else log.graded
        found["ndcg@10"] = label_score(done, graded)  # beside: it chooses nothing
        return found, np.asarray(scores, np.float64)

    def unpacked(self, kept: Array) -> dict[str, Any]:
        """The scores that each run gave all documents, read back."""
        return {"scores": kept}


def log_cells(asked: Asked, hashed: str) -> list[LogCell]:
    """Every cell; those of a seed stand together."""
    cells, data = [], asked.file.data
    for seed in asked.seeds:
        depends = {"version": __version__, "log": hashed, "seed": seed, "scaling": data.scaling}
        for arm in asked.arms:
            for index, point in enumerate(arm.points):
                key = hash_of(depends | learned_by(point))
                cells.append(LogCell("", arm.label, index, point, seed, data, asked.base, key))
    return cells


def label_score(model: Scorer | Run, lists: Lists) -> float | None:
    """nDCG@10 on labelled lists; None where no list has a relevant document."""
    values = ndcg_metric(model.score(lists), lists.labels, offsets=lists.offsets, at=10)
    return None if np.isnan(values).all() else float(np.nanmean(values))


# ---- what was found

RISK = 0.05
"""What the intervals of all methods together may miss."""


@dataclass(frozen=True)
class LogComparison(Comparison):
    """What was found on a real log."""

    chosen: Mapping[str, int]
    """Grid point of each arm; absent where no point finished with every seed."""
    rows: tuple[LogRow, ...]
    """Naive, then the methods, in the order of the file."""
    verdict: str
    """Debias or not, and with what, in plain words."""

    numbers = ("validation_click_loglikelihood", "clicks", "steps", "ndcg@10", "seconds", "largest_mb")

    def verdicts(self) -> dict[str, str]:
        """The verdict on the log."""
        return {"log": self.verdict}

    def selected(self, cell: Cell) -> dict[str, bool]:
        """Whether the cell's settings were chosen."""
        return {"selected": self.chosen.get(cell.arm) == cell.index}


class LearnedRankers:
    """All rankers that finished with every seed, and the test pages that each seed is judged on."""

    def __init__(self, log: RealLog, seeds: Sequence[int], findings: Sequence[Finding]) -> None:
        self.log, self.seeds = log, seeds
        found: dict[tuple[str, int], dict[int, Array]] = {}
        for finding in findings:
            if finding.finished:
                cell = finding.cell
                found.setdefault((cell.arm, cell.index), {})[cell.seed] = np.asarray(
                    finding.content["scores"], float
                )
        whole = {key: each for key, each in found.items() if len(each) == len(seeds)}
        self.rankers = {key: [each[seed] for seed in seeds] for key, each in whole.items()}  # by arm and point
        parts, all_parts = log.judging(seeds)
        self.pages = [(log.pages(part), part.row) for part in parts]
        self.whole = log.pages(all_parts)

    def choose(self) -> dict[str, int]:
        """The grid point of each arm that stands highest on validation pages."""
        names = {f"{arm} {index}": (arm, index) for arm, index in self.rankers}
        contest = Contest(list(names), None, examination_of(self.log.train)[0])
        for number, seed in enumerate(self.seeds):
            contest.add(self.log.drawn(seed)[1], {name: self.rankers[key][number] for name, key in names.items()})
        chosen: dict[str, int] = {}
        for name in contest.finish().order if len(names) > 1 else names:
            chosen.setdefault(*names[name])
        return chosen

    def against(self, key: tuple[str, int], other: tuple[str, int] | None, level: float) -> ClickEvidence:
        """What clicks of test pages say of a ranker against another, or against what was shown."""
        judge = Judge(examination=counted_examination(self.whole))
        for number, (pages, row) in enumerate(self.pages):
            held = shown_places(pages) if other is None else places(self.rankers[other][number][row], pages)
            judge.add(pages, places(self.rankers[key][number][row], pages), held)
        return judge.finish(level)


def judged(log: RealLog, seeds: Sequence[int], findings: Sequence[Finding]) -> tuple[dict[str, int], list[LogRow]]:
    """The settings chosen, and every arm with them, judged."""
    learned = LearnedRankers(log, seeds, findings)
    chosen = learned.choose()
    arms = list(dict.fromkeys(finding.cell.arm for finding in findings))
    order = [arm for arm in (NAIVE, *(arm for arm in arms if arm != NAIVE)) if arm in chosen]
    level = 1 - RISK / max(1, len(order) - 1)
    naive = (NAIVE, chosen[NAIVE]) if NAIVE in chosen else None
    rows = []
    for arm in order:
        key, runs = (arm, chosen[arm]), [f for f in findings if (f.cell.arm, f.cell.index) == (arm, chosen[arm])]
        grades = [run.content["ndcg@10"] for run in runs]
        rows.append(
            LogRow(
                arm,
                runs[0].cell.varied,
                None if naive in (None, key) else learned.against(key, naive, level),
                learned.against(key, None, level),
                None if None in grades else mean_over_seeds(grades),
            )
        )
    return chosen, rows
