"""What a comparison found: settings chosen on validation data, tables with significance, and a plain verdict.

Settings are chosen for each behaviour and method, on the mean over seeds: by the likelihood of held-out clicks, as
one must in practice, and by nDCG@10 on labelled validation lists, as papers do. Test labels choose nothing.
Each method is then tested against naive, and against the best baseline, with a t-test of nDCG@10 that takes both
queries and seeds as drawn at random; p-values are Holm's, over the methods of a table.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from unskew.measuring import mean_over_seeds
from unskew.studies.compare.arms import REFERENCES
from unskew.studies.compare.cells import VALIDATION, Cell, Finding, settings_of
from unskew.studies.compare.rows import Row, with_tests
from unskew.studies.compare.simulated import MEASURED
from unskew.studies.compare.verdict import verdict

WAYS = {"clicks": "held-out clicks", "labels": "labelled validation lists"}
"""What settings are chosen on."""


@dataclass(frozen=True)
class Comparison(ABC):
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

    def records(self) -> list[dict[str, Any]]:
        """One plain row for each cell."""
        return [self._record(finding) for finding in self.findings]

    def _record(self, f: Finding) -> dict[str, Any]:
        cell, found = f.cell, {**f.content, **f.content.get("test", {})}
        about: dict[str, Any] = {"behaviour": cell.behaviour} if cell.behaviour else {}
        about |= {"method": cell.arm, "point": cell.varied, "seed": cell.seed}
        about |= {"settings": json.dumps(settings_of(cell), sort_keys=True), **self.selected(cell)}
        about |= {name: found.get(name) for name in self.numbers}
        return about | {"status": f.content["status"], "error": f.error, "cell": cell.key}


@dataclass(frozen=True)
class SimulatedComparison(Comparison):
    """What was found under simulated clicks."""

    behaviours: tuple[str, ...]
    chosen: Mapping[tuple[str, str, str], int]
    """Grid point of each (way, behaviour, arm); absent where no point finished with every seed."""
    ways: tuple[str, ...]
    baselines: tuple[str, ...] = ("naive",)
    """Arms of which the best is what methods are tested against, besides naive."""

    numbers = (*VALIDATION, "cmip", "clicks", "steps", "queries", *MEASURED, "seconds", "largest_mb")

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

    def _row(self, behaviour: str, arm: str, index: int) -> Row:
        meant = (behaviour, arm, index)
        runs = [f for f in self.findings if (f.cell.behaviour, f.cell.arm, f.cell.index) == meant]
        metrics = {name: mean_over_seeds([run.test(name) for run in runs]) for name in MEASURED}
        values = {name: np.stack([run.content["per_query"][name] for run in runs]) for name in MEASURED}
        seeds = tuple(run.test("ndcg@10") for run in runs)
        return Row(arm, runs[0].cell.varied, metrics, values, seeds)

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
