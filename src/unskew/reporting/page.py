"""One HTML file that opens offline: text, tables and interactive charts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from unskew.reporting.figures import chart_scripts

_STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #1f2933; max-width: 62rem; margin: 2.5rem auto }
body { padding: 0 1.2rem }
h1 { font-size: 1.7rem; margin-bottom: .3rem }
h2 { font-size: 1.15rem; margin-top: 2.2rem }
p.lead { font-size: 1.1rem; color: #3e4c59 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .35rem .9rem; border-bottom: 1px solid #e4e7eb; text-align: right }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left }
td:not(:last-child) { white-space: nowrap }
th { color: #52606d; font-weight: 600 }
tr.best td { font-weight: 600 }
.charts { display: flex; flex-wrap: wrap; gap: 1rem }
.chart, .table { overflow-x: auto; max-width: 100% }
code, pre { background: #f5f7fa; border-radius: 4px; padding: .1rem .35rem; font-size: .92em }
pre { padding: .8rem 1rem; overflow-x: auto }
footer { margin-top: 3rem; color: #7b8794; font-size: .88rem }
"""


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, best: str | None = None) -> str:
    """A table; the row whose first cell is `best` stands out. First and last columns are text, others numbers.

    >>> html_table(["a"], [["<b>"]])
    "<div class='table'><table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table></div>"
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        f"<tr{' class=best' if row[0] == best else ''}>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        for row in rows
    )
    return f"<div class='table'><table><tr>{head}</tr>{body}</table></div>"


def write_page(
    path: Path, title: str, lead: str, sections: Sequence[tuple[str, str]], *, footer: str = ""
) -> None:
    """Write a page of (heading, HTML) sections, whole or not at all."""
    parts = "".join(f"<h2>{escape(heading)}</h2>\n{content}\n" for heading, content in sections)
    page = (
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>\n"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'><style>{_STYLE}</style>\n"
        f"{chart_scripts()}</head>\n<body><h1>{escape(title)}</h1><p class='lead'>{escape(lead)}</p>\n"
        f"{parts}<footer>{escape(footer)}</footer></body></html>\n"
    )
    partial = path.with_name(path.name + ".partial")
    partial.write_text(page, encoding="utf-8")
    os.replace(partial, path)
