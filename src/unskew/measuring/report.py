"""Many ranking metrics at once, by names such as "ndcg@10", per query and on average."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from unskew.errors import ConfigError
from unskew.measuring.ranked_lists import rank_lists
from unskew.measuring.ranking import METRICS, Empty, Gain, Options, check_options
from unskew.results import Result, plain
from unskew.settings import known
from unskew.types import Array, Lists

DEFAULT_METRICS = (
    *("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10"),
    *("err@10", "mrr@10", "map", "precision@10", "arp"),
)


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
    check_options(told)
    values = {name: METRICS[metric].of(ranked, told | {"at": at}) for name, (metric, at) in names.items()}
    return RankingReport(
        per_query=values,
        means={name: _mean(value) for name, value in values.items()},
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


def _mean(values: Array) -> float:
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if len(kept) else float("nan")
