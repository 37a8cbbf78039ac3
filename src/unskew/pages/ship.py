"""Whether a ranking may ship, as a page: the decision, who is seen more and less, and the evidence below."""

from __future__ import annotations

from collections.abc import Sequence

from unskew.measuring.exposure import GroupExposure
from unskew.measuring.shipping import Shipping
from unskew.pages.page import Page, Section, Table
from unskew.pages.proof import proof_sections

SEEN = (
    "Exposure is 1 / log2(1 + place), as a share of that of all results. Only results that the pages showed are "
    "placed; what the new ranking would bring in from elsewhere is not among them."
)
BOUNDS = {
    "bernstein": "It assumes that random slots were filled at random, and nothing of how gains are distributed.",
    "bootstrap": "It is the lowest end of the intervals that the verdict rests on, with clusters drawn again.",
    "none": "There is no bound: no estimate decides.",
}


def ship_page(found: Shipping, *, command: str = "") -> Page:
    """The page of a decision."""
    held = "what was shown" if found.against == "shown" else found.against
    sections = [
        Section(f"Decision: {found.decision}", "\n\n".join(_decision(found))),
        *_seen("Who is seen more, and who less: by how often a document was shown", found.familiarity),
        *_seen("Who is seen more, and who less: by group", found.groups),
        *proof_sections(found.evidence),
    ]
    return Page(f"May {found.name} replace {held}?", found.sentence, sections, command=command)


def _decision(found: Shipping) -> list[str]:
    """The bound, and how it was made, a paragraph each."""
    wanted = f"A gain of more than {found.at_least:.1%} is asked for, at a risk of {found.risk:.0%}."
    lower = "" if found.bound is None else f"Lower bound of the gain: {found.bound:+.2%} ({found.by})."
    wide = ""
    if found.bernstein is not None and found.by != "bernstein":
        wide = f"Bernstein's bound, which assumes less, is {found.bernstein:+.2%}."
    missing = found.evidence.missing_overlap
    unseen = (
        "" if not missing else f"{missing:.0%} of its first results were on no page: nothing is known of them."
    )
    return [text for text in (wanted, f"{lower} {BOUNDS[found.by]}".strip(), wide, unseen) if text]


def _seen(heading: str, groups: Sequence[GroupExposure]) -> list[Section]:
    """A table of groups; none where there are none."""
    if not groups:
        return []
    rows = [
        [
            str(each.group),
            f"{each.impressions:,}",
            f"{each.other:.1%}",
            f"{each.new:.1%}",
            f"{each.change:+.1%}",
        ]
        for each in groups
    ]
    return [Section(heading, SEEN, [Table(("documents", "impressions", "before", "after", "change"), rows)])]
