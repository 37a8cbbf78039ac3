"""The formulas of the ranking metrics, and what a query without a relevant document counts.

Legend: Q queries, N documents, list after list; documents of query q are rows offsets[q] to offsets[q + 1].
y is a grade (0 = not relevant), rank counts from 1, a cut-off `at` of None takes the whole list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from unskew.checking import known
from unskew.errors import ConfigError, DataError
from unskew.measuring.ranked import RankedLists
from unskew.types import Array

Empty = Literal["skip", "zero", "one"]
Gain = Literal["exponential", "linear"]
_FILL: Mapping[str, float] = {"skip": np.nan, "zero": 0.0, "one": 1.0}
_LARGEST_EXPONENT = 500  # 2^500 times a long list is still a finite float64


@dataclass(frozen=True)
class Options:
    """What a metric can be told; each formula takes what concerns it."""

    at: int | None = None
    gain: Gain = "exponential"
    relevant_from: float = 1
    ymax: float | None = None
    slots: int | None = None
    empty: Empty = "skip"

    def __post_init__(self) -> None:
        for name, kinds in (("gain", Gain), ("empty", Empty)):
            known(name, getattr(self, name), get_args(kinds))
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


def _dcg(ranked: RankedLists, options: Options) -> Array:
    head = ranked.head(options.at)
    return head.sums(_gains(head.labels, options.gain) / np.log2(1 + head.rank))


def _ndcg(ranked: RankedLists, options: Options) -> Array:
    return _ratio(_dcg(ranked, options), _dcg(ranked.ideal, options))


def _err(ranked: RankedLists, options: Options) -> Array:
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


def _mrr(ranked: RankedLists, options: Options) -> Array:
    head = ranked.head(options.at)
    relevant = head.labels >= options.relevant_from
    return head.sums((relevant & (head.hits(relevant) == 1)) / head.rank)


def _map(ranked: RankedLists, options: Options) -> Array:
    head = ranked.head(options.at)
    relevant = head.labels >= options.relevant_from
    precisions = head.sums(relevant * head.hits(relevant) / head.rank)
    return _ratio(precisions, ranked.sums(ranked.labels >= options.relevant_from))


def _precision(ranked: RankedLists, options: Options) -> Array:
    assert options.at is not None
    head = ranked.head(options.at)
    precision: Array = head.sums(head.labels >= options.relevant_from) / options.at
    return precision


def _arp(ranked: RankedLists, options: Options) -> Array:
    return _ratio(ranked.sums(ranked.rank * ranked.labels), ranked.sums(ranked.labels))


def _arp_legacy(ranked: RankedLists, options: Options) -> Array:
    slots = ranked.longest if options.slots is None else options.slots
    if slots < ranked.longest:
        raise ConfigError(f"slots is {slots}, but the longest list has {ranked.longest} documents")
    return ranked.sums(ranked.rank * ranked.labels) / max(slots, 1)


def _ratio(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


class Metric(NamedTuple):
    """A formula, whether it is of binary relevance, and whether it takes a cut-off."""

    formula: Callable[[RankedLists, Options], Array]
    binary: bool
    cut: Literal["optional", "required", "never"]


METRICS: Mapping[str, Metric] = {
    "ndcg": Metric(_ndcg, binary=False, cut="optional"),
    "dcg": Metric(_dcg, binary=False, cut="optional"),
    "err": Metric(_err, binary=False, cut="optional"),
    "mrr": Metric(_mrr, binary=True, cut="optional"),
    "map": Metric(_map, binary=True, cut="optional"),
    "precision": Metric(_precision, binary=True, cut="required"),
    "arp": Metric(_arp, binary=False, cut="never"),
    "arp_legacy": Metric(_arp_legacy, binary=False, cut="never"),
}


def evaluate(name: str, ranked: RankedLists, options: Options) -> Array:
    """One metric for every query; the only place that knows what an empty query counts."""
    metric = METRICS[name]
    relevant = ranked.labels >= options.relevant_from if metric.binary else ranked.labels > 0
    return np.where(ranked.any(relevant), metric.formula(ranked, options), _FILL[options.empty])
