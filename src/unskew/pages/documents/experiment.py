"""An experiment with people as a page: differences with both kinds of intervals, policies, sample sizes."""

from __future__ import annotations

from typing import Any

import altair as alt

from unskew.measuring.experiments.experiment import Experiment
from unskew.pages.colours import MUTED, SERIES
from unskew.pages.figures import WIDTH
from unskew.pages.page import Figure, Page, Section, Table

ALWAYS = "whenever looked at"
ONCE = "looked at once"
AXIS = "difference from the control"
HOW = (
    f"“{ALWAYS}” holds however often somebody looked and whenever the experiment was stopped (an asymptotic "
    f"confidence sequence); “{ONCE}” holds only where its size was fixed before."
)


def experiment_page(found: Experiment, origin: str = "", command: str = "") -> Page:
    """What `unskew.experiment` found."""
    interleaved = found.kind == "interleaving"
    against = f"Against {found.effects[0].control}"
    sections = [
        Section(against, tables=[_effects(found, interleaved)], figures=[_figure(found)]),
        Section("Policies", _dealt(found, interleaved), [_arms(found, interleaved)]),
        Section("How large a sample", tables=[_sizes(found)]),
    ]
    title = "Interleaving" if interleaved else "A/B experiment"
    return Page(title, found.sentence, sections, notes=found.notes, origin=origin, command=command)


def _effects(found: Experiment, interleaved: bool) -> Table:
    """A row for each policy beside the control."""
    middle = "share of wins" if interleaved else "difference"
    columns = ["policy", "verdict", middle, ALWAYS, ONCE, "p, always", "p, once", "lift", "lift, 95 %"]
    at = 0.5 if interleaved else 0.0
    rows = [
        [
            each.policy,
            each.verdict,
            _signed(each.difference, at),
            _range(each.always, at),
            _range(each.interval, at),
            _p(each.always_p),
            _p(each.p),
            "" if each.lift is None else f"{each.lift:+.2%}",
            _percent(each.lift_interval),
        ]
        for each in found.effects
    ]
    table = Table(columns, rows, text=["verdict"], wide=["lift, 95 %", "p, once", "p, always", "lift"], legend=HOW)
    return table.without_empty(but=3)


def _arms(found: Experiment, interleaved: bool) -> Table:
    """A row for each policy."""
    value = "share of clicks" if interleaved else found.metric
    rows = [
        [
            each.name,
            f"{each.clusters:,}",
            f"{each.pages:,}",
            f"{each.mean:.4g}",
            _range(each.interval),
        ]
        for each in found.arms
    ]
    return Table(["policy", found.cluster, "pages", value, "95 %"], rows).without_empty(but=4)


def _dealt(found: Experiment, interleaved: bool) -> str:
    """Whether policies were shown as often as they should be."""
    p = found.shares_p
    asked = "Both picked first equally often" if interleaved else "Policies were shown as often as they should be"
    told = f"{asked}: p = {_p(p)}." if p is not None else ""
    sign = found.sign
    if sign is not None:
        told += (
            f"\n\nOf those who preferred one, {sign.second:,} preferred the policy and {sign.first:,} the "
            f"control ({sign.even:,} neither): p = {_p(sign.p)} by the sign test, looked at once."
        )
    return told


def _sizes(found: Experiment) -> Table:
    """What this sample finds, and what would find a difference of the size asked about."""
    name = found.cluster
    columns = ["policy", "smallest found now", f"{name} needed", f"{name} needed, {ALWAYS}", "pages needed"]
    rows = [
        [
            each.policy,
            "" if each.smallest is None else f"{each.smallest:.3g}",
            *(
                "" if getattr(each, key) is None else f"{getattr(each, key):,}"
                for key in ("clusters_needed", "clusters_needed_always", "pages_needed")
            ),
        ]
        for each in found.effects
    ]
    wanted = f"{found.detect:.1%}" + (" of the pages" if found.kind == "interleaving" else " of the control")
    legend = f"Found in 8 of 10 experiments. What is needed is for a difference of {wanted}."
    return Table(columns, rows, legend=legend)


def _figure(found: Experiment) -> Figure:
    """Differences with both intervals."""
    rows: list[dict[str, Any]] = [
        {"line": f"{each.policy}, {kind}", "low": ends[0], "high": ends[1], "at": each.difference}
        | {"says": f"{each.policy}, {kind}: {_range(ends)}"}
        for each in found.effects
        for kind, ends in ((ALWAYS, each.always), (ONCE, each.interval))
        if ends is not None
    ]
    y = alt.Y("line:N", title=None, sort=[row["line"] for row in rows])
    base = alt.Chart({"values": rows}).encode(y=y, description="says:N")
    drawn = alt.layer(
        alt.Chart({"values": [{"zero": 0}]}).mark_rule(strokeDash=[4, 4], color=MUTED.light).encode(x="zero:Q"),
        base.mark_rule(strokeWidth=4, color=SERIES[0].light).encode(x=alt.X("low:Q", title=AXIS), x2="high:Q"),
        base.mark_point(filled=True, size=80, opacity=1).encode(x="at:Q"),
    )
    told = "; ".join(str(row["says"]) for row in rows) or "No interval."
    size = {"width": WIDTH, "height": 34 * max(len(rows), 1)}
    return Figure(drawn.properties(**size, title=AXIS.capitalize(), description=told), [told])


def _signed(value: float, at: float = 0.0) -> str:
    return f"{value + at:.1%}" if at else f"{value:+.4g}"


def _range(ends: Any, at: float = 0.0) -> str:
    return "" if ends is None else f"{_signed(ends[0], at)} to {_signed(ends[1], at)}"


def _percent(ends: Any) -> str:
    return "" if ends is None else f"{ends[0]:+.2%} to {ends[1]:+.2%}"


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"
