"""Click rates of a log by rank and segment, and what else its pages show before anything is modelled.

    click rate         clicks at rank k over pages that show it; Wilson's interval, widened by the design effect
    design effect      variance over buckets of queries against that of independent pages; effective = pages / it
    skip above         of pages with a click below rank k, the share that did not click k
    order              how often a clicked result stood above one of its page that was not (0.5: no matter)
    effective queries  (sum n)^2 / sum n^2 over pages n of a query

Results of a page hang together, and so do pages of a query: rows are never counted as if they were independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from unskew.diagnosis.evidence.sums import RANKS
from unskew.diagnosis.evidence.tables import BUCKETS, LogTables
from unskew.results import Result
from unskew.types import Array

FEWEST_PAGES = 50
"""Pages below which a click rate is not told."""
FEWEST_CLICKS = 10
"""Clicks below which a segment is not told."""
FEWEST_BUCKETS = 10
"""Buckets of queries below which pages are taken for independent."""
Z = float(ndtri(0.975))


@dataclass(frozen=True)
class RankRates(Result):
    """Click rates by rank of a log or of one value of a segment."""

    pages: tuple[int, ...]
    """Pages that show each rank."""
    clicks: tuple[int, ...]
    rate: tuple[float | None, ...]
    interval: tuple[tuple[float, float] | None, ...]
    """95 % each."""
    effective_pages: tuple[float | None, ...]
    """Independent pages that would tell as much; None where there are too few queries to know."""
    reason: tuple[str | None, ...]
    """Why a rank has no rate."""


@dataclass(frozen=True)
class SegmentRates(Result):
    """Click rates by rank for each value of a segment; None with a reason where a value has too few rows."""

    segment: str
    rates: Mapping[str, RankRates | None]
    reason: Mapping[str, str | None]


@dataclass(frozen=True)
class LogNumber(Result):
    """A number with its interval, or the reason why there is none."""

    value: float | None
    interval: tuple[float, float] | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Curves(Result):
    """What clicks of a log look like, before anything is modelled."""

    rates: RankRates
    segments: tuple[SegmentRates, ...]
    no_click: LogNumber
    """Share of pages without a click."""
    last_click: tuple[int, ...]
    """Pages whose deepest click was at each rank."""
    click_depth: LogNumber
    """Mean rank of the deepest click, of pages that have one."""
    skip_above: tuple[float | None, ...]
    """Of pages with a click below each rank, the share that did not click it; None where there are few."""
    order: LogNumber
    """How often a clicked result stood above an unclicked one of its page."""
    pages: int
    queries: int
    effective_queries: float


def curves(tables: LogTables) -> Curves:
    """Click rates by rank, for the log and its segments, and what its pages show."""
    ranks = min(tables.facts["ranks"], RANKS)
    rates = _rates_by(tables, None, ranks)[""]
    sums = _page_sums(tables)
    last = _last_clicks(tables, ranks)
    return Curves(
        rates=rates,
        segments=tuple(_segment(tables, name, ranks) for name in tables.segments),
        no_click=ratio(sums["pages"] - sums["clicked"], sums["pages"], FEWEST_PAGES),
        last_click=tuple(last),
        click_depth=ratio(sums["depth"], sums["clicked"], FEWEST_CLICKS),
        skip_above=skip_above(np.asarray(rates.clicks), np.asarray(last), sums["elsewhere"].sum() == 0),
        order=ratio(sums["order"], sums["ordered"], FEWEST_CLICKS),
        pages=int(sums["pages"].sum()),
        queries=tables.facts["queries"],
        effective_queries=_effective_queries(tables),
    )


# ---- rates ----


def rank_rates(pages: Array, clicks: Array) -> RankRates:
    """Rates by rank from pages and clicks by bucket of queries and rank, [B, P] each."""
    told = [_rate(pages[:, rank], clicks[:, rank]) for rank in range(pages.shape[1])]
    rate, interval, effective, reason = (tuple(column) for column in zip(*told, strict=True))
    shown, clicked = (tuple(int(n) for n in values.sum(axis=0)) for values in (pages, clicks))
    return RankRates(shown, clicked, rate, interval, effective, reason)


def _rate(pages: Array, clicks: Array) -> tuple[Any, Any, Any, str | None]:
    """Rate, interval, effective pages, and the reason why there is none, of one rank from its buckets [B]."""
    n, c = float(pages.sum()), float(clicks.sum())
    if n < FEWEST_PAGES:
        return None, None, None, f"{n:.0f} pages show it; {FEWEST_PAGES} are the fewest"
    rate, used = c / n, int((pages > 0).sum())
    if used < FEWEST_BUCKETS or not 0 < rate < 1:
        return rate, wilson(rate, n), None, None
    spread = used / (used - 1) * float(((clicks - rate * pages) ** 2).sum()) / n**2
    effect = max(spread / (rate * (1 - rate) / n), 1.0)
    return rate, wilson(rate, n / effect), n / effect, None


def wilson(rate: float, n: float) -> tuple[float, float]:
    """The 95 % interval of a share of n.

    >>> [round(end, 4) for end in wilson(0.1, 100)]
    [0.0552, 0.1744]
    """
    centre, wide = rate + Z**2 / (2 * n), Z * np.sqrt(rate * (1 - rate) / n + Z**2 / (4 * n**2))
    return float((centre - wide) / (1 + Z**2 / n)), float((centre + wide) / (1 + Z**2 / n))


def ratio(over: Array, under: Array, least: int) -> LogNumber:
    """Sum over sum, from buckets [B] each, with an interval by buckets where there are enough of them."""
    total, used = float(under.sum()), int((under > 0).sum())
    if total < least:
        return LogNumber(None, None, f"{total:.0f} pages tell of it; {least} are the fewest")
    value = float(over.sum()) / total
    if used < FEWEST_BUCKETS:
        return LogNumber(
            value, None, f"no interval: its queries fall into {used} groups, {FEWEST_BUCKETS} are the fewest"
        )
    error = float(np.sqrt(used / (used - 1) * ((over - value * under) ** 2).sum())) / total
    if error < 1e-12:
        return LogNumber(value, None, "no interval: all queries are alike")
    return LogNumber(value, (value - Z * error, value + Z * error))


def _segment(tables: LogTables, name: str, ranks: int) -> SegmentRates:
    rates: dict[str, RankRates | None] = {}
    reason: dict[str, str | None] = {}
    for value, told in sorted(_rates_by(tables, name, ranks).items()):
        pages, clicks = max(told.pages), sum(told.clicks)
        few = pages < FEWEST_PAGES or clicks < FEWEST_CLICKS
        wanted = f"{FEWEST_PAGES} and {FEWEST_CLICKS} are the fewest"
        reason[value] = f"{pages} pages with {clicks} clicks; {wanted}" if few else None
        rates[value] = None if few else told
    return SegmentRates(name, rates, reason)


def _rates_by(tables: LogTables, by: str | None, ranks: int) -> dict[str, RankRates]:
    """Rates for each value of a segment, or under "" for the whole log."""
    cells = tables.cells.filter(tables.cells.position <= ranks)
    keys = ["bucket", "position", *([] if by is None else [by])]
    summed = tables.engine.to_arrow(cells.group_by(keys).agg(n=cells.impressions.sum(), c=cells.clicks.sum()))
    values = np.asarray([""] * len(summed) if by is None else summed[by].to_pylist(), object)
    place = summed["bucket"].to_numpy(), summed["position"].to_numpy() - 1
    found = {}
    for value in set(values):
        laid = []
        for name in ("n", "c"):
            sums = np.zeros((BUCKETS, ranks))
            np.add.at(sums, place, np.where(values == value, summed[name].to_numpy().astype(np.float64), 0.0))
            laid.append(sums)
        found[str(value)] = rank_rates(*laid)
    return found


# ---- pages ----


def _page_sums(tables: LogTables) -> dict[str, Array]:
    """What pages add up to, by bucket [B]: how many, with clicks, depth, order, and not from rank 1 on."""
    pages: Any = tables.pages.join(tables.queries, "query_id")
    clicked, misses = pages.clicks > 0, pages.results - pages.clicks
    place = pages.clicked_positions - pages.clicks * (pages.first_position - 1)
    # unclicked results above clicked ones, of all pairs of the two
    below = (place - pages.clicks * (pages.clicks + 1) / 2) / (pages.clicks * misses).nullif(0)
    mixed = clicked & (misses > 0)
    asked = {
        "pages": pages.count(),
        "clicked": clicked.cast("int64").sum(),
        "depth": pages.last_click.sum(),
        "ordered": mixed.cast("int64").sum(),
        "order": (1 - below.clip(0.0, 1.0)).sum(where=mixed),
        "elsewhere": (pages.first_position != 1).cast("int64").sum(),
    }
    found = {name: np.zeros(BUCKETS) for name in asked}
    for row in tables.engine.rows(pages.group_by("bucket").agg(**asked)):
        for name in asked:
            found[name][int(row["bucket"])] = float(row[name] or 0)
    return found


def _last_clicks(tables: LogTables, ranks: int) -> list[int]:
    """Pages by the rank of their deepest click."""
    pages = tables.pages.filter(tables.pages.last_click <= ranks)
    counted = [0] * ranks
    for row in tables.engine.rows(pages.group_by("last_click").agg(n=pages.count())):
        counted[int(row["last_click"]) - 1] = int(row["n"])
    return counted


def skip_above(clicks: Array, last: Array, from_one: bool) -> tuple[float | None, ...]:
    """Of pages with a click below each rank [P], the share that did not click the rank itself.

    Clicks at a rank are those of pages that ended there and those of pages that went on, so nothing need be read
    again. Pages must begin at rank 1, or it is not known which of them showed the rank.

    >>> skip_above(np.array([30, 15, 40]), np.array([20, 10, 40]), True)  # 10 and 5 clicks with one further down
    (0.8, 0.875, None)
    """
    below = np.cumsum(last[::-1])[::-1] - last
    told: Sequence[float | None] = [
        float(1 - (c - ended) / further) if further >= FEWEST_CLICKS and from_one else None
        for c, ended, further in zip(clicks, last, below, strict=True)
    ]
    return tuple(told)


def _effective_queries(tables: LogTables) -> float:
    """How many queries of equal size would be as many."""
    pages = tables.pages
    counted = pages.group_by("query_id").agg(n=pages.count())
    number: Any = counted.n.cast("float64")
    row = tables.engine.rows(counted.agg(total=number.sum(), squares=(number * number).sum()))[0]
    return float(row["total"] ** 2 / row["squares"])
