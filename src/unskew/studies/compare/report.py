"""What a comparison writes: results.parquet, table.md, report.html and figure.svg, each whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.files import complete_file
from unskew.pages.figures import dots_figure
from unskew.pages.marking import Value, with_best
from unskew.pages.numbers import around
from unskew.pages.page import Figure, Page, Section, Table, Term, write_page
from unskew.settings import listed
from unskew.studies.compare.arms import REFERENCES, Point
from unskew.studies.compare.cell import MEASURED
from unskew.studies.compare.left import left_section
from unskew.studies.compare.logs.found import LogComparison
from unskew.studies.compare.rows import SHOWN, Row, columns
from unskew.studies.compare.table import VALIDATION, WAYS, Comparison
from unskew.studies.compare.verdict import winners
from unskew.studies.terms import FROM_CLICKS, UNLEARNED, method_term

COMPARE_TITLE = "Is debiasing worth it? Methods compared"
LEGEND = (
    "Mean ± standard deviation over seeds, on the test lists. + and - mark a difference with p < .05, ++ and -- "
    "with p < .005: t-test of nDCG@10 with queries and seeds both drawn at random, Holm-corrected over methods. "
    "The best baseline is the one with the highest nDCG@10 here. labeled learns from true grades, random and "
    "logging do not learn."
)
SD_OVER_SEEDS = "one standard deviation over seeds"
_NUMBERS = (*VALIDATION, "cmip", *MEASURED, "seconds", "largest_mb")
_COUNTS = ("seed", "clicks", "steps", "queries")
_FLAGS = ("selected_by_clicks", "selected_by_labels")


def write_report(comparison: Comparison) -> None:
    """Write everything that a comparison shows."""
    out = comparison.out
    with complete_file(out / "results.parquet") as path:
        pq.write_table(results_table(comparison), path)
    write_page(comparison_page(comparison), out)


def results_table(comparison: Comparison) -> pa.Table:
    """One row per cell."""
    records = comparison.records()
    types = dict.fromkeys(_NUMBERS, pa.float64()) | dict.fromkeys(_COUNTS, pa.int64())
    types |= dict.fromkeys(_FLAGS, pa.bool_())
    schema = pa.schema([(name, types.get(name, pa.string())) for name in records[0]])
    return pa.Table.from_pylist(records, schema=schema)


def tables(comparison: Comparison, behaviour: str) -> list[tuple[str, list[Row]]]:
    """Rows with a sentence on how their settings were chosen; one table where both ways choose the same."""
    if comparison.same_choice(behaviour):
        how = "Settings chosen on " + " and on ".join(WAYS[way] for way in comparison.ways)
        return [(how + (", which agree." if len(comparison.ways) > 1 else "."), comparison.rows(behaviour))]
    return [(f"Settings chosen on {WAYS[way]}.", comparison.rows(behaviour, way)) for way in comparison.ways]


def comparison_page(comparison: Comparison) -> Page:
    """Figures, then the verdict and the tables of each behaviour."""
    charts = [_chart(comparison, behaviour) for behaviour in comparison.behaviours if comparison.rows(behaviour)]
    drawn = Section("nDCG@10 on the test lists", figures=[Figure(chart) for chart in charts])
    sections = [_section(comparison, behaviour) for behaviour in comparison.behaviours]
    failed = failures(comparison)
    return Page(
        COMPARE_TITLE,
        lead(comparison),
        [drawn, *sections, *left_section(comparison)],
        [LEGEND, *comparison.notes],
        failed,
        origin=comparison.origin,
        terms=terms_of(comparison),
        command=comparison.command,
    )


def failures(comparison: Comparison | LogComparison) -> list[str]:
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
        return method_term(label, label)
    changed = point.method.model_dump(exclude_defaults=True, exclude={"name"}, mode="json")
    changed |= point.training.model_dump(include={"learn_from"}, exclude_defaults=True)
    return method_term(label, point.method.name, ", ".join(f"{key} = {value}" for key, value in changed.items()))


def _section(comparison: Comparison, behaviour: str) -> Section:
    found = [rows_table(rows, comparison.baselines, how) for how, rows in tables(comparison, behaviour)]
    return Section(behaviour, comparison.verdict(behaviour), found)


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


def _chart(comparison: Comparison, behaviour: str) -> Any:
    rows = comparison.rows(behaviour)
    dots = [around(row.ndcg) | {"name": row.arm, "mark": row.mark, "seeds": row.seeds} for row in rows]
    return dots_figure(behaviour, dots, "test nDCG@10, mean ± sd over seeds")


def lead(comparison: Comparison) -> str:
    """The answer for all behaviours in one sentence."""
    worth = [name for name in comparison.behaviours if winners(comparison.rows(name))]
    total = len(comparison.behaviours)
    if not worth:
        return "On this data no method beats learning from the clicks as they are: do not debias."
    if len(worth) == total:
        return "On this data debiasing is worth it" + (" under every behaviour tried." if total > 1 else ".")
    return f"On this data debiasing is worth it under {len(worth)} of {total} behaviours: {', '.join(worth)}."
