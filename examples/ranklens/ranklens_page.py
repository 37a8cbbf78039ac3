"""What the example shows: tables as Markdown, the curves as SVG, all of it as one HTML page that opens offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from unskew.learning.methods import LEARNERS
from unskew.pages.colours import TRUTH as TRUE_LINE
from unskew.pages.figures import line_legend, palette
from unskew.pages.numbers import Value, with_best
from unskew.pages.page import Figure, Page, Section, Table, markdown, write_page
from unskew.studies.terms import method_term

TRUTH = "all pages, shuffled"
ORIGIN = "A real log: what people clicked on shuffled pages of movies (RankLens); nothing was simulated."
HELD_OUT = {"nDCG@10": "nDCG@10", "LL per click": "per click", "LL per impression": "per impression"}
"""Headings, and the names of the measures; LL is the mean log-likelihood."""


def write_report(result: Mapping[str, Any], out: Path) -> str:
    """Write table.md, figure.svg and report.html; the tables as text."""
    truth = result["truth"]
    sections = [Section("Position bias in the shuffled pages", _truth_text(truth))]
    for one in result["studies"]:
        tables = (held_out_table(one), difference_table(one), curve_table(one, truth))
        sections.append(Section(_heading(one), _study_text(one), tables, [Figure(curve_chart(one, truth))]))
    lead = "Real clicks on shuffled pages of movies: how strong is position bias, and do the methods find it?"
    size = f"{result['plan']['seeds']} seeds, {result['plan']['refits']} refits. RankLens is CC BY-SA 4.0."
    methods = dict.fromkeys(row["method"] for one in result["studies"] for row in one["held out"])
    terms = [method_term(name, name) for name in methods if name in LEARNERS]
    page = Page("RankLens with unskew", lead, sections, [size], origin=ORIGIN, terms=terms)
    write_page(page, out)
    return markdown(page)


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
    rows = [
        [row["method"], *(_spread(row.get(name, {}).get("seeds"), 4) for name in HELD_OUT.values())]
        for row in one["held out"]
    ]
    values = {
        column: [_value(row.get(name, {}).get("seeds")) for row in one["held out"]]
        for column, name in enumerate(HELD_OUT.values(), start=1)
    }
    table = Table(("held out", *HELD_OUT), rows)
    return with_best(table, values, among="all rows", spread="one standard deviation over seeds")


def _value(seeds: Sequence[float] | None) -> Value | None:
    return (
        None
        if seeds is None
        else Value(float(np.mean(seeds)), float(np.std(seeds, ddof=1)) if len(seeds) > 1 else 0.0)
    )


def difference_table(one: Mapping[str, Any]) -> Table:
    """What each method gains over the naive one of the same loss, with intervals."""
    rows = [
        [row["method"], *(_difference(row.get(name, {})) for name in HELD_OUT.values())]
        for row in one["held out"]
        if row["against"]
    ]
    return Table(("gain, 95 %", *HELD_OUT), rows)


def curve_table(one: Mapping[str, Any], truth: Mapping[str, Any]) -> Table:
    """How far each curve falls, and how far it is from the curve of the shuffled pages."""
    true = [rate / truth["rates"][0] for rate in truth["rates"]]
    ranks = (2, len(true) // 2, len(true))
    rows = [[TRUTH, *_at(true, ranks), f"{truth['fall']:.3f}", _range(truth["interval"]), "", ""]]
    for row in one["curves"]:
        seeds = _spread(row["seeds"], 3) if len(row["seeds"]) > 1 else ""
        cells = (f"{row['fall']:.3f}", _range(row["interval"]), f"{row['error']:.3f}", seeds)
        rows.append([row["curve"], *_at(row["values"], ranks), *cells])
    columns = ("curve", *(f"rank {rank}" for rank in ranks), "fall", "95 %", "mean error", "fall by seeds")
    return Table(columns, rows)


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


# ---- curves ----


def curve_chart(one: Mapping[str, Any], truth: Mapping[str, Any]) -> Any:
    """Clicks by rank relative to rank 1: the shuffled pages with their interval, and what was found here."""
    true = [rate / truth["rates"][0] for rate in truth["rates"]]
    learned = {row["curve"]: row["values"] for row in one["curves"]}
    biased, *debiased = learned
    names = [TRUTH, *learned]
    colours = {TRUTH: TRUE_LINE.light, biased: palette(["naive"])["naive"], **palette(debiased)}
    rows = [
        {"rank": rank, "rate": value, "curve": name, "says": f"{name}, rank {rank}: {value:.3f}"}
        for name, values in {TRUTH: true, **learned}.items()
        for rank, value in enumerate(values, 1)
    ]
    bands = [{"rank": rank, "low": low, "high": high} for rank, (low, high) in enumerate(truth["bands"], 1)]
    x = alt.X("rank:Q", title="rank shown", scale=alt.Scale(domain=[1, len(true)]), axis=alt.Axis(tickMinStep=1))
    scale = alt.Scale(domain=[0, max(1.1, *(1.05 * row["rate"] for row in rows))])
    band = alt.Chart({"values": bands}).mark_area(color=TRUE_LINE.light, opacity=0.3)
    lines = alt.Chart({"values": rows}).encode(
        x=x,
        y=alt.Y("rate:Q", title="clicks, rank 1 = 1", scale=scale),
        color=alt.Color(
            "curve:N",
            scale=alt.Scale(domain=names, range=[colours[name] for name in names]),
            sort=names,
            legend=line_legend(),
        ),
        description="says:N",
    )
    layers = (
        band.encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q"),
        lines.transform_filter(alt.datum.curve == TRUTH).mark_line(strokeWidth=6),
        lines.transform_filter(alt.datum.curve != TRUTH).mark_line(strokeWidth=2),
    )
    ends = ", ".join(f"{name} {values[-1]:.2f}" for name, values in {TRUTH: true, **learned}.items())
    told = f"Clicks by rank relative to rank 1; at rank {len(true)}: {ends}."
    return alt.layer(*layers).properties(
        width=400, height=260, title=f"Clicks by rank: {one['title']}", description=told
    )
