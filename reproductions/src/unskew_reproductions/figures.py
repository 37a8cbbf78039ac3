"""Charts of a reproduction: a line over a sweep, an embedding space, ranking by projection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from unskew.pages.colours import COOL, INK, WARM, Colour, ordered
from unskew.pages.figures import line_legend, mean_words, palette, scale_around
from unskew.pages.svg import WIDTH


def sweep_figure(title: str, rows: Sequence[Mapping[str, Any]], x_title: str, metric: str) -> Any:
    """A line with a band of ± sd for every series; rows have series, x, mean, low and high.

    A series whose rows have no x is a dashed level across the chart.
    """
    names = list(dict.fromkeys(row["series"] for row in rows))
    told = [dict(row) | {"says": _told(row, x_title)} for row in rows]
    lines, levels = [row for row in told if row["x"] is not None], [row for row in told if row["x"] is None]
    y = scale_around([row[key] for row in rows for key in ("low", "high")])
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=names, range=list(palette(names).values())),
        legend=line_legend(),
    )
    ticks = sorted({row["x"] for row in lines})
    axis = alt.Axis(values=ticks, format="d" if all(float(tick).is_integer() for tick in ticks) else ".1f")
    base = alt.Chart({"values": lines}).encode(
        x=alt.X("x:Q", title=x_title, axis=axis, scale=alt.Scale(zero=False)),
        color=colour,
        description="says:N",
    )
    value = alt.Y("mean:Q", title=f"test {metric}, mean ± sd over seeds", scale=y)
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", scale=y), y2="high:Q", fill=colour)
    layers = [band, base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=45)).encode(y=value)]
    if levels:
        flat = alt.Chart({"values": levels}).encode(color=colour, description="says:N", y=value)
        layers.append(flat.mark_rule(strokeWidth=2, strokeDash=[6, 4]))
    about = {"title": title, "description": f"{metric} by {x_title}. {'. '.join(row['says'] for row in told)}."}
    return alt.layer(*layers).properties(width=WIDTH, height=280, **about)


def _told(row: Mapping[str, Any], x_title: str) -> str:
    at = "" if row["x"] is None else f" at {x_title} {row['x']:g}"
    return f"{mean_words({**row, 'name': row['series']})}{at}"


def embedding_figure(
    title: str,
    points: Sequence[Mapping[str, Any]],
    directions: Sequence[Mapping[str, Any]],
    base: tuple[float, float],
    radius: float,
) -> Any:
    """Relevance embeddings coloured by grade, a dashed line for each position's o, a black one for the base.

    Points have x, y and grade; directions have x, y and position. Both axes have one scale, so angles are true.
    """
    scale = alt.Scale(domain=[-radius, radius], nice=False)
    x, y = alt.X("x:Q", title="dimension 1", scale=scale), alt.Y("y:Q", title="dimension 2", scale=scale)
    order = sorted({point["grade"] for point in points})
    dots = alt.Chart({"values": [dict(point) for point in points]}).mark_circle(size=14, opacity=0.55, clip=True)
    grades = alt.Legend(title="grade", symbolOpacity=1, symbolSize=60, columns=5)
    scatter = dots.encode(
        x=x, y=y, color=alt.Color("grade:O", sort=order, scale=_ordered(COOL, order), legend=grades)
    )
    ends = [
        {"position": line["position"], "x": far * line["x"], "y": far * line["y"]}
        for line in directions
        for far in (0.0, 1.0)
    ]
    positions = [line["position"] for line in directions]
    rays = alt.Chart({"values": ends}).mark_line(strokeDash=[5, 3], strokeWidth=1.5, clip=True)
    ranks = alt.Legend(title="position", symbolStrokeWidth=3, columns=5)
    colour = alt.Color("position:O", sort=positions, scale=_ordered(WARM, positions), legend=ranks)
    lines = rays.encode(x=x, y=y, detail="position:O", color=colour)
    black = [{"x": far * base[0], "y": far * base[1]} for far in (0.0, 1.0)]
    solid = alt.Chart({"values": black}).mark_line(strokeWidth=3, color=INK.light, clip=True).encode(x=x, y=y)
    chart = alt.layer(scatter, lines, solid).resolve_scale(color="independent")
    told = (
        f"Embeddings of {len(points):,} documents by grade, with a line for each position and for the base vector."
    )
    return chart.properties(width=340, height=340, title=title, description=told)


def _ordered(ramp: tuple[Colour, ...], values: Sequence[int]) -> Any:
    return alt.Scale(domain=list(values), range=ordered(ramp, len(values)))
