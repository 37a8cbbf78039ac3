"""What to expect of shuffled pages, numbers of pages and methods, as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unskew.pages.page import Page, Section, Table

HOW = (
    "Found: how often the best order of the results was found better than the one shown, by clicks alone. "
    "Smallest gain: the gain in DCG@10, as a share of what is shown, that would be found 8 times in 10, by the "
    "estimate named. Examination: how far the curve that such a log tells is off, on average over ranks."
)
LEARNED = "Methods: true nDCG@10 on queries that they have not seen, after learning from such a log."


def plan_page(told: Mapping[str, Any], origin: str = "", command: str = "") -> Page:
    """What `Plan.to_dict` says, as a page."""
    methods = list(told["cells"][0]["ndcg"]) if told["cells"] else []
    columns = ["shuffled", "pages", "days", "found", "smallest gain", "by", "examination off", *methods]
    rows = [_row(cell, methods) for cell in told["cells"]]
    legend = f"{HOW} {LEARNED}" if methods else HOW
    table = Table(columns, rows, text=["by"], wide=["examination off", "by"], legend=legend).without_empty(but=2)
    shown = told["shown_ndcg"]
    known = [] if shown is None else [f"The order shown has a true nDCG@10 of {shown:.4f} on those queries."]
    return Page(
        "What to expect",
        lead(told),
        [Section("On a twin of the log", tables=[table])],
        notes=[*known, *told["notes"]],
        origin=origin,
        command=command,
    )


def lead(told: Mapping[str, Any]) -> str:
    """The cheapest cell that finds the gain there is, and the best method there."""
    sure = [cell for cell in told["cells"] if cell["found"] == cell["repeats"]]
    gain = f"The best order of the results is worth {told['gain']:+.1%} in DCG@10 over the one shown"
    if not sure:
        return f"{gain}; none of these logs was sure to find even that. Try more pages, or a larger share."
    first = min(sure, key=lambda cell: (cell["share"] * cell["pages"], cell["pages"]))
    said = f"{gain}; {first['pages']:,} pages with {first['share']:.1%} shuffled found it every time."
    return said + _best(told["cells"])


def _best(cells: Sequence[Mapping[str, Any]]) -> str:
    """The method that was best on average."""
    means: dict[str, list[float]] = {}
    for cell in cells:
        for method, value in cell["ndcg"].items():
            means.setdefault(method, []).extend([] if value is None else [value])
    known = {method: sum(values) / len(values) for method, values in means.items() if len(values) == len(cells)}
    if len(known) < 2:
        return ""
    best = max(known, key=lambda method: known[method])
    return f" Of the methods {best} ranked best on average."


def _row(cell: Mapping[str, Any], methods: Sequence[str]) -> list[str]:
    off, smallest, days = cell["examination_off"], cell["smallest"], cell["days"]
    wrong = f", {cell['wrong']} worse" if cell["wrong"] else ""
    return [
        f"{cell['share']:.1%}",
        f"{cell['pages']:,}",
        "" if days is None else f"{days:,.1f}",
        f"{cell['found']} of {cell['repeats']}{wrong}",
        "cannot tell" if smallest is None else f"{smallest:.1%}",
        cell["by"] or "",
        "not known" if off is None else f"{off:.3f}",
        *("" if cell["ndcg"][method] is None else f"{cell['ndcg'][method]:.4f}" for method in methods),
    ]
