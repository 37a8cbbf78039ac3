"""Whether two logs are the same traffic: mixes of values, clicks of a page, queries and documents that are new.

    mixes        Jensen-Shannon divergence of shares, less what chance would give, and the test of one mix for
                 both; values that are rare in both count as one
    novelty      share of the new log that the old one lacks, beside that of one half of the old one in the other
    clicks       logarithm of the ratio of clicks a page

Chance of clicks is that of queries drawn again, the same ones from both logs. A test finds something below LEVEL,
which keeps all of them together near one in twenty; a mix must have changed by more than SMALL besides, since in a
large log every mix has changed a little.

Legend: B buckets of queries, V values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import chdtrc

from unskew.diagnosis.evidence import likelihood as by
from unskew.diagnosis.evidence.tables import BUCKETS, LogTables, bucket_of
from unskew.types import Array

if TYPE_CHECKING:
    from ibis.expr.types import Table

State = Literal["present", "absent", "cannot tell"]
LEVEL = 0.005
"""p below which a test finds something."""
SMALL = 0.01
"""Divergence in bits, beyond chance, below which a mix is the same."""
NOVEL = 0.05
"""Share of new things, beyond those of one half of the old log, below which nothing is new."""
RARE = 10
"""Expected number, in either log, below which a value of a mix counts among the rare ones."""


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


def page_sums(tables: LogTables) -> Array:
    """Pages and clicks by bucket, [B, 2]."""
    pages = tables.pages.join(tables.queries, "query_id")
    found = np.zeros((BUCKETS, 2))
    for row in tables.engine.rows(pages.group_by("bucket").agg(n=pages.count(), c=pages.clicks.sum())):
        found[int(row["bucket"])] = float(row["n"]), float(row["c"] or 0)
    return found


def rate_drift(old: Array, new: Array) -> DriftFinding:
    """Whether pages are clicked as often, from pages and clicks by bucket [B, 2]."""
    name, used = "clicks per page", int(((old + new)[:, 0] > 0).sum())
    rates = [each[:, 1].sum() / each[:, 0].sum() for each in (old, new)]
    numbers = {"old": float(rates[0]), "new": float(rates[1])}
    if used < by.FEWEST_BUCKETS or not all(rates):
        return DriftFinding(name, "cannot tell", "Too few queries, or clicks, to tell.", None, numbers)
    draws = by.draw_buckets(BUCKETS)
    sums = [draws @ each for each in (old, new)]
    drawn = by.log_ratio(sums[1][:, 1], sums[1][:, 0]) - by.log_ratio(sums[0][:, 1], sums[0][:, 0])
    gap = np.array([np.log(rates[1] / rates[0])])
    p = by.difference_test(gap, drawn[:, None], used)
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
    return p, divergence_of(*share), float(chance), (names[most], float(share[0, most]), float(share[1, most]))


def divergence_of(one: Array, other: Array) -> float:
    """Jensen-Shannon divergence of two distributions, in bits.

    >>> divergence_of(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    1.0
    """
    mean = (one + other) / 2
    parts = [
        np.where(each > 0, each * np.log2(np.where(each > 0, each, 1.0) / mean), 0.0).sum()
        for each in (one, other)
    ]
    return float(sum(parts) / 2)


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
