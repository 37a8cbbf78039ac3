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

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from unskew.errors import ConfigError, DataError, did_you_mean
from unskew.measuring.ranked import RankedLists, rank_lists
from unskew.types import Array, Lists

Empty = Literal["skip", "zero", "one"]
Gain = Literal["exponential", "linear"]

DEFAULT_METRICS = (
    *("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10"),
    *("err@10", "mrr@10", "map", "precision@10", "arp"),
)

_FILL: Mapping[str, float] = {"skip": np.nan, "zero": 0.0, "one": 1.0}
_LARGEST_EXPONENT = 500  # 2^500 times a long list is still a finite float64


# ---- formulas ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Options:
    at: int | None = None
    gain: Gain = "exponential"
    relevant_from: float = 1
    ymax: float | None = None
    slots: int | None = None
    empty: Empty = "skip"

    def __post_init__(self) -> None:
        for name, known in (("gain", get_args(Gain)), ("empty", get_args(Empty))):
            if (value := getattr(self, name)) not in known:
                raise ConfigError(f"unknown {name} {value!r}. {did_you_mean(str(value), known)}")
        if self.at is not None and not (isinstance(self.at, int | np.integer) and self.at >= 1):
            raise ConfigError(f"a cut-off must be a whole number from 1, not {self.at}")
        if not self.relevant_from > 0:
            raise ConfigError(f"relevant_from must be above 0, not {self.relevant_from}")


def _gains(labels: Array, gain: Gain) -> Array:
    if gain == "linear":
        return labels
    if labels.max(initial=0) > _LARGEST_EXPONENT:
        raise DataError(f"label {labels.max():g} is too large for the gain 2^y - 1", hint='use gain="linear"')
    gains: Array = np.exp2(labels) - 1
    return gains


def _dcg(ranked: RankedLists, options: _Options) -> Array:
    head = ranked.head(options.at)
    return head.sums(_gains(head.labels, options.gain) / np.log2(1 + head.rank))


def _ndcg(ranked: RankedLists, options: _Options) -> Array:
    return _ratio(_dcg(ranked, options), _dcg(ranked.ideal, options))


def _err(ranked: RankedLists, options: _Options) -> Array:
    largest = ranked.labels.max(initial=0)
    ymax = max(4, largest) if options.ymax is None else options.ymax
    if not ymax >= largest:
        raise ConfigError(f"ymax {ymax:g} is below the largest label, {largest:g}")
    head = ranked.head(options.at)
    stop = np.exp2(head.labels - ymax) - np.exp2(-ymax)  # [N] chance to be satisfied, (2^y - 1) / 2^ymax
    value, going = np.zeros(len(head.sizes)), np.ones(len(head.sizes))
    for rank in range(1, 1 + head.longest):
        queries = np.flatnonzero(head.sizes >= rank)
        chance = stop[head.offsets[queries] + rank - 1]
        value[queries] += going[queries] * chance / rank
        going[queries] *= 1 - chance
    return value


def _mrr(ranked: RankedLists, options: _Options) -> Array:
    head = ranked.head(options.at)
    relevant = head.labels >= options.relevant_from
    return head.sums((relevant & (head.hits(relevant) == 1)) / head.rank)


def _map(ranked: RankedLists, options: _Options) -> Array:
    head = ranked.head(options.at)
    relevant = head.labels >= options.relevant_from
    precisions = head.sums(relevant * head.hits(relevant) / head.rank)
    return _ratio(precisions, ranked.sums(ranked.labels >= options.relevant_from))


def _precision(ranked: RankedLists, options: _Options) -> Array:
    assert options.at is not None
    head = ranked.head(options.at)
    precision: Array = head.sums(head.labels >= options.relevant_from) / options.at
    return precision


def _arp(ranked: RankedLists, options: _Options) -> Array:
    return _ratio(ranked.sums(ranked.rank * ranked.labels), ranked.sums(ranked.labels))


def _arp_legacy(ranked: RankedLists, options: _Options) -> Array:
    slots = ranked.longest if options.slots is None else options.slots
    if slots < ranked.longest:
        raise ConfigError(f"slots is {slots}, but the longest list has {ranked.longest} documents")
    return ranked.sums(ranked.rank * ranked.labels) / max(slots, 1)


def _ratio(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


class _Metric(NamedTuple):
    formula: Callable[[RankedLists, _Options], Array]
    binary: bool
    cut: Literal["optional", "required", "never"]


_METRICS: Mapping[str, _Metric] = {
    "ndcg": _Metric(_ndcg, binary=False, cut="optional"),
    "dcg": _Metric(_dcg, binary=False, cut="optional"),
    "err": _Metric(_err, binary=False, cut="optional"),
    "mrr": _Metric(_mrr, binary=True, cut="optional"),
    "map": _Metric(_map, binary=True, cut="optional"),
    "precision": _Metric(_precision, binary=True, cut="required"),
    "arp": _Metric(_arp, binary=False, cut="never"),
    "arp_legacy": _Metric(_arp_legacy, binary=False, cut="never"),
}


def _evaluate(name: str, ranked: RankedLists, options: _Options) -> Array:
    """One metric for every query; the only place that knows what an empty query counts."""
    metric = _METRICS[name]
    relevant = ranked.labels >= options.relevant_from if metric.binary else ranked.labels > 0
    return np.where(ranked.any(relevant), metric.formula(ranked, options), _FILL[options.empty])


# ---- one function per metric: flat scores and labels in, [Q] values out ---------------------------------------


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
    return _evaluate("ndcg", rank_lists(scores, labels, offsets=offsets), _Options(at=at, gain=gain, empty=empty))


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
    return _evaluate("dcg", rank_lists(scores, labels, offsets=offsets), _Options(at=at, gain=gain, empty=empty))


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
    return _evaluate("err", rank_lists(scores, labels, offsets=offsets), _Options(at=at, ymax=ymax, empty=empty))


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
    options = _Options(at=at, relevant_from=relevant_from, empty=empty)
    return _evaluate("mrr", rank_lists(scores, labels, offsets=offsets), options)


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
    options = _Options(at=at, relevant_from=relevant_from, empty=empty)
    return _evaluate("map", rank_lists(scores, labels, offsets=offsets), options)


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
    options = _Options(at=at, relevant_from=relevant_from, empty=empty)
    return _evaluate("precision", rank_lists(scores, labels, offsets=offsets), options)


def arp_metric(scores: ArrayLike, labels: ArrayLike, *, offsets: ArrayLike, empty: Empty = "skip") -> Array:
    """Average relevance position: sum(rank y) / sum(y) over the whole list, less is better, [Q].

    There is no cut-off: a cut one improves when relevant documents are pushed below the cut.

    >>> arp_metric([5, 4, 3, 2, 1], [3, 0, 1, 4, 0], offsets=[0, 5])
    array([2.75])
    """
    return _evaluate("arp", rank_lists(scores, labels, offsets=offsets), _Options(empty=empty))


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
    return _evaluate("arp_legacy", rank_lists(scores, labels, offsets=offsets), _Options(slots=slots, empty=empty))


# ---- many metrics at once ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RankingReport:
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

    def to_dict(self, *, per_query: bool = False) -> dict[str, Any]:
        """Ready for JSON, NaN as None; with the per-query values on request."""
        summary: dict[str, Any] = {
            "means": {name: _number(mean) for name, mean in self.means.items()},
            "skipped": dict(self.skipped),
            "queries": self.queries,
            "without_relevant": self.without_relevant,
            "empty": self.empty,
        }
        if per_query:
            values = {name: [_number(value) for value in values] for name, values in self.per_query.items()}
            summary["per_query"] = values
        return summary

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
    names = {name: _parse(name) for name in ((metrics,) if isinstance(metrics, str) else metrics)}
    labels, offsets = (lists.labels, lists.offsets) if isinstance(lists, Lists) else lists
    ranked = rank_lists(scores, labels, offsets=offsets)
    values = {}
    for name, (metric, at) in names.items():
        options = _Options(at, gain, relevant_from, ymax, slots, empty)
        values[name] = _evaluate(metric, ranked, options)
    return RankingReport(
        per_query=values,
        means={name: _mean(value) for name, value in values.items()},
        skipped={name: int(np.isnan(value).sum()) for name, value in values.items()},
        queries=len(ranked.sizes),
        without_relevant=int((~ranked.any(ranked.labels > 0)).sum()),
        empty=empty,
    )


def _parse(text: str) -> tuple[str, int | None]:
    """Name and cut-off: "ndcg@10" -> ("ndcg", 10), "map" -> ("map", None)."""
    name, mark, _ = text.partition("@")
    if name not in _METRICS:
        raise ConfigError(f"unknown metric {text!r}. {did_you_mean(name, _METRICS)}")
    cut = _METRICS[name].cut
    if not mark:
        if cut == "required":
            raise ConfigError(f"metric {text!r} needs a cut-off, such as {name}@10")
        return name, None
    if cut == "never":
        raise ConfigError(f"metric {name!r} takes no cut-off, but {text!r} has one")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text[len(name) + 1 :]):
        raise ConfigError(f"the cut-off of {text!r} must be a whole number from 1, such as {name}@10")
    return name, int(text[len(name) + 1 :])


def _mean(values: Array) -> float:
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if len(kept) else float("nan")


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
