"""Examination by rank from what a log shows at several ranks, with intervals, agreement and contexts.

A document that one query had at two ranks is an experiment that nobody planned: its relevance is the same at both,
so its clicks differ by examination alone. Shuffled pages are the planned one. Estimators and their reference are
in `harvesting`. By context (a segment such as the device), as Fang, Agarwal, Joachims, "Intervention Harvesting
for Context-Dependent Examination-Bias Estimation", SIGIR 2019, with a curve of its own for each value.

What the log cannot tell is None, with a reason: ranks that no document ties to rank 1, too few clicks, or an
interval that spans everything. Ranks with few clicks lean on their neighbours. Relevance must not move with the
rank: where a document rose because people began to want it, curves come out too steep, and then estimators differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from unskew.diagnosis.evidence import likelihood as by
from unskew.diagnosis.evidence.likelihood import PAIRS, smooth
from unskew.diagnosis.evidence.sums import Coverage, SwapEvidence, shuffled_evidence, swap_evidence
from unskew.diagnosis.evidence.tables import LogTables
from unskew.types import Array

LEAST = 30
"""Clicks below rank 1 below which there is no curve; clicks of a rank below which it leans on its neighbours."""
METHODS: Mapping[str, tuple[str, by.Estimator]] = {
    "shuffled": ("shuffled pages", by.pivot),
    "all_pairs": ("documents at any two ranks", by.all_pairs),
    "pivot": ("documents at rank 1 and another", by.pivot),
    "adjacent": ("documents at neighbouring ranks", by.adjacent),
}
"""How examination is estimated: what it looks at, and the estimator; the best first."""


@dataclass(frozen=True)
class ExaminationCurve:
    """Examination relative to rank 1, rank after rank; None where the log cannot tell."""

    method: str
    examination: tuple[float | None, ...]
    interval: tuple[tuple[float, float] | None, ...]
    """95 % each, by how queries differ; documents or pages, where there are few queries."""
    reason: tuple[str | None, ...]
    """Why a rank has none."""
    leaning: tuple[int, ...]
    """Ranks with few clicks, which are drawn to their neighbours."""
    clicks: int
    """Clicks that it rests on."""
    share: float = 1.0
    """Share of the log's queries that was looked at."""

    @property
    def known(self) -> int:
        """How many ranks it tells."""
        return sum(value is not None for value in self.examination)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "method": self.method,
            "found_by": METHODS[self.method][0],
            "examination": list(self.examination),
            "interval": [None if pair is None else list(pair) for pair in self.interval],
            "reason": list(self.reason),
            "leaning": list(self.leaning),
            "clicks": self.clicks,
            "share": self.share,
        }


@dataclass(frozen=True)
class Agreement:
    """Whether two curves tell the same, where both tell a rank by itself."""

    first: str
    second: str
    p: float | None
    """Of Hotelling's test that they differ by chance; None with a reason."""
    ratio: float | None
    """Mean of the first over the second, below rank 1."""
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Contexts:
    """A curve for each value of a segment, and whether one would do for all."""

    segment: str
    curves: Mapping[str, ExaminationCurve]
    p: Mapping[str, float | None]
    """Of the test that a value has the curve of the others, times how many were tested."""
    reason: Mapping[str, str | None]

    @property
    def one_curve(self) -> bool | None:
        """Whether one curve fits all at the 5 % level; None where nothing could be tested."""
        tested = [p for p in self.p.values() if p is not None]
        return None if not tested else min(tested) >= 0.05

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        curves = {value: curve.to_dict() for value, curve in self.curves.items()}
        told = {"p": dict(self.p), "reason": dict(self.reason), "one_curve": self.one_curve}
        return {"segment": self.segment, "curves": curves, **told}


@dataclass(frozen=True)
class Interventions:
    """What swaps and shuffled pages of a log tell of examination."""

    curves: Mapping[str, ExaminationCurve]
    """By method; shuffled only where pages were."""
    agreement: tuple[Agreement, ...]
    coverage: Coverage
    contexts: tuple[Contexts, ...]

    @property
    def chosen(self) -> ExaminationCurve | None:
        """The curve to use: of shuffled pages, else of all pairs; None where neither tells more than rank 1."""
        for method in ("shuffled", "all_pairs"):
            if method in self.curves and self.curves[method].known > 1:
                return self.curves[method]
        return None

    @property
    def reason(self) -> str | None:
        """Why there is no curve to use."""
        if self.chosen is not None:
            return None
        told = [reason for reason in self.curves["all_pairs"].reason[1:] if reason]
        return told[0] if told else "the log shows one position only"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "chosen": None if self.chosen is None else self.chosen.method,
            "reason": self.reason,
            "curves": {method: curve.to_dict() for method, curve in self.curves.items()},
            "agreement": [each.to_dict() for each in self.agreement],
            "coverage": self.coverage.to_dict(),
            "contexts": [each.to_dict() for each in self.contexts],
        }


def interventions(tables: LogTables) -> Interventions:
    """Examination from documents at several ranks and from shuffled pages, for the log and for its segments."""
    found, coverage = swap_evidence(tables)
    sources = {
        "shuffled": shuffled_evidence(tables),
        **dict.fromkeys(("all_pairs", "pivot", "adjacent"), found[""]),
    }
    fits = {method: fit(evidence, method) for method, evidence in sources.items() if evidence is not None}
    pairs = [agreement(fits[first], fits[second]) for first, second in combinations(fits, 2)]
    contexts = tuple(context_curves(tables, segment) for segment in tables.segments)
    return Interventions({method: each.curve for method, each in fits.items()}, tuple(pairs), coverage, contexts)


# ---- one curve ----


@dataclass(frozen=True)
class FittedCurve:
    """A curve with what tests need of it; P ranks, R draws."""

    curve: ExaminationCurve
    best: Array
    """[P] examination, told or not; NaN where nothing ties a rank to rank 1."""
    clicks: Array
    """[P] clicks that it rests on."""
    value: Array
    """[P] log theta of ranks by themselves, NaN where it is not told, or clicks are few."""
    drawn: Array
    """[R, P] the same with queries drawn again."""
    buckets: int


def fit(evidence: SwapEvidence, method: str, kept: Array | None = None) -> FittedCurve:
    """The curve of some evidence; tests are of ranks with many clicks, or of those `kept` (from 0)."""
    ranks, pairs = len(evidence.clicks), PAIRS["pivot" if method == "shuffled" else method]
    best, error = smooth(evidence.up, evidence.clicks, pairs(ranks))
    told = [None, *(_told(best[rank], error[rank], evidence, method) for rank in range(1, ranks))]
    alone = own_ranks(evidence) if kept is None else kept
    up = evidence.up[np.ix_(np.arange(len(evidence.up)), alone, alone)]
    draws = np.concatenate([np.ones((1, len(up))), by.draw_buckets(len(up))])
    values = np.full((len(draws), ranks), np.nan)
    values[:, alone] = METHODS[method][1](np.tensordot(draws, up, axes=1))
    values[:, [rank == 0 or why is not None for rank, why in enumerate(told)]] = np.nan
    curve = _curve(method, best, by.half_width(error, evidence.buckets), told, evidence)
    return FittedCurve(curve, np.exp(best), evidence.clicks, values[0], values[1:], evidence.buckets)


def own_ranks(evidence: SwapEvidence) -> Array:
    """The first rank and those with clicks enough to be compared by themselves, from 0."""
    enough = evidence.clicks >= LEAST
    enough[0] = True
    return np.flatnonzero(enough)


def _told(value: float, error: float, evidence: SwapEvidence, method: str) -> str | None:
    """Why a rank has no estimate; None where it has."""
    below, buckets = float(evidence.clicks[1:].sum()), evidence.buckets
    if below < LEAST:
        where = "shuffled pages" if method == "shuffled" else "documents that were also shown elsewhere"
        return f"{below:.0f} clicks below rank 1 on {where}; {LEAST} are the fewest"
    if not np.isfinite(value):
        return "no document ties it to rank 1: none was shown, and clicked, at both or at ranks between"
    if buckets < by.FEWEST_BUCKETS:
        return f"only {buckets} groups of queries tell of it; chance is told from {by.FEWEST_BUCKETS} on"
    if error > by.WIDEST:
        return f"too few clicks: an interval would span a factor of {np.exp(4 * by.WIDEST):.0f}"
    if error < 1e-9:
        return "clicks do not vary: everything, or always the same, was clicked"
    return None


def _curve(
    method: str, value: Array, half: Array, told: list[str | None], evidence: SwapEvidence
) -> ExaminationCurve:
    """Values written out rank by rank."""
    ranks, clicks = range(1, len(value)), evidence.clicks
    low, seen, high = (np.exp(value + side * half).tolist() for side in (-1, 0, 1))
    known = [rank for rank in ranks if told[rank] is None]
    return ExaminationCurve(
        method,
        (1.0, *(seen[rank] if rank in known else None for rank in ranks)),
        ((1.0, 1.0), *((low[rank], high[rank]) if rank in known else None for rank in ranks)),
        tuple(told),
        tuple(rank + 1 for rank in known if clicks[rank] < LEAST),
        round(float(clicks.sum())),
        evidence.share,
    )


def measure(tables: LogTables, method: str) -> FittedCurve | None:
    """The curve of one method, shuffled or all_pairs; None where no page was shuffled."""
    evidence = shuffled_evidence(tables) if method == "shuffled" else swap_evidence(tables)[0][""]
    return None if evidence is None else fit(evidence, method)


# ---- two curves ----


def agreement(first: FittedCurve, second: FittedCurve) -> Agreement:
    """Whether two curves of one log tell the same."""
    names = (first.curve.method, second.curve.method)
    gap, drawn = first.value - second.value, first.drawn - second.drawn
    common = np.isfinite(gap)
    if not common.any():
        return Agreement(*names, None, None, "no rank that both tell by itself")
    p = by.difference_test(gap, drawn, min(first.buckets, second.buckets))
    ratio = float(np.exp(gap[common].mean()))
    return Agreement(*names, p, ratio, None if p is not None else "they rest on the same clicks")


def context_curves(tables: LogTables, segment: str) -> Contexts:
    """A curve for each value of a segment, and a test of each against all others."""
    found, _ = swap_evidence(tables, segment)
    curves = {value: fit(evidence, "all_pairs") for value, evidence in found.items()}
    p: dict[str, float | None] = {}
    reason: dict[str, str | None] = {}
    for value, own in curves.items():
        p[value], reason[value] = None, None
        others = [evidence for name, evidence in found.items() if name != value]
        if own.curve.known < 2:
            reason[value] = next((told for told in own.curve.reason if told), "one position only")
        elif not others:
            reason[value] = "there is no other value"
        else:
            rest = fit(sum(others[1:], others[0]), "all_pairs", own_ranks(found[value]))
            p[value] = agreement(own, rest).p
            reason[value] = None if p[value] is not None else "the others tell too little"
    tested = sum(each is not None for each in p.values())
    p = {value: None if each is None else min(1.0, each * tested) for value, each in p.items()}
    return Contexts(segment, {value: each.curve for value, each in curves.items()}, p, reason)
