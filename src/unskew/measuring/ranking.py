"""Ranking metrics over ragged lists: nDCG, DCG, ERR, MRR, MAP, precision, average relevance position.

Each is called as ndcg_metric(scores, labels, offsets=offsets, at=10) and gives one value per query, [Q]; all take
`empty=` too. What stands here is a metric's formula with the options of its own, on lists that are ranked already.

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

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack, get_args

import numpy as np
from numpy.typing import ArrayLike

from unskew.errors import ConfigError, DataError, Option
from unskew.measuring.ranked_lists import RankedLists, rank_lists
from unskew.results import Result, plain
from unskew.settings import known
from unskew.types import Array, Lists

Empty = Literal["skip", "zero", "one"]
Gain = Literal["exponential", "linear"]
_FILL: Mapping[str, float] = {"skip": np.nan, "zero": 0.0, "one": 1.0}
_LARGEST_EXPONENT = 500  # 2^500 times a long list is still a finite float64


class Options(TypedDict, total=False):
    """What metrics can be told: all take `empty`, and each what its formula names."""

    at: int | None
    gain: Gain
    relevant_from: float
    ymax: float | None
    slots: int | None
    empty: Empty


class Metric:
    """A formula made a function of scores and labels, which knows what an empty query counts."""

    def __init__(self, formula: Callable[..., Array]) -> None:
        functools.update_wrapper(self, formula)
        self.formula, self.takes = formula, tuple(inspect.signature(formula).parameters)[1:]

    def __call__(
        self, scores: ArrayLike, labels: ArrayLike, *, offsets: ArrayLike, **options: Unpack[Options]
    ) -> Array:
        """One value for every query, [Q]."""
        unknown = options.keys() - {*self.takes, "empty"}
        if unknown:
            raise TypeError(f"{self.formula.__name__}() takes no {', '.join(sorted(unknown))}")
        return self.of(rank_lists(scores, labels, offsets=offsets), options)

    def of(self, ranked: RankedLists, options: Options) -> Array:
        """The metric of lists that are ranked already, [Q]; options that are others' are left out."""
        known("gain", options.get("gain", "linear"), get_args(Gain))
        known("empty", options.get("empty", "skip"), get_args(Empty))
        at = options.get("at")
        if at is not None and not (isinstance(at, int | np.integer) and at >= 1):
            raise ConfigError("a cut-off must be a whole number from 1", argument="at", value=at)
        if not options.get("relevant_from", 1) > 0:
            raise ConfigError("must be above 0", argument="relevant_from", value=options["relevant_from"])
        binary = "relevant_from" in self.takes
        relevant = ranked.labels >= options.get("relevant_from", 1) if binary else ranked.labels > 0
        values = self.formula(ranked, **{name: value for name, value in options.items() if name in self.takes})
        return np.where(ranked.sums(relevant) > 0, values, _FILL[options.get("empty", "skip")])


@Metric
def ndcg_metric(ranked: RankedLists, *, at: int | None = 10, gain: Gain = "exponential") -> Array:
    """DCG of the ranking over the DCG of the best ranking of the same list, both cut at `at`, [Q].

    >>> ndcg_metric([5, 4, 3, 2, 1], [3, 0, 1, 4, 0], offsets=[0, 5], at=3).round(6)
    array([0.376572])
    """
    return _ratio(_dcg(ranked, at, gain), _dcg(ranked.ideal, at, gain))


@Metric
def dcg_metric(ranked: RankedLists, *, at: int | None = 10, gain: Gain = "exponential") -> Array:
    """sum_{rank <= at} (2^y - 1) / log2(1 + rank), or y / log2(1 + rank) with gain="linear", [Q].

    >>> dcg_metric([5, 4, 3, 2, 1], [3, 0, 1, 4, 0], offsets=[0, 5], at=3)
    array([7.5])
    """
    return _dcg(ranked, at, gain)


@Metric
def err_metric(ranked: RankedLists, *, at: int | None = 10, ymax: float | None = None) -> Array:
    """Expected reciprocal rank: sum_{r <= at} R_r / r prod_{i < r} (1 - R_i), R = (2^y - 1) / 2^ymax, [Q].

    `ymax` is the best grade of the scale; by default 4, or the largest label given where that is larger.

    >>> err_metric([5, 4, 3, 2, 1], [3, 0, 1, 4, 0], offsets=[0, 5], at=3).round(6)
    array([0.449219])
    """
    largest = ranked.labels.max(initial=0)
    ymax = max(4, largest) if ymax is None else ymax
    if not ymax >= largest:
        raise ConfigError(f"below the largest label, {largest:g}", argument="ymax", value=ymax)
    head = ranked.head(at)
    stop = np.exp2(head.labels - ymax) - np.exp2(-ymax)  # [N] chance to be satisfied, (2^y - 1) / 2^ymax
    value, going = np.zeros(len(head.sizes)), np.ones(len(head.sizes))
    for rank in range(1, 1 + head.longest):
        queries = np.flatnonzero(head.sizes >= rank)
        chance = stop[head.offsets[queries] + rank - 1]
        value[queries] += going[queries] * chance / rank
        going[queries] *= 1 - chance
    return value


@Metric
def mrr_metric(ranked: RankedLists, *, at: int | None = 10, relevant_from: float = 1) -> Array:
    """1 / rank of the first relevant document; 0 where it stands below the cut-off, [Q].

    >>> mrr_metric([3, 2, 1], [0, 0, 1], offsets=[0, 3], at=3).round(6)
    array([0.333333])
    """
    head = ranked.head(at)
    relevant = head.labels >= relevant_from
    return head.sums((relevant & (head.hits(relevant) == 1)) / head.rank)


@Metric
def map_metric(ranked: RankedLists, *, at: int | None = None, relevant_from: float = 1) -> Array:
    """Average precision: sum over relevant documents with rank <= at of precision@rank / all relevant ones, [Q].

    >>> map_metric([3, 2, 1], [1, 0, 1], offsets=[0, 3]).round(6)
    array([0.833333])
    """
    head = ranked.head(at)
    relevant = head.labels >= relevant_from
    precisions = head.sums(relevant * head.hits(relevant) / head.rank)
    return _ratio(precisions, ranked.sums(ranked.labels >= relevant_from))


@Metric
def precision_metric(ranked: RankedLists, *, at: int | None = 10, relevant_from: float = 1) -> Array:
    """Relevant documents among the first `at`, over `at` even where the list is shorter (as trec_eval), [Q].

    >>> precision_metric([3, 2, 1], [1, 0, 1], offsets=[0, 3], at=10)
    array([0.2])
    """
    if at is None:
        raise ConfigError("metric 'precision' needs a cut-off, such as precision@10")
    head = ranked.head(at)
    precision: Array = head.sums(head.labels >= relevant_from) / at
    return precision


@Metric
def arp_metric(ranked: RankedLists) -> Array:
    """Average relevance position: sum(rank y) / sum(y) over the whole list, less is better, [Q].

    There is no cut-off: a cut one improves when relevant documents are pushed below the cut.

    >>> arp_metric([5, 4, 3, 2, 1], [3, 0, 1, 4, 0], offsets=[0, 5])
    array([2.75])
    """
    return _ratio(ranked.sums(ranked.rank * ranked.labels), ranked.sums(ranked.labels))


@Metric
def arp_legacy_metric(ranked: RankedLists, *, slots: int | None = None) -> Array:
    """sum(rank y) / slots: its mean over queries is the mean of rank y over queries and list slots, [Q].

    Older toolkits report this one. `slots` is the length that they padded lists to (default: the longest list);
    the value depends on it. They counted empty queries as 0: use empty="zero" for their numbers.

    >>> arp_legacy_metric([5, 4, 3, 2, 1], [3, 0, 1, 4, 0], offsets=[0, 5], slots=5)
    array([4.4])
    """
    slots = ranked.longest if slots is None else slots
    if slots < ranked.longest:
        raise ConfigError(f"the longest list has {ranked.longest} documents", argument="slots", value=slots)
    return ranked.sums(ranked.rank * ranked.labels) / max(slots, 1)


METRICS: Mapping[str, Metric] = {
    "ndcg": ndcg_metric,
    "dcg": dcg_metric,
    "err": err_metric,
    "mrr": mrr_metric,
    "map": map_metric,
    "precision": precision_metric,
    "arp": arp_metric,
    "arp_legacy": arp_legacy_metric,
}
"""Every ranking metric, by the name that reports use."""


def _dcg(ranked: RankedLists, at: int | None, gain: Gain) -> Array:
    head = ranked.head(at)
    if gain == "exponential" and head.labels.max(initial=0) > _LARGEST_EXPONENT:
        raise DataError(
            f"label {head.labels.max():g} is too large for the gain 2^y - 1",
            hint=("use ", Option("gain", "linear")),
        )
    gains = head.labels if gain == "linear" else np.exp2(head.labels) - 1
    return head.sums(gains / np.log2(1 + head.rank))


def _ratio(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


# ---- many at once ----

DEFAULT_METRICS = (*("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10"), *("err@10", "mrr@10", "map", "precision@10", "arp"))


@dataclass(frozen=True)
class RankingReport(Result):
    """Several metrics of one ranking, per query and on average."""

    per_query: Mapping[str, Array]
    """[Q] for each metric; NaN where the query was skipped."""
    means: Mapping[str, float]
    """Mean over the queries that were not skipped; NaN where all were."""
    skipped: Mapping[str, int]
    """Queries left out of each mean."""
    queries: int
    without_relevant: int
    """Queries without a document of grade above 0."""
    empty: Empty
    """What such a query counts: "skip", "zero" or "one"."""
    untold = ("per_query",)

    def to_dict(self, *, per_query: bool = False) -> dict[str, Any]:
        """Ready for JSON, NaN as None; with the per-query values on request."""
        return super().to_dict() | ({"per_query": plain(self.per_query)} if per_query else {})

    def __str__(self) -> str:
        metrics = "  ".join(f"{name} {mean:.4f}" for name, mean in self.means.items())
        empty = f"{self.without_relevant} without a relevant document: {self.empty}"
        return f"{metrics}  ({self.queries} queries, {empty})"


def measure_ranking(
    scores: ArrayLike,
    lists: Lists | tuple[ArrayLike, ArrayLike],
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    empty: Empty = "skip",
    gain: Gain = "exponential",
    relevant_from: float = 1,
    ymax: float | None = None,
    slots: int | None = None,
) -> RankingReport:
    """Rank once, then every metric, such as "ndcg@10", "map" or "arp"; `lists` may be (labels, offsets).

    >>> report = measure_ranking([2, 1, 2, 1], ([0, 1, 0, 0], [0, 2, 4]), metrics=("ndcg@10", "mrr@10"))
    >>> print(report)
    ndcg@10 0.6309  mrr@10 0.5000  (2 queries, 1 without a relevant document: skip)
    """
    names = {name: parse_metric(name) for name in ((metrics,) if isinstance(metrics, str) else metrics)}
    labels, offsets = (lists.labels, lists.offsets) if isinstance(lists, Lists) else lists
    ranked = rank_lists(scores, labels, offsets=offsets)
    told = Options(gain=gain, relevant_from=relevant_from, ymax=ymax, slots=slots, empty=empty)
    values = {name: METRICS[metric].of(ranked, told | {"at": at}) for name, (metric, at) in names.items()}
    return RankingReport(
        per_query=values,
        means={name: known_mean(value) for name, value in values.items()},
        skipped={name: int(np.isnan(value).sum()) for name, value in values.items()},
        queries=len(ranked.sizes),
        without_relevant=int((ranked.sums(ranked.labels > 0) == 0).sum()),
        empty=empty,
    )


def parse_metric(text: str) -> tuple[str, int | None]:
    """Name and cut-off: "ndcg@10" -> ("ndcg", 10), "map" -> ("map", None)."""
    name, mark, _ = text.partition("@")
    known("metric", name, METRICS)
    if not mark:
        return name, None
    if "at" not in METRICS[name].takes:
        raise ConfigError(f"metric {name!r} takes no cut-off, but {text!r} has one")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text[len(name) + 1 :]):
        raise ConfigError(f"the cut-off of {text!r} must be a whole number from 1, such as {name}@10")
    return name, int(text[len(name) + 1 :])


def known_mean(values: Array) -> float:
    """The mean of what is not NaN; NaN where all is."""
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if len(kept) else float("nan")
