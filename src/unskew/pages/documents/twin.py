"""A twin beside its log as a page: clicks by rank and per page, first clicks, query frequencies, examination."""

from __future__ import annotations

from collections.abc import Sequence

from unskew.measuring.portrait import Portrait, TwinReport
from unskew.pages.figures import curves_figure, points_of
from unskew.pages.page import Page, Section, Table

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
