"""Two logs of one search compared: do people look at ranks as before, and is it the same traffic?

    curve        log of sum c' n / (n + n') over sum c n' / (n + n'), rank by rank, relative to the first (Mantel
                 and Haenszel), over what one query showed at one rank in both logs: n impressions and c clicks in
                 the old one, n' and c' in the new. Other queries, documents and orders change nothing of it
    examination  curves of both logs by shuffled pages or documents at several ranks, where both tell them
    the rest     in `mixes`

Chance is that of queries drawn again, the same ones from both logs.

Legend: B buckets of queries, P ranks, G groups of ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from scipy.special import stdtr

from unskew.diagnosis.drift.mixes import (
    LEVEL,
    DriftFinding,
    mix_drift,
    page_sums,
    rate_drift,
    shares,
    traffic_drift,
)
from unskew.diagnosis.evidence import likelihood as by
from unskew.diagnosis.evidence.evidence import MEASURED, fitted
from unskew.diagnosis.evidence.sums import RANKS
from unskew.diagnosis.evidence.tables import BUCKETS, LogTables, bucket_of, open_tables
from unskew.errors import ConfigError
from unskew.results import Result
from unskew.tables.engine.engine import Engine, connect
from unskew.types import Array, Log

if TYPE_CHECKING:
    from ibis.expr.types import Table

FAR = 0.5
"""How much more or less a rank may be looked at, at the end of its interval, for the curve to have held."""
UNSURE = 0.1
"""p below which nobody says that it has."""
NAMES = ("click curve", "examination", "clicks per page", "queries", "documents", "page length")
"""What is compared besides segments."""
RANGE = re.compile(r"^(below|from) -?\d")
"""How the first and the last range of numbers are written."""
FEWEST = 50
"""Pages of a log below which nothing is compared."""


@dataclass(frozen=True)
class Drift(Result):
    """What changed from one log to another."""

    old: Mapping[str, Any]
    """The old log in numbers."""
    new: Mapping[str, Any]
    findings: tuple[DriftFinding, ...]
    told: ClassVar = ("sentence", "propensities", "changed")

    def __getitem__(self, name: str) -> DriftFinding:
        """The finding of this name."""
        return next(each for each in self.findings if each.name == name)

    @property
    def changed(self) -> tuple[str, ...]:
        """What has changed."""
        return tuple(each.name for each in self.findings if each.state == "present")

    @property
    def propensities(self) -> Literal["hold", "do not hold", "cannot tell"]:
        """Whether examination by rank that was measured on the old log holds for the new one."""
        states = {self["click curve"].state, self["examination"].state}
        return "do not hold" if "present" in states else "hold" if "absent" in states else "cannot tell"

    @property
    def sentence(self) -> str:
        """The answer."""
        what = f"Changed: {', '.join(self.changed)}." if self.changed else "No drift was found."
        told = {
            "hold": "Propensities of the old log still hold.",
            "do not hold": "Propensities of the old log do not hold any more: measure them again.",
            "cannot tell": "Whether propensities still hold cannot be told.",
        }
        return f"{what} {told[self.propensities]}"


def drift(
    old: Log | Path | str | Any,
    new: Log | Path | str | Any,
    *,
    segments: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    engine: Engine | str = "duckdb",
    **options: Any,
) -> Drift:
    """Compare two logs: Parquet files, tables in memory or `Log`s. `segments` are columns to compare the mix of.

    Whether the ranks are looked at as before, whether queries, documents, page lengths and segments are the same
    mix, and how often a page is clicked. Without `segments` they are the serp_* columns of few values that both
    logs have. `columns` says theirs for ours, in both logs; `options` go to the engine.
    """
    if _same(old, new):
        raise ConfigError(f"{old} twice: give the logs of two times")
    running = connect(engine, **options) if isinstance(engine, str) else engine
    try:
        first, second = (
            open_tables(each, columns=columns, engine=running, segments=segments or (), serp=segments is None)
            for each in (old, new)
        )
        return compared(first, second, _told_by(first, second) if segments is None else segments)
    finally:
        if isinstance(engine, str):
            running.close()


def _told_by(first: LogTables, second: LogTables) -> tuple[str, ...]:
    """Columns that say how a page looked, in both logs, but numbers that each log cuts at its own quartiles."""
    both = [name for name in first.segments if name in second.segments]
    values = {name: {*shares(first, first.pages, name), *shares(second, second.pages, name)} for name in both}
    return tuple(name for name in both if not any(RANGE.search(value) for value in values[name]))


def _same(old: object, new: object) -> bool:
    if isinstance(old, str | Path) and isinstance(new, str | Path):
        return str(old) == str(new) or ("://" not in str(old) and Path(old).resolve() == Path(new).resolve())
    return old is new


def compared(old: LogTables, new: LogTables, segments: Sequence[str] = ()) -> Drift:
    """All findings on two logs that are open on one engine."""
    facts = [{"name": tables.place, **tables.facts} for tables in (old, new)]
    few = [each["name"] for each in facts if each["pages"] < FEWEST]
    if few:
        why = f"{few[0]} has fewer than {FEWEST} pages."
        names = (*NAMES, *old.segments)
        return Drift(facts[0], facts[1], tuple(DriftFinding(name, "cannot tell", why) for name in names))
    findings = [
        curve_drift(*common_sums(old, new)),
        examination_drift(old, new),
        rate_drift(*(page_sums(tables) for tables in (old, new))),
        traffic_drift("queries", "query_id", old, new),
        traffic_drift("documents", "doc_id", old, new),
        mix_drift("page length", *(shares(tables, tables.pages, "results") for tables in (old, new))),
        *(mix_drift(name, *(shares(tables, tables.pages, name) for tables in (old, new))) for name in segments),
    ]
    return Drift(facts[0], facts[1], tuple(findings))


# ---- examination ----


def common_sums(old: LogTables, new: LogTables) -> tuple[Array, Array]:
    """Clicks of the new and of the old log at what both show, each weighted by the other's impressions, [B, P]."""
    first, second = (_cells(tables, suffix) for tables, suffix in ((old, "0"), (new, "1")))
    both = first.join(second, ["query", "document", "position"])
    n0, n1 = both.n0.cast("float64"), both.n1.cast("float64")
    weighed = both.mutate(up=both.c1 * n0 / (n0 + n1), down=both.c0 * n1 / (n0 + n1))
    summed = weighed.group_by(["bucket", "position"]).agg(up=weighed.up.sum(), down=weighed.down.sum())
    found = np.zeros((2, BUCKETS, RANKS))
    for row in old.engine.rows(summed):
        found[:, int(row["bucket"]), int(row["position"]) - 1] = float(row["up"] or 0), float(row["down"] or 0)
    return found[0], found[1]


def _cells(tables: LogTables, suffix: str) -> Table:
    cells: Any = tables.cells.filter(tables.cells.position <= RANKS)
    named = cells.mutate(query=cells.query_id.cast("string"), document=cells.doc_id.cast("string"))
    sums = named.group_by(["query", "document", "position"]).agg(
        **{f"n{suffix}": named.impressions.sum(), f"c{suffix}": named.clicks.sum()}
    )
    return sums.mutate(bucket=bucket_of(sums.query)) if suffix == "0" else sums


def curve_drift(up: Array, down: Array) -> DriftFinding:
    """Whether clicks by rank changed alike at every rank, from sums over what both logs show, [B, P] each."""
    name, used = "click curve", int(((up + down).sum(axis=1) > 0).sum())
    groups = pool_ranks(np.minimum(up, down).sum(axis=0), by.ENOUGH)
    if not up.any() or not down.any():
        return DriftFinding(name, "cannot tell", "The logs show no document at the same rank for the same query.")
    if len(groups) < 2 or used < by.FEWEST_BUCKETS:
        return DriftFinding(name, "cannot tell", "Too few clicks on what both logs show at the same rank.")
    draws = np.concatenate([np.ones((1, BUCKETS)), by.draw_buckets(BUCKETS)])
    sums = [draws @ _grouped(each, groups) for each in (up, down)]  # [R, G]
    values = by.log_ratio(*sums)
    relative = values[:, 1:] - values[:, :1]
    half = by.half_width(by.standard_errors(relative[1:], used), used)
    weights = np.minimum(*(_grouped(each, groups).sum(axis=0) for each in (up, down)))
    p = _either(by.difference_test(relative[0], relative[1:], used), slope_test(values, groups, weights, used))
    ranks = [f"{group[0] + 1}" if len(group) == 1 else f"{group[0] + 1}-{group[-1] + 1}" for group in groups[1:]]
    ratio = {rank: _span(value, wide) for rank, value, wide in zip(ranks, relative[0], half, strict=True)}
    return _curve_finding(name, p, relative[0], half, ranks, {"ratio_by_rank": ratio})


def slope_test(values: Array, groups: Sequence[Sequence[int]], weights: Array, used: int) -> float | None:
    """p of logs of ratios [1 + R, G], draws below, that do not rise or fall with the logarithm of the rank.

    Curves become steeper or flatter as a whole, which one number tells sooner than one for each rank.
    """
    rank = np.log([np.mean(group) + 1 for group in groups])
    from_mean = weights * (rank - np.average(rank, weights=weights))
    slopes = values @ from_mean / (from_mean @ rank)
    drawn = slopes[1:][np.isfinite(slopes[1:])]
    if not np.isfinite(slopes[0]) or len(drawn) < 0.9 * (len(slopes) - 1) or drawn.std() < 1e-6:
        return None
    error = drawn.std(ddof=1) * np.sqrt(used / (used - 1))
    return float(2 * stdtr(used - 1, -abs(slopes[0]) / error))


def _either(one: float | None, other: float | None) -> float | None:
    """p of two tests together."""
    known = [p for p in (one, other) if p is not None]
    return min(1.0, len(known) * min(known)) if known else None


def pool_ranks(clicks: Array, least: float) -> list[list[int]]:
    """Neighbouring ranks (from 0) put together until each group has enough clicks; a rest is left out.

    >>> pool_ranks(np.array([90, 40, 9, 2, 30, 1]), 30)
    [[0], [1], [2, 3, 4]]
    """
    groups, held = [[0]], list[int]()
    for rank in range(1, len(clicks)):
        held.append(rank)
        if clicks[held].sum() >= least:
            groups, held = [*groups, held], []
    return groups


def _grouped(values: Array, groups: Sequence[Sequence[int]]) -> Array:
    """Ranks added up by group, [B, P] -> [B, G]."""
    return np.stack([values[:, group].sum(axis=1) for group in groups], axis=1)


def _curve_finding(
    name: str, p: float | None, gap: Array, half: Array, ranks: Sequence[str], numbers: Mapping[str, Any]
) -> DriftFinding:
    told = np.isfinite(gap) & np.isfinite(half)
    if not told.any():
        return DriftFinding(name, "cannot tell", "No rank can be compared with rank 1 in both logs.", p, numbers)
    worst = int(np.where(told, np.abs(gap), -1).argmax())
    at = f"rank {ranks[worst]} is looked at {np.exp(gap[worst]):.2f} times as often as before, relative to rank 1"
    if p is not None and p < LEVEL:
        return DriftFinding(name, "present", f"Ranks are not looked at as before: {at}.", p, numbers)
    reach = np.exp(np.max(np.abs(gap[told]) + half[told])) - 1
    if reach > FAR or (p is not None and p < UNSURE):
        return DriftFinding(name, "cannot tell", f"Too few clicks to tell: {at}, give or take.", p, numbers)
    return DriftFinding(name, "absent", f"Ranks are looked at as before, within {reach:.0%}.", p, numbers)


def _span(value: float, half: float) -> tuple[float | None, ...]:
    ends = (value, value - half, value + half)
    return tuple(float(np.exp(each)) if np.isfinite(each) else None for each in ends)


def examination_drift(old: LogTables, new: LogTables) -> DriftFinding:
    """Whether the curves that both logs tell by themselves are the same."""
    name = "examination"
    for source in MEASURED:
        first, second = (fitted(tables, source) for tables in (old, new))
        if first is None or second is None or min(first.curve.known, second.curve.known) < 2:
            continue
        ranks = min(len(first.value), len(second.value))
        gap, drawn = second.value[:ranks] - first.value[:ranks], second.drawn[:, :ranks] - first.drawn[:, :ranks]
        buckets = min(first.buckets, second.buckets)
        half = by.half_width(by.standard_errors(drawn, buckets), buckets)
        p = by.difference_test(gap, drawn, buckets)
        told = {str(k + 1): _span(gap[k], half[k]) for k in range(ranks) if np.isfinite(gap[k])}
        if told:
            numbers = {"source": source, "ratio_by_rank": told}
            return _curve_finding(name, p, gap, half, [str(k + 1) for k in range(ranks)], numbers)
    why = "The logs do not both tell it: it takes shuffled pages, or documents at several ranks."
    return DriftFinding(name, "cannot tell", why)
