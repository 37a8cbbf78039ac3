"""CMIP: what a ranker still knows of the logging ranking, once the true grade is known.

R. Deffayet, P. Hager, J.-M. Renders, M. de Rijke, "An Offline Metric for the Debiasedness of Click Models", SIGIR
2023, definition 4.1: the conditional mutual information

    CMIP = I(S; L | Y) = sum_y P(y) sum_{s,l} P(s, l | y) log(P(s, l | y) / (P(s | y) P(l | y)))      in nats

of scores S, the logging ranking L and grades Y. A ranker that learned relevance alone has 0: among documents of a
grade its scores do not follow where documents were shown. So has a random one: read it beside nDCG.

Differences from the paper: it estimates by a classifier between joint and conditionally independent samples, which
has to be trained; here scores are cut into bins of equal size within a grade and counted. The bias of counting is
taken out by permutations within query and grade, whose mean is subtracted and which give the p-value. As scores of
two queries need not be comparable, both rankings are taken as places within their query.

Legend: N documents, M permutations.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from unskew.errors import DataError
from unskew.results import Result
from unskew.types import Array, Log
from unskew.workflows.twins.fitting import shown_order

BINS = 8
"""Bins of each ranking at most."""
FEWEST = 100
"""Documents below which a log says nothing of it."""
PER_CELL = 5
"""Documents that a pair of bins should hold on average; there are fewer bins where grades are rare."""


@dataclass(frozen=True)
class Cmip(Result):
    """Conditional mutual information of a ranking and the logging ranking, given grades."""

    value: float
    """Nats, less what chance gives; about 0, below it too, where nothing is left of the logging ranking."""
    counted: float
    """Before that: never below 0."""
    p: float
    """Of the test that it is 0."""
    documents: int

    def __str__(self) -> str:
        return f"{self.value:.4f} nats (p = {self.p:.3g}, {self.documents:,} documents)"


def cmip_metric(
    scores: ArrayLike,
    logging: ArrayLike,
    labels: ArrayLike,
    *,
    query: ArrayLike | None = None,
    bins: int = BINS,
    permutations: int = 200,
    seed: int = 0,
) -> Cmip:
    """CMIP of scores [N], scores of the logging ranking [N] and grades [N]; NaN leaves a document out.

    `query` [N] says whose documents they are; without it they are all of one.

    >>> same = np.arange(400.0)
    >>> found = cmip_metric(same, same, np.zeros(400), bins=4)
    >>> round(found.counted, 4), found.p < 0.01       # log 4: the logging ranking tells the bin
    (1.3863, True)
    """
    s, shown, y = (np.asarray(each, np.float64) for each in (scores, logging, labels))
    q = np.zeros(len(s)) if query is None else np.asarray(query)
    if not len(s) == len(shown) == len(y) == len(q):
        raise DataError("scores, logging scores, labels and queries must be equally many")
    kept = ~(np.isnan(s) | np.isnan(shown) | np.isnan(y))
    if kept.sum() < 2:
        raise DataError("fewer than two documents have scores, a place in the log and a grade")
    s, shown, y, q = s[kept], shown[kept], y[kept], q[kept]
    if query is not None:
        s, shown = _places(s, q), _places(shown, q)
    _, grade = np.unique(y, return_inverse=True)
    first, second = _bins(s, grade, bins), _bins(shown, grade, bins)
    counted = _information(first, second, grade, bins)
    rng, by_chance = np.random.default_rng(seed), np.empty(permutations)
    cell = np.unique(q, return_inverse=True)[1] * (int(grade.max()) + 1) + grade
    before, permuted = np.argsort(cell, kind="stable"), np.empty_like(first)
    for number in range(permutations):  # the values in another order within each query and grade
        permuted[before] = first[np.lexsort((rng.random(len(cell)), cell))]
        by_chance[number] = _information(permuted, second, grade, bins)
    p = (1 + int((by_chance >= counted - 1e-12).sum())) / (1 + permutations)
    return Cmip(counted - float(by_chance.mean()), counted, p, int(kept.sum()))


def left_of_logging(scores: Array, log: Log) -> Cmip | None:
    """CMIP of scores [N] of a log's documents, on those that it shows; None where grades do not tell any apart."""
    shown, labels = shown_order(log), np.asarray(log.lists.labels)
    there = np.isfinite(shown)
    if there.sum() < FEWEST or len(np.unique(labels[there])) < 2:
        return None
    query = np.repeat(np.arange(len(log.lists)), log.lists.sizes)
    return cmip_metric(scores, shown, labels, query=query)


def _places(values: Array, query: Array) -> Array:
    """Places within the query from 0 to 1, the highest value last; ties share a place."""
    from scipy.stats import rankdata

    _, code, sizes = np.unique(query, return_inverse=True, return_counts=True)
    before = (np.cumsum(sizes) - sizes)[code]  # documents of earlier queries
    by_query = code * (len(values) + 1) + np.unique(values, return_inverse=True)[1]
    return np.asarray((rankdata(by_query) - before - 0.5) / sizes[code])


def _bins(values: Array, grade: Array, bins: int) -> Array:
    """Bins of equal size within each grade, [N] from 0; fewer where a grade is rare. Ties share a bin."""
    from scipy.stats import rankdata

    made = np.zeros(len(values), np.int64)
    for number in range(int(grade.max()) + 1):
        own = grade == number
        size = int(own.sum())
        count = max(1, min(bins, int(np.sqrt(size / PER_CELL))))
        made[own] = np.minimum((rankdata(values[own]) - 0.5) * count // size, count - 1).astype(np.int64)
    return made


def _information(first: Array, second: Array, grade: Array, bins: int) -> float:
    shape = int(grade.max()) + 1, bins, bins
    flat = (grade * bins + first) * bins + second
    joint = np.bincount(flat, minlength=int(np.prod(shape))).reshape(shape) / len(first)
    apart = joint.sum(2, keepdims=True) * joint.sum(1, keepdims=True)
    whole = joint.sum((1, 2), keepdims=True)
    there = joint > 0
    ratio = np.divide(joint * whole, apart, out=np.ones(shape), where=there)
    return float((joint * np.log(ratio)).sum())
