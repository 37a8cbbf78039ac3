"""An examination model as a page: how well it tells, how well it is calibrated, and who is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unskew.pages.figures import curves_figure
from unskew.pages.numbers import record_table
from unskew.pages.page import Figure, Page, Section
from unskew.tracking.display_times import LearnedExamination


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
