"""An examination model as a page: how well it tells, how well it is calibrated, and who is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from unskew.pages.console import bar_lines
from unskew.pages.figures import WIDTH
from unskew.pages.numbers import number
from unskew.pages.page import Figure, Page, Section, Table


def examination_page(facts: Mapping[str, Any], origin: str = "", command: str = "") -> Page:
    """What `examination` found; `origin` and `command` are the page's."""
    lead = (
        f"On {facts['tested_on']:,} impressions of held-out pages with a clear display time the AUC is "
        f"{facts['auc']:.3f}, and the share examined is off by {facts['calibration_error']:.3f} on average."
    )
    rows = [
        [f"{row['impressions']:,}", number(row["predicted"], ".3f"), number(row["examined"], ".3f")]
        for row in facts["calibration"]
    ]
    return Page(
        "Examination learned from display times",
        lead,
        sections=[
            Section(
                "Who was looked at: mean examination",
                figures=[
                    _curve("By position", facts["by_position"], "position", "rank shown"),
                    _curve("Below the last click", _below(facts), "below", "ranks below the last click"),
                ],
            ),
            Section(
                "Calibration on held-out pages",
                tables=[Table(("impressions", "predicted", "examined"), rows)],
            ),
        ],
        notes=[f"{facts['trained_on']:,} impressions were trained on; log loss {facts['log_loss']:.4f}."],
        origin=origin,
        command=command,
    )


def _below(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The curve below the last click, with words for where a result stands."""
    rows = facts["below_last_click"]
    return [{**row, "below": str(row["below"]) if row["below"] else "click"} for row in rows]


def _curve(title: str, rows: Sequence[Mapping[str, Any]], key: str, axis: str) -> Figure:
    """Mean examination along an axis, as a figure and as bars of letters."""
    points = [
        {**row, "says": f"{axis} {row[key]}: {row['mean']:.3f} of {row['impressions']:,} impressions"}
        for row in rows
    ]
    chart = alt.Chart({"values": points}).mark_line(point=True, strokeWidth=2)
    encoded = chart.encode(
        x=alt.X(f"{key}:O", title=axis, sort=None, axis=alt.Axis(labelAngle=0)),
        y=alt.Y("mean:Q", title="mean examination", scale=alt.Scale(domain=[0, 1])),
        description="says:N",
    )
    said = [f"{row['mean']:.3f}  {row['impressions']:,}" for row in rows]
    bars = bar_lines({row[key]: row["mean"] for row in rows}, said)
    told = ", ".join(f"{row[key]}: {row['mean']:.2f}" for row in rows)
    about = {"title": title, "description": f"Mean examination by {axis}. {told}."}
    return Figure(encoded.properties(width=WIDTH, height=220, **about), [title, *bars])
