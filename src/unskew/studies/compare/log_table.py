"""What a comparison on a real log found: settings chosen on validation pages, methods judged on test pages.

One contest (`workflows/runs/judges.py`) over all arms and settings chooses: an arm takes the settings that stand
highest, and nobody is judged by what its own arm knows of examination. The judge of `measuring/counterfactual`
then holds each arm against naive, and against what was shown, on the same test pages, dealt out among the seeds;
with m methods intervals are at 1 - 0.05 / m, after Bonferroni. Labels, where there are some, choose nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unskew.measuring import ClickEvidence, LoggedPages, mean_over_seeds
from unskew.studies.compare.cells import Cell, Finding
from unskew.studies.compare.logged import RealLog
from unskew.studies.compare.rows import NAIVE, LogRow
from unskew.studies.compare.table import Comparison
from unskew.types import Array
from unskew.workflows.runs.judges import Contest, Contestant, held_against

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


@dataclass(frozen=True)
class LearnedRankers:
    """All rankers that finished with every seed, by arm and grid point."""

    log: RealLog
    seeds: Sequence[int]
    rankers: Mapping[tuple[str, int], Sequence[Contestant]]
    """One for each seed."""
    pages: Sequence[tuple[LoggedPages, Array]]
    """For each seed the test pages that it is judged on, and the documents on them."""
    whole: LoggedPages
    """The test pages of all seeds."""

    @classmethod
    def of(cls, log: RealLog, seeds: Sequence[int], findings: Sequence[Finding]) -> LearnedRankers:
        """Those of the findings."""
        found: dict[tuple[str, int], dict[int, Contestant]] = {}
        for finding in findings:
            if finding.finished:
                seen, cell = finding.content["propensity"], finding.cell
                scores, examination = finding.content["scores"], None if seen is None else np.asarray(seen)
                learned = cell.point is not None and cell.point.method.name != NAIVE
                ranker = Contestant(scores, examination, learned)
                found.setdefault((cell.arm, cell.index), {})[cell.seed] = ranker
        whole = {key: each for key, each in found.items() if len(each) == len(seeds)}
        pages, told = [(log.pages(part), part.row) for part in log.judging(seeds)], log.judging_whole(seeds)
        return cls(log, seeds, {key: [each[seed] for seed in seeds] for key, each in whole.items()}, pages, told)

    def choose(self) -> dict[str, int]:
        """The grid point of each arm that stands highest on validation pages."""
        names = {f"{arm} {index}": (arm, index) for arm, index in self.rankers}
        contest = Contest(list(names), {name: arm for name, (arm, _) in names.items()})
        for number, seed in enumerate(self.seeds):
            part = self.log.drawn(seed).validation
            contest.add(part, {name: self.rankers[key][number] for name, key in names.items()})
        chosen: dict[str, int] = {}
        for name in contest.finish().order if len(names) > 1 else names:
            chosen.setdefault(*names[name])
        return chosen

    def against(self, key: tuple[str, int], other: tuple[str, int] | None, level: float) -> ClickEvidence:
        """A ranker against another, or against what was shown, on test pages."""
        parts = []
        for number, (pages, row) in enumerate(self.pages):
            held = None if other is None else self.rankers[other][number].scores[row]
            parts.append((pages, self.rankers[key][number].scores[row], held))
        return held_against(parts, self.whole, level)


def judged(log: RealLog, seeds: Sequence[int], findings: Sequence[Finding]) -> tuple[dict[str, int], list[LogRow]]:
    """The settings chosen, and every arm with them, judged."""
    learned = LearnedRankers.of(log, seeds, findings)
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
