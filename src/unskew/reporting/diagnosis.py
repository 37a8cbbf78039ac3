"""A diagnosis as a page: on top what it means and what to do, below every number for who wants to check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unskew.reporting.click_models import click_models_page
from unskew.reporting.details import detail_tables, said, words
from unskew.reporting.diagnosis_figures import Point, curves_figure, links_figure, matrix_figure, points_of
from unskew.reporting.page import Answer, Figure, Page, Section, Table
from unskew.reporting.words import listed

TITLE = "What is wrong with this log, and can it be repaired?"
TOP = ("Verdicts", "Who is looked at", "What to do next")
"""The sections that everybody reads."""
STATES = ("present", "absent", "cannot tell")
HOLDS = {True: "yes", False: "no", None: "cannot tell"}
EXAMINATION = "examination relative to rank 1"
TEXTS = {
    "curves": "Who clicks where. Intervals are of pages, or of queries, drawn again, not of single rows.",
    "interventions": (
        "Documents that one query saw at several ranks, and shuffled pages: what differs between ranks is "
        "examination, since the document is the same. Estimators that disagree warn that something else moved too."
    ),
    "matrix": (
        "Click rates by relevance and rank. Where examination and relevance multiply, one singular value stands "
        "out; a second one says that a curve of positions is not enough. p is of one being enough."
    ),
    "trust": (
        "Does a click at the top mean less? Clicks are alpha times relevance plus beta; informative says how much "
        "a click tells, relative to rank 1."
    ),
    "factors": "Which columns of the page change clicks, at one rank and for one query and document.",
    "together": "Whether clicks of one page hang together: several kinds of people, or reading that ends.",
    "identifiability": (
        "Two ranks can be compared where a query saw a document at both. Ranks in different parts cannot; which "
        "links are weak, and which swaps would mend them, is told below."
    ),
    "log": "What was read.",
}
HEADINGS = {
    "curves": "Click curves",
    "interventions": "Examination: estimators and coverage",
    "matrix": "Click matrix",
    "trust": "Trust",
    "factors": "Other bias factors",
    "together": "Clicks of one page",
    "identifiability": "What can be told apart",
    "log": "The log",
}
"""The sections for engineers, in order, by their keys in the JSON."""


def diagnosis_page(found: Mapping[str, Any], origin: str = "", command: str = "") -> Page:
    """The page of `Diagnosis.to_dict()`; `origin` and `command` are the page's."""
    top = [Section("Verdicts", answers=_answers(found)), _seen(found), _next(found)]
    below = [_engineers(found, key) for key in HEADINGS if found.get(key)]
    models = _models(found.get("models"))
    sections = [section for section in (*top, *below, *models) if section is not None]
    return Page(TITLE, _lead(found), sections, notes=_notes(found), origin=origin, command=command)


def _answers(found: Mapping[str, Any]) -> list[Answer]:
    theirs = tuple(found["log"].get("segments", ()))
    answers = []
    for each in found["verdicts"]:
        evidence = each["evidence"]
        evidence = f"{evidence}." if theirs and evidence.startswith(theirs) else _sentence(evidence)
        answers.append(Answer(_capital(each["name"]), each["state"], evidence, _sentence(each["advice"])))
    return answers


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    """Words with a capital and a full stop.

    >>> _sentence("shuffle some pages")
    'Shuffle some pages.'
    """
    return _capital(text) + ("" if not text or text.endswith(".") else ".")


def _lead(found: Mapping[str, Any]) -> str:
    """Which biases there are, and whether relevance can be recovered."""
    by_state: dict[str, list[str]] = {}
    for each in found["verdicts"]:
        by_state.setdefault(each["state"], []).append(each["name"])
    said = [f"{_capital(state)}: {listed(by_state[state])}." for state in STATES if state in by_state]
    conclusion = found["conclusion"]
    can = f"Can relevance be recovered? {_capital(conclusion['recoverable'])}: {conclusion['why']}."
    return " ".join([*said, can])


def _next(found: Mapping[str, Any]) -> Section | None:
    """What to do, and whose assumptions hold."""
    rows = [
        [", ".join(each["methods"]), HOLDS[each["holds"]], each["why"]] for each in found["conclusion"]["methods"]
    ]
    table = Table(
        ("methods", "assumptions hold", "what they assume"), rows, text=("assumptions hold", "what they assume")
    )
    text = "\n\n".join(f"{at}. {_sentence(step)}" for at, step in enumerate(found["advice"], start=1))
    return Section("What to do next", text, [table]) if text or rows else None


def _seen(found: Mapping[str, Any]) -> Section | None:
    """The curve that everybody asks for."""
    chosen = _chosen(found)
    if chosen is None:
        parts = (found.get(key) or {} for key in ("interventions", "identifiability"))
        why = next((part["reason"] for part in parts if part.get("reason")), None)
        return Section("Who is looked at", f"This log cannot tell: {why}.") if why else None
    name, points = chosen
    rank, value, low, high = points[-1]
    spread = "" if low is None else f" ({low:.2f} to {high:.2f})"
    text = f"Rank {rank} is looked at {value:.2f}{spread} times as often as rank 1, by {name}."
    return Section("Who is looked at", text, figures=[curves_figure("Examination", {name: points}, EXAMINATION)])


def _chosen(found: Mapping[str, Any]) -> tuple[str, list[Point]] | None:
    """The curve to use, and how it was found."""
    told = found.get("interventions") or {}
    if told.get("chosen"):
        curve = told["curves"][told["chosen"]]
        return str(curve["found_by"]), points_of(curve["examination"], curve["interval"])
    within = found.get("identifiability") or {}
    points = points_of(within.get("examination") or (), within.get("interval"))
    return ("documents seen at several ranks", points) if len(points) > 1 else None


def _engineers(found: Mapping[str, Any], key: str) -> Section:
    """All numbers of a part, with its figures."""
    part = found[key]
    figures = FIGURES[key](part) if key in FIGURES else []
    tables = intervention_tables(part) if key == "interventions" else detail_tables(part)
    return Section(HEADINGS[key], TEXTS[key], tables, figures)


def intervention_tables(part: Mapping[str, Any]) -> list[Table]:
    """Estimators side by side by rank, why some tell nothing, whether they agree, and what they rest on."""
    rest = {key: value for key, value in part.items() if key not in ("curves", "contexts")}
    contexts = [
        table
        for each in part["contexts"]
        for table in (
            *_by_rank(each["curves"], f"by {each['segment']}"),
            *detail_tables({"p": each["p"], "reason": each["reason"]}, f"one curve for every {each['segment']}"),
        )
    ]
    return [*_by_rank(part["curves"], "by estimator"), *contexts, *detail_tables(rest)]


def _by_rank(curves: Mapping[str, Any], title: str) -> list[Table]:
    """A row for each rank, a column for each curve, and a table of what cannot be told."""
    ranks = max((len(curve["examination"]) for curve in curves.values()), default=0)
    rows = [[str(rank + 1), *(_at(curve, rank) for curve in curves.values())] for rank in range(ranks)]
    clicks = ["clicks", *(said(curve["clicks"]) for curve in curves.values())]
    reasons = [
        [name, why] for name, curve in curves.items() for why in dict.fromkeys(filter(None, curve["reason"]))
    ]
    tables = [Table(("rank", *map(words, curves)), [*rows, clicks], f"{EXAMINATION}, {title}")] if rows else []
    return tables + (
        [Table(("curve", "what it cannot tell"), reasons, text=("what it cannot tell",))] if reasons else []
    )


def _at(curve: Mapping[str, Any], rank: int) -> str:
    value = curve["examination"][rank] if rank < len(curve["examination"]) else None
    return said(value) + (f" ({said(curve['interval'][rank])})" if value is not None and rank else "")


def _curves_of(curves: Mapping[str, Any], title: str) -> list[Figure]:
    drawn = {name: points_of(curve["examination"], curve["interval"]) for name, curve in curves.items()}
    told = {name: points for name, points in drawn.items() if len(points) > 1}
    return [curves_figure(title, told, EXAMINATION)] if told else []


def _interventions(part: Mapping[str, Any]) -> list[Figure]:
    by_context = [
        figure for each in part["contexts"] for figure in _curves_of(each["curves"], f"By {each['segment']}")
    ]
    return [*_curves_of(part["curves"], "By estimator"), *by_context]


def _curves(part: Mapping[str, Any]) -> list[Figure]:
    """Click rates of the log, and of each segment by its values."""
    whole = {"all": points_of(part["rates"]["rate"], part["rates"]["interval"])}
    figures = [curves_figure("Click rate by rank", whole, "click rate")] if whole["all"] else []
    for each in part["segments"]:
        rates = {name: told for name, told in each["rates"].items() if told is not None}
        drawn = {name: points_of(told["rate"], told["interval"]) for name, told in rates.items()}
        kept = {name: points for name, points in drawn.items() if points}
        figures += [curves_figure(f"Click rate by {each['segment']}", kept, "click rate")] if kept else []
    return figures


def _matrix(part: Mapping[str, Any]) -> list[Figure]:
    return [matrix_figure("Click rates", part["levels"], part["ranks"], part["rates"])] if part["rates"] else []


def _trust(part: Mapping[str, Any]) -> list[Figure]:
    if not part["informative"]:
        return []
    points = points_of(part["informative"], part["informative_interval"])
    return [curves_figure("How much a click tells", {"a click": points}, "relative to rank 1")]


def _identifiability(part: Mapping[str, Any]) -> list[Figure]:
    return [links_figure(part)] if part["links"] else []


def _together(part: Mapping[str, Any]) -> list[Figure]:
    if not part["matrix"]:
        return []
    ranks = [f"rank {rank + 1}" for rank in range(len(part["matrix"]))]
    values = [[None if a == b else value for b, value in enumerate(row)] for a, row in enumerate(part["matrix"])]
    return [matrix_figure("How clicks hang together", ranks, range(1, len(ranks) + 1), values, least=0.1)]


FIGURES: Mapping[str, Callable[[Mapping[str, Any]], list[Figure]]] = {
    "curves": _curves,
    "interventions": _interventions,
    "matrix": _matrix,
    "trust": _trust,
    "identifiability": _identifiability,
    "together": _together,
}
"""The charts of the sections for engineers."""


def _models(models: Mapping[str, Any] | None) -> Sequence[Section]:
    """The comparison of click models, its answer first."""
    if not models or not models.get("models"):
        return ()
    page = click_models_page(models)
    first, *others = (replace(section, heading=f"Click models: {section.heading}") for section in page.sections)
    return [replace(first, text=f"{page.lead}\n\n{first.text}"), *others]


def _notes(found: Mapping[str, Any]) -> list[str]:
    """What could not be told, and why."""
    lines = []
    for key, heading in HEADINGS.items():
        part = found.get(key)
        if isinstance(part, Mapping) and part.get("reason"):
            lines.append(f"{heading}: cannot tell; {part['reason']}.")
    return lines
