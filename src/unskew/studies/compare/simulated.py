"""A comparison under simulated clicks: its lists, and its cells of a behaviour, a method with settings and a seed.

A cell simulates its log, learns, and measures; every metric of each test query is kept.

Nothing here chooses anything on test lists. A tenth of the log's queries is always held out. Settings are chosen
for each behaviour and method, on the mean over seeds: by the likelihood of held-out clicks, as one must in
practice, and by nDCG@10 on labelled validation lists, as papers do.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from unskew import __version__
from unskew.errors import DataError
from unskew.learning.scoring.model import Model
from unskew.measuring import mean_over_seeds, measure_ranking, page_ndcg_metric, rank_weights
from unskew.options.base import Paths
from unskew.pages.origins import GENERATED
from unskew.results import plain
from unskew.settings import listed
from unskew.simulation import Simulation, SvmLogger
from unskew.studies.compare.arms import REFERENCES, Point
from unskew.studies.compare.cells import (
    MEASURED,
    VALIDATION,
    Cell,
    Comparison,
    Finding,
    dumped,
    hash_of,
    learned_by,
)
from unskew.studies.compare.config import Asked, CompareData
from unskew.studies.compare.logged import label_score, read_log
from unskew.studies.compare.verdict import Row, verdict, with_tests
from unskew.tables.features.features import several
from unskew.tables.features.tables import is_table
from unskew.tables.lists.letor import read_letor
from unskew.tables.lists.scaling import fit_scaler
from unskew.types import Array, Lists, Log
from unskew.workflows.inputs.lists import read_lists
from unskew.workflows.proofs.clicks import click_likelihood
from unskew.workflows.runs.data import LogData, held_queries
from unskew.workflows.runs.fitters import click_ndcg
from unskew.workflows.runs.folder import fingerprint
from unskew.workflows.runs.run import run
from unskew.workflows.twins.simulate import synthetic_parts

# ---- lists


@dataclass(frozen=True)
class ListParts:
    """The lists of a comparison, with the hash of their content."""

    train: Lists
    validation: Lists | None
    test: Lists
    hashes: tuple[str, str, str]

    @property
    def longest(self) -> int:
        """Documents of the longest list of all parts."""
        return max(int(part.sizes.max(initial=0)) for part in (self.train, self.validation, self.test) if part)


@lru_cache(maxsize=1)
def read_data(data: CompareData, base: Path) -> ListParts:
    """The lists, their grades scaled and their queries filtered as asked; kept while the process runs."""
    if data.synthetic is not None:
        parts: tuple[Lists | None, ...] = tuple(synthetic_parts(**dict(data.synthetic)).values())
    else:
        parts = _of_one_width([data.lists, data.validation, data.test], data.doc_ids, base)
    graded = [None if part is None else _graded(part, data) for part in parts]
    scaler = fit_scaler(data.scaled, *(part for part in graded if part is not None))
    train, validation, test = (None if part is None else scaler.apply(part) for part in graded)
    assert train is not None
    assert test is not None
    return ListParts(train, validation, test, (_hash(train), _hash(validation), _hash(test)))


def _of_one_width(named: Sequence[Paths | None], doc_ids: bool, base: Path) -> tuple[Lists | None, ...]:
    """The lists of each part; LETOR files name no feature that is 0 everywhere, which another part may have."""
    files = [None if paths is None else [base / path for path in several(paths)] for paths in named]
    parts = [None if each is None else read_lists(each, doc_ids) for each in files]
    width = max(part.dim for part in parts if part is not None)
    return tuple(
        part
        if each is None or part is None or part.dim == width or is_table(each[0])
        else read_letor(each, doc_ids=doc_ids, features=width)
        for each, part in zip(files, parts, strict=True)
    )


def lists_words(data: CompareData) -> str:
    """What the lists are, in a few words."""
    if data.synthetic is not None:
        return GENERATED
    paths = [data.lists] if isinstance(data.lists, str) else data.lists or []
    return f"the lists of {listed([Path(path).name for path in paths])}"


def _graded(lists: Lists, data: CompareData) -> Lists:
    """Grades scaled, and queries without a relevant document left out, as asked."""
    lists = replace(lists, labels=lists.labels * data.label_scale)
    if data.only_relevant:
        query = np.repeat(np.arange(len(lists)), lists.sizes)
        lists = lists.take(np.bincount(query, lists.labels > 0, minlength=len(lists)) > 0)
    if not (lists.labels > 0).any():
        raise DataError("no document has a grade above 0", path=lists.name)
    return lists


def _hash(lists: Lists | None) -> str:
    if lists is None:
        return ""
    present = b"" if lists.present is None else np.ascontiguousarray(lists.present).tobytes()
    more = hashlib.blake2b(present, digest_size=8).hexdigest()
    return f"{fingerprint(lists)}-{lists.confounder}-{more}"


# ---- cells


def fit(point: Point, seed: int, scaling: str, log: Log, splits: ListParts) -> tuple[dict[str, Any], Array]:
    """Learn an arm with one combination of its settings: validation numbers, and scores of the test lists.

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
    pages = model.score(held_out.lists)[held_out.row], held_out.click
    by_rank = rank_weights(held_out.click, held_out.position)
    ips = page_ndcg_metric(*pages, offsets=held_out.offsets, weights=by_rank)
    found = {
        "steps": trained.step,
        "clicks": int(train.click.sum()),
        "validation_ndcg@10": None if lists is None else label_score(model, lists),
        "validation_ips_ndcg@10": plain(ips.mean),
    }
    if not isinstance(model, Model):  # it has no click model, so held-out clicks choose by its nDCG on them
        found["validation_click_ndcg@10"] = plain(click_ndcg(model, held_out))
    else:
        found["validation_click_loglikelihood"] = None if point.reads_labels else click_score(model, held_out)
    return found, model.score(splits.test)


def click_score(model: Model, log: Log) -> float | None:
    """Mean log-probability of a click among the results of its page."""
    device = next(model.ranker.parameters()).device
    batches = LogData(log, log).held_out_batches(model, device)
    return None if batches is None else plain(click_likelihood(model, batches))


_kept: dict[str, Log] = {}  # the last log of this process, by its hash


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
            scores = self.random(splits) if self.arm == "random" else self.logged(splits)
        else:
            found, scores = fit(self.point, self.seed, self.data.scaling, self.drawn(splits.train), splits)
        report = measure_ranking(scores, splits.test, MEASURED, slots=splits.longest)
        found |= {"test": report.to_dict()["means"], "queries": report.queries}
        found |= {"without_relevant": report.without_relevant}
        return found, np.asarray(np.stack([report.per_query[name] for name in MEASURED]), np.float64)

    def drawn(self, lists: Lists) -> Log:
        """Its log; made for the first cell that has it, and kept for those that follow."""
        if self.log not in _kept:
            _kept.clear()
            _kept[self.log] = self.simulation.draw(lists)
        return _kept[self.log]

    def random(self, splits: ListParts) -> Array:
        """Scores of the test lists at random."""
        return np.random.default_rng([self.seed, 11]).random(len(splits.test.features))

    def logged(self, splits: ListParts) -> Array:
        """Scores of the test lists by the logging ranker."""
        logger = self.simulation.logger
        if isinstance(logger, SvmLogger):
            return logger.fit(splits.train, self.seed).scores(splits.test)
        return logger.scores(splits.test, self.seed)

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


def forget() -> None:
    """Drop lists and logs that were kept, as their files may have changed."""
    read_data.cache_clear()
    read_log.cache_clear()
    _kept.clear()


# ---- what was found

WAYS = {"clicks": "held-out clicks", "labels": "labelled validation lists"}
"""The two ways to choose settings: by clicks of held-out pages, or by labels."""


@dataclass(frozen=True)
class SimulatedComparison(Comparison):
    """What was found under simulated clicks."""

    behaviours: tuple[str, ...]
    chosen: Mapping[tuple[str, str, str], int]
    """Grid point of each (way, behaviour, arm); absent where no point finished with every seed."""
    ways: tuple[str, ...]
    baselines: tuple[str, ...] = ("naive",)
    """Arms of which the best is what methods are tested against, besides naive."""

    numbers = (*VALIDATION, "clicks", "steps", "queries", *MEASURED, "seconds", "largest_mb")

    def rows(self, behaviour: str, way: str = "clicks") -> list[Row]:
        """The table of a behaviour: naive, the methods, then the other references."""
        arms = list(dict.fromkeys(f.cell.arm for f in self.findings if f.cell.behaviour == behaviour))
        methods = [arm for arm in arms if arm not in REFERENCES]
        order = ["naive", *methods, *(name for name in REFERENCES[1:] if name in arms)]
        chosen = {arm: self.chosen[way, behaviour, arm] for arm in order if (way, behaviour, arm) in self.chosen}
        rows = [self._row(behaviour, arm, index) for arm, index in chosen.items()]
        return with_tests(rows, self.baselines)

    def verdict(self, behaviour: str) -> str:
        """Whether to debias, and with what, in plain words."""
        return verdict(behaviour, {way: self.rows(behaviour, way) for way in self.ways})

    def verdicts(self) -> dict[str, str]:
        """The verdict on every behaviour."""
        return {behaviour: self.verdict(behaviour) for behaviour in self.behaviours}

    def same_choice(self, behaviour: str) -> bool:
        """Whether every way chooses the same settings."""
        choices = [{k[2]: v for k, v in self.chosen.items() if k[:2] == (way, behaviour)} for way in self.ways]
        return all(choice == choices[0] for choice in choices)

    def _row(self, *meant: object) -> Row:
        """An arm under a behaviour with one of its grid points."""
        runs = [f for f in self.findings if (f.cell.behaviour, f.cell.arm, f.cell.index) == meant]
        metrics = {name: mean_over_seeds([run.test(name) for run in runs]) for name in MEASURED}
        values = {name: np.stack([run.content["per_query"][name] for run in runs]) for name in MEASURED}
        seeds = tuple(run.test("ndcg@10") for run in runs)
        return Row(runs[0].cell.arm, runs[0].cell.varied, metrics, values, seeds)

    def selected(self, cell: Cell) -> dict[str, bool]:
        """Whether held-out clicks, and labels, chose the cell's settings."""
        return {
            f"selected_by_{way}": self.chosen.get((way, cell.behaviour, cell.arm)) == cell.index
            for way in sorted(WAYS)
        }


def compared(
    out: Path,
    behaviours: Sequence[str],
    findings: Sequence[Finding],
    notes: Sequence[str],
    *,
    labels: bool,
    baselines: Sequence[str] = ("naive",),
) -> SimulatedComparison:
    """Choose settings, on validation numbers alone."""
    ways, chosen = tuple(WAYS) if labels else ("clicks",), {}
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.cell.behaviour, finding.cell.arm), []).append(finding)
    for way in ways:
        for (behaviour, arm), group in groups.items():
            index = choose(group, way)
            if index is not None:
                chosen[way, behaviour, arm] = index
    about = (out, tuple(findings), tuple(notes))
    return SimulatedComparison(*about, tuple(behaviours), chosen, ways, tuple(baselines))


def choose(findings: Sequence[Finding], way: str) -> int | None:
    """The grid point with the best mean over seeds, among those that finished with every seed."""
    points: dict[int, list[Finding]] = {}
    for finding in findings:
        points.setdefault(finding.cell.index, []).append(finding)
    whole = {index: runs for index, runs in points.items() if all(run.finished for run in runs)}
    if len(points) == 1:
        return next(iter(whole), None)
    values = {index: [run.validation(way) for run in runs] for index, runs in whole.items()}
    means = {i: float(np.mean([v for v in vs if v is not None])) for i, vs in values.items() if None not in vs}
    return max(means, key=lambda index: means[index], default=None)
