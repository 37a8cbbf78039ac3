"""Tables and line figures of a paper: each panel is a comparison, its numbers stand beside the printed ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from unskew.measuring import SeedSummary
from unskew.pages.figures import dots_figure
from unskew.pages.numbers import Column, Value, around, metric_title, spread, with_best
from unskew.pages.page import Figure, Section, Table, Term
from unskew.studies.compare.arms import REFERENCES
from unskew.studies.compare.compare import compare
from unskew.studies.compare.report import SD_OVER_SEEDS, failures, terms_of
from unskew.studies.compare.simulated import SimulatedComparison
from unskew.studies.compare.verdict import LESS_IS_BETTER, Row, marks
from unskew.studies.terms import FROM_CLICKS
from unskew_reproductions.claims import CLAIM_COLUMNS, Judged, judge, tally
from unskew_reproductions.data import DataSet
from unskew_reproductions.figures import sweep_figure
from unskew_reproductions.recipe import PaperNumber, Recipe, claims_for, sources
from unskew_reproductions.trial import How, Tried

WAY = "labels"
"""Settings are chosen on labelled validation lists, as in the papers."""
_REFERENCES = ("random", "logging")


@dataclass(frozen=True)
class Number:
    """A number of ours, with the paper's."""

    data: str
    panel: str
    behaviour: str
    method: str
    metric: str
    measured: SeedSummary | None
    """None where the method has no result."""
    mark: str
    """Ours against the best baseline."""
    paper: PaperNumber | None

    @property
    def comparable(self) -> bool:
        """Whether the paper's is of the same data set: then a difference means something."""
        return self.paper is not None and self.paper.data == self.data

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, where they compare."""
        if self.measured is None or self.paper is None or not self.comparable:
            return None
        return self.measured.mean - self.paper.value

    def record(self) -> dict[str, Any]:
        """A row of numbers.parquet."""
        about = {key: getattr(self, key) for key in ("data", "panel", "behaviour", "method", "metric")}
        ours, sd = (None, None) if self.measured is None else (self.measured.mean, self.measured.sd)
        measured = {"measured": ours, "sd": None if sd is None or isnan(sd) else sd, "mark": self.mark}
        seeds = {"seeds": 0 if self.measured is None else self.measured.seeds}
        value, sd_paper, mark, of = self.paper or (None, None, None, None)
        paper = {"paper": value, "paper_sd": sd_paper, "paper_mark": mark, "paper_data": of}
        status = {"status": "failed" if self.measured is None else "finished"}
        compared = {"difference": self.difference, "comparable": self.comparable}
        return about | measured | seeds | paper | compared | status

    def printed(self) -> str:
        """The paper's number for a table."""
        if self.paper is None:
            return "–"
        sd = "" if self.paper.sd is None else f" ± {self.paper.sd:.3f}"
        return f"{self.paper.value:.3f}{sd} {self.paper.mark}".strip()

    def ours(self) -> str:
        """Our number for a table."""
        return "failed" if self.measured is None else f"{spread(self.measured)} {self.mark}".strip()


@dataclass(frozen=True)
class PanelOutcome:
    """One data set, panel and behaviour."""

    source: DataSet
    panel: str
    behaviour: str
    rows: Mapping[str, Row]
    numbers: Sequence[Number]
    judged: Sequence[Judged]

    @property
    def title(self) -> str:
        """Where it was found."""
        return ", ".join(part for part in (self.source.title, self.panel, self.behaviour) if part)


def run_panels(recipe: Recipe, chosen: Sequence[DataSet], how: How) -> Tried:
    """Every panel on every data set as a comparison in a folder of its own."""
    outcomes, failed, terms = [], [], list[Term]()
    for source in chosen:
        for panel in recipe.panels:
            content = how.content(recipe, panel, source)
            name = "-".join(part for part in (source.name, panel.name.lower()) if part)
            result = compare(content, how.out / name, force=how.force, jobs=how.jobs, tell=how.tell)
            assert isinstance(result, SimulatedComparison), "recipes simulate their clicks"
            failed += [f"{source.title}: {line}" for line in failures(result)]
            terms += terms_of(result)
            outcomes += [outcome(recipe, source, panel.name, result, name) for name in result.behaviours]
    if recipe.sweep is not None:
        sections = sweep_sections(recipe, outcomes)
    else:
        sections = [section(recipe, found, _bars(recipe, found)) for found in outcomes]
    records = [number.record() for found in outcomes for number in found.numbers]
    return Tried(sections, records, [one for found in outcomes for one in found.judged], failed, terms)


def outcome(
    recipe: Recipe, source: DataSet, panel: str, result: SimulatedComparison, behaviour: str
) -> PanelOutcome:
    """Numbers and claims of one behaviour; an arm without a result keeps its place."""
    rows = {row.arm: row for row in result.rows(behaviour, WAY)}
    arms = list(dict.fromkeys(f.cell.arm for f in result.findings if f.cell.behaviour == behaviour))
    ordered = [*(arm for arm in arms if arm not in _REFERENCES), *(arm for arm in arms if arm in _REFERENCES)]
    marked = {name: marks(list(rows.values()), result.baselines, name) for name in recipe.metrics}
    numbers = [
        Number(
            *(source.name, panel, behaviour, arm, metric),
            rows[arm].metrics[metric] if arm in rows else None,
            marked[metric].get(arm, ""),
            recipe.printed(source.name, panel, behaviour, arm, metric),
        )
        for arm in ordered
        for metric in recipe.metrics
    ]
    judged = judge(rows, list(claims_for(recipe, source.name, panel, behaviour)), recipe.metric)
    return PanelOutcome(source, panel, behaviour, rows, numbers, judged)


def section(recipe: Recipe, found: PanelOutcome, charts: Sequence[Any]) -> Section:
    """Text, table of numbers, table of claims."""
    of = next((number.paper.data for number in found.numbers if number.paper), "")
    text = tally(found.judged)
    if of and of != found.source.name:
        text += (
            f" The paper's numbers are of {sources()[of]['title']}: values do not compare with ours, orders may."
        )
    tables = [main_table(recipe, found)]
    if found.judged:
        claims = [judged.cells() for judged in found.judged]
        tables.append(
            Table(CLAIM_COLUMNS, claims, f"Orders, tested on {metric_title(recipe.metric)}", text=("here",))
        )
    if len(recipe.metrics) > 1:
        tables.append(others_table(recipe, found))
    return Section(found.title, text, tables, [Figure(chart) for chart in charts])


def main_table(recipe: Recipe, found: PanelOutcome) -> Table:
    """A row for every method: the paper's and our value of the main metric, their difference, and both ranks."""
    main = [number for number in found.numbers if number.metric == recipe.metric]
    printed = [number for number in main if number.paper is not None]
    theirs = _ranks({n.method: None if n.paper is None else n.paper.value for n in printed})
    ours = _ranks({n.method: None if n.measured is None else n.measured.mean for n in printed})
    rows = [
        [
            number.method,
            number.printed(),
            number.ours(),
            "" if number.difference is None else f"{number.difference:+.3f}",
            _both(theirs.get(number.method), ours.get(number.method)),
            "" if number.method not in found.rows else found.rows[number.method].varied,
        ]
        for number in main
    ]
    title = f"{metric_title(recipe.metric)}, paper and here"
    columns = ("method", "paper", "here", "difference", "ranks", "settings")
    table = Table(columns, rows, title, text=("settings",))
    return _best(table, {1: _printed(main), 2: _measured(main)}, [recipe.metric] * 2).without_empty()


def _best(table: Table, columns: Mapping[int, Column], metrics: Sequence[str]) -> Table:
    """The table with the best of each column, of the metrics in this order, marked."""
    lowest = [index for index, metric in zip(columns, metrics, strict=True) if metric in LESS_IS_BETTER]
    return with_best(table, columns, among=FROM_CLICKS, spread=SD_OVER_SEEDS, lowest=lowest)


def _printed(numbers: Sequence[Number]) -> Column:
    """The paper's values of the methods that learn from clicks."""
    return [
        None if number.paper is None or number.method in REFERENCES[1:] else Value(number.paper.value)
        for number in numbers
    ]


def _measured(numbers: Sequence[Number]) -> Column:
    """Ours of the same."""
    return [
        None if number.measured is None or number.method in REFERENCES[1:] else Value.of(number.measured)
        for number in numbers
    ]


def others_table(recipe: Recipe, found: PanelOutcome) -> Table:
    """The same for the other metrics, values alone."""
    metrics = [metric for metric in recipe.metrics if metric != recipe.metric]
    places = {(number.method, number.metric): number for number in found.numbers}
    columns = [f"{metric_title(metric)}: {whose}" for metric in metrics for whose in ("paper", "here")]
    rows = []
    for method in dict.fromkeys(number.method for number in found.numbers):
        each = [places[method, metric] for metric in metrics]
        rows.append([method, *(cell for number in each for cell in (number.printed(), number.ours()))])
    table = Table(("method", *columns), rows, "Other metrics", printed=False)
    groups = [[number for number in found.numbers if number.metric == metric] for metric in metrics]
    pairs = [column for numbers in groups for column in (_printed(numbers), _measured(numbers))]
    return _best(table, dict(enumerate(pairs, start=1)), [metric for metric in metrics for _ in range(2)])


def _ranks(values: Mapping[str, float | None]) -> dict[str, int]:
    """Place of each method among those with a value, 1 for the highest; equal values share a place.

    >>> _ranks({"a": 0.5, "b": 0.7, "c": None, "d": 0.7})
    {'a': 3, 'b': 1, 'd': 1}
    """
    known = {name: value for name, value in values.items() if value is not None}
    return {name: 1 + sum(other > value for other in known.values()) for name, value in known.items()}


def _both(theirs: int | None, ours: int | None) -> str:
    return "" if theirs is None else f"{theirs}, {'–' if ours is None else ours}"


def _bars(recipe: Recipe, found: PanelOutcome) -> list[Any]:
    rows = [
        around(number.measured)
        | {"name": number.method, "paper": number.paper.value if number.paper and number.comparable else None}
        for number in found.numbers
        if number.metric == recipe.metric and number.measured is not None
    ]
    return (
        [dots_figure(found.title, rows, f"test {metric_title(recipe.metric)}, mean ± sd over seeds")]
        if rows
        else []
    )


def sweep_sections(recipe: Recipe, outcomes: Sequence[PanelOutcome]) -> list[Section]:
    """A chart over methods of one behaviour, or over all behaviours of a data set; then the tables."""
    assert recipe.sweep is not None
    if recipe.sweep.x == "method":
        return [section(recipe, found, _line(recipe, found.title, [found])) for found in outcomes]
    sections = []
    for source in dict.fromkeys(found.source.name for found in outcomes):
        group = [found for found in outcomes if found.source.name == source]
        title, judged = group[0].source.title, [one for found in group for one in found.judged]
        figures = [Figure(chart) for chart in _line(recipe, title, group)]
        sections.append(Section(title, tally(judged), figures=figures))
        sections += [section(recipe, found, ()) for found in group]
    return sections


def _line(recipe: Recipe, title: str, group: Sequence[PanelOutcome]) -> list[Any]:
    sweep = recipe.sweep
    assert sweep is not None
    rows: list[dict[str, Any]] = []
    for found in group:
        for number in found.numbers:
            if number.measured is None or number.method in _REFERENCES or number.metric != recipe.metric:
                continue
            label = number.method if sweep.x == "method" else found.behaviour
            inside = label.startswith(sweep.prefix)
            series = "vectorization" if sweep.x == "method" and inside else number.method
            x = float(label.removeprefix(sweep.prefix)) if inside else None
            rows.append(around(number.measured) | {"series": series, "x": x})
    return [sweep_figure(title, rows, sweep.title, metric_title(recipe.metric))] if rows else []
