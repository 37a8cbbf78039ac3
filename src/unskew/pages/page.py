"""A page: title, where its numbers come from, answer, sections of text, tables and figures; and as Markdown.

Who reports describes content; how it looks is decided here, in `web` for HTML and in `console` for the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unskew import __version__
from unskew.files import complete_file, write_json, write_text
from unskew.results import Result, plain

PAGE_FILES = ("table.md", "report.html", "figure.svg", "page.json")
"""What `write_page` writes."""


@dataclass(frozen=True)
class Table(Result):
    """Cells of text and of numbers; the first column names the row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    text: Sequence[str] = ()
    """Columns of text besides the first; the others hold numbers and stand flush right."""
    wide: Sequence[str] = ()
    """Columns that a narrow terminal does without, the first of them first."""
    printed: bool = True
    """Whether a terminal shows it; a table that none is wide enough for is in the files alone."""
    marks: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Signs before the cells of these rows and columns, which stand out where the sign is `BEST`."""
    legend: str = ""
    """What stands below: what the signs mean."""
    folded: bool = False
    """Whether a page on a screen shows it only when asked; on paper it is all there."""
    untold = ("marks",)

    def to_dict(self) -> dict[str, Any]:
        """The table as JSON has it, marks of cells as [row, column, sign]."""
        return super().to_dict() | {"marks": [[*cell, sign] for cell, sign in self.marks.items()]}

    @classmethod
    def of(cls, records: Iterable[Mapping[str, str]], *more: Any, **says: Any) -> Table:
        """Rows whose cells stand under the names of their columns; what else a table has comes behind.

        >>> Table.of([{"rank": "1", "clicks": "9"}, {"rank": "2", "clicks": "4"}], "clicks").columns
        ('rank', 'clicks')
        """
        rows = list(records)
        return cls(tuple(rows[0]) if rows else (), [list(row.values()) for row in rows], *more, **says)

    @property
    def are_text(self) -> list[bool]:
        """Whether each column holds text."""
        return [at == 0 or name in self.text for at, name in enumerate(self.columns)]

    @property
    def cells(self) -> list[list[str]]:
        """What each cell says, its sign before it."""
        return [
            [f"{self.marks.get((at, column), '')} {text}".strip() for column, text in enumerate(row)]
            for at, row in enumerate(self.rows)
        ]

    @property
    def best(self) -> set[tuple[int, int]]:
        """The cells that hold the best of their column."""
        return {cell for cell, sign in self.marks.items() if sign == BEST}

    def where(self, kept: Callable[[int], bool]) -> Table:
        """The columns whose index is kept."""
        indices = [index for index in range(len(self.columns)) if kept(index)]
        rows = [[row[index] for index in indices] for row in self.rows]
        marks = {
            (row, indices.index(column)): sign for (row, column), sign in self.marks.items() if column in indices
        }
        return replace(self, columns=[self.columns[index] for index in indices], rows=rows, marks=marks)

    def without_empty(self, *, but: int = 0) -> Table:
        """Without the columns that are empty in every row, `but` the first ones."""
        return self.where(lambda index: index < but or any(row[index] for row in self.rows))

    def without(self, names: Sequence[str]) -> Table:
        """Without the columns of these names."""
        return self.where(lambda index: self.columns[index] not in names)


BEST = "★"
"""The sign of the best of a column."""


@dataclass(frozen=True)
class Figure(Result):
    """A chart with title and description, and lines that say the same where there are only letters."""

    chart: Any
    """Of Altair, or as Vega-Lite has it in JSON."""
    lines: Sequence[str] = ()
    scales: bool = True
    """Whether it may be drawn in another width; one whose angles matter is made larger and smaller as a whole."""
    series: Sequence[str] = ()
    """Names that a reader may switch off; what their marks say begins with the name and a comma."""
    untold = ("chart",)

    def to_dict(self) -> dict[str, Any]:
        """The figure as JSON has it, its chart as Vega-Lite."""
        return super().to_dict() | {"chart": plain(self.spec)}

    @property
    def spec(self) -> dict[str, Any]:
        """The chart as Vega-Lite has it, without the style that it gets where it is drawn."""
        told = self.chart if isinstance(self.chart, dict) else self.chart.to_dict(validate=False)
        return {key: value for key, value in told.items() if key != "config"}


@dataclass(frozen=True)
class Answer:
    """A finding for those who read nothing else: what, whether, why and what to do."""

    name: str
    state: str
    """present, absent or cannot tell."""
    text: str = ""
    advice: str = ""


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
    answers: Sequence[Answer] = ()


@dataclass(frozen=True)
class Term:
    """A name that tables and figures use, and what it means."""

    name: str
    says: str
    paper: str = ""


@dataclass(frozen=True)
class Page(Result):
    """All that somebody has to report."""

    title: str
    lead: str = ""
    """The answer, in a sentence or two."""
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()
    """What a reader should know besides."""
    failed: Sequence[str] = ()
    """What has no result, and why."""
    origin: str = ""
    """What was simulated and what was real, in a sentence: the first line."""
    terms: Sequence[Term] = ()
    """The methods that the page names, or its words."""
    terms_heading: str = "Methods on this page"
    command: str = ""
    """What makes the page again."""

    @property
    def figures(self) -> list[Figure]:
        """Every figure, in order."""
        return [figure for section in self.sections for figure in section.figures]

    @property
    def glossary(self) -> list[Term]:
        """The terms, a paper only with the first of several in a row."""
        before = ["", *(term.paper for term in self.terms)]
        return [
            replace(term, paper="" if term.paper == last else term.paper)
            for term, last in zip(self.terms, before, strict=False)
        ]

    @property
    def remarks(self) -> list[str]:
        """Notes, and a line for each thing that failed."""
        return [*self.notes, *(f"Failed: {line}" for line in self.failed)]


WORDS_HEADING = "Words on this page"


def write_page(page: Page, out: Path) -> None:
    """Write table.md, page.json, report.html and, where there are charts, figure.svg, each whole or not at all."""
    write_text(out / "table.md", markdown(page))
    write_drawn(page, out)


def write_drawn(page: Page, out: Path) -> None:
    """The files that have charts in them, which take longest."""
    from unskew.pages.page_files import SAVED
    from unskew.pages.svg import write_svg
    from unskew.pages.web import html

    write_text(out / "report.html", html(page))
    write_json(out / SAVED, page)
    if page.figures:
        with complete_file(out / "figure.svg") as path:
            write_svg([figure.spec for figure in page.figures], path)


def markdown(page: Page) -> str:
    """The page without its charts."""
    parts = [f"# {page.title}", page.origin, page.lead]
    for section in page.sections:
        said = section.text or section.tables or section.code or section.answers
        parts += [f"## {section.heading}", section.text] if said else []
        parts += ["\n".join(f"- {card_line(card)}" for card in section.answers)]
        for table in section.tables:
            parts += [f"**{table.title}**" if table.title else "", markdown_table(table), table.legend]
        parts += ["\n".join(["```", *section.code, "```"])] if section.code else []
    parts += ["\n".join(f"- {line}" for line in page.remarks)]
    if page.terms:
        terms = [f"- **{term.name}**: {term.says} {term.paper}".rstrip() for term in page.glossary]
        parts += [f"## {page.terms_heading}", "\n".join(terms)]
    if page.command:
        parts += [f"Made by `{page.command}` with unskew {__version__}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def card_line(card: Answer) -> str:
    """A card in one line.

    >>> card_line(Answer("trust bias", "absent", "One curve fits.", "Nothing to do."))
    'trust bias: absent. One curve fits. Nothing to do.'
    """
    return f"{card.name}: {' '.join(filter(None, (f'{card.state}.', card.text, card.advice)))}"


def markdown_table(table: Table) -> str:
    r"""The table in Markdown, numbers flush right, the best of a column in bold.

    >>> print(markdown_table(Table(("a", "n"), [["x|y", "1"], ["z", "2"]], marks={(1, 1): BEST})))
    | a | n |
    | --- | ---: |
    | x\|y | 1 |
    | z | **★ 2** |
    """
    rule = ["---" if text else "---:" for text in table.are_text]
    rows = table.cells
    for row, column in table.best:
        rows[row][column] = f"**{rows[row][column]}**"
    lines = ([cell.replace("|", "\\|") for cell in line] for line in (table.columns, rule, *rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
