"""Figures as Vega-Lite charts: SVG for documents, interactive in a page that opens offline."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

TRUE = "true examination"
_INK, _MUTED, _TRUTH = "#1f2933", "#7b8794", "#cbd2d9"
_COLOURS = ("#1d4ed8", "#047857", "#7c3aed", "#b45309", "#0e7490", "#be185d")
_KINDS = {"reference": _MUTED, "biased": "#c2410c"}


def palette(kinds: Mapping[str, str]) -> dict[str, str]:
    """A colour for each name, the same in every figure: one for all references, one for the biased, then others.

    >>> palette({"naive": "biased", "dla": "debiased", "ipw": "debiased"})
    {'naive': '#c2410c', 'dla': '#1d4ed8', 'ipw': '#047857'}
    """
    others = itertools.cycle(_COLOURS)
    return {name: _KINDS.get(kind) or next(others) for name, kind in kinds.items()}


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
    base = alt.Chart({"values": rows}).encode(
        x=alt.X("rank:O", title="rank shown", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("examination:Q", title="examination, rank 1 = 1", scale=alt.Scale(domain=[0, top])),
        color=alt.Color(
            "curve:N",
            scale=scale,
            sort=names,
            legend=alt.Legend(title=None, orient="top-right", symbolType="stroke", symbolStrokeWidth=4),
        ),
        tooltip=[
            alt.Tooltip("curve:N"),
            alt.Tooltip("rank:O"),
            alt.Tooltip("examination:Q", format=".3f"),
        ],
    )
    truth = base.transform_filter(alt.datum.curve == TRUE).mark_line(strokeWidth=8)
    found = base.transform_filter(alt.datum.curve != TRUE).mark_line(
        strokeWidth=2, point=alt.OverlayMarkDef(size=45)
    )
    chart = alt.layer(truth, found)
    return chart.properties(width=380, height=260, title="Who is looked at? True and learned examination")


def score_figure(rows: Sequence[Mapping[str, Any]], colours: Mapping[str, str]) -> Any:
    """nDCG@10 of every arm with its interval; rows have name, mean, low and high."""
    names = [row["name"] for row in rows]
    lowest = max(0.0, min(row["low"] for row in rows) - 0.05)
    base = alt.Chart({"values": [dict(row) for row in rows]}).encode(
        y=alt.Y("name:N", sort=names, title=None),
        color=alt.Color(
            "name:N", scale=alt.Scale(domain=names, range=[colours[name] for name in names]), legend=None
        ),
        tooltip=[
            alt.Tooltip("name:N"),
            *(alt.Tooltip(f"{key}:Q", format=".4f") for key in ("mean", "low", "high")),
        ],
    )
    x = alt.Scale(domain=[lowest, min(1.0, max(row["high"] for row in rows) + 0.05)])
    axis = alt.Axis(tickCount=6, labelFlush=False)
    dots = base.mark_circle(size=110, opacity=1).encode(
        x=alt.X("mean:Q", title="nDCG@10 on true labels", scale=x, axis=axis)
    )
    whiskers = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", scale=x), x2="high:Q")
    values = base.mark_text(dy=-13, fontSize=12).encode(x="mean:Q", text=alt.Text("mean:Q", format=".3f"))
    chart = alt.layer(whiskers, dots, values)
    return chart.properties(width=380, height=260, title="Does it rank better? Test nDCG@10, 95 % interval")


def side_by_side(*charts: Any) -> Any:
    """Charts in a row, in the house style."""
    return styled(alt.hconcat(*charts, spacing=40).resolve_scale(color="independent"))


def styled(chart: Any) -> Any:
    """The chart in the house style."""
    return (
        chart.configure(background="white", font="system-ui, sans-serif", padding=8)
        .configure_title(anchor="start", fontSize=14, color=_INK, offset=12)
        .configure_axis(
            labelColor=_INK,
            labelFontSize=12,
            titleColor=_MUTED,
            titleFontSize=12,
            titleFontWeight="normal",
            gridColor="#e4e7eb",
            domainColor=_MUTED,
            labelLimit=200,
        )
        .configure_legend(labelFontSize=12, labelColor=_INK)
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


def chart_scripts() -> str:
    """The JavaScript that `chart_html` needs, to be put into a page once."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return f"<script type='module'>{bundle}</script>"
