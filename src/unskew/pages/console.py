"""What a person sees in the terminal: a page in letters, and how far a training or a grid has come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import rich.table
import rich.text
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from unskew.pages.page import Page, Table, card_line

if TYPE_CHECKING:
    from unskew.learning.fitting.loop import Progress, Report

EVERY = 10.0
"""Seconds between two lines of progress, where no terminal shows a bar."""
Tell = Callable[[int, int, Sequence[str]], None]
"""Told how many are done, of how many, and which are under way."""


def print_page(page: Page, console: Console) -> None:
    """The page, its answer at the end, where people look; a line of text is never broken."""
    say(console, page.title, style="bold")
    if page.origin:
        say(console, page.origin)
    for section in page.sections:
        lines = [*filter(None, section.text.split("\n\n")), *map(card_line, section.answers), *section.code]
        lines += [line for figure in section.figures for line in figure.lines]
        tables = [table for table in section.tables if table.printed]
        if lines or tables:
            say(console, f"\n{section.heading}", style="bold")
        for line in lines:
            say(console, line)
        for table in tables:
            if table.title:
                say(console, table.title, style="italic")
            console.print(fitting(table, console))
            if table.legend:
                say(console, table.legend)
    for line in page.remarks:
        say(console, f"- {line}")
    if page.lead:
        say(console, f"\n{page.lead}")


def say(console: Console, text: str, *, style: str | None = None) -> None:
    """Text as it is: a long line is not broken, and [brackets] are no markup."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def fitting(table: Table, console: Console) -> rich.table.Table:
    """The table without as many of its `wide` columns as the terminal is too narrow for."""
    room = console.options.update(max_width=100_000)
    for count in range(len(table.wide) + 1):
        shown = _drawn(table.without(table.wide[:count]))
        if Measurement.get(console, room, shown).minimum <= console.width:
            break
    return shown


def _drawn(table: Table) -> rich.table.Table:
    """Text on the left, numbers on the right; headings and text besides the first column may wrap."""
    made, cells, best = rich.table.Table(), table.cells, table.best
    for index, (name, text) in enumerate(zip(table.columns, table.are_text, strict=True)):
        whole = index == 0 or not text
        column = [row[index] for row in cells] if whole else []
        least = max(map(cell_len, [*column, *name.split(), " "]))
        head = "\n".join(wrap(name, least)) if whole else name
        made.add_column(head, justify="left" if text else "right", no_wrap=whole, min_width=least)
    for at, row in enumerate(cells):
        styles = ("bold" if (at, column) in best else "" for column in range(len(row)))
        made.add_row(*map(rich.text.Text, row, styles))
    return made


@contextmanager
def training_bar(name: str, steps: int | None, console: Console | None) -> Iterator[Report | None]:
    """A bar with loss, validation metric and throughput, to be given to `learn(report=)`; none to nobody."""
    with _bar(name, console) as tell:

        def report(progress: Progress) -> None:
            metric = "" if progress.metric is None else f"valid {progress.metric:.4f} "
            loss = "" if math.isnan(progress.loss) else f"loss {progress.loss:.3f} "  # packages tell none
            rate = progress.documents_per_second
            speed = f"{rate / 1000:.0f}k" if rate >= 1000 else f"{rate:.0f}"
            tell(progress.step, steps, f"{metric}{loss}{speed} docs/s")

        yield None if console is None else report


@contextmanager
def grid_bar(console: Console | None) -> Iterator[Tell | None]:
    """A progress bar over all cells, with those under way; none to nobody."""
    with _bar("cells", console) as tell:
        yield None if console is None else lambda done, total, running: tell(done, total, "; ".join(running))


@contextmanager
def _bar(name: str, console: Console | None) -> Iterator[Callable[[int, int | None, str], None]]:
    """How far it is: a bar on a terminal, else a line every ten seconds, in a file or in the log of a server."""
    if console is None:
        yield lambda done, total, note: None
    elif console.is_terminal:
        with _drawn_bar(name, console) as tell:
            yield tell
    else:
        yield Lines(name, lambda line: say(console, line))


class Lines:
    """Progress as lines of text: one every ten seconds, and one at the end of what took that long."""

    def __init__(
        self, name: str, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.write, self.clock = name, write, clock
        self.began = self.told = clock()  # the first line comes after as long as all others

    def __call__(self, done: int, total: int | None, note: str) -> None:
        """Say how far it is, if it is time."""
        now = self.clock()
        last = done == total and self.told > self.began
        if now - self.told < EVERY and not last:
            return
        self.told = now
        of = "" if total is None else f" of {total:,}"
        left = (now - self.began) * (total - done) / done if total is not None and done else 0
        ahead = f", about {left:.0f} s left" if left >= 1 else ""
        more = f"; {note.strip()}" if note.strip() else ""
        self.write(f"unskew: {self.name}: {done:,}{of}, {now - self.began:.0f} s{ahead}{more}")


@contextmanager
def _drawn_bar(name: str, console: Console) -> Iterator[Callable[[int, int | None, str], None]]:
    """A bar that appears with the first progress, so that none stands above the message of a failed check."""
    note_width = max(console.width - 44, 12)  # in a narrow window the note is cut, not the bar
    bar = Bar(
        TextColumn("{task.description:<13}", table_column=rich.table.Column(no_wrap=True)),
        BarColumn(bar_width=6, table_column=rich.table.Column(min_width=6)),
        MofNCompleteColumn(table_column=rich.table.Column(no_wrap=True)),
        TimeRemainingColumn(table_column=rich.table.Column(no_wrap=True)),
        TextColumn(
            "{task.fields[note]}",
            markup=False,
            table_column=rich.table.Column(no_wrap=True, overflow="ellipsis", max_width=note_width),
        ),
        console=console,
    )
    task = bar.add_task(name, total=None, note="")

    def tell(done: int, total: int | None, note: str) -> None:
        bar.update(task, completed=done, total=total, note=note)
        bar.start()

    try:
        yield tell
    finally:
        if bar.live.is_started:
            bar.stop()


def bar_lines(values: Mapping[Any, float], said: Sequence[str], *, width: int = 30, most: int = 20) -> list[str]:
    r"""One line per rank, or per name: a bar as long as its value, and what is said of it.

    >>> print("\n".join(bar_lines({1: 0.2, 2: 0.1}, ["a", "b"], width=4)))
    rank   1 ████ a
    rank   2 ██   b
    """
    highest = max(values.values(), default=0) or 1
    names = [each if isinstance(each, str) else f"rank {each:>3}" for each in values]
    longest = max(map(len, names), default=0)
    lines = [
        f"{name:>{longest}} {'█' * round(value / highest * width):<{width}} {text}"
        for name, value, text in zip(names, values.values(), said, strict=True)
    ]
    return [*lines[:most], f"and {len(lines) - most} positions more"] if len(lines) > most else lines
