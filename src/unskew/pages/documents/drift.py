"""What changed from one log to another, as a page: what it means on top, numbers below."""

from unskew.diagnosis.drift import Drift
from unskew.pages.numbers import number, record_table, words
from unskew.pages.page import Answer, Page, Section, Table

TITLE = "Did this search drift, and do propensities still hold?"
ADVICE = {
    "click curve": "Measure propensities again (`unskew diagnose`), and learn again.",
    "examination": "Measure propensities again (`unskew diagnose`), and learn again.",
    "clicks per page": "Look for a change of the page, of counting, or of the season.",
    "queries": "Learn again on traffic of now; measure on it.",
    "documents": "Learn again on traffic of now, with features of the new documents.",
    "page length": "Ranks that the old log did not show have no propensity: measure them again.",
}
"""What to do where something has changed; other names are mixes of segments."""
FACTS = ("pages", "impressions", "clicks", "queries", "query_documents", "shuffled_pages", "ranks")


def drift_page(found: Drift, command: str = "") -> Page:
    """The page of what changed."""
    facts = [
        {"": words(name), "old": found.old[name], "new": found.new[name]} for name in FACTS if name in found.old
    ]
    answers, tables = [], [record_table(facts, "The logs")]
    for each in found.findings:
        name = each.name.capitalize() if each.name in ADVICE else each.name
        advice = ADVICE.get(each.name, "See whether ranks are looked at alike for all.")
        answers.append(Answer(name, each.state, each.text, advice if each.state == "present" else ""))
        ratios = (each.numbers or {}).get("ratio_by_rank") or {}
        rows = [[rank, *(number(value, ".2f") for value in ends)] for rank, ends in ratios.items()]
        title = f"{each.name.capitalize()}: looked at now over before, relative to rank 1"
        tables += [Table(("rank", "ratio", "low", "high"), rows, title)] if rows else []
    sections = [Section("What changed", answers=answers), Section("Numbers", tables=tables)]
    return Page(TITLE, found.sentence, sections, command=command)
