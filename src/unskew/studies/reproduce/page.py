"""What a reproduction shows: sections of tables and charts, written as Markdown, HTML, SVG and Parquet."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from unskew import __version__
from unskew.clicks.lists.files import complete_file
from unskew.reporting.compared import beside
from unskew.reporting.console import table
from unskew.reporting.figures import chart_html, styled, write_svg
from unskew.reporting.page import html_table, write_page

FILES = ("table.md", "report.html", "figure.svg", "numbers.parquet")
_TEXTS = ("data", "panel", "behaviour", "method", "metric", "paper_data", "status")


@dataclass(frozen=True)
class Shown:
    """A table."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    terminal: bool = True
    """Whether it is printed; some are too wide."""

    @classmethod
    def without_empty(cls, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Self:
        """The table without the columns that are empty in every row."""
        kept = [index for index in range(len(columns)) if any(row[index] for row in rows)]
        return cls(title, [columns[i] for i in kept], [[row[i] for i in kept] for row in rows])


@dataclass(frozen=True)
class Section:
    """A heading with text, charts and tables."""

    heading: str
    text: str
    tables: Sequence[Shown] = ()
    charts: Sequence[Any] = ()


@dataclass(frozen=True)
class Page:
    """All of it."""

    out: Path
    title: str
    lead: str
    about: Sequence[str]
    """Paragraphs before the sections: what the paper says, and what must be known first."""
    sections: Sequence[Section]
    notes: Sequence[str] = ()
    records: Sequence[Mapping[str, Any]] = ()
    """Rows of numbers.parquet."""
    failed: Sequence[str] = field(default_factory=tuple)
    """What has no result, and why."""


def write(page: Page) -> None:
    """Write everything, each file whole or not at all."""
    with complete_file(page.out / "numbers.parquet") as path:
        pq.write_table(numbers_table(page.records), path)
    with complete_file(page.out / "table.md") as path:
        path.write_text(markdown(page), encoding="utf-8")
    charts = [chart for section in page.sections for chart in section.charts]
    if charts:
        with complete_file(page.out / "figure.svg") as path:
            write_svg(beside(charts), path)
    write_html(page)


def numbers_table(records: Sequence[Mapping[str, Any]]) -> pa.Table:
    """One row per number, with the paper's beside it."""
    names = list(dict.fromkeys(itertools.chain.from_iterable(records)))
    types = dict.fromkeys(_TEXTS, pa.string()) | {"seeds": pa.int64(), "comparable": pa.bool_()}
    schema = pa.schema([(name, types.get(name, pa.float64())) for name in names])
    return pa.Table.from_pylist([dict(record) for record in records], schema=schema)


def markdown(page: Page) -> str:
    """The tables as Markdown."""
    parts = [f"# {page.title}", page.lead, *page.about]
    for section in page.sections:
        parts += [f"## {section.heading}", section.text]
        for shown in section.tables:
            head = [shown.columns, ["---", *["---:"] * (len(shown.columns) - 2), "---"]]
            lines = "\n".join(f"| {' | '.join(line)} |" for line in [*head, *shown.rows])
            parts += [f"**{shown.title}**", lines]
    ends = [*page.notes, *(f"Failed: {line}" for line in page.failed)]
    parts += ["\n".join(f"- {line}" for line in ends)] if ends else []
    return "\n\n".join(part for part in parts if part) + "\n"


def write_html(page: Page) -> None:
    """The page; opens offline."""
    ids = (f"chart{number}" for number in itertools.count())
    sections = [("The paper", "".join(f"<p>{escape(text)}</p>" for text in page.about))]
    for section in page.sections:
        drawn = "".join(chart_html(styled(chart), next(ids)) for chart in section.charts)
        body = f"<p>{escape(section.text)}</p>" if section.text else ""
        body += f"<div class='charts'>{drawn}</div>" if drawn else ""
        for shown in section.tables:
            cells = html_table(shown.columns, shown.rows)
            body += f"<p><b>{escape(shown.title)}</b></p><div style='font-size: .82em'>{cells}</div>"
        sections.append((section.heading, body))
    lines = [*page.notes, *(f"Failed: {line}" for line in page.failed)]
    sections.append(("Notes", f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"))
    write_page(page.out / "report.html", page.title, page.lead, sections, footer=f"unskew {__version__}")


def print_page(console: Console, page: Page) -> None:
    """The same for the terminal; a line of text is never broken."""

    def line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    line(page.title)
    for text in page.about:
        line(text)
    for section in page.sections:
        line(f"\n{section.heading}")
        if section.text:
            line(section.text)
        for shown in section.tables:
            if shown.terminal:
                console.print(table(shown.title, shown.columns, shown.rows))
    for text in (*page.notes, *(f"Failed: {text}" for text in page.failed)):
        line(f"- {text}")
    line(f"\n{page.lead}")
    line(f"Open {page.out / 'report.html'}; all numbers are in {page.out / 'numbers.parquet'}.")
