"""Figures as Vega-Lite charts: SVG for documents, interactive in a page that opens offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

TRUE = "true examination"
_INK, _MUTED = "#1f2933", "#7b8794"
_COLOURS = ("#c2410c", "#1d4ed8", "#047857", "#7c3aed", "#b45309", "#0e7490")


def examination_figure(true: Sequence[float], learned: Mapping[str, Sequence[float]]) -> Any:
    """Examination relative to rank 1, the true curve and what each method learned, by rank."""
    names = [TRUE, *learned]
    curves = {TRUE: true, **learned}
    rows = [
        {"rank": rank, "examination": value, "curve": name}
        for name, values in curves.items()
        for rank, value in enumerate(values, start=1)
    ]
    scale = alt.Scale(domain=names, range=[_INK, *_COLOURS[: len(learned)]])
    base = alt.Chart({"values": rows}).encode(
        x=alt.X("rank:O", title="rank shown", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("examination:Q", title="examination, rank 1 = 1", scale=alt.Scale(domain=[0, 1.1])),
        color=alt.Color("curve:N", scale=scale, sort=names, legend=alt.Legend(title=None, orient="top-right")),
        tooltip=[
            alt.Tooltip("curve:N"),
            alt.Tooltip("rank:O"),
            alt.Tooltip("examination:Q", format=".3f"),
        ],
    )
    truth = base.transform_filter(alt.datum.curve == TRUE).mark_line(strokeWidth=7, opacity=0.25)
    found = base.transform_filter(alt.datum.curve != TRUE).mark_line(
        strokeWidth=2, point=alt.OverlayMarkDef(size=45)
    )
    chart = alt.layer(truth, found)
    return chart.properties(width=380, height=260, title="Who is looked at? True and learned examination")


def score_figure(rows: Sequence[Mapping[str, Any]]) -> Any:
    """nDCG@10 of every arm with its interval; rows have name, mean, low, high and kind."""
    names = [row["name"] for row in rows]
    kinds = {"reference": _MUTED, "biased": _COLOURS[0], "debiased": _COLOURS[1]}
    lowest = max(0.0, min(row["low"] for row in rows) - 0.05)
    base = alt.Chart({"values": [dict(row) for row in rows]}).encode(
        y=alt.Y("name:N", sort=names, title=None),
        color=alt.Color(
            "kind:N",
            scale=alt.Scale(domain=list(kinds), range=list(kinds.values())),
            legend=alt.Legend(title=None, orient="bottom"),
        ),
        tooltip=[
            alt.Tooltip("name:N"),
            *(alt.Tooltip(f"{key}:Q", format=".4f") for key in ("mean", "low", "high")),
        ],
    )
    x = alt.Scale(domain=[lowest, min(1.0, max(row["high"] for row in rows) + 0.05)])
    dots = base.mark_circle(size=110, opacity=1).encode(x=alt.X("mean:Q", title="nDCG@10 on true labels", scale=x))
    whiskers = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", scale=x), x2="high:Q")
    values = base.mark_text(dy=-12, fontSize=11).encode(x="mean:Q", text=alt.Text("mean:Q", format=".3f"))
    chart = alt.layer(whiskers, dots, values)
    return chart.properties(width=380, height=260, title="Does it rank better? Test nDCG@10, 95 % interval")


def side_by_side(*charts: Any) -> Any:
    """Charts in a row, in one style."""
    return (
        alt.hconcat(*charts, spacing=50)
        .resolve_scale(color="independent")
        .configure(background="white", font="system-ui, sans-serif", padding=18)
        .configure_title(anchor="start", fontSize=14, color=_INK, offset=12)
        .configure_axis(
            labelColor=_INK, titleColor=_MUTED, gridColor="#e4e7eb", domainColor=_MUTED, labelLimit=200
        )
        .configure_view(stroke=None)
    )


def write_svg(chart: Any, path: Path) -> None:
    """The chart as SVG."""
    path.write_text(vl_convert.vegalite_to_svg(chart.to_json()))


def chart_html(chart: Any, target: str) -> str:
    """An element of this id and a script that draws the chart into it, with no network."""
    spec = chart.to_json(indent=None).replace("</", "<\\/")
    draw = f"vegaEmbed('#{target}', {spec}, {{actions: false, renderer: 'svg'}})"
    return f"<div id='{target}' class='chart'></div>\n<script type='module'>{draw}</script>"


def chart_scripts() -> str:
    """The JavaScript that `chart_html` needs, to be put into a page once."""
    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return f"<script type='module'>{bundle}</script>"
