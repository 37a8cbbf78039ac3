"""A page: title, answer, sections of text, tables and figures; as Markdown, and as HTML that opens offline.

Who reports describes content; how it looks is decided here and, for the terminal, in `console`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from unskew import __version__
from unskew.disk import complete_file, write_text

PAGE_FILES = ("table.md", "report.html", "figure.svg")
"""What `write_page` writes."""
_MANY = 6  # columns past which a table is set in smaller type
_STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #1f2933; max-width: 68rem; margin: 2.5rem auto }
body { padding: 0 1.2rem }
h1 { font-size: 1.7rem; line-height: 1.25; margin-bottom: .3rem }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; border-top: 1px solid #e4e7eb; padding-top: 1.2rem }
p.lead { font-size: 1.1rem; color: #3e4c59 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .4rem 0 1.2rem }
table.many { font-size: .84em }
caption { text-align: left; font-weight: 600; padding: .3rem 0 }
th, td { padding: .35rem .8rem .35rem 0; border-bottom: 1px solid #e4e7eb; text-align: right; white-space: nowrap }
th.text, td.text { text-align: left }
td.text:not(:first-child) { white-space: normal; min-width: 8rem }
th { color: #52606d; font-weight: 600; vertical-align: bottom; white-space: normal }
tr.best td { font-weight: 600; background: #f0f6ff }
.charts { display: flex; flex-wrap: wrap; gap: 1rem }
.chart, .table { overflow-x: auto; max-width: 100% }
code, pre { background: #f5f7fa; border-radius: 4px; padding: .1rem .35rem; font-size: .92em }
pre { padding: .8rem 1rem; overflow-x: auto }
.failed { color: #b42318 }
footer { margin-top: 3rem; color: #7b8794; font-size: .88rem }
@media (max-width: 40rem) { body { margin-top: 1rem; font-size: 15px } h1 { font-size: 1.35rem } }
"""


@dataclass(frozen=True)
class Table:
    """Cells of text and of numbers; the first column names the row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    text: Sequence[str] = ()
    """Columns of text besides the first; the others hold numbers and stand flush right."""
    best: str | None = None
    """First cell of the row that stands out."""
    wide: Sequence[str] = ()
    """Columns that a narrow terminal does without, the first of them first."""
    printed: bool = True
    """Whether a terminal shows it; a table that none is wide enough for is in the files alone."""

    def is_text(self, column: int) -> bool:
        """Whether this column holds text."""
        return column == 0 or self.columns[column] in self.text

    def where(self, kept: Callable[[int], bool]) -> Table:
        """The columns whose index is kept."""
        indices = [index for index in range(len(self.columns)) if kept(index)]
        rows = [[row[index] for index in indices] for row in self.rows]
        return replace(self, columns=[self.columns[index] for index in indices], rows=rows)

    def without_empty(self, *, but: int = 0) -> Table:
        """Without the columns that are empty in every row, `but` the first ones."""
        return self.where(lambda index: index < but or any(row[index] for row in self.rows))

    def without(self, names: Sequence[str]) -> Table:
        """Without the columns of these names."""
        return self.where(lambda index: self.columns[index] not in names)


@dataclass(frozen=True)
class Figure:
    """A Vega-Lite chart, and lines that say the same where there are only letters."""

    chart: Any
    lines: Sequence[str] = ()


@dataclass(frozen=True)
class Section:
    """A heading with text, figures and tables."""

    heading: str
    text: str = ""
    """Paragraphs, an empty line between them."""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    code: Sequence[str] = ()
    """Lines to be shown as they are: a command, bars of letters."""


@dataclass(frozen=True)
class Page:
    """All that somebody has to report."""

    title: str
    lead: str = ""
    """The answer, in a sentence or two."""
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    """What a reader should know besides."""
    failed: Sequence[str] = ()
    """What has no result, and why."""
    footer: str = ""

    @property
    def charts(self) -> list[Any]:
        """Every chart, in order."""
        return [figure.chart for section in self.sections for figure in section.figures]

    @property
    def remarks(self) -> list[str]:
        """Notes, and a line for each thing that failed."""
        return [*self.notes, *(f"Failed: {line}" for line in self.failed)]


def write_page(page: Page, out: Path) -> None:
    """Write table.md, report.html and, where there are charts, figure.svg, each whole or not at all."""
    write_text(out / "table.md", markdown(page))
    write_drawn(page, out)


def write_drawn(page: Page, out: Path) -> None:
    """The files that have charts in them, which take longest."""
    from unskew.reporting.figures import beside, write_svg

    write_text(out / "report.html", html(page))
    if page.charts:
        with complete_file(out / "figure.svg") as path:
            write_svg(beside(page.charts), path)


def markdown(page: Page) -> str:
    """The page without its charts."""
    parts = [f"# {page.title}", page.lead]
    for section in page.sections:
        parts += [f"## {section.heading}", section.text]
        for table in section.tables:
            parts += [f"**{table.title}**" if table.title else "", markdown_table(table)]
        parts += ["\n".join(["```", *section.code, "```"])] if section.code else []
    parts += ["\n".join(f"- {line}" for line in page.remarks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_table(table: Table) -> str:
    r"""The table in Markdown, numbers flush right.

    >>> print(markdown_table(Table(("a", "n"), [["x|y", "1"]])))
    | a | n |
    | --- | ---: |
    | x\|y | 1 |
    """
    rule = ["---" if table.is_text(index) else "---:" for index in range(len(table.columns))]
    lines = ([cell.replace("|", "\\|") for cell in line] for line in (table.columns, rule, *table.rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def html(page: Page) -> str:
    """The whole page, with all that it needs inside."""
    from unskew.reporting.figures import chart_scripts

    remarks = "".join(f"<li>{escape(line)}</li>" for line in page.notes)
    remarks += "".join(f"<li class='failed'>Failed: {escape(line)}</li>" for line in page.failed)
    parts = [*_sections(page), f"<h2>Notes</h2>\n<ul>{remarks}</ul>" if remarks else ""]
    footer = " · ".join(part for part in (page.footer, f"unskew {__version__}") if part)
    return (
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{escape(page.title)}</title>\n"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'><style>{_STYLE}</style>\n"
        f"{chart_scripts() if page.charts else ''}</head>\n<body><h1>{escape(page.title)}</h1>"
        f"<p class='lead'>{escape(page.lead)}</p>\n{''.join(parts)}\n"
        f"<footer>{escape(footer)}</footer></body></html>\n"
    )


def _sections(page: Page) -> Iterator[str]:
    from unskew.reporting.figures import chart_html, styled

    drawn = 0
    for section in page.sections:
        charts = ""
        for figure in section.figures:
            charts += chart_html(styled(figure.chart), f"chart{drawn}")
            drawn += 1
        body = "".join(f"<p>{escape(text)}</p>" for text in section.text.split("\n\n") if text)
        body += f"<div class='charts'>{charts}</div>" if charts else ""
        body += "".join(map(html_table, section.tables))
        body += f"<pre>{escape(chr(10).join(section.code))}</pre>" if section.code else ""
        yield f"<h2>{escape(section.heading)}</h2>\n{body}\n"


def html_table(table: Table) -> str:
    """The table, its best row marked; a wide one scrolls.

    >>> html_table(Table(("a", "n"), [["<b>", "1"]]))
    "<div class='table'><table><tr><th class=text>a</th><th>n</th></tr><tr><td class=text>&lt;b&gt;</td>..."
    """
    kinds = [" class=text" if table.is_text(index) else "" for index in range(len(table.columns))]

    def line(tag: str, cells: Sequence[str], kind: str = "") -> str:
        inside = (f"<{tag}{k}>{escape(cell)}</{tag}>" for k, cell in zip(kinds, cells, strict=True))
        return f"<tr{kind}>{''.join(inside)}</tr>"

    title = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    body = (line("td", row, " class=best" if row[0] == table.best else "") for row in table.rows)
    small = " class=many" if len(table.columns) > _MANY else ""
    return f"<div class='table'><table{small}>{title}{line('th', table.columns)}{''.join(body)}</table></div>"
