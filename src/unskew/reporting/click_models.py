"""Click models compared, as a page: which one explains held-out clicks best, and by rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from unskew.reporting.figures import WIDTH
from unskew.reporting.numbers import number
from unskew.reporting.page import BEST, Figure, Page, Section, Table
from unskew.reporting.words import listed

COLUMNS = (
    "model",
    "log-likelihood",
    "behind",
    "± SE",
    "perplexity",
    "conditional",
    "parameters",
    "rounds",
    "seconds",
)
HOW = (
    "Mean log-likelihood of a held-out page; how far below the best, with its standard error over queries; "
    "perplexity of each click by itself, and of each given the clicks above it: 1 is certain and right, 2 a coin."
)


def click_models_page(found: Mapping[str, Any], origin: str = "", command: str = "") -> Page:
    """What `fit_and_compare` found, as `to_dict` says it; `origin` and `command` are the page's."""
    level = [name for name in found["level"] if name != found["best"]]
    lead = f"{found['best']} explains the {found['held_out']:,} held-out pages best."
    if level:
        lead += f" {listed(level)} {'is' if len(level) == 1 else 'are'} not clearly worse."
    rows = [_row(model) for model in found["models"]]
    strangers = (
        f"{found['unseen']:,} of {found['impressions']:,} held-out impressions are of documents that were never "
        "shown in the pages fitted on; the mean of the prior stands for them."
    )
    slow = [model["name"] for model in found["models"] if not model["converged"]]
    stopped = [f"{listed(slow)} had not come to rest after all rounds."] if slow else []
    table = Table(COLUMNS, rows, wide=("seconds", "rounds", "parameters"), marks={(0, 1): BEST}, legend=HOW)
    return Page(
        "Click models",
        lead,
        [
            Section("Held-out clicks", f"Fitted on {found['pages']:,} pages.", [table]),
            Section("By rank", figures=[_by_rank(found)]),
        ],
        notes=[strangers, *found["notes"], *stopped],
        origin=origin,
        command=command,
    )


def _row(model: Mapping[str, Any]) -> list[str]:
    error = model["standard_error"]
    return [
        model["name"],
        number(model["log_likelihood"], ".4f"),
        number(model["behind"], ".4f"),
        "" if error is None else number(error, ".4f"),
        number(model["perplexity"], ".4f"),
        number(model["conditional_perplexity"], ".4f"),
        f"{model['parameters']:,}",
        str(model["rounds"]),
        number(model["seconds"], ".1f"),
    ]


def _by_rank(found: Mapping[str, Any]) -> Figure:
    """Conditional perplexity of every model along the ranks."""
    points = [
        {
            "model": model["name"],
            "rank": int(rank),
            "perplexity": value,
            "says": f"{model['name']}, rank {rank}: {value:.4f}",
        }
        for model in found["models"]
        for rank, value in model["conditional_perplexity_by_rank"].items()
    ]
    names = [model["name"] for model in found["models"]]
    chart = alt.Chart({"values": points}).mark_line(point=True, strokeWidth=2)
    drawn = chart.encode(
        x=alt.X("rank:O", title="rank shown", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("perplexity:Q", title="conditional perplexity", scale=alt.Scale(zero=False)),
        color=alt.Color("model:N", sort=names, title="model"),
        description="says:N",
    )
    told = "Conditional perplexity of held-out clicks by rank, a line for each click model."
    best = found["models"][0]
    lines = [f"rank {rank}: {value:.4f}" for rank, value in best["conditional_perplexity_by_rank"].items()]
    return Figure(
        drawn.properties(width=WIDTH, title="Perplexity by rank", description=told), [f"{best['name']}:", *lines]
    )
