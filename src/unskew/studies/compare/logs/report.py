"""What a comparison on a real log writes: results.parquet and a page, each whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from unskew.files import complete_file
from unskew.measuring.counterfactual import ClickEvidence
from unskew.pages.figures import dots_figure
from unskew.pages.numbers import spread
from unskew.pages.page import Figure, Page, Section, Table, Term, write_page
from unskew.studies.compare.logs.found import RISK, LogComparison, LogRow, leading, name_of
from unskew.studies.compare.logs.verdict import gain
from unskew.studies.compare.report import COMPARE_TITLE, arm_term, failures

LEGEND = (
    "Methods were learned from one part of the log, their settings chosen on a second and all judged on a third, "
    "by clicks and without labels. Each stands against naive, and against the order that was shown, on the same "
    f"pages. Intervals hold for all methods together: with m methods each is at 1 - {RISK} / m. Random slots "
    "decide where they can; else two estimates must agree that assume different things. No method is judged by "
    "what it knows of examination itself. Test pages are dealt out among the seeds, so that each is one page."
)
BESIDE = "nDCG@10 by labels is the mean ± standard deviation over seeds; it lies beside and has chosen nothing."
_NUMBERS = ("validation_click_loglikelihood", "ndcg@10", "seconds", "largest_mb")
_COUNTS = ("seed", "clicks", "steps")
_COLUMNS = ("method", "against naive", "interval", "says", "against shown", "interval", "says")


def write_log_report(found: LogComparison) -> None:
    """Write everything that a comparison shows."""
    records = found.records()
    types: dict[str, pa.DataType] = dict.fromkeys(_NUMBERS, pa.float64()) | dict.fromkeys(_COUNTS, pa.int64())
    types["selected"] = pa.bool_()
    schema = pa.schema([(name, types.get(name, pa.string())) for name in records[0]])
    with complete_file(found.out / "results.parquet") as path:
        pq.write_table(pa.Table.from_pylist(records, schema=schema), path)
    write_page(log_page(found), found.out)


def log_page(found: LogComparison) -> Page:
    """The verdict, every method, and what the estimates of the best one say."""
    graded = any(row.graded is not None for row in found.rows)
    sections = [Section("Methods", "", [rows_table(found.rows)], _figures(found.rows))] if found.rows else []
    best = max((row for row in found.rows if row.naive is not None), key=gain, default=None)
    for title, evidence in () if best is None else (("naive", best.naive), ("what was shown", best.shown)):
        if best is not None and evidence is not None:
            heading = f"{best.arm} against {title}"
            sections.append(Section(heading, f"{evidence.sentence} {evidence.agreement}", [estimates(evidence)]))
    return Page(
        COMPARE_TITLE,
        found.verdict,
        sections,
        [LEGEND, *([BESIDE] if graded else []), *found.notes],
        failures(found),
        origin=found.origin,
        terms=_terms(found),
        command=found.command,
    )


def rows_table(rows: Sequence[LogRow]) -> Table:
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


def estimates(evidence: ClickEvidence) -> Table:
    """Every estimate, with what it assumes."""
    rows = [
        [
            one.name,
            *_numbers(one.difference, one.relative, one.interval),
            "" if one.overlap is None else f"{one.overlap:.0%}",
            f"{one.pages:,}",
            one.reason or one.assumes,
        ]
        for one in evidence.estimates
    ]
    head = ("estimate", "difference", "interval", "overlap", "pages", "assumes, or why there is none")
    return Table(head, rows, "", ("interval", head[-1]), printed=False)


def _told(evidence: ClickEvidence | None) -> list[str]:
    """Difference, interval and answer."""
    if evidence is None:
        return ["", "", ""]
    one = leading(evidence)
    numbers = ["", ""] if one is None else _numbers(one.difference, one.relative, one.interval)
    by = "" if one is None else f" ({name_of(one)})"
    return [*numbers, f"{evidence.verdict}{by}"]


def _numbers(difference: float | None, relative: float | None, interval: tuple[float, float] | None) -> list[str]:
    """Difference and interval as text."""
    share = "" if relative is None else f" ({relative:+.1%})"
    first = "" if difference is None else f"{difference:+.4f}{share}"
    return [first, "" if interval is None else f"{interval[0]:+.4f} to {interval[1]:+.4f}"]


def _figures(rows: Sequence[LogRow]) -> list[Figure]:
    """Gains over naive in per cent."""
    dots: list[dict[str, Any]] = []
    for row in rows:
        one = None if row.naive is None else leading(row.naive)
        if one is not None and one.interval is not None and one.relative is not None and one.other:
            ends = [100 * end / abs(one.other) for end in one.interval]
            dots.append({"name": row.arm, "mean": 100 * one.relative, "low": ends[0], "high": ends[1]})
    return (
        [Figure(dots_figure("against naive", dots, "gain over naive in per cent, with its interval"))]
        if dots
        else []
    )


def _terms(found: LogComparison) -> list[Term]:
    """What every arm is."""
    points = {finding.cell.arm: finding.cell.point for finding in found.findings}
    return [arm_term(arm, point) for arm, point in points.items()]
