"""A diagnosis as a page: on top what it means and what to do, below every number for who wants to check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from unskew.pages.curves import Point, curves_figure, points_of
from unskew.pages.documents.click_models import click_models_page
from unskew.pages.documents.diagnosis_parts import part_section
from unskew.pages.documents.diagnosis_words import EXAMINATION, HEADINGS, TERMS
from unskew.pages.page import WORDS_HEADING, Answer, Page, Section, Table
from unskew.settings import listed

TITLE = "What is wrong with this log, and can it be repaired?"
NEXT, VERDICTS, SEEN, METHODS = "What to do next", "Verdicts", "Who is looked at", "Methods, and what they assume"
TOP = (NEXT, VERDICTS, SEEN)
"""The sections that everybody reads."""
HOLDS = {True: "yes", False: "no", None: "cannot tell"}
REPAIR = {
    "yes": "and it can be repaired",
    "no": "and its clicks alone cannot repair it",
    "cannot tell": "and whether it can be repaired cannot be told",
}


def diagnosis_page(found: Mapping[str, Any], origin: str = "", command: str = "") -> Page:
    """The page of `Diagnosis.to_dict()`; `origin` and `command` are the page's."""
    top = [_next(found), Section(VERDICTS, answers=_answers(found)), _seen(found), _methods(found)]
    below = [part_section(found, key) for key in HEADINGS if found.get(key)]
    models = _models(found.get("models"))
    sections = [section for section in (*top, *below, *models) if section is not None]
    return Page(
        TITLE,
        _lead(found),
        sections,
        notes=_notes(found),
        origin=origin,
        terms=[*TERMS, *(click_models_page(found["models"]).terms if found.get("models") else ())],
        terms_heading=WORDS_HEADING,
        command=command,
    )


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
    """Is it biased, can it be repaired, and the first thing to do."""
    by_state: dict[str, list[str]] = {}
    for each in found["verdicts"]:
        by_state.setdefault(each["state"], []).append(each["name"])
    conclusion = found["conclusion"]
    if "present" in by_state:
        biased = f"This log is biased ({listed(by_state['present'])})"
    elif "cannot tell" in by_state:
        biased = "Whether this log is biased cannot be told for sure"
    else:
        biased = "No bias was found in this log"
    repair = REPAIR[conclusion["recoverable"]]
    if conclusion["recoverable"] == "yes" and "present" not in by_state:
        repair = "and its clicks tell relevance"
    first = f" Next: {found['advice'][0].removesuffix('.')}." if found["advice"] else ""
    return f"{biased}, {repair}: {conclusion['why']}.{first}"


def _next(found: Mapping[str, Any]) -> Section | None:
    """What to do, most useful first."""
    text = "\n\n".join(f"{at}. {_sentence(step)}" for at, step in enumerate(found["advice"], start=1))
    return Section(NEXT, text) if text else None


def _methods(found: Mapping[str, Any]) -> Section | None:
    """Whose assumptions hold."""
    rows = [
        [", ".join(each["methods"]), HOLDS[each["holds"]], each["why"]] for each in found["conclusion"]["methods"]
    ]
    heads = ("methods", "assumptions hold", "what they assume")
    return Section(METHODS, tables=[Table(heads, rows, text=heads[1:])]) if rows else None


def _seen(found: Mapping[str, Any]) -> Section | None:
    """The curve that everybody asks for."""
    chosen = _chosen(found)
    if chosen is None:
        parts = (found.get(key) or {} for key in ("interventions", "identifiability"))
        why = next((part["reason"] for part in parts if part.get("reason")), None)
        return Section(SEEN, f"This log cannot tell: {why}.") if why else None
    name, points = chosen
    rank, value, low, high = points[-1]
    spread = "" if low is None else f" ({low:.2f} to {high:.2f})"
    text = f"Rank {rank} is looked at {value:.2f}{spread} times as often as rank 1, by {name}."
    return Section(SEEN, text, figures=[curves_figure("Examination", {name: points}, EXAMINATION)])


def _chosen(found: Mapping[str, Any]) -> tuple[str, list[Point]] | None:
    """The curve to use, and how it was found."""
    told = found.get("interventions") or {}
    if told.get("chosen"):
        curve = told["curves"][told["chosen"]]
        return str(curve["found_by"]), points_of(curve["examination"], curve["interval"])
    within = found.get("identifiability") or {}
    points = points_of(within.get("examination") or (), within.get("interval"))
    return ("documents seen at several ranks", points) if len(points) > 1 else None


def _models(models: Mapping[str, Any] | None) -> Sequence[Section]:
    """The comparison of click models, its answer first."""
    if not models or not models.get("models"):
        return ()
    page = click_models_page(models)
    first, *others = (replace(section, heading=f"Click models: {section.heading}") for section in page.sections)
    return [replace(first, text=f"{page.lead}\n\n{first.text}"), *others]


def _notes(found: Mapping[str, Any]) -> list[str]:
    """What could not be told, and why."""
    lines = [f"Column {name} was left out: it {why}." for name, why in found["log"].get("left_out", {}).items()]
    for key, heading in HEADINGS.items():
        part = found.get(key)
        if isinstance(part, Mapping) and part.get("reason"):
            lines.append(f"{heading}: cannot tell; {part['reason']}.")
    return lines
