"""What a comparison writes: results.parquet, table.md, report.html and figure.svg, each whole or not at all."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.files import complete_file
from unskew.measuring import ClickEvidence
from unskew.pages.documents.proof import proof_sections
from unskew.pages.figures import dots_figure
from unskew.pages.numbers import Value, around, number, span, spread, with_best
from unskew.pages.page import Figure, Page, Section, Table, Term, write_page
from unskew.settings import listed
from unskew.studies.compare.arms import REFERENCES, Point
from unskew.studies.compare.cells import Comparison
from unskew.studies.compare.logged import RISK, LogComparison
from unskew.studies.compare.simulated import WAYS, SimulatedComparison
from unskew.studies.compare.verdict import SHOWN, LogRow, Row, columns, gain, leading, name_of, winners
from unskew.studies.terms import FROM_CLICKS, UNLEARNED, method_term

COMPARE_TITLE = "Is debiasing worth it? Methods compared"
LEGEND = (
    "Mean ± standard deviation over seeds, on the test lists. + and - mark a difference with p < .05, ++ and -- "
    "with p < .005: t-test of nDCG@10 with queries and seeds both drawn at random, Holm-corrected over methods. "
    "The best baseline is the one with the highest nDCG@10 here. labeled learns from true grades, random and "
    "logging do not learn."
)
SD_OVER_SEEDS = "one standard deviation over seeds"
_TYPES = dict.fromkeys(("seed", "clicks", "steps", "queries"), pa.int64()) | dict.fromkeys(
    ("behaviour", "method", "point", "settings", "status", "error", "cell"), pa.string()
)
"""Columns of results.parquet that are neither numbers nor flags."""


def write_report(comparison: Comparison) -> None:
    """Write everything that a comparison shows."""
    with complete_file(comparison.out / "results.parquet") as path:
        pq.write_table(results_table(comparison), path)
    write_page(comparison_page(comparison), comparison.out)


def results_table(comparison: Comparison) -> pa.Table:
    """One row per cell."""
    records = comparison.records()
    flags = {name: pa.bool_() for name in records[0] if name.startswith("selected")}
    schema = pa.schema([(name, (_TYPES | flags).get(name, pa.float64())) for name in records[0]])
    return pa.Table.from_pylist(records, schema=schema)


def comparison_page(comparison: Comparison) -> Page:
    """What a comparison shows, on simulated clicks or on a real log."""
    assert isinstance(comparison, SimulatedComparison | LogComparison)
    page = log_page(comparison) if isinstance(comparison, LogComparison) else simulated_page(comparison)
    return replace(
        page,
        notes=[*page.notes, *comparison.notes],
        failed=failures(comparison),
        origin=comparison.origin,
        terms=terms_of(comparison),
        command=comparison.command,
    )


def tables(comparison: SimulatedComparison, behaviour: str) -> list[tuple[str, list[Row]]]:
    """Rows with a sentence on how their settings were chosen; one table where both ways choose the same."""
    if comparison.same_choice(behaviour):
        how = "Settings chosen on " + " and on ".join(WAYS[way] for way in comparison.ways)
        return [(how + (", which agree." if len(comparison.ways) > 1 else "."), comparison.rows(behaviour))]
    return [(f"Settings chosen on {WAYS[way]}.", comparison.rows(behaviour, way)) for way in comparison.ways]


def simulated_page(comparison: SimulatedComparison) -> Page:
    """Figures, then the verdict and the tables of each behaviour."""
    figures, sections = [], []
    for behaviour in comparison.behaviours:
        rows = comparison.rows(behaviour)
        dots = [around(row.ndcg) | {"name": row.arm, "mark": row.mark, "seeds": row.seeds} for row in rows]
        figures += [Figure(dots_figure(behaviour, dots, "test nDCG@10, mean ± sd over seeds"))] if rows else []
        found = [rows_table(each, comparison.baselines, how) for how, each in tables(comparison, behaviour)]
        sections.append(Section(behaviour, comparison.verdict(behaviour), found))
    drawn = Section("nDCG@10 on the test lists", figures=figures)
    return Page(COMPARE_TITLE, lead(comparison), [drawn, *sections], [LEGEND])


def failures(comparison: Comparison) -> list[str]:
    """What has no result and why, in a line for all seeds that failed of the same."""
    seeds: dict[tuple[str, str], list[str]] = {}
    for finding in comparison.failed:
        cell, seed = str(finding.cell).rsplit(", seed ", 1)
        seeds.setdefault((cell, str(finding.error)), []).append(seed)
    return [
        f"{cell}, seed{'s' * (len(each) > 1)} {listed(each)}: {error}" for (cell, error), each in seeds.items()
    ]


def terms_of(comparison: Comparison) -> list[Term]:
    """What every arm is, in the order of the tables."""
    found = {finding.cell.arm: finding.cell.point for finding in comparison.findings}
    last = [*REFERENCES[:1], *(arm for arm in found if arm not in REFERENCES), *REFERENCES[1:]]
    arms = {arm: found[arm] for arm in last if arm in found}
    return [UNLEARNED[arm] if point is None else arm_term(arm, point) for arm, point in arms.items()]


def arm_term(label: str, point: Point) -> Term:
    """What an arm is: its method, and where its label is another, what is set."""
    if label == point.method.name:
        return method_term(label, point.method)
    changed = point.method.model_dump(exclude_defaults=True, exclude={"name"}, mode="json")
    changed |= point.training.model_dump(include={"learn_from"}, exclude_defaults=True)
    return method_term(label, point.method, ", ".join(f"{key} = {value}" for key, value in changed.items()))


def rows_table(rows: Sequence[Row], baselines: Sequence[str], how: str = "") -> Table:
    """The rows without the columns that say nothing; the best of each metric stands out."""
    table = Table(columns(rows, baselines), [row.cells() for row in rows], how, ("settings",), _WIDE)
    metrics = {
        index: [None if row.arm in REFERENCES[1:] else Value.of(row.metrics[name]) for row in rows]
        for index, name in enumerate(SHOWN, start=1)
    }
    return with_best(table, metrics, among=FROM_CLICKS, spread=SD_OVER_SEEDS).without_empty(but=_ALWAYS)


_ALWAYS = 7  # method, metrics, against naive and p are columns even where they are empty
_WIDE = ("nDCG@1", "nDCG@3", "nDCG@5", "p", "settings")  # what a narrow terminal does without, first to last


def lead(comparison: SimulatedComparison) -> str:
    """The answer for all behaviours in one sentence."""
    worth = [name for name in comparison.behaviours if winners(comparison.rows(name))]
    total = len(comparison.behaviours)
    if not worth:
        return "On this data no method beats learning from the clicks as they are: do not debias."
    if len(worth) == total:
        return "On this data debiasing is worth it" + (" under every behaviour tried." if total > 1 else ".")
    return f"On this data debiasing is worth it under {len(worth)} of {total} behaviours: {', '.join(worth)}."


LOG_LEGEND = (
    "Methods were learned from one part of the log, their settings chosen on a second and all judged on a third, "
    "by clicks and without labels. Each stands against naive, and against the order that was shown, on the same "
    f"pages. Intervals hold for all methods together: with m methods each is at 1 - {RISK} / m. Random slots "
    "decide where they can; else two estimates must agree that assume different things. No method is judged by "
    "what it knows of examination itself. Test pages are dealt out among the seeds, so that each is one page."
)
BESIDE = "nDCG@10 by labels is the mean ± standard deviation over seeds; it lies beside and has chosen nothing."
_COLUMNS = ("method", "against naive", "interval", "says", "against shown", "interval", "says")


def log_page(found: LogComparison) -> Page:
    """The verdict, every method, and what the estimates of the best one say."""
    graded = any(row.graded is not None for row in found.rows)
    sections = [Section("Methods", "", [log_rows_table(found.rows)], _figures(found.rows))] if found.rows else []
    methods = [row for row in found.rows if row.naive is not None]
    best = max(methods, key=lambda row: gain(row.naive), default=None)
    for title, evidence in () if best is None else (("naive", best.naive), ("what was shown", best.shown)):
        if best is not None and evidence is not None:
            found_by = [table for section in proof_sections(evidence) for table in section.tables]
            unprinted = [replace(table, printed=False) for table in found_by]
            said = f"{evidence.sentence} {evidence.agreement}"
            sections.append(Section(f"{best.arm} against {title}", said, unprinted))
    return Page(COMPARE_TITLE, found.verdict, sections, [LOG_LEGEND, *([BESIDE] if graded else [])])


def log_rows_table(rows: Sequence[LogRow]) -> Table:
    """A row for each method."""
    columns = [*_COLUMNS, "nDCG@10 by labels", "settings"]
    cells = [
        [
            row.arm,
            *_told(row.naive),
            *_told(row.shown),
            "" if row.graded is None else spread(row.graded),
            row.varied,
        ]
        for row in rows
    ]
    wide = ("settings", "interval")
    return Table(columns, cells, "", ("says", "interval", "settings"), wide).without_empty(but=len(_COLUMNS))


def _told(evidence: ClickEvidence | None) -> list[str]:
    one = leading(evidence)
    if evidence is None or one is None:
        return ["", "", "" if evidence is None else evidence.verdict]
    share = "" if one.relative is None else f" ({one.relative:+.1%})"
    difference = number(one.difference, "+.4f", "")
    return [f"{difference}{share}", span(one.interval), f"{evidence.verdict} ({name_of(one)})"]


def _figures(rows: Sequence[LogRow]) -> list[Figure]:
    dots: list[dict[str, Any]] = []
    for row in rows:
        one = leading(row.naive)
        if one is not None and one.relative is not None and one.relative_interval is not None:
            low, high = one.relative_interval
            dots.append({"name": row.arm, "mean": 100 * one.relative, "low": 100 * low, "high": 100 * high})
    axis = "gain over naive in per cent, with its interval"
    return [Figure(dots_figure("against naive", dots, axis))] if dots else []
