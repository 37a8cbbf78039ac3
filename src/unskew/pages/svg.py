"""Charts drawn as SVG in the house style: inside a page in the width that a screen has, or in a file."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import vl_convert

from unskew.pages.colours import INK, MUTED, NAIVE, PAPER, RULE, SERIES, SOFT, dark_figures

WIDTH = 360
"""Of a chart by itself."""
_SYMBOL, _LETTER = 45, 7  # pixels of a legend's symbol with its gaps, and of a letter
_USUAL = 18  # letters of a name that a chart does not tell


def write_svg(charts: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Charts of Vega-Lite two in a row as SVG, on white paper, and on dark paper where a browser shows it so."""
    parts = [
        {key: value for key, value in chart.items() if key not in ("datasets", "$schema")} for chart in charts
    ]
    data = {name: rows for chart in charts for name, rows in chart.get("datasets", {}).items()}
    beside = {"concat": parts, "columns": 2, "spacing": 40, "resolve": {"scale": {"color": "independent"}}}
    drawn = vl_convert.vegalite_to_svg(_styled({**beside, "datasets": data}, WIDTH))
    dark = f"<style>@media screen and (prefers-color-scheme: dark){{{dark_figures()}}}</style>"
    path.write_text(drawn.replace(">", f">{dark}", 1), encoding="utf-8")


def inline_svg(chart: Mapping[str, Any], kind: str, name: str, width: int | None) -> str:
    """A chart of Vega-Lite as part of a page: without its title, of class `kind`, its ids beginning with `name`.

    It is drawn to be `width` wide, all told; with None it is as wide as it says.
    """
    bare = dict(chart)
    title = bare.pop("title", "")
    described = bare.get("description", title)
    if width is not None:
        bare |= {"width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
    drawn = vl_convert.vegalite_to_svg(_styled(bare, width or WIDTH))
    box = re.search(r'viewBox="([^"]+)"', drawn)
    assert box is not None
    wide = box[1].split()[2]
    opening = (
        f"<svg class='{kind}' viewBox='{box[1]}' style='max-width:{float(wide) * 1.3:.0f}px' role='img' "
        f"aria-label='{escape(described)}'>"
    )
    inside = drawn[drawn.index(">") + 1 :]
    return opening + re.sub(r'(id="|url\(#)(?=[A-Za-z])', rf"\g<1>{name}-", inside)


def _styled(chart: Mapping[str, Any], width: int) -> dict[str, Any]:
    """The chart in the house style, its legend below in as many columns as a width has room for."""
    axis = {"labelColor": INK.light, "labelFontSize": 12, "labelLimit": max(110, width // 3)}
    axis |= {"titleColor": SOFT.light, "titleFontSize": 12, "titleFontWeight": "normal", "titleLimit": width}
    axis |= {"gridColor": RULE.light, "domainColor": MUTED.light, "tickColor": MUTED.light}
    legend = {"orient": "bottom", "direction": "horizontal", "labelFontSize": 12, "labelColor": INK.light}
    legend |= {"labelLimit": width - 110, "titleColor": SOFT.light, "titleFontWeight": "normal"}
    legend |= {"columns": max(1, width // (_SYMBOL + _LETTER * _longest(chart)))}
    style = {
        "background": PAPER.light,
        "font": "Arial, Liberation Sans, Helvetica, sans-serif",  # of one width in browsers and where it is drawn
        "padding": {"left": 10, "top": 8, "right": 10, "bottom": 8},
        "line": {"color": SERIES[0].light, "strokeWidth": 2},
        "point": {"color": SERIES[0].light},
        "title": {"anchor": "start", "fontSize": 14, "color": INK.light, "offset": 12},
        "axis": axis,
        "legend": legend,
        "range": {"category": [colour.light for colour in (*SERIES, NAIVE, MUTED)]},
        "view": {"stroke": None, "continuousWidth": 300, "continuousHeight": 300},
    }
    return {**chart, "config": style}


def _longest(spec: Any) -> int:
    if isinstance(spec, list):
        return max(map(_longest, spec), default=0)
    if not isinstance(spec, Mapping):
        return 0
    colour = spec.get("color", {})
    has_legend = isinstance(colour, Mapping) and "field" in colour and colour.get("legend", True)
    names = colour.get("scale", {}).get("domain", ["a" * _USUAL]) if has_legend else []
    return max([*(len(str(name)) for name in names), *map(_longest, spec.values())], default=0)
