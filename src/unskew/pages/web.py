"""A page as HTML that opens offline: one file, light and dark, from a phone's width to paper.

All that it needs is inside: the style sheet (`page.css`), figures as SVG, and a script (`page.js`) that tells what
names and marks stand for beside the pointer. Without it nothing is missing: names lead to their line below.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape
from importlib.resources import files

from unskew import __version__
from unskew.pages.colours import NAIVE, PAPER, SERIES, variables
from unskew.pages.page import Answer, Figure, Page, Section, Table, Term

MANY = 6
"""Columns past which a table is set in smaller type."""
CONTENTS = 6
"""Sections from which on a page begins with a list of them."""
NARROW = 340
"""Width of a figure on a phone."""
WIDE = 540
"""Width of a figure elsewhere."""
_ICON = (
    "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'>"
    f"<rect width='16' height='16' rx='3' fill='{SERIES[0].light}'/><g fill='{PAPER.light}'>"
    "<rect x='3' y='3' width='3' height='10'/><rect x='7' y='6' width='3' height='7'/>"
    f"<rect x='11' y='9' width='3' height='4' fill='{NAIVE.dark}'/></g></svg>"
)


def html(page: Page) -> str:
    """The whole page, with all that it needs inside."""
    terms = {term.name: term for term in page.terms}
    sections = [(f"s{index}", section) for index, section in enumerate(page.sections, start=1)]
    body = "".join(f"{_section(name, section, terms)}\n" for name, section in sections)
    return (
        f"<!doctype html>\n<html lang='en'>\n<head><meta charset='utf-8'><title>{escape(page.title)}</title>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<meta name='color-scheme' content='light dark'>\n<link rel='icon' href='{_icon()}'>\n"
        f"<style>\n{variables()}{_file('page.css')}</style></head>\n<body>\n{_header(page)}\n{_contents(sections)}"
        f"<main>\n{body}{_notes(page)}{_glossary(page)}</main>\n{_footer(page)}\n"
        f"<script type='module'>\n{_file('page.js')}</script>\n</body></html>\n"
    )


@lru_cache
def _file(name: str) -> str:
    return files("unskew.pages").joinpath(name).read_text(encoding="utf-8")


def _icon() -> str:
    return f"data:image/svg+xml;base64,{b64encode(_ICON.encode()).decode()}"


def _header(page: Page) -> str:
    origin = f"\n<p class='origin'>{escape(page.origin)}</p>" if page.origin else ""
    lead = f"\n<p class='lead'>{escape(page.lead)}</p>" if page.lead else ""
    return f"<header><h1>{escape(page.title)}</h1>{origin}{lead}</header>"


def _contents(sections: Sequence[tuple[str, Section]]) -> str:
    """Links to the sections, where there are many."""
    if len(sections) < CONTENTS:
        return ""
    links = "".join(f"<li><a href='#{name}'>{escape(section.heading)}</a></li>" for name, section in sections)
    return f"<nav aria-label='Sections'><p>On this page</p><ol>{links}</ol></nav>\n"


def _footer(page: Page) -> str:
    made = f" · <code>{escape(page.command)}</code>" if page.command else ""
    return f"<footer>unskew {__version__}{made}</footer>"


def _notes(page: Page) -> str:
    lines = "".join(f"<li>{escape(line)}</li>" for line in page.notes)
    lines += "".join(f"<li class='failed'>Failed: {escape(line)}</li>" for line in page.failed)
    return (
        f"<section aria-labelledby='notes'><h2 id='notes'>Notes</h2>\n<ul>{lines}</ul></section>\n"
        if lines
        else ""
    )


def _glossary(page: Page) -> str:
    """A line for each method with its paper, or for each word."""
    if not page.terms:
        return ""
    lines = "".join(
        f"<dt id='{_place(term.name)}'>{escape(term.name)}</dt><dd>{escape(term.says)}"
        + (f"<span>{escape(term.paper)}</span>" if term.paper else "")
        + "</dd>\n"
        for term in page.glossary
    )
    heading = f"<h2 id='terms'>{escape(page.terms_heading)}</h2>"
    return f"<section aria-labelledby='terms'>{heading}\n<dl>{lines}</dl></section>\n"


def _place(name: str) -> str:
    """Where a method is explained."""
    return "m-" + "".join(letter if letter.isalnum() else f"-{ord(letter)}-" for letter in name)


def _section(name: str, section: Section, terms: Mapping[str, Term]) -> str:
    body = "".join(f"<p>{escape(text)}</p>" for text in section.text.split("\n\n") if text)
    cards = "".join(map(_card, section.answers))
    body += f"<div class='cards'>{cards}</div>" if cards else ""
    figures = "".join(_figures(name, section))
    body += f"<div class='charts'>{figures}</div>" if figures else ""
    body += "".join(html_table(table, terms) for table in section.tables)
    body += f"<pre tabindex='0'>{escape(chr(10).join(section.code))}</pre>" if section.code else ""
    return f"<section aria-labelledby='{name}'><h2 id='{name}'>{escape(section.heading)}</h2>\n{body}</section>"


def _card(card: Answer) -> str:
    """A finding: its state in words, by colour and by a sign."""
    said = "".join(
        f"<p{kind}>{escape(text)}</p>"
        for kind, text in (("", card.text), (" class='advice'", card.advice))
        if text
    )
    return (
        f"<article class='card {card.state.replace(' ', '-')}'><h3>{escape(card.name)}</h3>"
        f"<p class='state'>{escape(card.state)}</p>{said}</article>\n"
    )


def _figures(name: str, section: Section) -> Iterator[str]:
    """Each figure in the widths that it is shown in, of which a style sheet chooses one."""
    from unskew.pages.figures import caption_of, inline_svg

    for index, figure in enumerate(section.figures):
        widths = {"wide": WIDE, "narrow": NARROW} if figure.scales else {"wide": None}
        drawn = "".join(
            inline_svg(figure.chart, kind, f"{name}f{index}{kind[0]}", width) for kind, width in widths.items()
        )
        title = caption_of(figure.chart)
        caption = f"<figcaption>{escape(title)}</figcaption>" if title not in ("", section.heading) else ""
        yield f"<figure{_switches(figure)}>{caption}<div class='chart'>{drawn}</div></figure>\n"


def _switches(figure: Figure) -> str:
    """What the script makes buttons of."""
    return f" data-series='{escape(json.dumps(list(figure.series)))}'" if len(figure.series) > 1 else ""


def html_table(table: Table, terms: Mapping[str, Term] | None = None) -> str:
    """The table, the best of its columns marked, methods explained; a wide one scrolls, its first column stays.

    >>> html_table(Table(("a", "n"), [["<b>", "1"]]))
    "<div class='table'><table><thead><tr><th scope='col' class='text'>a</th><th scope='col'>n</th>..."
    """
    columns = range(len(table.columns))
    heads = "".join(
        f"<th scope='col'{_kind(table, column)}>{escape(table.columns[column])}</th>" for column in columns
    )
    rows = "".join(
        f"<tr>{''.join(_cell(table, row, column, terms or {}) for column in columns)}</tr>\n"
        for row in range(len(table.rows))
    )
    small = " class='many'" if len(table.columns) > MANY else ""
    label = f" aria-label='{escape(table.title)}'" if table.title else ""
    scrolls = f" tabindex='0' role='region'{label}" if label and len(table.columns) > 2 else ""
    caption = f"<p class='caption'>{escape(table.title)}</p>" if table.title else ""
    legend = f"<p class='legend'>{escape(table.legend)}</p>" if table.legend else ""
    whole = (
        f"<div class='table'{scrolls}><table{small}{label}><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{legend}"
    )
    if not table.folded:
        return f"{caption}{whole}"
    return f"<details><summary>{escape(table.title)} ({len(table.rows)} rows)</summary>{whole}</details>"


def _kind(table: Table, column: int, *, best: bool = False) -> str:
    """The class of a cell."""
    names = ["text"] * table.is_text(column) + ["best"] * best
    return f" class='{' '.join(names)}'" if names else ""


def _cell(table: Table, row: int, column: int, terms: Mapping[str, Term]) -> str:
    text = escape(table.cell(row, column))
    term = terms.get(table.rows[row][column]) if column == 0 else None
    if term is not None:
        text = f"<a class='term' href='#{_place(term.name)}' title='{escape(term.says)}'>{text}</a>"
    tag, scope = ("th", " scope='row'") if column == 0 else ("td", "")
    return f"<{tag}{scope}{_kind(table, column, best=table.stands_out(row, column))}>{text}</{tag}>"
