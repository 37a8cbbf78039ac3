"""A diagnosis as a page: on top what it means and what to do, below every number for who wants to check."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from unskew.diagnosis.click_models.comparison import ClickModelComparison
from unskew.diagnosis.curves.ordering import LITTLE, MUCH
from unskew.diagnosis.diagnosis import Diagnosis
from unskew.pages.documents.diagnosis_parts import EXAMINATION, HEADINGS, PARTS, TERMS, TEXTS, sentence
from unskew.pages.documents.inspections import click_models_page
from unskew.pages.figures import curves_figure, points_of
from unskew.pages.numbers import said
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
LONG = 8
"""Rows past which a table is folded."""


def diagnosis_page(found: Diagnosis, origin: str = "", command: str = "") -> Page:
    """The page of a diagnosis; `origin` and `command` are the page's."""
    top = [_next(found), Section(VERDICTS, answers=_answers(found)), _seen(found), _methods(found)]
    below = [_part(found, key) for key in HEADINGS if _of(found, key)]
    models = _models(found.models)
    return Page(
        TITLE,
        _lead(found),
        [*top, *below, *models],
        notes=_notes(found),
        origin=origin,
        terms=[*TERMS, *(click_models_page(found.models).terms if found.models else ())],
        terms_heading=WORDS_HEADING,
        command=command,
    )


def _answers(found: Diagnosis) -> list[Answer]:
    """A card for each verdict; names of columns that begin a sentence are left as they are."""
    theirs = tuple(found.log.get("segments", ()))
    answers = []
    for each in found.verdicts:
        text = f"{each.evidence}." if theirs and each.evidence.startswith(theirs) else sentence(each.evidence)
        answers.append(Answer(sentence(each.name)[:-1], each.state, text, sentence(each.advice.text)))
    return answers


def _lead(found: Diagnosis) -> str:
    """Is it biased, can it be repaired, and the first thing to do."""
    by_state: dict[str, list[str]] = {}
    for each in found.verdicts:
        by_state.setdefault(each.state, []).append(each.name)
    conclusion = found.conclusion
    if "present" in by_state:
        biased = f"This log is biased ({listed(by_state['present'])})"
    elif "cannot tell" in by_state:
        biased = "Whether this log is biased cannot be told for sure"
    else:
        biased = "No bias was found in this log"
    repair = REPAIR[conclusion.recoverable]
    if conclusion.recoverable == "yes" and "present" not in by_state:
        repair = "and its clicks tell relevance"
    first = f" Next: {conclusion.next[0].text.removesuffix('.')}." if conclusion.next else ""
    return f"{biased}, {repair}: {conclusion.why}.{first}"


def _next(found: Diagnosis) -> Section:
    steps = found.conclusion.next
    text = "\n\n".join(f"{at}. {sentence(step.text)}" for at, step in enumerate(steps, start=1))
    return Section(NEXT, text, code=list(dict.fromkeys(step.command for step in steps)))


def _methods(found: Diagnosis) -> Section:
    rows = [[", ".join(each.methods), HOLDS[each.holds], each.why] for each in found.conclusion.methods]
    heads = ("methods", "assumptions hold", "what they assume")
    return Section(METHODS, tables=[Table(heads, rows, text=heads[1:])])


def _seen(found: Diagnosis) -> Section:
    """The curve that everybody asks for, or why there is none."""
    if found.evidence.chosen is None:
        return Section(SEEN, f"This log cannot tell: {found.evidence.reason}.")
    curve = found.evidence.examination
    points = points_of(curve.theta, curve.interval)
    rank, value, low, high = points[-1]
    spread = "" if low is None else f" ({low:.2f} to {high:.2f})"
    text = f"Rank {rank} is looked at {value:.2f}{spread} times as often as rank 1, by {curve.found_by}."
    if (engine := found.engine) is not None:
        text += (
            f"\n\nThe order shown: once looked at, what stands at rank 1 is clicked {engine.steepness:.1f} times "
            f"as often as what stands at rank {len(engine.relevance)}. The larger that is, the better the order "
            "is already, and the more a ranker gains by beginning from it, as `unskew learn` does."
        )
    if found.headroom is not None:
        text += f"\n\n{found.headroom.sentence}"
    return Section(SEEN, text, figures=[curves_figure("Examination", {curve.found_by: points}, EXAMINATION)])


def _models(models: ClickModelComparison | None) -> Sequence[Section]:
    if models is None or not models.models:
        return ()
    page = click_models_page(models)
    first, *others = (replace(section, heading=f"Click models: {section.heading}") for section in page.sections)
    return [replace(first, text=f"{page.lead}\n\n{first.text}"), *others]


# ---- for engineers ----


def _of(found: Diagnosis, key: str) -> Any:
    return found.evidence.graph if key == "graph" else getattr(found, key)


def _part(found: Diagnosis, key: str) -> Section:
    """All numbers of a part, with its figures."""
    part = _of(found, key)
    tables, figures = PARTS[key](part)
    more = _by_features(part) if key == "ordering" else _untold(part)
    folded = [replace(table, folded=bool(table.title) and len(table.rows) > LONG) for table in tables]
    return Section(HEADINGS[key], "\n\n".join(filter(None, (more, TEXTS[key]))), folded, figures)


def _untold(part: Any) -> str:
    reason = getattr(part, "reason", None)
    return f"This log cannot tell: {reason}." if reason else ""


def _by_features(part: Any) -> str:
    if part.correlation is None:
        return _untold(part)
    strong = "Features hardly tell the rank" if part.correlation < LITTLE else "Features tell some of the rank"
    if part.correlation >= MUCH:
        strong = "Features tell the rank: two towers would put relevance into the rank"
    how = f"within a page, the order by features and the one shown correlate by {said(part.correlation)}"
    return f"{strong}; {how}."


def _notes(found: Diagnosis) -> list[str]:
    lines = [f"Column {name} was left out: it {why}." for name, why in found.log.get("left_out", {}).items()]
    reasons = {heading: getattr(_of(found, key), "reason", None) for key, heading in HEADINGS.items()}
    return lines + [f"{heading}: cannot tell; {reason}." for heading, reason in reasons.items() if reason]
