"""A log in the numbers that a twin has to meet: clicks by rank, clicks per page, first clicks, query frequencies.

Legend: P pages, K ranks.
"""

from dataclasses import dataclass

import numpy as np

from unskew.diagnosis.curves.rates import Z, wilson
from unskew.logs.counts.reduction import reduce_log
from unskew.results import Result
from unskew.types import Array, Log

MOST_CLICKS = 5
"""Clicks of a page from which on they are counted together."""
HEADS = (0.01, 0.1, 0.5)
"""Shares of the queries, the most frequent first, whose share of the pages is told."""


@dataclass(frozen=True)
class Portrait(Result):
    """The numbers by which a log and its twin are compared."""

    pages: int
    queries: int
    rate: tuple[float | None, ...]
    """Click rate by rank; None where nothing was shown."""
    interval: tuple[tuple[float, float] | None, ...]
    """95 % each, over pages."""
    clicks: tuple[float, ...]
    """Share of pages with 0, 1, ... clicks; the last with as many or more."""
    first: tuple[float, ...]
    """Share of pages whose first click is at each rank."""
    head: tuple[float, ...]
    """Share of the pages that are of the 1 %, 10 % and 50 % most frequent queries."""
    changing: float | None
    """Share of the queries asked more than once that were shown in several orders."""


@dataclass(frozen=True)
class TwinReport(Result):
    """What was fitted to a log, and how the twin looks beside it."""

    model: str
    idle_pages: float
    """Share of the pages at which nobody looks."""
    examination: tuple[float, ...]
    """Of the twin, relative to rank 1."""
    examination_from: str
    """What it comes from."""
    identified: bool
    """Whether the log tells it."""
    examination_in_the_log: tuple[float | None, ...]
    notes: tuple[str, ...]
    log: Portrait
    twin: Portrait
    ranks_off: tuple[int, ...]
    """Ranks at which the click rates differ."""


def portrait(log: Log) -> Portrait:
    """The log in numbers."""
    page = np.repeat(np.arange(len(log)), log.sizes)
    click, ranks = log.click > 0, int(log.position.max(initial=1))
    shown = np.bincount(log.position, minlength=ranks + 1)[1:]
    clicked = np.bincount(log.position[click], minlength=ranks + 1)[1:]
    per_page = np.bincount(page[click], minlength=len(log))
    first = np.full(len(log), ranks + 1)
    np.minimum.at(first, page[click], log.position[click])
    asked = np.sort(np.bincount(log.query))[::-1]
    asked = asked[asked > 0]
    return Portrait(
        pages=len(log),
        queries=len(np.unique(log.query)),
        rate=tuple(c / n if n else None for c, n in zip(clicked.tolist(), shown.tolist(), strict=True)),
        interval=tuple(wilson(c / n, n) if n else None for c, n in zip(clicked, shown, strict=True)),
        clicks=_shares(np.minimum(per_page, MOST_CLICKS), MOST_CLICKS + 1),
        first=_shares(first - 1, ranks + 1)[:ranks],
        head=tuple(float(asked[: max(1, round(share * len(asked)))].sum() / asked.sum()) for share in HEADS),
        changing=_changing(log),
    )


def off(log: Portrait, twin: Portrait, errors: float = 3.0) -> list[int]:
    """Ranks at which two click rates differ by more than so many standard errors of their difference."""
    found = []
    pairs = zip(log.rate, log.interval, twin.rate, twin.interval, strict=False)
    for rank, (a, own, b, others) in enumerate(pairs, start=1):
        if a is None or b is None or own is None or others is None:
            continue
        spread = np.hypot(own[1] - own[0], others[1] - others[0]) / (2 * Z)
        if abs(a - b) > errors * spread:
            found.append(rank)
    return found


def _shares(values: Array, size: int) -> tuple[float, ...]:
    """How often each of 0 ... size - 1 occurs."""
    counts = np.bincount(values, minlength=size)
    return tuple((counts / max(len(values), 1)).tolist())


def _changing(log: Log) -> float | None:
    """Share of the queries asked more than once that were shown in several orders; shuffled pages aside."""
    if log.randomized is not None:
        page = np.repeat(np.arange(len(log)), log.sizes)
        log = log.take(np.bincount(page, log.randomized, minlength=len(log)) == 0)
    if not len(log.row):
        return None
    orders, again = np.bincount(reduce_log(log).query), np.bincount(log.query) > 1
    return float((orders[again] > 1).mean()) if again.any() else None
