"""An experiment with people as a page: differences with both kinds of intervals, policies, sample sizes."""

from dataclasses import asdict

from unskew.measuring.experiments.effects import Experiment
from unskew.pages.figures import gains_figure
from unskew.pages.numbers import number, record_table, span
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
    sections = [
        Section(
            f"Against {found.effects[0].control}", tables=[_effects(found, interleaved)], figures=_figures(found)
        ),
        Section("Policies", _dealt(found, interleaved), [_arms(found, interleaved)]),
        Section("How large a sample", tables=[_sizes(found, interleaved)]),
    ]
    title = "Interleaving" if interleaved else "A/B experiment"
    return Page(title, found.sentence, sections, notes=found.notes, origin=origin, command=command)


def _effects(found: Experiment, interleaved: bool) -> Table:
    """A row for each policy beside the control; of interleaved ones the share of wins, else the difference."""
    form, middle = (".1%", 0.5) if interleaved else ("+.4g", 0.0)
    rows = [
        {
            "policy": each.policy,
            "verdict": each.verdict,
            "share of wins" if interleaved else "difference": number(each.difference + middle, form),
            ALWAYS: span(None if each.always is None else [end + middle for end in each.always], form),
            ONCE: span(None if each.interval is None else [end + middle for end in each.interval], form),
            "p, always": _p(each.always_p),
            "p, once": _p(each.p),
            "lift": number(each.lift, "+.2%", ""),
            "lift, 95 %": span(each.lift_interval, "+.2%"),
        }
        for each in found.effects
    ]
    wide = ["lift, 95 %", "p, once", "p, always", "lift"]
    return Table.of(rows, text=["verdict"], wide=wide, legend=HOW).without_empty(but=3)


def _arms(found: Experiment, interleaved: bool) -> Table:
    legend = f"Clusters are values of {found.cluster}, the mean is of {'clicks' if interleaved else found.metric}."
    return record_table([asdict(each) for each in found.arms], "", legend)


def _dealt(found: Experiment, interleaved: bool) -> str:
    asked = "Both picked first equally often" if interleaved else "Policies were shown as often as they should be"
    told = f"{asked}: p = {_p(found.shares_p)}." if found.shares_p is not None else ""
    sign = found.sign
    if sign is not None:
        told += (
            f"\n\nOf those who preferred one, {sign.second:,} preferred the policy and {sign.first:,} the "
            f"control ({sign.even:,} neither): p = {_p(sign.p)} by the sign test, looked at once."
        )
    return told


def _sizes(found: Experiment, interleaved: bool) -> Table:
    names = ("policy", "smallest", "clusters_needed", "clusters_needed_always", "pages_needed")
    rows = [{name: getattr(each, name) for name in names} for each in found.effects]
    wanted = f"{found.detect:.1%} of the {'pages' if interleaved else 'control'}"
    legend = f"The smallest is found in 8 of 10 experiments. What is needed is for a difference of {wanted}."
    return record_table(rows, "", legend)


def _figures(found: Experiment) -> list[Figure]:
    rows = [
        {"name": f"{each.policy}, {kind}", "mean": each.difference, "low": ends[0], "high": ends[1], "kind": kind}
        | {"says": f"{each.policy}, {kind}: {span(ends, '+.4g')}"}
        for each in found.effects
        for kind, ends in ((ALWAYS, each.always), (ONCE, each.interval))
        if ends is not None
    ]
    return [gains_figure(AXIS.capitalize(), rows, AXIS, (ALWAYS, ONCE))] if rows else []


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"
