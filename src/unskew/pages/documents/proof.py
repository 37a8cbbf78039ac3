"""Whether a ranking is better than another, and whether it may ship, as pages: verdict, estimates, assumptions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from unskew.measuring.counterfactual.evidence import ClickEvidence, GainEstimate
from unskew.measuring.shipping import GroupExposure, Shipping
from unskew.pages.figures import gains_figure
from unskew.pages.numbers import record_table, span
from unskew.pages.page import Page, Section, Table

DECIDES, SHOWN = "decides", "shown beside"
HOW = (
    "Each line is the change in per cent of what it is held against, with its interval. All are of the same "
    "clicks, page by page. They assume different things, so where they agree the answer depends on none of them. "
    "What runs out of the chart is in the table."
)
ASSUMES = "An estimate is right where what it assumes is true; read the ones that you believe."


def proof_page(
    found: ClickEvidence, new: str, other: str = "shown", *, origin: str = "", command: str = ""
) -> Page:
    """The page of evidence for a ranking `new` held against `other`."""
    title = f"Is {new} better than {'what was shown' if other == 'shown' else other}?"
    return Page(title, found.sentence, proof_sections(found), origin=origin, command=command)


def proof_sections(found: ClickEvidence) -> list[Section]:
    """What was found of a ranking by clicks: verdict, estimates, assumptions."""
    told = [each for each in found.estimates if each.difference is not None]
    rows = [row for each in told if (row := _relative(each, found.decided_by)) is not None]
    title = "Right of the dashed line is better, left of it worse"
    figures = [gains_figure(title, rows, "change in %", (DECIDES, SHOWN))] if rows else []
    assumed = [
        {"estimate": each.name, "assumes": each.assumes, "part": _part(each, found.decided_by)}
        for each in found.estimates
    ]
    sections = [Section(f"Verdict: {found.verdict}", "\n\n".join(_verdict(found)))]
    if told:
        sections.append(Section("What each estimate says", HOW, [_estimates(told)], figures))
    table = Table.of(assumed, text=("assumes", "part"))
    return [*sections, Section("What each estimate assumes", ASSUMES, [table])]


def _verdict(found: ClickEvidence) -> list[str]:
    """What the verdict rests on and what it leaves open, a paragraph each; its sentence leads the page."""
    said = [found.agreement]
    if found.pages_needed is not None and found.verdict == "cannot tell":
        said.append(f"About {found.pages_needed:,} shuffled pages would decide a difference of this size.")
    if found.heavy is not None and found.heavy.holds is not None:
        holds = "it holds" if found.heavy.holds else "it does not hold"
        said.append(
            f"Without the clicks of {found.heavy.named}, the most and {found.heavy.share:.0%} of all, {holds}."
        )
    if found.missing_overlap:
        said.append(
            f"{found.missing_overlap:.0%} of the results that it would put first are not on these pages: "
            "clicks say nothing of them."
        )
    return [text for text in said if text]


def _estimates(told: Sequence[GainEstimate]) -> Table:
    names = ("name", "new", "other", "difference", "interval", "effective", "overlap", "clusters")
    rows = [{name: getattr(each, name) for name in names} for each in told]
    return replace(record_table(rows, ""), wide=("clusters", "effective", "overlap"))


def _part(each: GainEstimate, decided_by: Sequence[str]) -> str:
    """An estimate's part in the verdict, or why it has no number."""
    if each.difference is None:
        return f"no number: {each.reason}"
    part = DECIDES if each.name in decided_by else SHOWN
    return part + (f"; {each.reason}" if each.reason else "")


def _relative(each: GainEstimate, decided_by: Sequence[str]) -> dict[str, Any] | None:
    """An estimate in per cent of what it is held against; None where that cannot be said."""
    if each.relative is None:
        return None
    mean = 100 * each.relative
    ends = [100 * end for end in each.relative_interval or (each.relative, each.relative)]
    spread = f" ({span(ends, '+.1f')})" if each.interval else ", no interval"
    kind = DECIDES if each.name in decided_by else SHOWN
    row = {"name": each.name, "mean": mean, "low": ends[0], "high": ends[1], "kind": kind}
    return row | {"says": f"{each.name} {mean:+.1f} %{spread}, {kind}"}


# ---- may it ship?

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
        {
            "documents": str(each.group),
            "impressions": f"{each.impressions:,}",
            "before": f"{each.other:.1%}",
            "after": f"{each.new:.1%}",
            "change": f"{each.change:+.1%}",
        }
        for each in groups
    ]
    return [Section(heading, SEEN, [Table.of(rows)])]
