"""Results go to standard output, progress and messages to standard error."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from unskew.reporting.page import Page


def results() -> Console:
    """Standard output."""
    from rich.console import Console

    return Console(soft_wrap=False)


def messages(*, quiet: bool = False) -> Console | None:
    """Standard error; none for who asked for quiet."""
    from rich.console import Console

    return None if quiet else Console(stderr=True, soft_wrap=False)


def tell(text: str) -> None:
    """A message, in one line."""
    import sys

    print(text, file=sys.stderr)


def show(page: Page, out: Path | None = None, numbers: str = "") -> None:
    """The page, and where it was written."""
    from unskew.reporting.console import print_page, say

    print_page(page, results())
    if out is not None:
        say(results(), f"Open {out / 'report.html'}; all numbers are in {out / numbers}.")


def show_result(result: Mapping[str, Any], as_json: bool, page: Callable[[Mapping[str, Any]], Page]) -> None:
    """What a command found: as a page, or as JSON."""
    if as_json:
        print(json.dumps(result, indent=2))
    else:
        show(page(result))


def show_facts(facts: Mapping[str, Any], as_json: bool) -> None:
    """What a command did: one line for each number, or JSON."""
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    for key, value in facts.items():
        each = value.items() if isinstance(value, dict) else [("", value)]
        for name, number in each:
            shown = f"{number:,}" if isinstance(number, int) else number
            print(f"{f'{key} {name}'.strip():<22}{shown}")
