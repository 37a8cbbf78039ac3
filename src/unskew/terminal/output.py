"""Results go to standard output, progress and messages to standard error."""

from __future__ import annotations

import json
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from csv import reader
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from unskew.results import Result, plain

if TYPE_CHECKING:
    from rich.console import Console

    from unskew.pages.page import Page

Found = TypeVar("Found")
"""What a command found: a result."""
EVERY = 10.0
"""Seconds between two lines that say that a command is still at work, where no terminal shows a running one."""
_SOON = 2.0  # seconds before a terminal shows it
_CLEAR = "\r\x1b[K"


def messages(*, quiet: bool = False) -> Console | None:
    """Standard error; none for who asked for quiet."""
    from rich.console import Console

    _Work.stop()
    return None if quiet else Console(stderr=True, soft_wrap=False)


def tell(text: str) -> None:
    """A message, in one line."""
    _Work.stop()
    print(text, file=sys.stderr)


def warn(text: str) -> None:
    """A warning, in one line."""
    tell(f"unskew: warning: {' '.join(text.split())}")


def typed() -> str:
    """The command as it was typed."""
    return shlex.join(["unskew", *sys.argv[1:]])


def show_result(result: Found, as_json: bool, page: Callable[[Found], Page], out: Path | None = None) -> None:
    """What a command found, as a page or as JSON; and where it was written, a page or a folder with one."""
    if out is not None:
        tell(f"Open {out if out.suffix == '.html' else out / 'report.html'}.")
    if as_json:
        show_json(result)
        return
    from rich.console import Console

    from unskew.pages.console import print_page

    _Work.stop()
    print_page(page(result), Console(soft_wrap=False))


def show_written(result: object, as_json: bool, page: Page, out: Path | None) -> None:
    """What a command found, and its page, which is written as one file (.html) or into a folder."""
    from unskew.pages.page_files import write_found

    if out is not None:
        write_found(out, page)
    show_result(result, as_json, lambda _: page, out)


def show_facts(facts: Mapping[str, Any] | Result, as_json: bool) -> None:
    """What a command did: one line for each number, or JSON."""
    if as_json:
        show_json(facts)
        return
    _Work.stop()
    for name, value in _each(plain(facts)):
        shown = f"{value:,}" if isinstance(value, int) else value
        shown = ", ".join(map(str, value)) or "none" if isinstance(value, list) else shown
        print(f"{name.replace('_', ' '):<21} {shown}")


def _each(facts: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Each fact under its name, those within another behind the name of that one."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _each(value, f"{within}{name} ")
        else:
            yield f"{within}{name}", value


def show_rows(found: Any, csv: str | None, as_json: bool, says: str) -> None:
    """A result that is a table: as text, as JSON, or as CSV in a file or on standard output; `says` what it is."""
    from unskew.files import write_text

    if csv == "-":
        sys.stdout.write(found.csv_text())
        return
    tell(f"{says}." if csv is None else f"{says}, in {csv}.")
    if csv is not None:
        write_text(Path(csv), found.csv_text())
    if as_json:
        show_json(found)
    elif csv is None:
        heads, *rows = reader(found.csv_text().splitlines())
        lines = [
            heads,
            *([first, *(f"{float(cell):.4f}" if cell else "" for cell in cells)] for first, *cells in rows),
        ]
        wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for first, *cells in lines:
            print("  ".join([first.ljust(wide[0]), *map(str.rjust, cells, wide[1:])]))


def show_json(value: object) -> None:
    """One JSON document."""
    _Work.stop()
    print(json.dumps(plain(value), indent=2, allow_nan=False))  # ASCII: any terminal can show it


@contextmanager
def working(name: str, *, quiet: bool = False) -> Iterator[None]:
    """Say on standard error, now and then, that the command is at work, until it has something to say itself."""
    if not quiet:
        _Work.begin(name)
    try:
        yield
    finally:
        _Work.stop()


class _Work:
    """The command that is at work, and the thread that says so."""

    _thread: threading.Thread | None = None
    _over = threading.Event()

    @classmethod
    def begin(cls, name: str) -> None:
        cls.stop()
        cls._over.clear()
        cls._thread = threading.Thread(target=cls._say, args=(name,), daemon=True)
        cls._thread.start()

    @classmethod
    def stop(cls) -> None:
        thread, cls._thread = cls._thread, None
        if thread is not None:
            cls._over.set()
            thread.join()

    @classmethod
    def _say(cls, name: str) -> None:
        """How long it has taken: a running line on a terminal, else a line every ten seconds."""
        began, shown, terminal = time.monotonic(), False, sys.stderr.isatty()
        while not cls._over.wait(1.0 if shown else _SOON if terminal else EVERY):
            seconds = round(time.monotonic() - began)
            shown = terminal
            text = f"{_CLEAR}{name}: {seconds} s" if terminal else f"unskew: {name}: at work for {seconds} s\n"
            print(text, end="", file=sys.stderr, flush=True)
        if shown:
            print(_CLEAR, end="", file=sys.stderr, flush=True)
