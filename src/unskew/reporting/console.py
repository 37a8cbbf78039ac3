"""What a person sees in the terminal: progress of a training, tables, and bars."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column, Table

from unskew.learning.fitting.loop import Progress, Report


@contextmanager
def training_bar(name: str, steps: int, console: Console, *, quiet: bool = False) -> Iterator[Report | None]:
    """A progress bar with loss, validation metric and throughput, to be given to `learn(report=)`."""
    if quiet:
        yield None
        return
    note_width = max(console.width - 44, 12)  # in a narrow window the note is cut, not the bar
    columns = (
        TextColumn("{task.description:<13}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=6, table_column=Column(min_width=6)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, max_width=note_width)),
    )
    with Bar(*columns, console=console) as bar:
        task = bar.add_task(name, total=steps, note="")

        def report(progress: Progress) -> None:
            metric = "" if progress.metric is None else f"valid {progress.metric:.4f} "
            loss = "" if math.isnan(progress.loss) else f"loss {progress.loss:.3f} "  # packages tell none
            speed = f"{progress.documents_per_second / 1000:.0f}k docs/s"
            bar.update(task, completed=progress.step, note=f"{metric}{loss}{speed}")

        yield report


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> Table:
    """A table whose first and last columns are text and whose others are numbers; the last may wrap."""
    made = Table(title=title, title_justify="left", caption=caption or None, caption_justify="left")
    last = len(columns) - 1
    for index, name in enumerate(columns):
        made.add_column(name, justify="left" if index in (0, last) else "right", no_wrap=index < last)
    for row in rows:
        made.add_row(*row)
    return made


def curve_lines(true: Sequence[float], learned: Mapping[str, Sequence[float]], *, width: int = 40) -> list[str]:
    r"""True examination as bars, one line per rank, with the learned values marked by their first letter.

    >>> print("\n".join(curve_lines([1.0, 0.5], {"dla": [1.0, 0.6]}, width=10)))
    rank  1 ██████████d  true 1.00  dla 1.00
    rank  2 █████ d      true 0.50  dla 0.60
    """
    lines = []
    for rank, value in enumerate(true):
        cells = ["█"] * round(value * width)
        cells += [" "] * (width + 1 - len(cells))
        for name, values in learned.items():
            if rank < len(values):
                cells[min(round(values[rank] * width), width)] = name[0]
        numbers = "  ".join(
            f"{name} {values[rank]:.2f}"
            for name, values in {"true": true, **learned}.items()
            if rank < len(values)
        )
        lines.append(f"rank {rank + 1:2d} {''.join(cells)}  {numbers}")
    return lines


def print_metrics(console: Console, metrics: Mapping[str, Any]) -> None:
    """The metrics of a run that has just ended."""
    validation = metrics["validation"]
    if validation["best"] is not None:
        by_rank = {"labels": "nDCG@10", "nDCG of clicks": "nDCG@10 of held-out clicks"}
        what = by_rank.get(validation["on"], "log-likelihood of a held-out click")
        _line(console, f"validation: {what} {validation['best']:.4f} at step {validation['step']}")
    if metrics.get("propensity"):
        curve = " ".join(f"{value:.3f}" for value in metrics["propensity"][:12])
        _line(console, f"examination relative to rank 1: {curve}")
    if "test" in metrics:
        print_ranking(console, metrics["test"])


def print_ranking(console: Console, report: Mapping[str, Any]) -> None:
    """Ranking metrics, and how queries without a relevant document were counted."""
    means = report["means"]
    _line(console, "  ".join(f"{name} {_number(value)}" for name, value in means.items()))
    _line(
        console,
        f"{report['queries']} queries, {report['without_relevant']} of them without a relevant document "
        f"({report['empty']})",
    )


def print_measures(console: Console, result: Mapping[str, Any]) -> None:
    """What `unskew measure` found."""
    print_ranking(console, result["ranking"])
    for name, other in result.get("against", {}).get("metrics", {}).items():
        low, high = other["interval"]
        _line(
            console,
            f"{name}: {_number(other['difference'], sign=True)} against {result['against']['run']}, "
            f"95 % interval [{_number(low, sign=True)}, {_number(high, sign=True)}], {_p_value(other['p'])}",
        )
    for name, value in result.get("clicks", {}).items():
        shown = " ".join(_number(v) for v in value) if isinstance(value, list) else _number(value)
        _line(console, f"{name}: {shown}")


def _line(console: Console, text: str) -> None:
    """Text as it is: a long line is not broken, and [brackets] are no markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _p_value(p: float | None) -> str:
    return "p < 0.0001" if p is not None and p < 0.0001 else f"p = {_number(p)}"


def _number(value: float | None, *, sign: bool = False) -> str:
    return "n/a" if value is None else f"{value:+.4f}" if sign else f"{value:.4f}"
