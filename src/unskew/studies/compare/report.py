"""What a comparison writes: results.parquet, table.md, report.html and figure.svg, each whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from unskew import __version__
from unskew.clicks.lists.files import complete_file
from unskew.reporting.compared import arms_figure, beside
from unskew.reporting.console import table
from unskew.reporting.figures import chart_html, palette, styled, write_svg
from unskew.reporting.page import html_table, write_page
from unskew.studies.compare.arms import REFERENCES
from unskew.studies.compare.cell import METRICS
from unskew.studies.compare.rows import Row, columns
from unskew.studies.compare.table import VALIDATION, WAYS, Comparison
from unskew.studies.compare.verdict import winners

TITLE = "Is debiasing worth it? Methods compared"
LEGEND = (
    "Mean ± standard deviation over seeds, on the test lists. + and - mark a difference with p < .05, ++ and -- "
    "with p < .005: t-test of nDCG@10 with queries and seeds both drawn at random, Holm-corrected over methods. "
    "The best baseline is the one with the highest nDCG@10 here. labeled learns from true grades, random and "
    "logging do not learn."
)
_NUMBERS = (*VALIDATION, *METRICS, "seconds", "largest_mb")
_COUNTS = ("seed", "clicks", "steps", "queries")
_FLAGS = ("selected_by_clicks", "selected_by_labels")


def write_report(comparison: Comparison) -> None:
    """Write everything that a comparison shows."""
    out = comparison.out
    with complete_file(out / "results.parquet") as path:
        pq.write_table(results_table(comparison), path)
    with complete_file(out / "table.md") as path:
        path.write_text(markdown(comparison), encoding="utf-8")
    write_html(comparison, out)


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


def problems(comparison: Comparison) -> list[str]:
    """Notes, and a line for every cell that failed."""
    failed = [
        f"Failed: {f.behaviour}: {f.arm}{f' {f.varied}' if f.varied else ''}, seed {f.seed}: {f.error}"
        for f in comparison.failed
    ]
    return [*comparison.notes, *failed]


def markdown(comparison: Comparison) -> str:
    """The tables and verdicts as Markdown."""
    parts = [f"# {TITLE}"]
    for behaviour in comparison.behaviours:
        parts += [f"## {behaviour}", comparison.verdict(behaviour)]
        for how, rows in tables(comparison, behaviour):
            head, cells = shown(rows, comparison.baselines)
            lines = [head, ["---", *["---:"] * (len(head) - 2), "---"], *cells]
            parts += [how, "\n".join(f"| {' | '.join(line)} |" for line in lines)]
    parts += [LEGEND]
    if problems(comparison):
        parts.append("\n".join(f"- {line}" for line in problems(comparison)))
    return "\n\n".join(parts) + "\n"


def print_comparison(console: Console, comparison: Comparison) -> None:
    """Tables, verdicts, and what failed, for the terminal; a line of text is never broken."""

    def line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    for behaviour in comparison.behaviours:
        for how, rows in tables(comparison, behaviour):
            head, cells = shown(rows, comparison.baselines)
            wide = _WIDE if len(head) <= _FITS else (*_WIDE, "p")  # marks tell as much
            narrow = [index for index, name in enumerate(head) if name not in wide]
            cut = [[line[index] for index in narrow] for line in (head, *cells)]
            console.print(table(f"{behaviour}. {how}", cut[0], cut[1:]))
    line(f"\n{LEGEND}\n")
    for text in (*problems(comparison), *map(comparison.verdict, comparison.behaviours)):
        line(text)
    line(f"\nOpen {comparison.out / 'report.html'}; all numbers are in {comparison.out / 'results.parquet'}.")


_WIDE, _FITS = ("nDCG@1", "nDCG@3", "nDCG@5"), 8  # what a terminal is not wide enough for


def shown(rows: Sequence[Row], baselines: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of a table, without the columns that say nothing."""
    head, lines = columns(rows, baselines), [row.cells() for row in rows]
    said = [index for index, _ in enumerate(head) if index < _ALWAYS or any(line[index] for line in lines)]
    return [head[index] for index in said], [[line[index] for index in said] for line in lines]


_ALWAYS = 7  # method, metrics, against naive and p


def write_html(comparison: Comparison, out: Path) -> None:
    """The page and the figure."""
    charts = {}
    for behaviour in comparison.behaviours:
        rows = comparison.rows(behaviour)
        kinds = dict.fromkeys(REFERENCES, "reference") | {"naive": "biased"}
        colours = palette({row.arm: kinds.get(row.arm, "debiased") for row in rows})
        if rows:
            charts[behaviour] = arms_figure(behaviour, [_bar(row) for row in rows], colours)
    drawn = "".join(chart_html(styled(chart), f"behaviour{index}") for index, chart in enumerate(charts.values()))
    sections = [("nDCG@10 on the test lists", f"<div class='charts'>{drawn}</div>")]
    sections += [(behaviour, _tables_html(comparison, behaviour)) for behaviour in comparison.behaviours]
    notes = "".join(f"<li>{escape(line)}</li>" for line in problems(comparison))
    sections.append(("How to read this", f"<p>{escape(LEGEND)}</p><ul>{notes}</ul>"))
    if charts:
        with complete_file(out / "figure.svg") as path:
            write_svg(beside(list(charts.values())), path)
    write_page(out / "report.html", TITLE, lead(comparison), sections, footer=f"unskew {__version__}")


def _tables_html(comparison: Comparison, behaviour: str) -> str:
    """The verdict and the tables of a behaviour, in type small enough for eight columns."""
    body = f"<p>{escape(comparison.verdict(behaviour))}</p>"
    for how, rows in tables(comparison, behaviour):
        best = next((row.arm for row in winners(rows)), None)
        cells = html_table(*shown(rows, comparison.baselines), best=best)
        body += f"<p>{escape(how)}</p><div style='font-size: .85em'>{cells}</div>"
    return body


def lead(comparison: Comparison) -> str:
    """The answer for all behaviours in one sentence."""
    worth = [name for name in comparison.behaviours if winners(comparison.rows(name))]
    total = len(comparison.behaviours)
    if not worth:
        return "On this data no method beats learning from the clicks as they are: do not debias."
    if len(worth) == total:
        return "On this data debiasing is worth it" + (" under every behaviour tried." if total > 1 else ".")
    return f"On this data debiasing is worth it under {len(worth)} of {total} behaviours: {', '.join(worth)}."


def _bar(row: Row) -> dict[str, object]:
    """An arm for the figure: mean, spread and the value of every seed."""
    sd = 0.0 if row.ndcg.sd != row.ndcg.sd else row.ndcg.sd
    means = {"name": row.arm, "mean": row.ndcg.mean, "low": row.ndcg.mean - sd, "high": row.ndcg.mean + sd}
    return means | {"mark": row.mark, "seeds": list(row.seeds)}
