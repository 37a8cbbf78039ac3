"""Click rates of a log by rank and segment, and what else its pages show before anything is modelled.

    click rate         clicks at rank k over pages that show it; Wilson's interval, widened by the design effect
    design effect      variance over buckets of queries against that of independent pages; effective = pages / it
    skip above         of pages with a click below rank k, the share that did not click k
    order              how often a clicked result stood above one of its page that was not (0.5: no matter)
    effective queries  (sum n)^2 / sum n^2 over pages n of a query

Results of a page hang together, and so do pages of a query: rows are never counted as if they were independent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from unskew.diagnosis.evidence.likelihood import FEWEST_BUCKETS, ratio_and_error
from unskew.diagnosis.evidence.sums import RANKS
from unskew.diagnosis.evidence.tables import ALL_BUCKETS, LogTables
from unskew.results import Result
from unskew.types import Array

FEWEST_PAGES = 50
"""Pages below which a click rate is not told."""
FEWEST_CLICKS = 10
"""Clicks below which a segment is not told."""
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
    ranks = range(1, min(tables.facts["ranks"], RANKS) + 1)
    rates = _rates_by(tables, None, ranks)[""]
    sums = _page_sums(tables)
    pages = tables.pages.mutate(n=1)
    (last,) = tables.laid_out(pages, {"last_click": ranks}, "n")
    counted = pages.group_by("query_id").agg(n=pages.n.sum().cast("float64"))
    squares = tables.engine.rows(counted.agg(n=(counted.n * counted.n).sum()))[0]["n"]
    total = float(sums["n"].sum())
    return Curves(
        rates=rates,
        segments=tuple(_segment(tables, name, ranks) for name in tables.segments),
        no_click=ratio(sums["n"] - sums["clicked"], sums["n"], FEWEST_PAGES),
        last_click=tuple(int(n) for n in last),
        click_depth=ratio(sums["last_click"], sums["clicked"], FEWEST_CLICKS),
        skip_above=skip_above(np.asarray(rates.clicks), last, not sums["elsewhere"].any()),
        order=ratio(sums["order"], sums["ordered"], FEWEST_CLICKS),
        pages=int(total),
        queries=tables.facts["queries"],
        effective_queries=total**2 / float(squares),
    )


# ---- rates ----


def rank_rates(pages: Array, clicks: Array) -> RankRates:
    """Rates by rank from pages and clicks by bucket of queries and rank, [B, P] each."""
    told = [_rate(*sums) for sums in zip(pages.T, clicks.T, strict=True)]
    rate, interval, effective, reason = (tuple(column) for column in zip(*told, strict=True))
    shown, clicked = (tuple(int(n) for n in values.sum(axis=0)) for values in (pages, clicks))
    return RankRates(shown, clicked, rate, interval, effective, reason)


def _rate(pages: Array, clicks: Array) -> tuple[Any, Any, Any, str | None]:
    """Rate, interval, effective pages, and the reason why there is none, of one rank from its buckets [B]."""
    n = float(pages.sum())
    if n < FEWEST_PAGES:
        return None, None, None, f"{n:.0f} pages show it; {FEWEST_PAGES} are the fewest"
    rate, error = ratio_and_error(clicks, pages)
    if (pages > 0).sum() < FEWEST_BUCKETS or not 0 < rate < 1:
        return rate, wilson(rate, n), None, None
    effect = max(error**2 / (rate * (1 - rate) / n), 1.0)
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
    value, error = ratio_and_error(over, under)
    if used < FEWEST_BUCKETS:
        why = f"no interval: its queries fall into {used} groups, {FEWEST_BUCKETS} are the fewest"
        return LogNumber(value, None, why)
    if error < 1e-12:
        return LogNumber(value, None, "no interval: all queries are alike")
    return LogNumber(value, (value - Z * error, value + Z * error))


def _segment(tables: LogTables, name: str, ranks: range) -> SegmentRates:
    rates: dict[str, RankRates | None] = {}
    reason: dict[str, str | None] = {}
    for value, told in sorted(_rates_by(tables, name, ranks).items()):
        pages, clicks = max(told.pages), sum(told.clicks)
        few = pages < FEWEST_PAGES or clicks < FEWEST_CLICKS
        wanted = f"{FEWEST_PAGES} and {FEWEST_CLICKS} are the fewest"
        reason[value] = f"{pages} pages with {clicks} clicks; {wanted}" if few else None
        rates[value] = None if few else told
    return SegmentRates(name, rates, reason)


def _rates_by(tables: LogTables, by: str | None, ranks: range) -> dict[str, RankRates]:
    """Rates for each value of a segment, or under "" for the whole log."""
    at: dict[str, Sequence[Any]] = {"bucket": ALL_BUCKETS, "position": ranks}
    if by is None:
        return {"": rank_rates(*tables.laid_out(tables.cells, at, "impressions", "clicks"))}
    values = [row[by] for row in tables.engine.rows(tables.cells.select(by).distinct())]
    sums = tables.laid_out(tables.cells, {by: values} | at, "impressions", "clicks")
    return {value: rank_rates(*each) for value, *each in zip(values, *sums, strict=True)}


# ---- pages ----


def _page_sums(tables: LogTables) -> dict[str, Array]:
    """What pages add up to, by bucket [B]: how many, with clicks, depth, order, and not from rank 1 on."""
    pages: Any = tables.pages.join(tables.queries, "query_id")
    misses = pages.results - pages.clicks
    place = pages.clicked_positions - pages.clicks * (pages.first_position - 1)
    # unclicked results above clicked ones, of all pairs of the two
    below = (place - pages.clicks * (pages.clicks + 1) / 2) / (pages.clicks * misses).nullif(0)
    mixed = ((pages.clicks > 0) & (misses > 0)).cast("int64")
    asked = {
        "n": 1,
        "clicked": (pages.clicks > 0).cast("int64"),
        "ordered": mixed,
        "order": mixed * (1 - below.clip(0.0, 1.0)),
        "elsewhere": (pages.first_position != 1).cast("int64"),
    }
    names = (*asked, "last_click")
    sums = tables.laid_out(pages.mutate(**asked), {"bucket": ALL_BUCKETS}, *names)
    return dict(zip(names, sums, strict=True))


def skip_above(clicks: Array, last: Array, from_one: bool) -> tuple[float | None, ...]:
    """Of pages with a click below each rank [P], the share that did not click the rank itself.

    Clicks at a rank are those of pages that ended there and those of pages that went on, so nothing need be read
    again. Pages must begin at rank 1, or it is not known which of them showed the rank.

    >>> skip_above(np.array([30, 15, 40]), np.array([20, 10, 40]), True)  # 10 and 5 clicks with one further down
    (0.8, 0.875, None)
    """
    below = np.cumsum(last[::-1])[::-1] - last
    return tuple(
        float(1 - (c - ended) / further) if further >= FEWEST_CLICKS and from_one else None
        for c, ended, further in zip(clicks, last, below, strict=True)
    )
