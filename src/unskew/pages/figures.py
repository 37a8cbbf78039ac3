"""Charts of Vega-Lite: values with their spread, curves by rank, heat maps.

A chart has a `title`, which a page shows above it, and a `description`, which is read to those who cannot see it.
Marks say what they stand for in a `description` of their own.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from unskew.pages.colours import COOL, INK, MUTED, NAIVE, SERIES, TRUTH, ordered
from unskew.pages.console import bar_lines
from unskew.pages.numbers import said, said_each, spread_each
from unskew.pages.page import Figure
from unskew.pages.svg import WIDTH

_KNOWN = {"naive": NAIVE} | dict.fromkeys(("labeled", "random", "logging"), MUTED)
Point = tuple[int | str, float, float | None, float | None]
"""A rank, the value there, and the ends of its interval."""
MOST_LINES = 12
"""Curves of a chart past which they cannot be told apart."""
DASHES = ([1, 0], [7, 3])
"""How lines are drawn whose colours come again."""
WIDEST = 6
"""Times the usual width of an interval past which a chart does not make room for it."""


def palette(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, the same in every figure: one for naive, one for all references, then others.

    >>> palette(["naive", "dla", "ipw"])
    {'naive': '#c2410c', 'dla': '#1d4ed8', 'ipw': '#047857'}
    """
    others = itertools.cycle(SERIES)
    return {name: (_KNOWN.get(name) or next(others)).light for name in names}


def scale_around(values: Sequence[float]) -> Any:
    """An axis around the values, with some room."""
    room = 0.08 * (max(values) - min(values)) or 0.01
    return alt.Scale(domain=[min(values) - room, max(values) + room], nice=False, zero=False)


def dots_figure(title: str, rows: Sequence[Mapping[str, Any]], axis: str) -> Any:
    """A value of every arm with its spread; rows have name, mean, low and high.

    They may have `mark`, written behind the value; `seeds`, drawn as ticks; and `paper`, a number that somebody
    printed, drawn as a diamond.
    """
    names = [row["name"] for row in rows]
    seeds = [
        {"name": row["name"], "seed": value, "says": f"{row['name']}, one seed: {value:.4f}"}
        for row in rows
        for value in row.get("seeds", ())
    ]
    values = [row[key] for row in rows for key in ("low", "high", "paper") if row.get(key) is not None]
    x = scale_around([*values, *(point["seed"] for point in seeds)])
    y = alt.Y("name:N", sort=names, title=None)
    colours = alt.Scale(domain=names, range=list(palette(names).values()))
    plain = [
        {"mark": "", "says": mean_words(row)} | {key: value for key, value in row.items() if key != "seeds"}
        for row in rows
    ]
    base = alt.Chart({"values": plain}).encode(
        y=y, color=alt.Color("name:N", scale=colours, legend=None), description="says:N"
    )
    printed = any(row.get("paper") is not None for row in rows)
    mean = alt.X(
        "mean:Q",
        title=axis + (", paper as ◇" if printed else ""),
        scale=x,
        axis=alt.Axis(tickCount=6, labelFlush=False),
    )
    written = base.transform_calculate(text="format(datum.mean, '.3f') + ' ' + datum.mark")
    layers = [
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", scale=x), x2="high:Q"),
        base.mark_circle(size=90, opacity=1).encode(x=mean),
        written.mark_text(dy=-12, fontSize=12).encode(x="mean:Q", text="text:N"),
    ]
    if seeds:
        ticks = alt.Chart({"values": seeds}).mark_tick(thickness=1, size=10, color=MUTED.light)
        layers.insert(0, ticks.encode(y=y, x=alt.X("seed:Q", scale=x), description="says:N"))
    if printed:
        shape = base.transform_filter("isValid(datum.paper)").mark_point(shape="diamond", size=130, strokeWidth=2)
        layers.append(shape.encode(x=alt.X("paper:Q", scale=x), color=alt.value(INK.light)))
    told = f"{axis}: {'. '.join(mean_words(row) for row in rows)}."
    size = {"width": WIDTH, "height": max(110, 36 * len(rows))}
    return alt.layer(*layers).properties(**size, title=title, description=told)


def mean_words(row: Mapping[str, Any]) -> str:
    """A value and its spread in words.

    >>> mean_words({"name": "dla", "mean": 0.5, "low": 0.4, "high": 0.6})
    'dla 0.500 (0.400 to 0.600)'
    """
    text = f"{row['name']} {row['mean']:.3f}"
    spread = f" ({row['low']:.3f} to {row['high']:.3f})" if row["low"] < row["high"] else ""
    return text + spread + (f", paper {row['paper']:.3f}" if row.get("paper") is not None else "")


def gains_figure(title: str, rows: Sequence[Mapping[str, Any]], axis: str, kinds: tuple[str, str]) -> Figure:
    """Differences with their intervals, in the colour of one of two kinds, around a dashed line at 0.

    Rows have name, mean, low, high, kind and says. What is far wider than the others runs out of the chart.
    """
    wide = sorted(row["high"] - row["low"] for row in rows)
    drawn = [row for row in rows if row["high"] - row["low"] <= WIDEST * wide[len(wide) // 2]]
    scale = scale_around([0.0, *(row[key] for row in drawn for key in ("low", "mean", "high"))])
    colours = alt.Scale(domain=kinds, range=[SERIES[0].light, MUTED.light])
    base = alt.Chart({"values": list(rows)}).encode(
        y=alt.Y("name:N", sort=[row["name"] for row in rows], title=None),
        color=alt.Color("kind:N", scale=colours, legend=alt.Legend(title=None)),
        description="says:N",
    )
    zero = alt.Chart({"values": [{"at": 0.0}]}).mark_rule(strokeDash=[4, 3], strokeWidth=2, color=NAIVE.light)
    mean = alt.X("mean:Q", title=axis, scale=scale, axis=alt.Axis(tickCount=6, labelFlush=False))
    chart = alt.layer(
        zero.encode(x=alt.X("at:Q", scale=scale)),
        base.mark_rule(strokeWidth=3, clip=True).encode(x=alt.X("low:Q", scale=scale), x2="high:Q"),
        base.mark_circle(size=110, opacity=1, clip=True).encode(x=mean),
    )
    told = f"{axis}: {'; '.join(row['says'] for row in rows)}."
    size = {"width": WIDTH, "height": max(110, 34 * len(rows))}
    return Figure(chart.properties(**size, title=title, description=told))


def line_legend(**options: Any) -> Any:
    """A legend of lines, without a title."""
    return alt.Legend(title=None, symbolType="stroke", symbolStrokeWidth=4, symbolOpacity=1, **options)


def points_of(values: Sequence[float | None], interval: Sequence[Any] | None = None) -> list[Point]:
    """Points of ranks 1, 2, ...; those without a value are left out.

    >>> points_of([1.0, None, 0.5], [None, None, (0.4, 0.6)])
    [(1, 1.0, None, None), (3, 0.5, 0.4, 0.6)]
    """
    ends = [(None, None) if each is None else tuple(each) for each in interval or [None] * len(values)]
    return [
        (rank, value, low, high)
        for rank, (value, (low, high)) in enumerate(zip(values, ends, strict=False), start=1)
        if value is not None
    ]


def curves_figure(
    title: str,
    curves: Mapping[str, Sequence[Point]],
    axis: str,
    *,
    true: str | None = None,
    colours: Mapping[str, str] | None = None,
    along: str = "rank",
    from_zero: bool = True,
) -> Figure:
    """Lines by rank with their intervals, each of which may be switched off; of many, the first ones.

    The curve that is called `true` is a thick line below the others; `along` says what the values are of.
    """
    names = [name for name, points in curves.items() if points]
    title += f" (the first {MOST_LINES} of {len(names)})" if len(names) > MOST_LINES else ""
    names = names[:MOST_LINES]
    base = _lines(curves, names, along)
    shades = {**palette(names), **(colours or {})} | ({} if true is None else {true: TRUTH.light})
    legend = line_legend() if len(names) > 1 else None
    scale = alt.Scale(domain=names, range=[shades[name] for name in names])
    base = base.encode(color=alt.Color("curve:N", scale=scale, sort=names, legend=legend))
    dashes = alt.Scale(domain=names, range=[DASHES[at // len(SERIES) % len(DASHES)] for at in range(len(names))])
    lines = base.encode(strokeDash=alt.StrokeDash("curve:N", scale=dashes, sort=names, legend=legend))
    lines = lines if len(names) > len(SERIES) else base
    value = alt.Y("value:Q", title=axis, scale=alt.Scale(domainMin=0) if from_zero else alt.Scale(zero=False))
    spread = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=5, opacity=0.35)
    layers = [
        spread.encode(y=alt.Y("low:Q", title=axis), y2="high:Q"),
        lines.transform_filter(alt.datum.curve != (true or ""))
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=40))
        .encode(y=value),
    ]
    if true is not None:
        layers.insert(0, base.transform_filter(alt.datum.curve == true).mark_line(strokeWidth=8).encode(y=value))
    ends = "; ".join(f"{name} from {said(curves[name][0][1])} to {said(curves[name][-1][1])}" for name in names)
    chart = alt.layer(*layers).properties(
        width=WIDTH, height=260, title=title, description=f"{axis} by {along}: {ends}."
    )
    return Figure(chart, [f"{title}:", *_letters(curves, names)], series=names)


def _letters(curves: Mapping[str, Sequence[Point]], names: Sequence[str]) -> list[str]:
    """The first curve as bars, with the numbers of all of them."""
    values = {name: {rank: value for rank, value, *_ in curves[name]} for name in names}
    told = {name: dict(zip(found, said_each([*found.values()]), strict=True)) for name, found in values.items()}
    first = values[names[0]] if names else {}
    label = "{0} {1}" if len(names) > 1 else "{1}"
    numbers = [
        "  ".join(label.format(name, found[rank]) for name, found in told.items() if rank in found)
        for rank in first
    ]
    return bar_lines(first, numbers)


def _lines(curves: Mapping[str, Sequence[Point]], names: Sequence[str], along: str) -> Any:
    rows = []
    for name in names:
        ends = [None if low is None or high is None else (low, high) for _, _, low, high in curves[name]]
        told = spread_each([value for _, value, *_ in curves[name]], ends)
        for (rank, value, low, high), text in zip(curves[name], told, strict=True):
            point = {"curve": name, "rank": rank, "value": value, "low": low, "high": high}
            rows.append(point | {"says": f"{name}, {along} {rank}: {text}"})
    axis = {"title": "rank shown"} if along == "rank" else {"title": along, "sort": None}
    x = alt.X("rank:O", axis=alt.Axis(labelAngle=0, labelOverlap=True), **axis)
    return alt.Chart({"values": rows}).encode(x=x, description="says:N")


def matrix_figure(
    title: str,
    levels: Sequence[str],
    ranks: Sequence[int],
    rates: Sequence[Sequence[float | None]],
    *,
    least: float = 0.0,
) -> Figure:
    """Click rates by level and rank; what stands out more is higher, and `least` or more stands out most."""
    rows = [
        {"level": level, "rank": rank, "rate": rate, "says": f"{level}, rank {rank}: {text}"}
        for level, line in zip(levels, rates, strict=True)
        for rank, rate, text in zip(ranks, line, said_each(line), strict=True)
        if rate is not None
    ]
    most = max([least, *(rate for line in rates for rate in line if rate is not None)]) or 1.0
    colour = alt.Color(
        "rate:Q", scale=alt.Scale(type="quantize", domain=[0, most], range=ordered(COOL, 10)), legend=None
    )
    drawn = (
        alt.Chart({"values": rows})
        .mark_rect()
        .encode(
            x=alt.X("rank:O", title="rank shown", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("level:N", sort=list(levels)[::-1], title=None),
            color=colour,
            description="says:N",
        )
    )
    told = f"A heat map of {len(levels)} levels by {len(ranks)} ranks; all its numbers are in the table below."
    return Figure(drawn.properties(width=WIDTH, height=max(90, 34 * len(levels)), title=title, description=told))
