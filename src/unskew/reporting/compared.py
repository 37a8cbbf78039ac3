"""A comparison for the eye: a figure of all arms, and a progress bar over the whole grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import altair as alt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column

from unskew.reporting.figures import styled


def arms_figure(title: str, rows: Sequence[Mapping[str, Any]], colours: Mapping[str, str]) -> Any:
    """nDCG@10 of every arm with its spread; rows have name, mean, low, high, mark, and the values of the seeds."""
    names = [row["name"] for row in rows]
    values = [value for row in rows for value in (*row["seeds"], row["low"], row["high"])]
    margin = 0.08 * (max(values) - min(values)) or 0.01
    x = alt.Scale(domain=[max(0.0, min(values) - margin), min(1.0, max(values) + margin)], nice=False)
    plain = [{key: row[key] for key in ("name", "mean", "low", "high", "mark")} for row in rows]
    base = alt.Chart({"values": plain}).encode(
        y=alt.Y("name:N", sort=names, title=None),
        color=alt.Color("name:N", scale=alt.Scale(domain=names, range=[colours[n] for n in names]), legend=None),
        tooltip=[
            alt.Tooltip("name:N"),
            *(alt.Tooltip(f"{key}:Q", format=".4f") for key in ("mean", "low", "high")),
        ],
    )
    axis = alt.Axis(tickCount=6, labelFlush=False)
    dots = base.mark_circle(size=90, opacity=1).encode(
        x=alt.X("mean:Q", title="test nDCG@10, mean ± sd over seeds", scale=x, axis=axis)
    )
    whiskers = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", scale=x), x2="high:Q")
    written = base.transform_calculate(text="format(datum.mean, '.3f') + ' ' + datum.mark")
    labels = written.mark_text(dy=-12, fontSize=12).encode(x="mean:Q", text="text:N")
    points = [{"name": row["name"], "seed": value} for row in rows for value in row["seeds"]]
    seeds = alt.Chart({"values": points}).mark_tick(thickness=1, size=10, opacity=0.6, color="#7b8794")
    ticks = seeds.encode(y=alt.Y("name:N", sort=names, title=None), x=alt.X("seed:Q", scale=x))
    chart = alt.layer(ticks, whiskers, dots, labels)
    return chart.properties(width=380, height=max(110, 36 * len(rows)), title=title)


def beside(charts: Sequence[Any]) -> Any:
    """Charts two in a row, in the house style."""
    return styled(alt.concat(*charts, columns=2, spacing=40).resolve_scale(color="independent"))


@contextmanager
def grid_bar(
    console: Console, *, quiet: bool = False
) -> Iterator[Callable[[int, int, Sequence[str]], None] | None]:
    """A progress bar over all cells, with those under way; to be told done, total and running."""
    if quiet:
        yield None
        return
    columns = (
        TextColumn("cells", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=12, table_column=Column(min_width=6)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
    )
    with Bar(*columns, console=console) as bar:
        task = bar.add_task("cells", total=None, note="")

        def tell(done: int, total: int, running: Sequence[str]) -> None:
            bar.update(task, completed=done, total=total, note="; ".join(running))

        yield tell
