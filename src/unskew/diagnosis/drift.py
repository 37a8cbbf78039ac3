"""Two logs of one search compared: do people look at ranks as before, and is it the same traffic?

    curve        log of sum c' n / (n + n') over sum c n' / (n + n'), rank by rank, relative to the first (Mantel
                 and Haenszel), over what one query showed at one rank in both logs: n impressions and c clicks in
                 the old one, n' and c' in the new. Other queries, documents and orders change nothing of it
    examination  curves of both logs by shuffled pages or documents at several ranks, where both tell them
    mixes        Jensen-Shannon divergence of shares, less what chance would give, and the test of one mix for
                 both; values that are rare in both count as one
    novelty      share of the new log that the old one lacks, beside that of one half of the old one in the other
    clicks       logarithm of the ratio of clicks a page

Chance of clicks is that of queries drawn again, the same ones from both logs. A test finds something below LEVEL,
which keeps all of them together near one in twenty; a mix must have changed by more than SMALL besides, since in a
large log every mix has changed a little.

Legend: B buckets of queries, P ranks, G groups of ranks, V values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
from scipy.special import chdtrc, rel_entr

from unskew.diagnosis.evidence import likelihood as by
from unskew.diagnosis.evidence.evidence import MEASURED, fitted
from unskew.diagnosis.evidence.sums import RANKS
from unskew.diagnosis.evidence.tables import ALL_BUCKETS, BUCKETS, LogTables, bucket_of, open_tables
from unskew.errors import ConfigError
from unskew.names import NO_NAMES, Names
from unskew.options.base import EngineConnection
from unskew.results import Result
from unskew.tables.engine.engine import Engine, connect
from unskew.tables.engine.expressions import Table
from unskew.types import Array, Log

State = Literal["present", "absent", "cannot tell"]
LEVEL = 0.005
"""p below which a test finds something."""
UNSURE = 0.1
"""p below which nobody says that a curve has held."""
FAR = 0.5
"""How much more or less a rank may be looked at, at the end of its interval, for the curve to have held."""
SMALL = 0.01
"""Divergence in bits, beyond chance, below which a mix is the same."""
NOVEL = 0.05
"""Share of new things, beyond those of one half of the old log, below which nothing is new."""
RARE = 10
"""Expected number, in either log, below which a value of a mix counts among the rare ones."""
NAMES = ("click curve", "examination", "clicks per page", "queries", "documents", "page length")
"""What is compared besides segments."""
RANGE = re.compile(r"^(below|from) -?\d")
"""How the first and the last range of numbers are written."""
FEWEST = 50
"""Pages of a log below which nothing is compared."""


@dataclass(frozen=True)
class DriftFinding:
    """One thing that may have changed."""

    name: str
    state: State
    """Whether it has changed: present, absent or cannot tell."""
    text: str
    """What was found, in a sentence."""
    p: float | None = None
    numbers: Mapping[str, Any] | None = None


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
        """Names of the findings that say that something changed."""
        return tuple(each.name for each in self.findings if each.state == "present")

    @property
    def propensities(self) -> Literal["hold", "do not hold", "cannot tell"]:
        """Whether examination by rank that was measured on the old log holds for the new one."""
        states = {self["click curve"].state, self["examination"].state}
        return "do not hold" if "present" in states else "hold" if "absent" in states else "cannot tell"

    @property
    def sentence(self) -> str:
        """What has changed, and whether propensities of the old log still hold."""
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
    names: Names = NO_NAMES,
    engine: Engine | str = "duckdb",
    **connection: Unpack[EngineConnection],
) -> Drift:
    """Compare two logs: Parquet files, tables in memory or `Log`s. `segments` are columns to compare the mix of.

    Whether the ranks are looked at as before, whether queries, documents, page lengths and segments are the same
    mix, and how often a page is clicked. Without `segments` they are the serp_* columns of few values that both
    logs have. `names` says theirs for ours, in both logs; `connection` goes to the engine.
    """
    files = [each for each in (old, new) if isinstance(each, str | Path)]
    places = {str(each) if "://" in str(each) else str(Path(each).resolve()) for each in files}
    if old is new or (len(files) == 2 and len(places) == 1):
        raise ConfigError(f"{old} twice: give the logs of two times")
    with connect(engine, **connection) if isinstance(engine, str) else nullcontext(engine) as running:
        first, second = (
            open_tables(each, names=names, engine=running, segments=segments or (), serp=segments is None)
            for each in (old, new)
        )
        if segments is None:  # what both tell, but numbers that each log cuts at its own quartiles
            both = [name for name in first.segments if name in second.segments]
            values = [{*shares(first, first.pages, each), *shares(second, second.pages, each)} for each in both]
            cut = [any(map(RANGE.search, each)) for each in values]
            segments = [name for name, ranges in zip(both, cut, strict=True) if not ranges]
        return compared(first, second, segments)


def compared(old: LogTables, new: LogTables, segments: Sequence[str] = ()) -> Drift:
    """All findings on two logs that are open on one engine."""
    facts = [{"name": tables.place, **tables.facts} for tables in (old, new)]
    few = [each["name"] for each in facts if each["pages"] < FEWEST]
    if few:
        why = f"{few[0]} has fewer than {FEWEST} pages."
        names = (*NAMES, *old.segments)
        return Drift(facts[0], facts[1], tuple(DriftFinding(name, "cannot tell", why) for name in names))
    mixes = {"page length": "results"} | {name: name for name in segments}
    findings = [
        curve_drift(*common_sums(old, new)),
        examination_drift(old, new),
        rate_drift(old, new),
        traffic_drift("queries", "query_id", old, new),
        traffic_drift("documents", "doc_id", old, new),
    ]
    for name, column in mixes.items():
        findings.append(mix_drift(name, *(shares(tables, tables.pages, column) for tables in (old, new))))
    return Drift(facts[0], facts[1], tuple(findings))


# ---- examination ----


def common_sums(old: LogTables, new: LogTables) -> list[Array]:
    """Clicks of the new and of the old log at what both show, each weighted by the other's impressions, [B, P]."""
    first, second = (_cells(tables) for tables in (old, new))
    both: Any = first.join(second, ["query", "document", "position"], rname="{name}_new")
    n, m = both.n.cast("float64"), both.n_new.cast("float64")
    weighed = both.mutate(up=both.c_new * n / (n + m), down=both.c * m / (n + m), bucket=bucket_of(both.query))
    return old.laid_out(weighed, {"bucket": ALL_BUCKETS, "position": range(1, RANKS + 1)}, "up", "down")


def _cells(tables: LogTables) -> Table:
    cells: Any = tables.cells.filter(tables.cells.position <= RANKS)
    named = cells.mutate(query=cells.query_id.cast("string"), document=cells.doc_id.cast("string"))
    keys = ["query", "document", "position"]
    found: Table = named.group_by(keys).agg(n=named.impressions.sum(), c=named.clicks.sum())
    return found


def curve_drift(up: Array, down: Array) -> DriftFinding:
    """Whether clicks by rank changed alike at every rank, from sums over what both logs show, [B, P] each."""
    name, used = "click curve", int(((up + down).sum(axis=1) > 0).sum())
    groups = pool_ranks(np.minimum(up, down).sum(axis=0), by.ENOUGH)
    if not up.any() or not down.any():
        return DriftFinding(name, "cannot tell", "The logs show no document at the same rank for the same query.")
    if len(groups) < 2 or used < by.FEWEST_BUCKETS:
        return DriftFinding(name, "cannot tell", "Too few clicks on what both logs show at the same rank.")
    draws = np.concatenate([np.ones((1, BUCKETS)), by.draw_buckets(BUCKETS)])
    sums = [np.stack([each[:, group].sum(axis=1) for group in groups], axis=1) for each in (up, down)]  # [B, G]
    values = by.log_ratio(*(draws @ each for each in sums))  # [1 + R, G]
    relative = values[:, 1:] - values[:, :1]
    weights = np.minimum(*(each.sum(axis=0) for each in sums))
    tests = (by.difference_test(relative[0], relative[1:], used), slope_test(values, groups, weights, used))
    known = [p for p in tests if p is not None]
    p = min(1.0, len(known) * min(known)) if known else None
    ranks = [f"{group[0] + 1}" if len(group) == 1 else f"{group[0] + 1}-{group[-1] + 1}" for group in groups[1:]]
    return _curve_finding(name, p, relative, used, ranks, {})


def slope_test(values: Array, groups: Sequence[Sequence[int]], weights: Array, used: int) -> float | None:
    """p of logs of ratios [1 + R, G], draws below, that do not rise or fall with the logarithm of the rank.

    Curves become steeper or flatter as a whole, which one number tells sooner than one for each rank.
    """
    rank = np.log([np.mean(group) + 1 for group in groups])
    from_mean = weights * (rank - np.average(rank, weights=weights))
    slopes = (values @ from_mean / (from_mean @ rank))[:, None]
    return by.difference_test(slopes[0], slopes[1:], used)


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


def _curve_finding(
    name: str, p: float | None, gaps: Array, used: int, ranks: Sequence[str], numbers: Mapping[str, Any]
) -> DriftFinding:
    """What gaps of logarithms [1 + R, P] say, the first of them found and the others drawn."""
    gap, half = gaps[0], by.half_width(by.standard_errors(gaps[1:], used), used)
    spans = {}
    for rank, value, wide in zip(ranks, gap, half, strict=True):
        ends = (value, value - wide, value + wide)
        spans[rank] = tuple(float(np.exp(each)) if np.isfinite(each) else None for each in ends)
    numbers = {**numbers, "ratio_by_rank": spans}
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


def examination_drift(old: LogTables, new: LogTables) -> DriftFinding:
    """Whether the curves that both logs tell by themselves are the same."""
    for source in MEASURED:
        first, second = (fitted(tables, source) for tables in (old, new))
        if first is None or second is None or min(first.curve.known, second.curve.known) < 2:
            continue
        ranks = min(len(first.value), len(second.value))
        one, other = (np.vstack([each.value, each.drawn])[:, :ranks] for each in (first, second))
        told = np.flatnonzero(np.isfinite(other[0] - one[0]))
        if len(told):
            gaps, used = (other - one)[:, told], min(first.buckets, second.buckets)
            p = by.difference_test(gaps[0], gaps[1:], used)
            return _curve_finding("examination", p, gaps, used, [str(k + 1) for k in told], {"source": source})
    why = "The logs do not both tell it: it takes shuffled pages, or documents at several ranks."
    return DriftFinding("examination", "cannot tell", why)


# ---- traffic ----


def rate_drift(old: LogTables, new: LogTables) -> DriftFinding:
    """Whether pages are clicked as often."""
    sums = []
    for tables in (old, new):
        pages = tables.pages.join(tables.queries, "query_id").mutate(n=1)
        sums.append(np.stack(tables.laid_out(pages, {"bucket": ALL_BUCKETS}, "clicks", "n"), axis=1))  # [B, 2]
    name, used = "clicks per page", int(((sums[0] + sums[1])[:, 1] > 0).sum())
    rates = [float(clicks / pages) for clicks, pages in (each.sum(axis=0) for each in sums)]
    numbers = {"old": rates[0], "new": rates[1]}
    if used < by.FEWEST_BUCKETS or not all(rates):
        return DriftFinding(name, "cannot tell", "Too few queries, or clicks, to tell.", None, numbers)
    before, now = (by.log_ratio(*(by.draw_buckets(BUCKETS) @ each).T) for each in sums)
    gap = np.array([np.log(rates[1] / rates[0])])
    p = by.difference_test(gap, (now - before)[:, None], used)
    changed = p is not None and p < LEVEL and abs(gap[0]) > 0.02
    said = f"{rates[0]:.3f} before, {rates[1]:.3f} now."
    return DriftFinding(name, "present" if changed else "absent", said, p, numbers)


def shares(tables: LogTables, of: Table, column: str) -> dict[str, int]:
    """How often each value of a column occurs."""
    named = of.mutate(value=of[column].cast("string"))
    rows = tables.engine.rows(named.group_by("value").agg(n=named.count()))
    return {str(row["value"]): int(row["n"]) for row in rows}


def mix_drift(name: str, old: Mapping[str, int], new: Mapping[str, int]) -> DriftFinding:
    """Whether two logs have the same mix of values."""
    p, divergence, chance, moved = same_mix(old, new)
    numbers = {"divergence": divergence, "by_chance": chance}
    if moved is None:
        return DriftFinding(name, "absent", "All of both logs have the same value.", None, numbers)
    value, before, now = moved
    changed = p < LEVEL and divergence - chance > SMALL
    said = f"Largest change: {value}, {before:.1%} before, {now:.1%} now; divergence {divergence:.3f} bits"
    return DriftFinding(name, "present" if changed else "absent", f"{said}, {chance:.3f} by chance.", p, numbers)


def same_mix(
    old: Mapping[str, int], new: Mapping[str, int]
) -> tuple[float, float, float, tuple[str, float, float] | None]:
    """p of one mix for both, their divergence in bits, what chance gives, and the value whose share moved most.

    >>> same_mix({"a": 500, "b": 500}, {"a": 250, "b": 750})[1:]
    (0.048..., 0.00036..., ('a', 0.5, 0.25))
    """
    values = sorted({*old, *new})
    table = np.array([[each.get(value, 0) for value in values] for each in (old, new)], np.float64)  # [2, V]
    total = table.sum(axis=1)
    often = total.min() * table.sum(axis=0) / total.sum() >= RARE
    table = np.column_stack([table[:, often], table[:, ~often].sum(axis=1)])
    table = table[:, table.sum(axis=0) > 0]
    names = [value for value, kept in zip(values, often, strict=True) if kept] + ["rare ones"]
    if table.shape[1] < 2:
        return 1.0, 0.0, 0.0, None
    expected = total[:, None] * table.sum(axis=0) / total.sum()
    freedom = table.shape[1] - 1
    p = float(chdtrc(freedom, ((table - expected) ** 2 / expected).sum()))
    share = table / total[:, None]
    # E of the divergence of two samples of one mix, as chi-square has it
    chance = freedom * (1 / total[0] + 1 / total[1]) / (8 * np.log(2))
    most = int(np.abs(share[1] - share[0]).argmax())
    divergence = float(rel_entr(share, share.mean(axis=0)).sum() / np.log(4))  # of Jensen and Shannon
    return p, divergence, float(chance), (names[most], float(share[0, most]), float(share[1, most]))


def traffic_drift(name: str, key: str, old: LogTables, new: LogTables) -> DriftFinding:
    """Whether the queries, or the documents, are the same ones, in the same shares."""
    tables = [(each, each.pages if key == "query_id" else each.impressions) for each in (old, new)]
    counts = [shares(each, table, key) for each, table in tables]
    mix = mix_drift(name, *counts)
    fresh = sum(n for value, n in counts[1].items() if value not in counts[0]) / sum(counts[1].values())
    usual = halves_apart(tables[0][0], key)
    there = len(set(counts[0]) & set(counts[1])) / len(counts[1])
    numbers = {**(mix.numbers or {}), "new_share": fresh, "usual_new_share": usual, "known": there}
    of = "pages" if key == "query_id" else "impressions"
    said = f"{fresh:.1%} of the new {of} have {name} that the old log lacks ({usual:.1%} between its halves)."
    if not there:
        said = f"The logs have no {name} in common; are they of one search, with the same ids?"
    novel = fresh - usual > NOVEL
    mixed = mix.state == "present" and key == "query_id"  # documents come by the page, so chance is larger
    state: State = "present" if novel or mixed else "absent"
    return DriftFinding(name, state, f"{said} {mix.text}", mix.p, numbers)


def halves_apart(tables: LogTables, key: str) -> float:
    """Share of one half of the pages of a log with a value that the other half lacks."""
    shown = tables.impressions
    half: Any = bucket_of(shown.page_id) < BUCKETS // 2
    of = shown if key == "doc_id" else shown.select("page_id", key, half=half).distinct()
    named = of.mutate(value=of[key].cast("string"), half=half if key == "doc_id" else of.half)
    counted = named.group_by("value").agg(a=named.count(where=named.half), b=named.count(where=~named.half))
    row = tables.engine.rows(counted.agg(lost=counted.b.sum(where=counted.a == 0), all=counted.b.sum()))[0]
    return float(row["lost"] or 0) / max(float(row["all"] or 0), 1.0)
