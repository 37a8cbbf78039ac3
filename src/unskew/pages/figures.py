"""Figures as Vega-Lite charts: SVG for documents, and inside a page in the width that a screen has.

A chart has a `title`, which a page shows above it, and a `description`, which is read to those who cannot see it.
Marks say what they stand for in a `description` of their own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from unskew.pages.colours import INK, MUTED, NAIVE, PAPER, RULE, SERIES, SOFT, TRUTH, dark_figures

TRUE = "true examination"
WIDTH = 360
_KNOWN = {"naive": NAIVE} | dict.fromkeys(("labeled", "random", "logging"), MUTED)
_SYMBOL, _LETTER = 45, 7  # pixels of a legend's symbol with its gaps, and of a letter
_USUAL = 18  # letters of a name that a chart does not tell


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
        {"mark": "", "says": said(row)} | {key: value for key, value in row.items() if key != "seeds"}
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
    told = f"{axis}: {'. '.join(said(row) for row in rows)}."
    size = {"width": WIDTH, "height": max(110, 36 * len(rows))}
    return alt.layer(*layers).properties(**size, title=title, description=told)


def said(row: Mapping[str, Any]) -> str:
    """A value and its spread in words.

    >>> said({"name": "dla", "mean": 0.5, "low": 0.4, "high": 0.6})
    'dla 0.500 (0.400 to 0.600)'
    """
    text = f"{row['name']} {row['mean']:.3f}"
    spread = f" ({row['low']:.3f} to {row['high']:.3f})" if row["low"] < row["high"] else ""
    return text + spread + (f", paper {row['paper']:.3f}" if row.get("paper") is not None else "")


def examination_figure(
    true: Sequence[float], learned: Mapping[str, Sequence[float]], colours: Mapping[str, str]
) -> Any:
    """Examination relative to rank 1, the true curve and what each method learned, by rank."""
    names = [TRUE, *learned]
    curves = {TRUE: true, **learned}
    rows = [
        {"rank": rank, "examination": value, "curve": name, "says": f"{name}, rank {rank}: {value:.3f}"}
        for name, values in curves.items()
        for rank, value in enumerate(values, start=1)
    ]
    top = max(1.1, *(1.05 * value for values in curves.values() for value in values))
    scale = alt.Scale(domain=names, range=[TRUTH.light, *(colours[name] for name in learned)])
    base = alt.Chart({"values": rows}).encode(
        x=alt.X("rank:O", title="rank shown", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("examination:Q", title="examination, rank 1 = 1", scale=alt.Scale(domain=[0, top])),
        color=alt.Color("curve:N", scale=scale, sort=names, legend=line_legend()),
        description="says:N",
    )
    truth = base.transform_filter(alt.datum.curve == TRUE).mark_line(strokeWidth=8)
    found = base.transform_filter(alt.datum.curve != TRUE).mark_line(
        strokeWidth=2, point=alt.OverlayMarkDef(size=45)
    )
    ends = ", ".join(f"{name} {values[-1]:.2f} at rank {len(values)}" for name, values in curves.items())
    return alt.layer(truth, found).properties(
        width=WIDTH,
        height=260,
        title="Who is looked at? True and learned examination",
        description=f"Examination relative to rank 1, by rank: {ends}.",
    )


def line_legend(**options: Any) -> Any:
    """A legend of lines, without a title."""
    return alt.Legend(title=None, symbolType="stroke", symbolStrokeWidth=4, symbolOpacity=1, **options)


def beside(charts: Sequence[Any]) -> Any:
    """Charts two in a row, in the house style."""
    return styled(alt.concat(*charts, columns=2, spacing=40).resolve_scale(color="independent"), WIDTH)


def styled(chart: Any, width: int) -> Any:
    """The chart in the house style, its legend below in as many columns as a width has room for."""
    return (
        chart.configure(
            background=PAPER.light,
            font="Arial, Liberation Sans, Helvetica, sans-serif",  # of one width in browsers and where it is drawn
            padding={"left": 10, "top": 8, "right": 10, "bottom": 8},
            line={"color": SERIES[0].light, "strokeWidth": 2},
            point={"color": SERIES[0].light},
        )
        .configure_title(anchor="start", fontSize=14, color=INK.light, offset=12)
        .configure_axis(
            labelColor=INK.light,
            labelFontSize=12,
            labelLimit=max(110, width // 3),
            titleColor=SOFT.light,
            titleFontSize=12,
            titleFontWeight="normal",
            titleLimit=width,
            gridColor=RULE.light,
            domainColor=MUTED.light,
            tickColor=MUTED.light,
        )
        .configure_legend(
            orient="bottom",
            direction="horizontal",
            columns=max(1, width // (_SYMBOL + _LETTER * _longest(chart.to_dict(validate=False)))),
            labelFontSize=12,
            labelColor=INK.light,
            labelLimit=width - 110,
            titleColor=SOFT.light,
            titleFontWeight="normal",
        )
        .configure_range(category=[colour.light for colour in (*SERIES, NAIVE, MUTED)])
        .configure_view(stroke=None)
    )


def _longest(spec: Any) -> int:
    """Letters of the longest name in the legends of a chart."""
    if isinstance(spec, list):
        return max(map(_longest, spec), default=0)
    if not isinstance(spec, Mapping):
        return 0
    colour = spec.get("color", {})
    has_legend = isinstance(colour, Mapping) and "field" in colour and colour.get("legend", True)
    names = colour.get("scale", {}).get("domain", ["a" * _USUAL]) if has_legend else []
    return max([*(len(str(name)) for name in names), *map(_longest, spec.values())], default=0)


def write_svg(chart: Any, path: Path) -> None:
    """The chart as SVG, on white paper, and on dark paper where a browser shows it so."""
    drawn = vl_convert.vegalite_to_svg(chart.to_json(validate=False))
    dark = f"<style>@media screen and (prefers-color-scheme: dark){{{dark_figures()}}}</style>"
    path.write_text(drawn.replace(">", f">{dark}", 1), encoding="utf-8")


def caption_of(chart: Any) -> str:
    """The title of a chart; empty where it has none."""
    title = chart.title
    return title if isinstance(title, str) else ""


def inline_svg(chart: Any, kind: str, name: str, width: int | None) -> str:
    """The chart without its title as part of a page, in a class of `kind`, its ids beginning with `name`.

    It is drawn to be `width` wide, all told; with None it is as wide as it says.
    """
    described = chart.description if isinstance(chart.description, str) else caption_of(chart)
    bare = chart.copy()
    bare.title = alt.Undefined
    if width is not None:
        bare = bare.properties(width=width, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
    drawn = vl_convert.vegalite_to_svg(styled(bare, width or WIDTH).to_json(validate=False))
    box = re.search(r'viewBox="([^"]+)"', drawn)
    assert box is not None
    wide = box[1].split()[2]
    opening = (
        f"<svg class='{kind}' viewBox='{box[1]}' style='max-width:{float(wide) * 1.3:.0f}px' role='img' "
        f"aria-label='{escape(described)}'>"
    )
    inside = drawn[drawn.index(">") + 1 :]
    return opening + re.sub(r'(id="|url\(#)(?=[A-Za-z])', rf"\g<1>{name}-", inside)
