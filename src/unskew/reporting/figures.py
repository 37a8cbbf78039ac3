"""Figures as Vega-Lite charts: SVG for documents, interactive in a page that opens offline."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

TRUE = "true examination"
INK = "#1f2933"
WIDTH = 360
_MUTED, _TRUTH = "#7b8794", "#cbd2d9"
_COLOURS = ("#1d4ed8", "#047857", "#7c3aed", "#b45309", "#0e7490", "#be185d")
_KNOWN = {"naive": "#c2410c"} | dict.fromkeys(("labeled", "random", "logging"), _MUTED)


def palette(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, the same in every figure: one for naive, one for all references, then others.

    >>> palette(["naive", "dla", "ipw"])
    {'naive': '#c2410c', 'dla': '#1d4ed8', 'ipw': '#047857'}
    """
    others = itertools.cycle(_COLOURS)
    return {name: _KNOWN.get(name) or next(others) for name in names}


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
    seeds = [{"name": row["name"], "seed": value} for row in rows for value in row.get("seeds", ())]
    values = [row[key] for row in rows for key in ("low", "high", "paper") if row.get(key) is not None]
    x = scale_around([*values, *(point["seed"] for point in seeds)])
    y = alt.Y("name:N", sort=names, title=None)
    colours = alt.Scale(domain=names, range=list(palette(names).values()))
    plain = [{"mark": ""} | {key: value for key, value in row.items() if key != "seeds"} for row in rows]
    base = alt.Chart({"values": plain}).encode(
        y=y,
        color=alt.Color("name:N", scale=colours, legend=None),
        tooltip=["name:N", *(alt.Tooltip(f"{key}:Q", format=".4f") for key in ("mean", "low", "high"))],
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
        ticks = alt.Chart({"values": seeds}).mark_tick(thickness=1, size=10, opacity=0.6, color=_MUTED)
        layers.insert(0, ticks.encode(y=y, x=alt.X("seed:Q", scale=x)))
    if printed:
        shape = base.transform_filter("isValid(datum.paper)").mark_point(shape="diamond", size=130, strokeWidth=2)
        layers.append(shape.encode(x=alt.X("paper:Q", scale=x), color=alt.value(INK)))
    return alt.layer(*layers).properties(width=WIDTH, height=max(110, 36 * len(rows)), title=title)


def examination_figure(
    true: Sequence[float], learned: Mapping[str, Sequence[float]], colours: Mapping[str, str]
) -> Any:
    """Examination relative to rank 1, the true curve and what each method learned, by rank."""
    names = [TRUE, *learned]
    curves = {TRUE: true, **learned}
    rows = [
        {"rank": rank, "examination": value, "curve": name}
        for name, values in curves.items()
        for rank, value in enumerate(values, start=1)
    ]
    top = max(1.1, *(1.05 * value for values in curves.values() for value in values))
    scale = alt.Scale(domain=names, range=[_TRUTH, *(colours[name] for name in learned)])
    legend = alt.Legend(title=None, orient="top-right", symbolType="stroke", symbolStrokeWidth=4)
    base = alt.Chart({"values": rows}).encode(
        x=alt.X("rank:O", title="rank shown", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("examination:Q", title="examination, rank 1 = 1", scale=alt.Scale(domain=[0, top])),
        color=alt.Color("curve:N", scale=scale, sort=names, legend=legend),
        tooltip=["curve:N", "rank:O", alt.Tooltip("examination:Q", format=".3f")],
    )
    truth = base.transform_filter(alt.datum.curve == TRUE).mark_line(strokeWidth=8)
    found = base.transform_filter(alt.datum.curve != TRUE).mark_line(
        strokeWidth=2, point=alt.OverlayMarkDef(size=45)
    )
    chart = alt.layer(truth, found)
    return chart.properties(width=WIDTH, height=260, title="Who is looked at? True and learned examination")


def beside(charts: Sequence[Any]) -> Any:
    """Charts two in a row, in the house style."""
    return styled(alt.concat(*charts, columns=2, spacing=40).resolve_scale(color="independent"))


def styled(chart: Any) -> Any:
    """The chart in the house style."""
    return (
        chart.configure(background="white", font="system-ui, sans-serif", padding=8)
        .configure_title(anchor="start", fontSize=14, color=INK, offset=12)
        .configure_axis(
            labelColor=INK,
            labelFontSize=12,
            titleColor=_MUTED,
            titleFontSize=12,
            titleFontWeight="normal",
            gridColor="#e4e7eb",
            domainColor=_MUTED,
            labelLimit=200,
        )
        .configure_legend(labelFontSize=12, labelColor=INK)
        .configure_view(stroke=None)
    )


def write_svg(chart: Any, path: Path) -> None:
    """The chart as SVG."""
    path.write_text(vl_convert.vegalite_to_svg(chart.to_json()), encoding="utf-8")


def chart_html(chart: Any, target: str) -> str:
    """An element of this id and a script that draws the chart into it, with no network; wide charts scroll."""
    spec = chart.to_json(indent=None).replace("</", "<\\/")
    draw = f"vegaEmbed('#{target}', {spec}, {{actions: false, renderer: 'svg'}})"
    return f"<div class='chart'><div id='{target}'></div></div>\n<script type='module'>{draw}</script>"


@lru_cache(maxsize=1)
def chart_scripts() -> str:
    """The JavaScript that `chart_html` needs, to be put into a page once."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return f"<script type='module'>{bundle}</script>"
