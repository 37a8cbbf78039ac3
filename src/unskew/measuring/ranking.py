"""Ranking metrics over ragged lists: nDCG, DCG, ERR, MRR, MAP, precision and average relevance position.

Legend: Q queries, N documents, list after list; documents of query q are rows offsets[q] to offsets[q + 1].
y is a grade (0 = not relevant), rank counts from 1, a cut-off `at` of None takes the whole list.

Ties: equal scores keep the order of the input (file order), so a ranker that gives every document the same
score is measured as the initial ranking. Shuffle within lists first if that order knows something.

Queries without a relevant document (`empty`): most metrics are 0/0 there, and papers differ in what they do.
    "skip"  NaN for the query, left out of the mean (default; the report says how many)
    "zero"  the query counts as 0
    "one"   the query counts as 1
Relevant is y > 0 for the graded metrics (ndcg, dcg, err, arp, arp_legacy) and y >= relevant_from for the binary
ones (mrr, map, precision). The convention is the same for all metrics; for arp, where less is better, "zero"
rewards an empty query, so compare arp with "skip".
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from unskew.measuring.formulas import Empty, Gain, Options, evaluate
from unskew.measuring.ranked import rank_lists
from unskew.types import Array


def ndcg_metric(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    offsets: ArrayLike,
    at: int | None = 10,
    gain: Gain = "exponential",
    empty: Empty = "skip",
) -> Array:
    """DCG of the ranking over the DCG of the best ranking of the same list, both cut at `at`, [Q].

    >>> ndcg_metric([5, 4, 3, 2, 1], [3, 0, 1, 4, 0], offsets=[0, 5], at=3).round(6)
    array([0.376572])
    """
    return evaluate("ndcg", rank_lists(scores, labels, offsets=offsets), Options(at=at, gain=gain, empty=empty))


def dcg_metric(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    offsets: ArrayLike,
    at: int | None = 10,
    gain: Gain = "exponential",
    empty: Empty = "skip",
) -> Array:
    """sum_{rank <= at} (2^y - 1) / log2(1 + rank), or y / log2(1 + rank) with gain="linear", [Q].

    >>> dcg_metric([5, 4, 3, 2, 1], [3, 0, 1, 4, 0], offsets=[0, 5], at=3)
    array([7.5])
    """
    return evaluate("dcg", rank_lists(scores, labels, offsets=offsets), Options(at=at, gain=gain, empty=empty))


def err_metric(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    offsets: ArrayLike,
    at: int | None = 10,
    ymax: float | None = None,
    empty: Empty = "skip",
) -> Array:
    """Expected reciprocal rank: sum_{r <= at} R_r / r prod_{i < r} (1 - R_i), R = (2^y - 1) / 2^ymax, [Q].

    `ymax` is the best grade of the scale; by default 4, or the largest label given where that is larger.

    >>> err_metric([5, 4, 3, 2, 1], [3, 0, 1, 4, 0], offsets=[0, 5], at=3).round(6)
    array([0.449219])
    """
    return evaluate("err", rank_lists(scores, labels, offsets=offsets), Options(at=at, ymax=ymax, empty=empty))


def mrr_metric(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    offsets: ArrayLike,
    at: int | None = 10,
    relevant_from: float = 1,
    empty: Empty = "skip",
) -> Array:
    """1 / rank of the first relevant document; 0 where it stands below the cut-off, [Q].

    >>> mrr_metric([3, 2, 1], [0, 0, 1], offsets=[0, 3], at=3).round(6)
    array([0.333333])
    """
    options = Options(at=at, relevant_from=relevant_from, empty=empty)
    return evaluate("mrr", rank_lists(scores, labels, offsets=offsets), options)


def map_metric(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    offsets: ArrayLike,
    at: int | None = None,
    relevant_from: float = 1,
    empty: Empty = "skip",
) -> Array:
    """Average precision: sum over relevant documents with rank <= at of precision@rank / all relevant ones, [Q].

    >>> map_metric([3, 2, 1], [1, 0, 1], offsets=[0, 3]).round(6)
    array([0.833333])
    """
    options = Options(at=at, relevant_from=relevant_from, empty=empty)
    return evaluate("map", rank_lists(scores, labels, offsets=offsets), options)


def precision_metric(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    offsets: ArrayLike,
    at: int = 10,
    relevant_from: float = 1,
    empty: Empty = "skip",
) -> Array:
    """Relevant documents among the first `at`, over `at` even where the list is shorter (as trec_eval), [Q].

    >>> precision_metric([3, 2, 1], [1, 0, 1], offsets=[0, 3], at=10)
    array([0.2])
    """
    options = Options(at=at, relevant_from=relevant_from, empty=empty)
    return evaluate("precision", rank_lists(scores, labels, offsets=offsets), options)


def arp_metric(scores: ArrayLike, labels: ArrayLike, *, offsets: ArrayLike, empty: Empty = "skip") -> Array:
    """Average relevance position: sum(rank y) / sum(y) over the whole list, less is better, [Q].

    There is no cut-off: a cut one improves when relevant documents are pushed below the cut.

    >>> arp_metric([5, 4, 3, 2, 1], [3, 0, 1, 4, 0], offsets=[0, 5])
    array([2.75])
    """
    return evaluate("arp", rank_lists(scores, labels, offsets=offsets), Options(empty=empty))


def arp_legacy_metric(
    scores: ArrayLike,
    labels: ArrayLike,
    *,
    offsets: ArrayLike,
    slots: int | None = None,
    empty: Empty = "skip",
) -> Array:
    """sum(rank y) / slots: its mean over queries is the mean of rank y over queries and list slots, [Q].

    Older toolkits report this one. `slots` is the length that they padded lists to (default: the longest list);
    the value depends on it. They counted empty queries as 0: use empty="zero" for their numbers.

    >>> arp_legacy_metric([5, 4, 3, 2, 1], [3, 0, 1, 4, 0], offsets=[0, 5], slots=5)
    array([4.4])
    """
    return evaluate("arp_legacy", rank_lists(scores, labels, offsets=offsets), Options(slots=slots, empty=empty))
