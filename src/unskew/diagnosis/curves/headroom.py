"""How near the order shown comes to the best one of the same results, by the log itself: what is to be gained.

What is expected of a pair (a query and a document) by its mean rank and its query's level is m, worth a of its
examinations (`engine_prior`). With C clicks on T examinations its relevance is then drawn from

    r ~ Beta(a m + C, a (1 - m) + T - C)

and with n_qk pages of query q that show rank k, and r_(j) the j-th largest of q:

    now     sum over shows of theta_k r
    best    sum over j of r_(j) (n_qk theta_k)_(j), what is looked at most having what is wanted most

The best of what is known would promise less than can be reached, the best of single click rates more, since both
take chance for relevance or relevance for chance; draws differ as much as relevance does. Documents that no page
showed are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unskew.diagnosis.curves.rates import Z
from unskew.diagnosis.evidence.evidence import Evidence
from unskew.diagnosis.evidence.likelihood import FEWEST_BUCKETS, ratio_and_error
from unskew.diagnosis.evidence.sums import MOST_CELLS, RANKS
from unskew.diagnosis.evidence.tables import BUCKETS, LogTables
from unskew.engine_prior import Expectation, mean_ranks, spread_worth
from unskew.results import Result
from unskew.tables.joins import encode
from unskew.types import Array

DRAWS = 8
"""Draws of relevance that are averaged."""


@dataclass(frozen=True)
class Headroom(Result):
    """What the order shown gets of what the best order of the same results would."""

    reached: float | None
    """Share of the best order's clicks; None with a reason."""
    interval: tuple[float, float] | None = None
    """95 %, by queries; none where they are few."""
    reason: str | None = None
    told: ClassVar = ("gain", "sentence")

    @property
    def gain(self) -> float | None:
        """By what share clicks would rise in the best order: what can be gained at most."""
        return None if self.reached is None else 1 / self.reached - 1

    @property
    def sentence(self) -> str:
        """How good the order is, and what is left to gain."""
        if self.reached is None or self.gain is None:
            return f"How much a better order would gain is not known: {self.reason}."
        spread = "" if self.interval is None else " ({:.0%} to {:.0%})".format(*self.interval)
        return (
            f"The order shown gets about {self.reached:.0%}{spread} of the clicks that the best order of the same "
            f"results would: a ranker can gain {self.gain:.1%} at most."
        )


def headroom(tables: LogTables, found: Evidence, seed: int = 0) -> Headroom:
    """What is left to gain by the order of results, of a mixed log by slots that were not shuffled."""
    if found.chosen is None:
        return Headroom(None, reason=found.reason)
    cells, _ = tables.sample(MOST_CELLS)
    cells = cells.filter(~cells.shuffled) if tables.shuffled == "some" else cells
    ranks = min(tables.facts["ranks"], RANKS)
    read = tables.read_cells(cells, ranks)
    read = read.sort_by([("query_id", "ascending"), ("doc_id", "ascending")])  # so that draws are those of the log
    return of_cells(read, found.examination.usable().reaching(ranks).values[:ranks], seed)


def of_cells(read: Any, theta: Array, seed: int = 0) -> Headroom:
    """From cells as Arrow, and examination by rank."""
    (query, _), (document, _) = (encode(read[name]) for name in ("query_id", "doc_id"))
    rank, bucket, n, c = (read[name].to_numpy() for name in ("position", "bucket", "impressions", "clicks"))
    if not c.sum():
        return Headroom(None, reason="nothing was clicked")
    keys = query.astype(np.int64) * (int(document.max()) + 1) + document
    _, first, pair = np.unique(keys, return_index=True, return_inverse=True)
    query, of_pair = query.astype(np.int64), query[first].astype(np.int64)
    pages = np.zeros((int(query.max()) + 1, len(theta)))
    np.add.at(pages, (query, rank - 1), n)
    looked, squares, clicks, shown, depth = (
        np.bincount(pair, each) for each in (n * theta[rank - 1], n * theta[rank - 1] ** 2, c, n, n * rank)
    )
    told = clicks, looked, mean_ranks(depth, shown, pages.max(1)[of_pair], len(theta)), of_pair
    mean = Expectation.fit(*told).of(*told)
    worth = spread_worth(clicks, looked, squares, mean)
    good, bad = worth * mean + clicks, worth * (1 - mean) + np.maximum(looked - clicks, 0.0)
    attention, draw = -np.sort(-pages * theta, axis=1), np.random.default_rng([seed, 5])
    now, best = np.zeros((2, len(pages)))
    for _ in range(DRAWS):
        relevance = draw.beta(good, bad)
        now += np.bincount(of_pair, looked * relevance)
        best += best_of(relevance, of_pair, attention)
    each = np.zeros(len(pages), np.int64)
    each[query] = bucket
    sums = [np.bincount(each, total, minlength=BUCKETS) for total in (now, best)]
    reached, error = ratio_and_error(*sums)
    if (sums[1] > 0).sum() < FEWEST_BUCKETS:
        return Headroom(reached)
    return Headroom(reached, (max(reached - Z * error, 0.0), min(reached + Z * error, 1.0)))


def best_of(relevance: Array, query: Array, attention: Array) -> Array:
    """What each query gets of pairs [M] in their best order, with attention [Q, P] to its places, never rising.

    >>> best_of(np.array([0.1, 0.5, 0.2]), np.array([0, 0, 1]), np.array([[1.0, 0.5], [2.0, 0.0]])).tolist()
    [0.55, 0.4]
    """
    order = np.lexsort((-relevance, query))
    counts = np.bincount(query, minlength=len(attention))
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    some = place < attention.shape[1]
    order, place = order[some], place[some]
    found: Array = np.bincount(
        query[order], relevance[order] * attention[query[order], place], minlength=len(attention)
    )
    return found
