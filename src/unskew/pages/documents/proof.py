"""Whether a ranking is better than another, and whether it may ship, as pages: verdict, estimates, assumptions."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import altair as alt

from unskew.measuring.counterfactual.evidence import ClickEvidence, GainEstimate
from unskew.measuring.shipping import GroupExposure, Shipping
from unskew.pages.colours import MUTED, NAIVE, SERIES
from unskew.pages.figures import WIDTH
from unskew.pages.numbers import number
from unskew.pages.page import Figure, Page, Section, Table

DECIDES, SHOWN = "decides", "shown beside"
WIDEST = 6
"""Times the usual width of an interval past which the chart does not make room for it; the table has it."""
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
    figures = [forest_figure(found)] if any(_relative(each) for each in told) else []
    sections = [Section(f"Verdict: {found.verdict}", "\n\n".join(_verdict(found)))]
    if told:
        sections.append(Section("What each estimate says", HOW, [estimates_table(told)], figures))
    return [*sections, Section("What each estimate assumes", ASSUMES, [assumptions_table(found)])]


def _verdict(found: ClickEvidence) -> list[str]:
    """What the verdict rests on and what it leaves open, a paragraph each; its sentence leads the page."""
    said = [found.agreement]
    if found.pages_needed is not None and found.verdict == "cannot tell":
        said.append(f"About {found.pages_needed:,} shuffled pages would decide a difference of this size.")
    if found.missing_overlap:
        said.append(
            f"{found.missing_overlap:.0%} of the results that it would put first are not on these pages: "
            "clicks say nothing of them."
        )
    return [text for text in said if text]


def estimates_table(told: Sequence[GainEstimate]) -> Table:
    """A row for every estimate that has a number."""
    rows = [
        [
            each.name,
            number(each.new),
            number(each.other),
            number(each.difference, "+.4f"),
            _span(each.interval),
            _whole(each.effective),
            "" if each.overlap is None else f"{each.overlap:.0%}",
            f"{each.clusters:,}",
        ]
        for each in told
    ]
    columns = ("estimate", "new", "other", "difference", "interval", "effective size", "overlap", "clusters")
    table = Table(columns, rows, wide=("clusters", "effective size", "overlap"))
    return table.without_empty(but=5)


def assumptions_table(found: ClickEvidence) -> Table:
    """What every estimate assumes, and its part in the verdict or why it has no number."""
    rows = [[each.name, each.assumes, _part(each, found.decided_by)] for each in found.estimates]
    return Table(("estimate", "assumes", "part"), rows, text=("assumes", "part"))


def _part(each: GainEstimate, decided_by: Sequence[str]) -> str:
    if each.difference is None:
        return f"no number: {each.reason}"
    part = DECIDES if each.name in decided_by else SHOWN
    return part + (f"; {each.reason}" if each.reason else "")


def forest_figure(found: ClickEvidence) -> Figure:
    """Every estimate with its interval, in per cent of what it is held against, around a line at 0."""
    rows = [row for each in found.estimates if (row := _relative(each, found.decided_by)) is not None]
    names = [row["name"] for row in rows]
    usual = median(row["high"] - row["low"] for row in rows)
    drawn = [row for row in rows if row["high"] - row["low"] <= WIDEST * usual]  # others run out of the chart
    ends = [0.0, *(row[key] for row in drawn for key in ("low", "mean", "high"))]
    room = 0.08 * (max(ends) - min(ends)) or 0.01
    scale = alt.Scale(domain=[min(ends) - room, max(ends) + room], nice=False, zero=False)
    kinds = alt.Scale(domain=[DECIDES, SHOWN], range=[SERIES[0].light, MUTED.light])
    base = alt.Chart({"values": rows}).encode(
        y=alt.Y("name:N", sort=names, title=None),
        color=alt.Color("part:N", scale=kinds, legend=alt.Legend(title=None)),
        description="says:N",
    )
    zero = alt.Chart({"values": [{"at": 0.0}]}).mark_rule(strokeDash=[4, 3], strokeWidth=2, color=NAIVE.light)
    mean = alt.X("mean:Q", title="change in %", scale=scale, axis=alt.Axis(tickCount=6, labelFlush=False))
    chart = alt.layer(
        zero.encode(x=alt.X("at:Q", scale=scale)),
        base.mark_rule(strokeWidth=3, clip=True).encode(x=alt.X("low:Q", scale=scale), x2="high:Q"),
        base.mark_circle(size=110, opacity=1, clip=True).encode(x=mean),
    )
    told = f"Change in per cent by each estimate: {'. '.join(row['says'] for row in rows)}."
    size = {"width": WIDTH, "height": max(110, 34 * len(rows))}
    title = "Right of the dashed line is better, left of it worse"
    return Figure(chart.properties(**size, title=title, description=told), [])


def _relative(each: GainEstimate, decided_by: Sequence[str] = ()) -> dict[str, Any] | None:
    """An estimate in per cent of what it is held against; None where that cannot be said."""
    if each.difference is None or not each.other:
        return None
    unit = 100 / abs(each.other)
    low, high = each.interval or (each.difference,) * 2
    row = {"name": each.name, "mean": each.difference * unit, "low": low * unit, "high": high * unit}
    spread = f" ({row['low']:+.1f} to {row['high']:+.1f})" if each.interval else ", no interval"
    part = DECIDES if each.name in decided_by else SHOWN
    return row | {"part": part, "says": f"{each.name} {row['mean']:+.1f} %{spread}, {part}"}


def _span(interval: Sequence[float] | None) -> str:
    return "n/a" if interval is None else f"{interval[0]:+.4f} to {interval[1]:+.4f}"


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


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
