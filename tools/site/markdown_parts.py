"""Pieces of Markdown that pages are made of."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    r"""The lines of a table, with a blank one after it; none where it has no rows.

    >>> table(["a"], [["b|c"]])
    ['| a |', '|---|', '| b\\|c |', '']
    """
    lines = [f"| {' | '.join(map(cell, row))} |" for row in rows]
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines, ""] if lines else []


def settings(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table whose rows a phone shows below each other."""
    lines = table(head, rows)
    return ['<div class="settings" markdown>', "", *lines, "</div>", ""] if lines else []


def cell(text: str) -> str:
    """A text on one line, whose bars end no cell."""
    return " ".join(text.split()).replace("|", "\\|")


def code(value: object) -> str:
    """A value as TOML and JSON write it, as code; nothing where there is none."""
    return "" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"


def prose(doc: str | None) -> list[str]:
    r"""The lines of a docstring: what it tries out and what it indents is code.

    >>> prose("Add.\n\n>>> 1 + 1\n2")
    ['Add.', '', '```pycon', '>>> 1 + 1', '2', '```', '']
    """
    lines: list[str] = []
    for part in re.split(r"\n{2,}", inspect.cleandoc(doc or "")):
        if part.startswith(">>>"):
            lines += ["```pycon", *part.splitlines(), "```", ""]
        elif ">>>" in part:
            before, _, after = part.partition(">>>")
            lines += [*before.rstrip().splitlines(), "", *prose(f">>>{after}")]
        else:
            lines += [*part.splitlines(), ""]
    return lines


def first(doc: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join(inspect.cleandoc(doc or "").split("\n\n")[0].split())
