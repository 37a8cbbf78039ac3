"""`unskew.experiment`: an A/B or interleaved log, counted on the engine and judged by `measuring.experiments`.

An A/B log says for each page which policy made it (`policy_id`). An interleaved one says it for each result
(`team`, or a `policy_id` that changes within nearly every page).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from unskew.errors import ConfigError, DataError
from unskew.logs.reader import open_log, place_of
from unskew.measuring.experiments import effects as judged
from unskew.measuring.experiments.effects import FEWEST, PLANNED, Experiment
from unskew.measuring.experiments.interleaving import sign_test
from unskew.names import CLUSTERS, Names
from unskew.options.base import EngineConnection
from unskew.options.logs import ExperimentArguments
from unskew.settings import known, require_columns
from unskew.tables.engine.engine import connect
from unskew.types import Array, Log
from unskew.workflows.proofs.policies import METRICS, Kind, PolicyPages, won_pages

TOO_FEW = f"{FEWEST} clusters with some spread are the fewest."


@ExperimentArguments.checks
def experiment(
    log: Log | Path | str | Any,
    *,
    metric: str = "clicks",
    by: str | None = None,
    control: str | None = None,
    shares: Mapping[str, float] | None = None,
    cluster: str | None = None,
    kind: Kind | None = None,
    planned: int = PLANNED,
    detect: float = 0.01,
    level: float = 0.95,
    columns: Mapping[str, str] | None = None,
    engine: str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> Experiment:
    """Judge an A/B or interleaved log: files, a table in memory, or a `Log`.

    `by` is the column of policies: `team` where there is one, else `policy_id`. `control` is the policy to hold
    the others against, the one shown most unless given. `shares` say how policies should have been dealt out,
    equally unless given. `planned` clusters are where the interval that may be looked at every day is narrowest;
    `detect` is the relative difference that sample sizes are told for. `connection` says how the engine
    is reached.
    """
    ways = judged.Ways(level, planned, detect)
    needed, place = ["page_id", "position", "click"], str(place_of(log))
    with connect(engine, **connection) as running, open_log(running, log, Names.of(columns), needed) as shown:
        by = by or ("team" if "team" in shown.columns else "policy_id")
        if cluster is not None:
            require_columns([cluster], shown.columns, path=place)
        cluster = cluster or next(name for name in (*CLUSTERS, "page_id") if name in shown.columns)
        pages = PolicyPages(running, shown, by, cluster, metric, place)
        if pages.kind(kind) == "interleaved":
            return _interleaved(pages, control, ways)
        return _beside(pages, control, shares, ways)


def _beside(
    pages: PolicyPages, control: str | None, shares: Mapping[str, float] | None, ways: judged.Ways
) -> Experiment:
    """The verdict on an A/B log, whose pages have one policy each."""
    sums, untold = pages.by_cluster()
    shown_most = min(sums, key=lambda name: (-float(sums[name].pages.sum()), name))
    base = shown_most if control is None else known("control", control, list(sums))
    wanted = _shares(shares, sums)
    others = [name for name in sums if name != base]
    effects = tuple(
        judged.effect((name, base), sums[name], sums[base], ways, several=len(others)) for name in others
    )
    arms = tuple(judged.shown_policy(name, sums[name], ways) for name in (base, *others))
    p, notes = _dealt(sums, wanted, pages.cluster)
    if untold:
        notes.append(f"{untold:,} pages tell no {pages.by} and are left out.")
    if pages.cluster == "page_id":
        notes.append("No column names people or visits: pages count as independent, which they may not be.")
    if len(others) > 1:
        notes.append(f"{len(others)} policies share the level of {ways.level:.0%} (Bonferroni).")
    verdict, sentence = _verdict(effects, arms, p, METRICS.get(pages.metric, f"{pages.metric} per page"))
    how = ("A/B", pages.metric, pages.cluster, ways.level, ways.detect)
    return Experiment(*how, arms, effects, p, None, verdict, sentence, tuple(notes))


def _shares(asked: Mapping[str, float] | None, sums: Mapping[str, judged.Sums]) -> Mapping[str, float]:
    if asked is None:
        return dict.fromkeys(sums, 1.0)
    for name in asked:
        known("shares", name, list(sums))
    if sorted(asked) != sorted(sums) or min(asked.values()) <= 0:
        raise ConfigError(f"give a share above 0 for each of {', '.join(sums)}", argument="shares")
    return asked


def _dealt(sums: Mapping[str, judged.Sums], wanted: Mapping[str, float], cluster: str) -> tuple[float, list[str]]:
    """Whether policies were shown as often as they should be, as a p-value, and notes for the reader."""
    seen: Array = sum((each.seen.astype(int) for each in sums.values()), np.zeros(1, int))
    both = int((seen > 1).sum())
    if both <= 0.01 * len(seen):
        counts = {name: int(each.seen.sum()) for name, each in sums.items()}
        return judged.share_mismatch(counts, wanted), []
    note = f"{both:,} of {len(seen):,} values of {cluster} saw several policies; intervals allow for it."
    return judged.page_share_mismatch({name: each.pages for name, each in sums.items()}, wanted), [note]


def _verdict(
    effects: Sequence[judged.Effect], arms: Sequence[judged.ShownPolicy], p: float | None, metric: str
) -> tuple[str, str]:
    """The verdict on the policy that gained most, and a sentence."""
    best = max(effects, key=lambda each: each.difference)
    if p is not None and p < judged.MISMATCH:
        counts = ", ".join(f"{each.name} {each.clusters:,}" for each in arms)
        return "cannot tell", (
            f"Cannot tell: policies were not shown as often as they should be ({counts}; p = {p:.2g}), so those "
            "who saw them differ. Find out why before reading the numbers, or say the shares meant with shares=."
        )
    told = f"{best.policy} against {best.control}: {metric} {best.difference:+.4g}"
    told += "" if best.lift is None else f" ({best.lift:+.1%})"
    if best.always is None:
        return "cannot tell", f"Cannot tell. {told}; {TOO_FEW}"
    bounds = f"{best.always[0]:+.4g} to {best.always[1]:+.4g} whenever looked at"
    return best.verdict, f"{best.verdict.capitalize()}. {told}, {bounds}."


def _interleaved(pages: PolicyPages, control: str | None, ways: judged.Ways) -> Experiment:
    """The verdict on an interleaved log, whose pages are won by one policy or the other."""
    names = list(pages.policies)
    if len(names) != 2:
        what = f"interleaving is of two policies, and {pages.by} has {', '.join(names)}"
        raise DataError(what, path=pages.place, hint="leave out the pages of the others")
    base = known("control", control, names) if control is not None else min(names)
    other = next(name for name in names if name != base)
    rows, credit, picked = won_pages(pages, other)
    wins = judged.Sums(rows["y"], rows["pages"], rows["pages"])
    found = judged.preference((other, base), wins, ways)
    first = judged.Sums(picked[0], picked[1], picked[1])
    p = judged.page_share_mismatch({other: first.y, base: first.n - first.y}, {other: 0.5, base: 0.5})
    sign = sign_test(rows["y"] - 0.5 * rows["pages"])
    arms = tuple(
        judged.ShownPolicy(name, int(wins.seen.sum()), int(wins.pages.sum()), share, None)
        for name, share in ((base, 1 - credit), (other, credit))
    )
    told = f"{other} won {wins.mean:.1%} of the pages against {base}, half being even"
    if p < judged.MISMATCH:
        verdict = "cannot tell"
        sentence = (
            f"the two did not pick first equally often (p = {p:.2g}), as team draft has it. Check how the lists"
        )
        sentence = f"Cannot tell: {sentence} are made."
    elif found.always is None:
        verdict, sentence = "cannot tell", f"Cannot tell. {told}; {TOO_FEW}"
    else:
        bounds = f"{0.5 + found.always[0]:.1%} to {0.5 + found.always[1]:.1%} whenever looked at"
        verdict, sentence = found.verdict, f"{found.verdict.capitalize()}. {told}: {bounds}."
    notes = ("A page is won by the policy whose results got more clicks; half a win each where neither did.",)
    how = ("interleaving", "wins", pages.cluster, ways.level, ways.detect)
    return Experiment(*how, arms, (found,), p, sign, verdict, sentence, notes)
