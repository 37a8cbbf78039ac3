"""Charts of a diagnosis: curves with their intervals, the click matrix, and which ranks can be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from unskew.diagnosis.evidence.links import RankGraph, RankLink
from unskew.pages.colours import COOL, MUTED, NAIVE, SERIES, ordered
from unskew.pages.console import bar_lines
from unskew.pages.details import said
from unskew.pages.figures import WIDTH, line_legend, palette
from unskew.pages.page import Figure

Point = tuple[int, float, float | None, float | None]
"""A rank, the value there, and the ends of its interval."""
MOST_LINES = 12
"""Curves of a chart past which they cannot be told apart."""
DASHES = ([1, 0], [7, 3])
"""How lines are drawn whose colours come again."""
_STEPS = 16  # of an arc


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
    title: str, curves: Mapping[str, Sequence[Point]], axis: str, *, from_zero: bool = True
) -> Figure:
    """Lines by rank with their intervals, each of which may be switched off; of many, the first ones."""
    names = [name for name, points in curves.items() if points]
    title += f" (the first {MOST_LINES} of {len(names)})" if len(names) > MOST_LINES else ""
    names = names[:MOST_LINES]
    rows = [
        {"curve": name, "rank": rank, "value": value, "low": low, "high": high}
        | {"says": f"{name}, rank {rank}: {said(value)}" + (f" ({said([low, high])})" if low is not None else "")}
        for name in names
        for rank, value, low, high in curves[name]
    ]
    scale = alt.Scale(domain=names, range=list(palette(names).values()))
    legend = line_legend() if len(names) > 1 else None
    base = alt.Chart({"values": rows}).encode(
        x=alt.X("rank:O", title="rank shown", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        color=alt.Color("curve:N", scale=scale, sort=names, legend=legend),
        description="says:N",
    )
    dashes = alt.Scale(domain=names, range=[DASHES[at // len(SERIES) % len(DASHES)] for at in range(len(names))])
    lines = base.encode(strokeDash=alt.StrokeDash("curve:N", scale=dashes, sort=names, legend=legend))
    lines = lines if len(names) > len(SERIES) else base
    value = alt.Y("value:Q", title=axis, scale=alt.Scale(domainMin=0) if from_zero else alt.Scale(zero=False))
    spread = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=5, opacity=0.35)
    drawn = alt.layer(
        spread.encode(y=alt.Y("low:Q", title=axis), y2="high:Q"),
        lines.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=40)).encode(y=value),
    )
    ends = "; ".join(f"{name} from {said(curves[name][0][1])} to {said(curves[name][-1][1])}" for name in names)
    told = f"{axis} by rank: {ends}."
    first = curves[names[0]] if names else []
    bars = bar_lines({point[0]: point[1] for point in first}, [said(point[1]) for point in first])
    size = {"width": WIDTH, "height": 260}
    return Figure(drawn.properties(**size, title=title, description=told), [f"{title}:", *bars], series=names)


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
        {"level": level, "rank": rank, "rate": rate, "says": f"{level}, rank {rank}: {said(rate)}"}
        for level, line in zip(levels, rates, strict=True)
        for rank, rate in zip(ranks, line, strict=True)
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


def links_figure(graph: RankGraph) -> Figure:
    """Ranks in a row, arcs between those that can be compared; thick ones are well known, orange ones weak."""
    links = sorted(graph.links, key=lambda link: -link.information)[: graph.drawn]
    widest = max((link.ranks[1] - link.ranks[0] for link in links), default=1)
    most = max((link.information for link in links), default=1.0) or 1.0
    arcs = [point for at, link in enumerate(links) for point in _arc(at, link, widest, most, graph.weak)]
    part = {rank: at for at, ranks in enumerate(graph.components) for rank in ranks}
    nodes: list[dict[str, Any]] = [
        {"rank": rank, "y": 0, "part": f"part {part[rank] + 1}"}
        | {"says": f"rank {rank}, part {part[rank] + 1} of {len(graph.components)}"}
        for rank in sorted(part)
    ]
    x = alt.X("rank:Q", title="rank shown", axis=alt.Axis(grid=False, tickMinStep=1))
    y = alt.Y("y:Q", axis=None)
    dots = alt.Chart({"values": nodes}).mark_circle(size=120, opacity=1)
    kinds = sorted({node["part"] for node in nodes})
    colours = [SERIES[at % len(SERIES)].light for at in range(len(kinds))]
    dots = dots.encode(
        x=x,
        y=y,
        color=alt.Color("part:N", scale=alt.Scale(domain=kinds, range=colours), legend=None),
        description="says:N",
    )
    layers: list[Any] = [dots]
    if arcs:
        lines = alt.Chart({"values": arcs}).mark_line().encode(
            x=x,
            y=y,
            detail="link:N",
            size=alt.Size("weight:Q", scale=alt.Scale(domain=[0, 1], range=[0.6, 5]), legend=None),
            color=alt.condition("datum.weak", alt.value(NAIVE.light), alt.value(MUTED.light)),
            description="says:N",
        )  # fmt: skip
        layers.insert(0, lines)
    told = f"{len(part)} ranks in {len(graph.components)} parts, {len(graph.links)} links, {len(graph.weak)} weak."
    chart = alt.layer(*layers).properties(
        width=WIDTH, height=220, title="Ranks that can be compared", description=told
    )
    return Figure(chart, [told])


def _arc(at: int, link: RankLink, widest: int, most: float, weak: Sequence[Any]) -> list[dict[str, Any]]:
    """An arc over two ranks, as points."""
    low, high = link.ranks
    text = f"ranks {low} and {high}, {link.pairs:,} documents at both, {link.clicks:,} clicks"
    badly = (low, high) in weak
    shared = {
        "link": at,
        "weight": math.sqrt(link.information / most),
        "weak": badly,
        "says": text + (", weak" if badly else ""),
    }
    middle, half = (low + high) / 2, (high - low) / 2
    angles = [math.pi * step / _STEPS for step in range(_STEPS + 1)]
    return [
        shared | {"rank": middle - half * math.cos(angle), "y": (high - low) / widest * math.sin(angle)}
        for angle in angles
    ]
