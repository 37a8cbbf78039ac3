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
from unskew.pages.page import Answer, Page, Section, Table, Term

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
    above = "".join(
        f"\n<p class='{kind}'>{escape(text)}</p>"
        for kind, text in (("origin", page.origin), ("lead", page.lead))
        if text
    )
    made = f" · <code>{escape(page.command)}</code>" if page.command else ""
    return (
        f"<!doctype html>\n<html lang='en'>\n<head><meta charset='utf-8'><title>{escape(page.title)}</title>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        "<meta name='color-scheme' content='light dark'>\n"
        f"<link rel='icon' href='data:image/svg+xml;base64,{b64encode(_ICON.encode()).decode()}'>\n"
        f"<style>\n{variables()}{_file('page.css')}</style></head>\n"
        f"<body>\n<header><h1>{escape(page.title)}</h1>{above}</header>\n{_contents(sections)}"
        f"<main>\n{body}{_notes(page)}{_glossary(page)}</main>\n<footer>unskew {__version__}{made}</footer>\n"
        f"<script type='module'>\n{_file('page.js')}</script>\n</body></html>\n"
    )


@lru_cache
def _file(name: str) -> str:
    return files("unskew.pages").joinpath(name).read_text(encoding="utf-8")


def _contents(sections: Sequence[tuple[str, Section]]) -> str:
    """Links to the sections, where there are many."""
    if len(sections) < CONTENTS:
        return ""
    links = "".join(f"<li><a href='#{name}'>{escape(section.heading)}</a></li>" for name, section in sections)
    return f"<nav aria-label='Sections'><p>On this page</p><ol>{links}</ol></nav>\n"


def _notes(page: Page) -> str:
    lines = "".join(f"<li>{escape(line)}</li>" for line in page.notes)
    lines += "".join(f"<li class='failed'>Failed: {escape(line)}</li>" for line in page.failed)
    heading = "<h2 id='notes'>Notes</h2>"
    return f"<section aria-labelledby='notes'>{heading}\n<ul>{lines}</ul></section>\n" if lines else ""


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
    from unskew.pages.svg import inline_svg

    for index, figure in enumerate(section.figures):
        spec = figure.spec
        widths = {"wide": WIDE, "narrow": NARROW} if figure.scales else {"wide": None}
        drawn = "".join(
            inline_svg(spec, kind, f"{name}f{index}{kind[0]}", width) for kind, width in widths.items()
        )
        title = spec.get("title", "")
        caption = f"<figcaption>{escape(title)}</figcaption>" if title not in ("", section.heading) else ""
        # what the script makes buttons of
        names = escape(json.dumps(list(figure.series))) if len(figure.series) > 1 else ""
        switches = f" data-series='{names}'" if names else ""
        yield f"<figure{switches}>{caption}<div class='chart'>{drawn}</div></figure>\n"


def html_table(table: Table, terms: Mapping[str, Term] | None = None) -> str:
    """The table, the best of its columns marked, methods explained; a wide one scrolls, its first column stays.

    >>> html_table(Table(("a", "n"), [["<b>", "1"]]))
    "<div class='table'><table><thead><tr><th scope='col' class='text'>a</th><th scope='col'>n</th>..."
    """
    texts, best = table.are_text, table.best
    heads = "".join(
        f"<th scope='col'{_class(text)}>{escape(name)}</th>"
        for name, text in zip(table.columns, texts, strict=True)
    )
    rows = ""
    for at, (row, plain) in enumerate(zip(table.cells, table.rows, strict=True)):
        first, *others = map(escape, row)
        term = (terms or {}).get(plain[0])
        if term is not None:
            first = f"<a class='term' href='#{_place(term.name)}' title='{escape(term.says)}'>{first}</a>"
        cells = "".join(
            f"<td{_class(texts[column], best=(at, column) in best)}>{cell}</td>"
            for column, cell in enumerate(others, start=1)
        )
        rows += f"<tr><th scope='row'{_class(True, best=(at, 0) in best)}>{first}</th>{cells}</tr>\n"
    small = " class='many'" if len(table.columns) > MANY else ""
    label = f" aria-label='{escape(table.title)}'" if table.title else ""
    scrolls = f" tabindex='0' role='region'{label}" if label and len(table.columns) > 2 else ""
    legend = f"<p class='legend'>{escape(table.legend)}</p>" if table.legend else ""
    whole = (
        f"<div class='table'{scrolls}><table{small}{label}><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>{legend}"
    )
    if table.folded:
        return f"<details><summary>{escape(table.title)} ({len(table.rows)} rows)</summary>{whole}</details>"
    return (f"<p class='caption'>{escape(table.title)}</p>" if table.title else "") + whole


def _class(text: bool, *, best: bool = False) -> str:
    """The class of a cell."""
    names = ["text"] * text + ["best"] * best
    return f" class='{' '.join(names)}'" if names else ""
