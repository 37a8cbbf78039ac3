"""What the example shows: tables as Markdown, the curves as SVG, all of it as one HTML page that opens offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from unskew.reporting.figures import chart_html, palette, styled, write_svg
from unskew.reporting.page import html_table, write_page

TRUTH = "all pages, shuffled"
Table = tuple[Sequence[str], Sequence[Sequence[str]]]
HELD_OUT = {"nDCG@10": "nDCG@10", "LL per click": "per click", "LL per impression": "per impression"}
"""Headings, and the names of the measures; LL is the mean log-likelihood."""


def write_report(result: Mapping[str, Any], out: Path) -> str:
    """Write table.md, curves.svg and report.html; the tables as text."""
    parts = []
    sections = [("Position bias in the shuffled pages", f"<p>{escape(_truth_text(result['truth']))}</p>")]
    charts = [curve_chart(one, result["truth"]) for one in result["studies"]]
    for number, (one, chart) in enumerate(zip(result["studies"], charts, strict=True)):
        tables = (held_out_table(one), difference_table(one), curve_table(one, result["truth"]))
        text = _study_text(one)
        parts.append("\n\n".join([f"## {_heading(one)}", text, *map(markdown, tables)]))
        drawn = chart_html(styled(chart), f"curves{number}")
        content = "".join(f"{html_table(*table)}<br>" for table in tables)
        sections.append((_heading(one), f"<p>{escape(text)}</p>{drawn}{content}"))
    write_svg(styled(alt.concat(*charts, columns=2, spacing=40)), out / "curves.svg")
    lead = "Real clicks on shuffled pages of movies: how strong is position bias, and do the methods find it?"
    table = "\n\n".join(["# RankLens", _truth_text(result["truth"]), *parts]) + "\n"
    (out / "table.md").write_text(table, encoding="utf-8")
    footer = f"{result['plan']['seeds']} seeds, {result['plan']['refits']} refits. RankLens is CC BY-SA 4.0."
    write_page(out / "report.html", "RankLens with unskew", lead, sections, footer=footer)
    return table


# ---- text and tables ----


def _truth_text(truth: Mapping[str, Any]) -> str:
    rates = truth["rates"]
    low, high = truth["interval"]
    return (
        f"Rank 1 is clicked {rates[0]:.1%} of the time, the least clicked rank {min(rates):.1%}. A rank of the "
        f"lower half of the page gets {truth['fall']:.3f} of the clicks of one of the first three "
        f"(95 %: {low:.3f} to {high:.3f})."
    )


def _heading(one: Mapping[str, Any]) -> str:
    return f"Learned from {one['pages']:,} pages: {one['title']}"


def _study_text(one: Mapping[str, Any]) -> str:
    follows = f"Spearman correlation of order and popularity: {one['agreement']:.2f} on average. "
    return (follows if one["agreement"] else "") + (
        "Measured on the later, shuffled pages; ± is the sd over seeds, intervals are over visits. "
        "Gains are over the naive method of the same loss: list softmax for dla, pointwise for the others."
    )


def held_out_table(one: Mapping[str, Any]) -> Table:
    """nDCG and likelihoods of every method."""
    return ("held out", *HELD_OUT), [
        [row["method"], *(_spread(row.get(name, {}).get("seeds"), 4) for name in HELD_OUT.values())]
        for row in one["held out"]
    ]


def difference_table(one: Mapping[str, Any]) -> Table:
    """What each method gains over the naive one of the same loss, with intervals."""
    return ("gain, 95 %", *HELD_OUT), [
        [row["method"], *(_difference(row.get(name, {})) for name in HELD_OUT.values())]
        for row in one["held out"]
        if row["against"]
    ]


def curve_table(one: Mapping[str, Any], truth: Mapping[str, Any]) -> Table:
    """How far each curve falls, and how far it is from the curve of the shuffled pages."""
    true = [rate / truth["rates"][0] for rate in truth["rates"]]
    ranks = (2, len(true) // 2, len(true))
    rows = [[TRUTH, *_at(true, ranks), f"{truth['fall']:.3f}", _range(truth["interval"]), "", ""]]
    for row in one["curves"]:
        seeds = _spread(row["seeds"], 3) if len(row["seeds"]) > 1 else ""
        cells = (f"{row['fall']:.3f}", _range(row["interval"]), f"{row['error']:.3f}", seeds)
        rows.append([row["curve"], *_at(row["values"], ranks), *cells])
    return ("curve", *(f"rank {rank}" for rank in ranks), "fall", "95 %", "mean error", "fall by seeds"), rows


def _at(values: Sequence[float], ranks: Sequence[int]) -> list[str]:
    return [f"{values[rank - 1]:.3f}" for rank in ranks]


def _spread(values: Sequence[float] | None, digits: int) -> str:
    if values is None:
        return "–"
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def _difference(cell: Mapping[str, Any]) -> str:
    if "difference" not in cell:
        return "–"
    low, high = cell["interval"]
    return f"{cell['difference']:+.4f} ({low:+.4f} to {high:+.4f})"


def _range(bounds: Sequence[float] | None) -> str:
    return "–" if bounds is None else f"{bounds[0]:.3f} to {bounds[1]:.3f}"


def markdown(table: Table) -> str:
    """A table in Markdown."""
    columns, rows = table
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---- curves ----


def curve_chart(one: Mapping[str, Any], truth: Mapping[str, Any]) -> Any:
    """Clicks by rank relative to rank 1: the shuffled pages with their interval, and what was found here."""
    true = [rate / truth["rates"][0] for rate in truth["rates"]]
    learned = {row["curve"]: row["values"] for row in one["curves"]}
    kinds = dict.fromkeys(learned, "debiased") | {next(iter(learned)): "biased"}
    names, colours = [TRUTH, *learned], {TRUTH: "#cbd2d9", **palette(kinds)}
    rows = [
        {"rank": rank, "rate": value, "curve": name}
        for name, values in {TRUTH: true, **learned}.items()
        for rank, value in enumerate(values, 1)
    ]
    bands = [{"rank": rank, "low": low, "high": high} for rank, (low, high) in enumerate(truth["bands"], 1)]
    x = alt.X("rank:Q", title="rank shown", scale=alt.Scale(domain=[1, len(true)]), axis=alt.Axis(tickMinStep=1))
    scale = alt.Scale(domain=[0, max(1.1, *(1.05 * row["rate"] for row in rows))])
    band = alt.Chart({"values": bands}).mark_area(color="#cbd2d9", opacity=0.45)
    lines = alt.Chart({"values": rows}).encode(
        x=x,
        y=alt.Y("rate:Q", title="clicks, rank 1 = 1", scale=scale),
        color=alt.Color(
            "curve:N",
            scale=alt.Scale(domain=names, range=[colours[name] for name in names]),
            sort=names,
            legend=alt.Legend(title=None, orient="bottom", columns=3, symbolType="stroke", symbolStrokeWidth=4),
        ),
        tooltip=[alt.Tooltip("curve:N"), alt.Tooltip("rank:Q"), alt.Tooltip("rate:Q", format=".3f")],
    )
    layers = (
        band.encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q"),
        lines.transform_filter(alt.datum.curve == TRUTH).mark_line(strokeWidth=6),
        lines.transform_filter(alt.datum.curve != TRUTH).mark_line(strokeWidth=2),
    )
    return alt.layer(*layers).properties(width=400, height=260, title=f"Clicks by rank: {one['title']}")
