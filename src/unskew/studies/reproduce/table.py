"""Tables and line figures of a paper: each panel is a comparison, its numbers stand beside the printed ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from unskew.measuring import SeedSummary
from unskew.studies.compare.compare import Tell, compare
from unskew.studies.compare.rows import Row, spread
from unskew.studies.compare.table import Comparison
from unskew.studies.reproduce.claims import COLUMNS, Judged, judge, tally
from unskew.studies.reproduce.data import Source
from unskew.studies.reproduce.figures import measured_figure, sweep_figure
from unskew.studies.reproduce.page import Section, Shown
from unskew.studies.reproduce.recipe import Panel, Recipe, claims_for, compare_content, sources

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
    paper: float | None
    paper_sd: float | None
    paper_data: str
    """Data set that the paper's number is about."""
    comparable: bool
    """Same data set and same metric: then a difference means something."""

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, where they compare."""
        if self.measured is None or self.paper is None or not self.comparable:
            return None
        return self.measured.mean - self.paper

    def record(self) -> dict[str, Any]:
        """A row of numbers.parquet."""
        about = {key: getattr(self, key) for key in ("data", "panel", "behaviour", "method", "metric")}
        ours, sd = (None, None) if self.measured is None else (self.measured.mean, self.measured.sd)
        measured = {"measured": ours, "sd": None if sd is None or isnan(sd) else sd}
        seeds = {"seeds": 0 if self.measured is None else self.measured.seeds}
        paper = {"paper": self.paper, "paper_sd": self.paper_sd, "paper_data": self.paper_data or None}
        status = {"status": "failed" if self.measured is None else "finished"}
        return (
            about
            | measured
            | seeds
            | paper
            | {"difference": self.difference, "comparable": self.comparable}
            | status
        )

    def printed(self) -> str:
        """The paper's number for a table."""
        if self.paper is None:
            return "–"
        return f"{self.paper:.3f}" + ("" if self.paper_sd is None else f" ± {self.paper_sd:.3f}")

    def ours(self) -> str:
        """Our number for a table."""
        return "failed" if self.measured is None else spread(self.measured)


@dataclass(frozen=True)
class Outcome:
    """One data set, panel and behaviour."""

    source: Source
    panel: str
    behaviour: str
    rows: Mapping[str, Row]
    numbers: Sequence[Number]
    judged: Sequence[Judged]

    @property
    def title(self) -> str:
        """Where it was found."""
        return ", ".join(part for part in (self.source.title, self.panel, self.behaviour) if part)


@dataclass(frozen=True)
class Run:
    """How panels are run."""

    out: Path
    quick: bool
    changes: Mapping[str, int]
    """Seeds and pages, where they are not to be the recipe's."""
    jobs: int | None
    force: bool
    tell: Tell | None


def run_panels(recipe: Recipe, chosen: Sequence[Source], how: Run) -> tuple[list[Outcome], list[str]]:
    """Every panel on every data set as a comparison in a folder of its own; and what failed."""
    outcomes, failed = [], []
    for source in chosen:
        for panel in recipe.panels:
            content = panel_content(recipe, panel, source, how)
            name = "-".join(part for part in (source.name, panel.name.lower()) if part)
            result = compare(content, how.out / name, force=how.force, jobs=how.jobs, tell=how.tell)
            failed += [f"{source.title}: {f.behaviour}: {f.arm}, seed {f.seed}: {f.error}" for f in result.failed]
            outcomes += [outcome(recipe, source, panel.name, result, name) for name in result.behaviours]
    return outcomes, failed


def panel_content(recipe: Recipe, panel: Panel, source: Source, how: Run) -> dict[str, Any]:
    """The compare file of a panel, with the seeds and pages asked for."""
    return compare_content(recipe, panel, source.name, source.data, quick=how.quick) | dict(how.changes)


def outcome(recipe: Recipe, source: Source, panel: str, result: Comparison, behaviour: str) -> Outcome:
    """Numbers and claims of one behaviour; an arm without a result keeps its place."""
    rows = {row.arm: row for row in result.rows(behaviour, WAY)}
    arms = list(dict.fromkeys(f.arm for f in result.findings if f.behaviour == behaviour))
    ordered = [*(arm for arm in arms if arm not in _REFERENCES), *(arm for arm in arms if arm in _REFERENCES)]
    numbers = [
        _number(recipe, source, (panel, behaviour, arm), metric, rows.get(arm))
        for arm in ordered
        for metric in recipe.metrics
    ]
    judged = judge(rows, list(claims_for(recipe, source.name, panel, behaviour)))
    return Outcome(source, panel, behaviour, rows, numbers, judged)


def _number(recipe: Recipe, source: Source, at: tuple[str, str, str], metric: str, row: Row | None) -> Number:
    value, sd, of = recipe.printed(source.name, *at, metric)
    comparable = of == source.name and metric not in recipe.other_scale
    return Number(
        source.name, *at, metric, None if row is None else row.metrics[metric], value, sd, of, comparable
    )


def section(recipe: Recipe, found: Outcome, charts: Sequence[Any]) -> Section:
    """Text, table of numbers, table of claims."""
    of = next((number.paper_data for number in found.numbers if number.paper_data), "")
    text = tally(found.judged)
    if of and of != found.source.name:
        text += (
            f" The paper's numbers are of {sources()[of]['title']}: values do not compare with ours, orders may."
        )
    tables = [main_shown(recipe, found)]
    if found.judged:
        claims = [judged.cells() for judged in found.judged]
        tables.append(Shown("Orders, tested on nDCG@10", COLUMNS, claims))
    if len(recipe.metrics) > 1:
        tables.append(others_shown(recipe, found))
    return Section(found.title, text, tables, charts)


def main_shown(recipe: Recipe, found: Outcome) -> Shown:
    """A row for every method: the paper's and our value of the main metric, their difference, and both ranks."""
    main = [number for number in found.numbers if number.metric == recipe.metric]
    theirs = _ranks({number.method: number.paper for number in main})
    ours = _ranks({n.method: None if n.measured is None or n.paper is None else n.measured.mean for n in main})
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
    title = f"{_title(recipe.metric)}, paper and here"
    return Shown.without_empty(title, ("method", "paper", "here", "difference", "ranks", "settings"), rows)


def others_shown(recipe: Recipe, found: Outcome) -> Shown:
    """The same for the other metrics, values alone."""
    metrics = [metric for metric in recipe.metrics if metric != recipe.metric]
    places = {(number.method, number.metric): number for number in found.numbers}
    columns = [head for metric in metrics for head in (f"{_title(metric)}: paper", "here")]
    rows = [
        [
            method,
            *(
                cell
                for metric in metrics
                for cell in (places[method, metric].printed(), places[method, metric].ours())
            ),
        ]
        for method in dict.fromkeys(number.method for number in found.numbers)
    ]
    return Shown("Other metrics", ("method", *columns), rows, terminal=False)


def _ranks(values: Mapping[str, float | None]) -> dict[str, int]:
    """Place of each method among those with a value, 1 for the highest; equal values share a place.

    >>> _ranks({"a": 0.5, "b": 0.7, "c": None, "d": 0.7})
    {'a': 3, 'b': 1, 'd': 1}
    """
    known = {name: value for name, value in values.items() if value is not None}
    return {name: 1 + sum(other > value for other in known.values()) for name, value in known.items()}


def _both(theirs: int | None, ours: int | None) -> str:
    return "" if theirs is None else f"{theirs}, {'–' if ours is None else ours}"


def _title(metric: str) -> str:
    return metric.replace("ndcg", "nDCG").replace("arp", "ARP")


def table_sections(recipe: Recipe, outcomes: Sequence[Outcome]) -> list[Section]:
    """A section with a chart for each."""
    return [section(recipe, found, _bars(recipe, found)) for found in outcomes]


def _bars(recipe: Recipe, found: Outcome) -> list[Any]:
    rows = [
        _spread_of(number.measured) | {"name": number.method, "paper": number.paper if number.comparable else None}
        for number in found.numbers
        if number.metric == recipe.metric and number.measured is not None
    ]
    return [measured_figure(found.title, rows, _title(recipe.metric))] if rows else []


def sweep_sections(recipe: Recipe, outcomes: Sequence[Outcome]) -> list[Section]:
    """A chart over methods of one behaviour, or over all behaviours of a data set; then the tables."""
    assert recipe.sweep is not None
    if recipe.sweep.x == "method":
        return [section(recipe, found, _line(recipe, found.title, [found])) for found in outcomes]
    sections = []
    for source in dict.fromkeys(found.source.name for found in outcomes):
        group = [found for found in outcomes if found.source.name == source]
        title, judged = group[0].source.title, [one for found in group for one in found.judged]
        sections.append(Section(title, tally(judged), charts=_line(recipe, title, group)))
        sections += [section(recipe, found, ()) for found in group]
    return sections


def _line(recipe: Recipe, title: str, group: Sequence[Outcome]) -> list[Any]:
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
            rows.append(_spread_of(number.measured) | {"series": series, "x": x})
    return [sweep_figure(title, rows, sweep.title, _title(recipe.metric))] if rows else []


def _spread_of(summary: SeedSummary) -> dict[str, Any]:
    sd = 0.0 if isnan(summary.sd) else summary.sd
    return {"mean": summary.mean, "low": summary.mean - sd, "high": summary.mean + sd}


SECTIONS: Mapping[str, Callable[[Recipe, Sequence[Outcome]], list[Section]]] = {
    "table": table_sections,
    "sweep": sweep_sections,
}
