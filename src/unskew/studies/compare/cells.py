"""Cells of a comparison: an arm with its settings and a seed, run once and kept under a hash of all it depends on.

What all of them found is a `Comparison`.

cells/<hash>.json    settings, numbers, seconds; or the error
cells/<hash>.npy     what is measured of each query or document
"""

import hashlib
import json
import multiprocessing
import resource
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from unskew import __version__
from unskew.errors import DataError, Option, RunError, UnskewError
from unskew.files import complete_file, read_manifest, write_manifest
from unskew.pages.console import Tell
from unskew.results import Result, plain
from unskew.studies.compare.arms import Point
from unskew.studies.compare.config import CompareData
from unskew.types import Array

VALIDATION = (
    *("validation_ndcg@10", "validation_click_loglikelihood", "validation_click_ndcg@10"),
    "validation_ips_ndcg@10",
)
"""What a cell keeps of its validation; the third is of rankers without a click model, the last chooses nothing."""


MEASURED = (
    *("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "err@10", "arp", "arp_legacy"),
    *("err@1", "err@3", "err@5", "dcg@1", "dcg@3", "dcg@5", "dcg@10"),
)
"""What cells of simulated clicks measure on test lists; lists of all parts have slots for the longest of them."""


@dataclass(frozen=True)
class Cell(ABC):
    """One thing to learn and measure; small enough to be sent to another process."""

    behaviour: str
    """How people clicked; empty where the clicks are real."""
    arm: str
    index: int
    """Which of the arm's grid points."""
    point: Point | None
    """None for the arms that do not learn: random and logging."""
    seed: int
    """Of all that is drawn, and of the training."""
    data: CompareData
    base: Path
    key: str
    """Hash of all that the cell depends on."""

    @property
    def varied(self) -> str:
        """What its grid point set, as text."""
        return "" if self.point is None else self.point.varied

    def __str__(self) -> str:
        place = f"{self.behaviour}: " if self.behaviour else ""
        return f"{place}{f'{self.arm} {self.varied}'.strip()}, seed {self.seed}"

    @abstractmethod
    def found(self) -> tuple[dict[str, Any], Array]:
        """Run it: numbers for JSON, and an array."""

    @abstractmethod
    def unpacked(self, kept: Array) -> dict[str, Any]:
        """The array by name, as readers want it."""


@dataclass(frozen=True)
class Finding:
    """What one cell found, or the error that it ended with."""

    cell: Cell
    content: Mapping[str, Any]
    """Status, and the numbers of validation and test."""

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return bool(self.content["status"] == "finished")

    @property
    def error(self) -> str | None:
        """The error that the cell failed with."""
        return self.content.get("error")

    def validation(self, way: str) -> float | None:
        """What settings are chosen on; the method that learns from labels is chosen on labels either way."""
        if way == "labels" or (self.cell.point is not None and self.cell.point.reads_labels):
            return self.content.get("validation_ndcg@10")
        likelihood, packaged = VALIDATION[1:3]
        return self.content.get(packaged if packaged in self.content else likelihood)

    def test(self, metric: str) -> float:
        """Mean of a metric over the test queries."""
        value = self.content["test"][metric]
        return nan if value is None else float(value)


def run_missing(cells: Sequence[Cell], folder: Path, jobs: int, tell: Tell | None = None) -> None:
    """Run the cells that have no result yet; each keeps its own, so an end half-way loses only the unfinished."""
    distinct = {cell.key: cell for cell in cells}  # behaviours share the arms that look at no clicks
    missing = [cell for cell in distinct.values() if (read_cell(folder, cell) or {}).get("status") != "finished"]
    done = len(distinct) - len(missing)
    with closing(_steps(missing, folder, jobs)) as steps:
        for finished, running in steps:
            done += finished
            if tell is not None:
                tell(done, len(distinct), running)
    if tell is not None and not missing:
        tell(done, done, [])


def _steps(cells: Sequence[Cell], folder: Path, jobs: int) -> Generator[tuple[int, list[str]], None, None]:
    """Run cells; how many have just ended, and what is under way.

    Several jobs are processes of their own, with no more handed out than are run, so that Ctrl-C leaves little.
    """
    if jobs == 1 or len(cells) < 2:
        for cell in cells:
            yield 0, [str(cell)]
            run_cell(cell, folder)
            yield 1, []
        return
    spawn = multiprocessing.get_context("spawn")  # a forked process may hang on torch's threads
    pool = ProcessPoolExecutor(min(jobs, len(cells)), mp_context=spawn, initializer=_start_worker)
    waiting, running = list(cells), dict[Future[str | None], Cell]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell = waiting.pop(0)
                running[pool.submit(run_cell, cell, folder)] = cell
            yield 0, [str(cell) for cell in running.values()]
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                running.pop(future)
                future.result()
            yield len(ended), [str(cell) for cell in running.values()]
    except BrokenProcessPool as error:
        raise RunError(
            "a process was killed, perhaps for memory; cells that are done are kept",
            hint=("run fewer at once, ", Option("jobs", 1)),
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """One thread for each process; Ctrl-C is the parent's to handle, and the trainer's between two steps."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def run_cell(cell: Cell, folder: Path) -> str | None:
    """Run a cell and keep what it found in the folder; the message where it failed."""
    began, message, kept = time.perf_counter(), None, None
    try:
        found, kept = cell.found()
    except Exception as error:  # whatever a cell dies of, the others go on
        message = str(error) if isinstance(error, UnskewError) else f"{type(error).__name__}: {error}"
        found, kept = {"status": "failed", "error": message}, None
    else:
        took = round(time.perf_counter() - began, 3)
        found |= {"status": "finished", "seconds": took, "largest_mb": peak_memory()}
    about = {"cell": str(cell), "settings": learned_by(cell.point), "seed": cell.seed, "version": __version__}
    numbers = folder / f"{cell.key}.npy"
    if kept is not None:  # the numbers first: where there is text, the cell is whole
        with complete_file(numbers) as path, path.open("wb") as file:
            np.save(file, kept)
    write_manifest(folder / f"{cell.key}.json", about | found, [numbers] if kept is not None else ())
    return message


def read_cell(folder: Path, cell: Cell) -> dict[str, Any] | None:
    """What a cell found; None where it has not been run, or not to its end, or is damaged."""
    try:
        found = read_manifest(folder / f"{cell.key}.json")
        if found["status"] == "finished":
            found |= cell.unpacked(np.load(folder / f"{cell.key}.npy", allow_pickle=False))
    except (OSError, ValueError, KeyError, DataError):
        return None
    return found


def hash_of(depends: dict[str, Any]) -> str:
    """A name for all that something depends on."""

    def as_json(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.ndarray) else str(value)

    text = json.dumps(depends, sort_keys=True, default=as_json)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def dumped(config: Any) -> dict[str, Any]:
    """What was set, so that a setting added later, at its default, reruns nothing."""
    return {"kind": type(config).__name__} | dict(config.model_dump(exclude_defaults=True))


def learned_by(point: Point | None) -> dict[str, Any]:
    """What learning depends on besides data and seed, ready for JSON; packages take little of the training."""
    if point is None:
        return {}
    method = point.method.model_dump(mode="json")
    if point.ranker is None:
        return {"method": method, "training": {"validate_on": point.training.validate_on}}
    training = point.training.model_dump(mode="json", exclude={"seed", "threads", "device"})
    return {"method": method, "ranker": point.ranker.model_dump(mode="json"), "training": training}


def peak_memory() -> float:
    """The most memory that this process has had so far, in MB."""
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


@dataclass(frozen=True)
class Comparison(Result, ABC):
    """Everything that was found."""

    out: Path
    """Folder that it is written to."""
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    origin: str = field(default="", kw_only=True)
    """What was simulated and what was real."""
    command: str = field(default="", kw_only=True)
    """What makes it again."""

    numbers: ClassVar[tuple[str, ...]]
    """What the record of a cell has of its content."""

    @property
    def failed(self) -> list[Finding]:
        """Cells without a result."""
        return [finding for finding in self.findings if not finding.finished]

    @abstractmethod
    def verdicts(self) -> dict[str, str]:
        """Whether to debias, and with what, in plain words: by behaviour, or of the log."""

    @abstractmethod
    def selected(self, cell: Cell) -> dict[str, bool]:
        """Whether the cell's settings were chosen, by the way of choosing."""

    def to_dict(self) -> dict[str, Any]:
        """Its folder, verdicts, notes, cells and what failed, as JSON has them."""
        failed = [f"{each.cell}: {each.error}" for each in self.failed]
        told = {"out": self.out, "verdicts": self.verdicts(), "notes": self.notes, "cells": self.records()}
        return {name: plain(each) for name, each in told.items()} | {"failed": failed}

    def records(self) -> list[dict[str, Any]]:
        """One plain row for each cell."""
        rows = []
        for finding in self.findings:
            cell, found = finding.cell, {**finding.content, **finding.content.get("test", {})}
            about: dict[str, Any] = {"behaviour": cell.behaviour} if cell.behaviour else {}
            about |= {"method": cell.arm, "point": cell.varied, "seed": cell.seed}
            about |= {"settings": json.dumps(learned_by(cell.point), sort_keys=True), **self.selected(cell)}
            about |= {name: found.get(name) for name in self.numbers}
            rows.append(about | {"status": found["status"], "error": finding.error, "cell": cell.key})
        return rows
