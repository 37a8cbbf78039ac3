"""The sections of a diagnosis for engineers: all numbers of a part in tables, and its charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from unskew.diagnosis.curves.ordering import LITTLE, MUCH
from unskew.diagnosis.evidence.segments import in_order
from unskew.pages.curves import curves_figure, links_figure, matrix_figure, points_of
from unskew.pages.details import detail_tables, said
from unskew.pages.documents.diagnosis_tables import TABLES, Part
from unskew.pages.documents.diagnosis_words import EXAMINATION, HEADINGS, TEXTS
from unskew.pages.page import Figure, Section, Table

LONG = 8
"""Rows past which a table is folded."""


def part_section(found: Part, key: str) -> Section:
    """All numbers of a part, with its figures."""
    part = found[key]
    figures = FIGURES[key](part) if key in FIGURES else []
    tables = [_folded(table) for table in TABLES.get(key, detail_tables)(_told(part))]
    more = SENTENCES[key](part) if key in SENTENCES else _untold(part)
    return Section(HEADINGS[key], "\n\n".join(filter(None, (more, TEXTS[key]))), tables, figures)


def _told(part: Part) -> Part:
    """A part without what it does not tell, where it says why."""
    kept = {key: value for key, value in part.items() if value not in (None, [], ()) and key != "reason"}
    return kept if part.get("reason") else part


def _untold(part: Part) -> str:
    return f"This log cannot tell: {part['reason']}." if part.get("reason") else ""


def _folded(table: Table) -> Table:
    """A long table is shown when asked for."""
    return replace(table, folded=bool(table.title) and len(table.rows) > LONG)


def _linked(part: Part) -> str:
    """Which links are drawn."""
    drawn, all_of = part["drawn"], len(part["links"])
    if not all_of:
        return _untold(part)
    which = f"the {drawn} best known of {all_of:,} links" if drawn < all_of else f"all {all_of:,} links"
    return f"The graph draws {which}: thick where much is known, orange where the ratio of neighbours is not."


def _by_features(part: Part) -> str:
    """How far features tell the rank, in a sentence."""
    if part["correlation"] is None:
        return _untold(part)
    strong = "Features tell the rank" if part["correlation"] >= MUCH else "Features hardly tell the rank"
    strong = "Features tell some of the rank" if LITTLE <= part["correlation"] < MUCH else strong
    harm = ": two towers would put relevance into the rank" if part["correlation"] >= MUCH else ""
    how = f"within a page, the order by features and the one shown correlate by {said(part['correlation'])}"
    return f"{strong}{harm}; {how}."


SENTENCES: Mapping[str, Callable[[Part], str]] = {"identifiability": _linked, "ordering": _by_features}
"""What is said first of a part."""


# ---- charts ----


def _curves_of(curves: Mapping[str, Any], title: str) -> list[Figure]:
    drawn = {name: points_of(curves[name]["examination"], curves[name]["interval"]) for name in curves}
    told = {name: points for name, points in drawn.items() if len(points) > 1}
    return [curves_figure(title, told, EXAMINATION)] if told else []


def _interventions(part: Part) -> list[Figure]:
    figures = _curves_of(part["curves"], "By estimator")
    for each in part["contexts"]:
        figures += _curves_of(
            {name: each["curves"][name] for name in in_order(each["curves"])}, f"By {each['segment']}"
        )
    return figures


def _curves(part: Part) -> list[Figure]:
    """Click rates of the log, and of each segment by its values."""
    whole = {"all": points_of(part["rates"]["rate"], part["rates"]["interval"])}
    figures = [curves_figure("Click rate by rank", whole, "click rate")] if whole["all"] else []
    for each in part["segments"]:
        rates = {name: each["rates"][name] for name in in_order(each["rates"]) if each["rates"][name] is not None}
        drawn = {name: points_of(told["rate"], told["interval"]) for name, told in rates.items()}
        kept = {name: points for name, points in drawn.items() if points}
        figures += [curves_figure(f"Click rate by {each['segment']}", kept, "click rate")] if kept else []
    return figures


def _matrix(part: Part) -> list[Figure]:
    return [matrix_figure("Click rates", part["levels"], part["ranks"], part["rates"])] if part["rates"] else []


def _trust(part: Part) -> list[Figure]:
    if not part["informative"]:
        return []
    points = points_of(part["informative"], part["informative_interval"])
    return [curves_figure("How much a click tells", {"a click": points}, "relative to rank 1")]


def _identifiability(part: Part) -> list[Figure]:
    return [links_figure(part)] if part["links"] else []


def _together(part: Part) -> list[Figure]:
    if not part["matrix"]:
        return []
    ranks = [f"rank {rank + 1}" for rank in range(len(part["matrix"]))]
    values = [[None if a == b else value for b, value in enumerate(row)] for a, row in enumerate(part["matrix"])]
    return [matrix_figure("How clicks hang together", ranks, range(1, len(ranks) + 1), values, least=0.1)]


def _ordering(part: Part) -> list[Figure]:
    points = points_of(part["predicted"], part["spread"])
    return (
        [curves_figure("Place by features, for what was shown", {"by features": points}, "mean place by features")]
        if points
        else []
    )


FIGURES: Mapping[str, Callable[[Part], list[Figure]]] = {
    "curves": _curves,
    "interventions": _interventions,
    "matrix": _matrix,
    "judged": _matrix,
    "trust": _trust,
    "identifiability": _identifiability,
    "together": _together,
    "ordering": _ordering,
}
"""The charts of the sections."""
