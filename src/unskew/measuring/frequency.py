"""How well queries of different frequency are ranked, and where documents move to.

As in "Whole Page Unbiased Learning to Rank" (Tables 1 and 2, Figure 4a): queries fall into ten buckets by how
often they are asked, the most frequent first; the first half of the buckets is the head, the rest the tail.

Legend: Q queries, N documents, P ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from unskew.errors import DataError
from unskew.measuring.ranked_lists import RankedLists
from unskew.measuring.ranking import known_mean, measure_ranking
from unskew.types import Array, Lists

METRICS = tuple(f"{name}@{cutoff}" for name in ("dcg", "err") for cutoff in (1, 3, 5, 10))
"""What the paper reports."""


@dataclass(frozen=True)
class FrequencyReport:
    """Means of each metric by how often queries are asked."""

    buckets: Mapping[str, Array]
    """[buckets] for each metric; NaN where a bucket has no query."""
    head: Mapping[str, float]
    tail: Mapping[str, float]
    queries: Array
    """[buckets] how many queries each has."""


def frequency_buckets(counts: Array, buckets: int = 10) -> Array:
    """The bucket of each query [Q], from 0 for the most frequent, as many queries in each as go; ties in order.

    >>> frequency_buckets(np.array([5, 90, 1, 30]), buckets=2).tolist()
    [1, 0, 1, 0]
    """
    if buckets < 1 or not np.isfinite(np.asarray(counts, float)).all():
        raise DataError(f"queries cannot be dealt into {buckets} buckets by these counts")
    order = np.argsort(-np.asarray(counts), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    found: Array = place * buckets // max(len(order), 1)
    return found


def measure_by_frequency(
    scores: Array, lists: Lists, bucket: Array, metrics: Sequence[str] = METRICS, *, head: int | None = None
) -> FrequencyReport:
    """Metrics of a ranking [N] by the bucket of each query [Q]; the first `head` buckets, or half, are the head.

    Queries without a relevant document count 0, as DCG and ERR say.
    """
    bucket = np.asarray(bucket)
    if bucket.shape != (len(lists),) or (len(bucket) and (bucket < 0).any()):
        raise DataError(f"give a bucket from 0 on for each of {len(lists)} queries", path=lists.name)
    count = int(bucket.max(initial=-1)) + 1
    edge = -(-count // 2) if head is None else head
    per_query = measure_ranking(scores, lists, list(metrics), empty="zero").per_query
    return FrequencyReport(
        buckets=bucket_means(per_query, bucket, count),
        head={name: known_mean(values[bucket < edge]) for name, values in per_query.items()},
        tail={name: known_mean(values[bucket >= edge]) for name, values in per_query.items()},
        queries=np.bincount(bucket, minlength=count),
    )


def bucket_means(per_query: Mapping[str, Array], bucket: Array, count: int) -> dict[str, Array]:
    """The mean of each metric [Q] in each of so many buckets, without queries that are NaN.

    >>> bucket_means({"mrr": np.array([1.0, 0.5, np.nan])}, np.array([0, 1, 1]), 2)["mrr"].tolist()
    [1.0, 0.5]
    """
    return {name: np.array([known_mean(v[bucket == b]) for b in range(count)]) for name, v in per_query.items()}


def new_positions(original: Array, scores: Array, lists: Lists, top: int = 10) -> tuple[Array, Array]:
    """Where documents at the first ranks of `original` scores [N] come to stand by `scores`: mean and deviation.

    Both have an entry for each of the ranks 1 to `top`, [P]; NaN where no list is as long.

    >>> lists = Lists(np.zeros((3, 1)), np.array([0, 3]), np.zeros(3), np.array([1]))
    >>> new_positions(np.array([3, 2, 1]), np.array([1, 2, 3]), lists, top=2)[0].tolist()
    [3.0, 2.0]
    """
    before, after = ranks(original, lists), ranks(scores, lists)
    means, deviations = np.full((2, top), np.nan)
    for rank in range(1, top + 1):
        found = after[before == rank]
        if len(found):
            means[rank - 1], deviations[rank - 1] = found.mean(), found.std()
    return means, deviations


def ranks(scores: Array, lists: Lists) -> Array:
    """The rank of each document in its list by descending score, [N] from 1; ties in the order of the file."""
    by_place = RankedLists(np.asarray(scores, float), lists.offsets)
    order = np.lexsort((-by_place.labels, by_place.query))
    found = np.empty(len(order), np.int64)
    found[order] = by_place.rank
    return found
