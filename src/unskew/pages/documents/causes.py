"""A causal graph as a page and as a figure."""

from __future__ import annotations

import math
from typing import Any

import altair as alt

from unskew.diagnosis.causal.graph import CLICK, RELEVANCE, CausalGraph, Edge, tier
from unskew.pages.colours import INK, SOFT
from unskew.pages.numbers import number, p_value
from unskew.pages.page import Figure, Page, Section, Table
from unskew.settings import listed

SIZE = (420, 260)
"""Width and height of a drawn graph."""
BESIDE = 9
"""How far from its line a number stands, in pixels."""
LETTER, LINE = 7.5, 20
"""Width of a letter and height of a line, in pixels: arrows end outside of names."""


def causes_page(graph: CausalGraph, origin: str = "", command: str = "") -> Page:
    """What was found, in a sentence, a figure and a table; `origin` and `command` are the page's."""
    causes = [name for name in graph.shown if graph.has(name, CLICK)]
    besides = f"Besides relevance, clicks depend on {listed(causes)}."
    lead = besides if causes else "Clicks depend on relevance alone."
    if confounded := graph.confounded():
        lead += f" Relevance and clicks share {listed(confounded)}: what is shown well is also what is relevant."
    facts = graph.facts
    how = f"{facts.get('test')} on {facts.get('impressions', 0):,} impressions, alpha {facts.get('alpha')}."
    drawn = Figure(graph_figure(graph), [str(edge) for edge in graph.edges], scales=False)
    return Page(
        "What causes clicks",
        lead,
        [Section("The graph", how, [_edges(graph)], [drawn])],
        notes=graph.notes,
        origin=origin,
        command=command,
    )


def _edges(graph: CausalGraph) -> Table:
    rows = []
    for edge in graph.edges:
        known = {edge.cause, edge.effect} == {RELEVANCE, CLICK}
        row = {"edge": str(edge), "p": "required" if known else p_value(edge.p)}
        rows.append(row | {"found again": number(edge.frequency, ".2f", "")})
    legend = "-> is a cause, -- an edge whose direction the log does not tell; p is the largest of its tests."
    if any(edge.frequency is not None for edge in graph.edges):
        legend += " Found again is the share of other samples that have it, and the number and width of its line."
    return Table.of(rows, legend=legend).without_empty(but=2)


def graph_figure(graph: CausalGraph, title: str = "") -> Any:
    """The graph from left to right: relevance, the page, the click; thin lines are edges seldom found again."""
    place = positions(graph)
    lines = [_line(edge, place) for edge in graph.edges]
    names = [{"name": name, "x": x, "y": y} for name, (x, y) in place.items()]
    axis: dict[str, Any] = {"axis": None, "scale": alt.Scale(domain=[0, 1])}
    x, y = alt.X("x:Q", **axis), alt.Y("y:Q", **axis)
    words = alt.Chart({"values": names}).encode(x=x, y=y, text="name:N")
    layers: list[Any] = []
    if lines:
        drawn = alt.Chart({"values": lines})
        width = alt.Size("weight:Q", scale=alt.Scale(domain=[0, 1], range=[0.5, 2.5]), legend=None)
        layers.append(drawn.mark_rule(color=INK.light).encode(x=x, y=y, x2="x2:Q", y2="y2:Q", size=width))
        heads = drawn.transform_filter("datum.directed").mark_point(
            shape="triangle", filled=True, size=90, opacity=1, color=INK.light
        )
        turn = alt.Angle("angle:Q", scale=alt.Scale(domain=[0, 360], range=[0, 360]))
        layers.append(heads.encode(x=alt.X("x2:Q", **axis), y=alt.Y("y2:Q", **axis), angle=turn))
        labels = drawn.transform_filter("datum.label != ''").mark_text(fontSize=11, color=SOFT.light)
        layers.append(labels.encode(x=alt.X("mx:Q", **axis), y=alt.Y("my:Q", **axis), text="label:N"))
    layers.append(words.mark_text(fontSize=13, fontWeight="bold", color=INK.light))
    told = f"A graph of causes, from left to right: {'; '.join(str(edge) for edge in graph.edges) or 'no edges'}."
    return alt.layer(*layers).properties(width=SIZE[0], height=SIZE[1], title=title, description=told)


def positions(graph: CausalGraph) -> dict[str, tuple[float, float]]:
    """Where each variable stands: a column for each tier, the middle one in zigzag."""
    shown = graph.shown
    place = {}
    for name in graph.variables:
        if tier(name) != 1:
            place[name] = (0.1 if tier(name) == 0 else 0.92, 0.5)
            continue
        at = (shown.index(name) + 0.5) / len(shown)
        place[name] = (
            0.5 + 0.12 * math.cos(math.pi * (2 * at - 1)) * (-1) ** shown.index(name),
            0.05 + 0.9 * (1 - at),
        )
    return place


def _line(edge: Edge, place: dict[str, tuple[float, float]]) -> dict[str, Any]:
    (x, y), (x2, y2) = place[edge.cause], place[edge.effect]
    across, up = (x2 - x) * SIZE[0], (y2 - y) * SIZE[1]
    first, last = (_clear(name, across, up) for name in (edge.cause, edge.effect))
    length, middle = math.hypot(across, up) or 1.0, (1 + first - last) / 2
    aside = (BESIDE + BESIDE * abs(up) / length) / length  # a number is wider than high
    return {
        "x": x + first * (x2 - x),
        "y": y + first * (y2 - y),
        "x2": x2 - last * (x2 - x),
        "y2": y2 - last * (y2 - y),
        "mx": x + middle * (x2 - x) + aside * abs(up) / SIZE[0],
        "my": y + middle * (y2 - y) - aside * across * math.copysign(1, up) / SIZE[1],
        "angle": math.degrees(math.atan2(across, up)) % 360,
        "directed": edge.directed,
        "weight": 1.0 if edge.frequency is None else edge.frequency,
        "label": "" if edge.frequency is None else f"{edge.frequency:.2f}",
    }


def _clear(name: str, across: float, up: float) -> float:
    """The share of a line, so many pixels across and up, that lies inside the box of a name at its end."""
    wide, high = LETTER * len(name) / 2 + 8, LINE / 2 + 4
    sides = [half / abs(way) for half, way in ((wide, across), (high, up)) if way]
    return min([*sides, 0.4])
