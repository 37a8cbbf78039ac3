"""What was found of a log by models, as pages: causes of clicks, click models, examination, and a twin."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from unskew.diagnosis.causal.graph import CLICK, RELEVANCE, CausalGraph, Edge, tier
from unskew.diagnosis.click_models.comparison import ClickModelComparison, ComparedModel
from unskew.measuring.portrait import Portrait, TwinReport
from unskew.pages.colours import INK, SOFT
from unskew.pages.figures import Point, curves_figure, points_of
from unskew.pages.numbers import number, p_value, record_table
from unskew.pages.page import BEST, WORDS_HEADING, Figure, Page, Section, Table, Term
from unskew.settings import listed

if TYPE_CHECKING:
    from unskew.tracking.display_times import LearnedExamination

# ---- causes of clicks ----

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


# ---- click models ----

HOW = (
    "Mean log-likelihood of a held-out page; how far below the best, with its standard error over queries; "
    "perplexity of each click by itself, and of each given the clicks above it: 1 is certain and right, 2 a coin."
)

FEW = 5
"""Models of the first chart."""
MODELS = {
    "rcm": "A click needs nothing: one rate for all.",
    "rctr": "A click needs the rank.",
    "dctr": "A click needs the document.",
    "pbm": "A click needs that the rank is examined and that the document attracts.",
    "ubm": "As pbm; examination depends on the last click above too.",
    "cascade": "Readers go down from the top to their only click.",
    "dcm": "As cascade; after a click readers go on by a chance of the rank.",
    "sdbn": "Readers go on until a clicked document satisfies them.",
    "dbn": "As sdbn, and readers may lose patience.",
    "ccm": "Readers go on by a chance that depends on the relevance of what they clicked.",
}
"""What click models assume, in a sentence."""
WORDS = (
    Term("log-likelihood", "Of a held-out page, in natural logarithms; closer to 0 is better."),
    Term("behind", "How far a model is below the best; within two standard errors (SE) it is a tie."),
    Term("perplexity", "How much a click surprises: 1 where every one was foreseen, 2 where a coin does as well."),
    Term("conditional", "Perplexity given the clicks above: what a model knows of how pages are read on."),
    Term("held-out page", "A page that was not fitted on."),
)


def click_models_page(found: ClickModelComparison, origin: str = "", command: str = "") -> Page:
    """What `fit_and_compare` found; `origin` and `command` are the page's."""
    level = [name for name in found.level if name != found.best]
    lead = f"{found.best} explains the {found.held_out:,} held-out pages best."
    if level:
        lead += f" {listed(level)} {'is' if len(level) == 1 else 'are'} not clearly worse."
    strangers = (
        f"{found.unseen:,} of {found.impressions:,} held-out impressions are of documents that were never "
        "shown in the pages fitted on; they are taken for results beyond the last rank."
    )
    slow = [model.name for model in found.models if not model.converged]
    stopped = [f"{listed(slow)} had not come to rest after all rounds."] if slow else []
    # the best models by themselves, where lines lie close, and all of them
    few = [_by_rank(f"The best {FEW}", found.models[:FEW])] if len(found.models) > FEW else []
    figures = [*few, _by_rank("All models" if few else "Perplexity by rank", found.models)]
    named = dict.fromkeys(part for model in found.models for part in model.name.split("+"))
    return Page(
        "Click models",
        lead,
        [
            Section("Held-out clicks", f"Fitted on {found.pages:,} pages.", [_table(found.models)]),
            Section("By rank", figures=figures),
        ],
        notes=[strangers, *found.notes, *stopped],
        origin=origin,
        terms=[*(Term(name, MODELS[name]) for name in named if name in MODELS), *WORDS],
        terms_heading=WORDS_HEADING,
        command=command,
    )


def _table(models: Sequence[ComparedModel]) -> Table:
    rows = [
        {
            "model": model.name,
            "log-likelihood": number(model.log_likelihood),
            "behind": number(model.behind),
            "± SE": number(model.standard_error, empty=""),
            "perplexity": number(model.perplexity),
            "conditional": number(model.conditional_perplexity),
            "parameters": f"{model.parameters:,}",
            "rounds": str(model.rounds),
            "seconds": number(model.seconds, ".1f"),
        }
        for model in models
    ]
    return Table.of(rows, wide=("seconds", "rounds", "parameters"), marks={(0, 1): BEST}, legend=HOW)


def _by_rank(title: str, models: Sequence[ComparedModel]) -> Figure:
    curves: dict[str, list[Point]] = {}
    for model in models:
        by_rank = model.conditional_perplexity_by_rank.items()
        curves[model.name] = [(rank, value, None, None) for rank, value in by_rank if value is not None]
    return curves_figure(title, curves, "conditional perplexity", from_zero=False)


# ---- examination by display times ----


def examination_page(found: LearnedExamination, origin: str = "", command: str = "") -> Page:
    """What `display_times` found; `origin` and `command` are the page's."""
    lead = (
        f"On {found.tested_on:,} impressions of held-out pages with a clear display time the AUC is "
        f"{found.auc:.3f}, and the share examined is off by {found.calibration_error:.3f} on average."
    )
    below = [{**row, "below": str(row["below"] or "click")} for row in found.below_last_click]
    figures = [
        _curve("By position", found.by_position, "position", "rank"),
        _curve("Below the last click", below, "below", "ranks below the last click"),
    ]
    return Page(
        "Examination learned from display times",
        lead,
        [
            Section("Who was looked at: mean examination", figures=figures),
            Section("Calibration on held-out pages", tables=[record_table(found.calibration, "")]),
        ],
        notes=[f"{found.trained_on:,} impressions were trained on; log loss {found.log_loss:.4f}."],
        origin=origin,
        command=command,
    )


def _curve(title: str, rows: Sequence[Mapping[str, Any]], key: str, along: str) -> Figure:
    points = [(row[key], row["mean"], None, None) for row in rows]
    return curves_figure(title, {"examination": points}, "mean examination", along=along)


# ---- twins ----

HEADS = ("1 %", "10 %", "50 %")


def twin_page(told: TwinReport, origin: str = "", command: str = "") -> Page:
    """A twin beside its log, as a page."""
    log, twin, off = told.log, told.twin, told.ranks_off
    rates = {"log": points_of(log.rate, log.interval), "twin": points_of(twin.rate, twin.interval)}
    first = {"log": points_of(log.first), "twin": points_of(twin.first)}
    seen = {"log": points_of(told.examination_in_the_log)} if told.identified else {}
    seen["twin"] = points_of(told.examination)
    source = f"The log does not tell it: {told.examination_from}. What rests on it is assumed."
    if told.identified:
        source = f"From {told.examination_from}. The twin's own curve is measured on shuffled pages of the twin."
    at = f"rank{'s' * (len(off) > 1)} {', '.join(map(str, off))}"
    met = f"is off at {at}" if off else "meets the log at every rank"
    return Page(
        "Twin of a log",
        f"The twin, by the click model {told.model}, {met}.",
        [
            Section("Clicks by rank", figures=[curves_figure("Click rate by rank", rates, "click rate")]),
            Section("Examination", source, figures=[curves_figure("Examination", seen, "examination")]),
            Section("First clicks", figures=[curves_figure("First click", first, "share of pages")]),
            Section("Pages", tables=[_clicks(log, twin), _mix(log, twin)]),
        ],
        notes=told.notes,
        origin=origin,
        command=command,
    )


def _clicks(log: Portrait, twin: Portrait) -> Table:
    most = len(log.clicks) - 1
    names = [*map(str, range(most)), f"{most} or more"]
    return Table(["clicks of a page", "log", "twin"], _rows(names, log.clicks, twin.clicks))


def _mix(log: Portrait, twin: Portrait) -> Table:
    names = [f"pages of the {head} most frequent queries" for head in HEADS]
    rows = _rows(names, log.head, twin.head)
    if log.changing is not None and twin.changing is not None:
        rows += _rows(["queries shown in several orders"], [log.changing], [twin.changing])
    return Table(["share of", "log", "twin"], rows)


def _rows(names: Sequence[str], log: Sequence[float], twin: Sequence[float]) -> list[list[str]]:
    return [[name, f"{a:.1%}", f"{b:.1%}"] for name, a, b in zip(names, log, twin, strict=True)]
