"""What a log tells of examination: swaps and shuffled slots added up once, and the curve that everybody reads.

A document that one query had at two ranks is an experiment that nobody planned: its relevance is the same at both,
so its clicks differ by examination alone. Shuffled pages are the planned one. Estimators and their reference are
in `likelihood`. By context (a segment such as the device), as Fang, Agarwal, Joachims, "Intervention Harvesting
for Context-Dependent Examination-Bias Estimation", SIGIR 2019, with a curve of its own for each value.

A rank is *linked* to rank 1 where its examination is told, and told where there are ENOUGH clicks below rank 1 and
its logarithm has a standard error of WIDEST at most. Else it is None, with a reason. Nothing else says "linked" or
"enough": diagnose, propensity, ipw, doubly_robust, prove, plan and export take the curve, or the reason, here.

Relevance must not move with the rank: where a document rose because people began to want it, curves come out too
steep, and then estimators differ.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
from scipy.special import stdtr

from unskew.diagnosis.evidence import likelihood as by
from unskew.diagnosis.evidence.likelihood import ENOUGH, WIDEST
from unskew.diagnosis.evidence.links import RankGraph, rank_graph
from unskew.diagnosis.evidence.sums import Coverage, SwapSums, shuffled_sums, swap_sums
from unskew.diagnosis.evidence.tables import ONE_RANK, LogTables, open_tables
from unskew.errors import DataError
from unskew.examination import Examination
from unskew.logs.log import hash_arrays
from unskew.results import Result
from unskew.types import Array, Log

UNSHOWN = "no page shows it"
UNSHUFFLED = "it has no randomized pages"
MEASURED = ("shuffled", "swaps")
"""Sources that a curve to use may come from, the better first."""


@dataclass(frozen=True)
class Agreement(Result):
    """Whether two curves tell the same, where both tell a rank by itself."""

    first: str
    second: str
    p: float | None
    """Of Hotelling's test that they differ by chance; None with a reason."""
    ratio: float | None
    """Mean of the first over the second, below rank 1."""
    reason: str | None = None


@dataclass(frozen=True)
class Contexts(Result):
    """A curve for each value of a segment, and whether one would do for all."""

    segment: str
    curves: Mapping[str, Examination]
    p: Mapping[str, float | None]
    """Of the test that a value has the curve of the others, times how many were tested."""
    reason: Mapping[str, str | None]
    told: ClassVar = ("one_curve",)

    @property
    def one_curve(self) -> bool | None:
        """Whether one curve fits all at the 5 % level; None where nothing could be tested."""
        tested = [p for p in self.p.values() if p is not None]
        return None if not tested else min(tested) >= 0.05


@dataclass(frozen=True)
class Evidence(Result):
    """What swaps and shuffled slots of a log tell of examination."""

    curves: Mapping[str, Examination]
    """By source; shuffled only where pages were."""
    chosen: str | None
    """The source of the curve to use: that which tells most ranks, shuffled pages first; None where none tells."""
    flat: float | None
    """p of that curve, were all ranks looked at alike."""
    reason: str | None
    """Why there is no curve to use."""
    agreement: tuple[Agreement, ...]
    coverage: Coverage
    graph: RankGraph
    """Which ranks can be compared, and the swaps that would mend it."""
    contexts: tuple[Contexts, ...] = ()

    @property
    def examination(self) -> Examination:
        """The curve to use; of rank 1 alone where none tells more."""
        return self.curves[self.chosen or "swaps"]

    @property
    def linked(self) -> bool:
        """Whether every rank that is looked at is linked to rank 1."""
        return self.chosen is not None and self.graph.connected

    @property
    def some(self) -> bool:
        """Whether there is any evidence, if not enough."""
        return self.coverage.moved or "shuffled" in self.curves

    def usable(self, clicks: tuple[int, ...] = ()) -> Examination:
        """The curve as far down as it is told without a gap; an error where the log tells none."""
        if self.chosen is None:
            raise untold(self.reason)
        return self.examination.usable(clicks)


def evidence(tables: LogTables) -> Evidence:
    """All that a log tells of examination, for the log and for its segments."""
    fits = {source: each for source in by.ESTIMATORS if (each := fitted(tables, source)) is not None}
    chosen, reason = _chosen(fits)
    coverage = swap_sums(tables)[""].coverage
    assert coverage is not None
    return Evidence(
        {source: each.curve for source, each in fits.items()},
        chosen,
        None if chosen is None else fits[chosen].flat,
        reason,
        tuple(_agreement(fits[first], fits[second]) for first, second in combinations(fits, 2)),
        coverage,
        rank_graph(tables, fits[chosen or "swaps"].curve, reason),
        tuple(context_curves(tables, segment) for segment in tables.segments),
    )


def chosen_curve(tables: LogTables | Log, source: str | None = None) -> tuple[Examination | None, str | None]:
    """The curve to use, or why there is none, without the rest; of one source where that is asked."""
    asked = (source,) if source else MEASURED
    found = fits_of(tables, asked) if isinstance(tables, Log) else {each: fitted(tables, each) for each in asked}
    fits = {name: each for name, each in found.items() if each is not None}
    if not fits:
        return None, UNSHUFFLED
    chosen, reason = _chosen(fits)
    return (None, reason) if chosen is None else (fits[chosen].curve, None)


def measured(tables: LogTables, source: str | None = None) -> Examination:
    """The curve to use as far down as it is told without a gap; an error where the log tells none."""
    curve, reason = chosen_curve(tables, source)
    if curve is None:
        raise untold(reason)
    return curve.usable()


def best_guess(log: Log, source: str) -> Examination:
    """Examination of all ranks that hang together, for methods, which need numbers; with a warning if unsure."""
    found = fits_of(log, (source,))[source]
    if found is None or found.clicks[0] == 0 or not found.clicks[1:].any() or np.isnan(found.best[1:2]).any():
        raise untold(UNSHUFFLED if found is None else found.curve.why or ONE_RANK)
    best = found.hanging
    unsure = [rank + 1 for rank in range(len(best)) if found.curve.reason[rank] is not None]
    if unsure:
        why = found.curve.reason[unsure[0] - 1]
        warnings.warn(
            f"examination from rank {unsure[0]} on is a guess: {why}; randomize more pages", stacklevel=3
        )
    return Examination.of(best, source)


def untold(reason: str | None) -> DataError:
    """The error of a log without a curve."""
    hint = "shuffle some pages and mark them in a column `randomized`, or learn with a method such as dla"
    return DataError(f"the log tells no examination: {reason}", hint=hint)


def _chosen(fits: Mapping[str, CurveFit]) -> tuple[str | None, str | None]:
    """The source that tells most ranks, the better first; or why none tells more than rank 1."""
    asked = [source for source in MEASURED if source in fits] or list(fits)
    best = max(asked, key=lambda source: fits[source].curve.known)
    if fits[best].curve.known > 1:
        return best, None
    reasons = [why for source in asked for why in fits[source].curve.reason if why and why != UNSHOWN]
    return None, "; ".join(dict.fromkeys(reasons)) or ONE_RANK


# ---- one curve ----


LOGS_KEPT = 8
"""Logs in memory whose curves are kept, the last ones."""
_KEPT: dict[bytes, dict[str, CurveFit | None]] = {}
"""By what a log shows, and what was clicked in it."""


@dataclass(frozen=True)
class CurveFit:
    """A curve with what tests need of it; P ranks, R draws."""

    curve: Examination
    best: Array
    """[P] examination, told or not; NaN where nothing ties a rank to rank 1."""
    covariance: Array
    """[P, P] of its logarithm."""
    clicks: Array
    """[P] clicks that it rests on."""
    value: Array
    """[P] log theta of ranks by themselves, NaN where it is not told, or clicks are few."""
    drawn: Array
    """[R, P] the same with queries drawn again."""
    buckets: int

    @property
    def hanging(self) -> Array:
        """Examination down to the first rank that nothing ties to rank 1."""
        lost = np.isnan(self.best)
        return self.best[: int(lost.argmax())] if lost.any() else self.best

    @property
    def flat(self) -> float | None:
        """p of ranks that are all looked at alike: of those by themselves, or of any, where these are none."""
        p = by.difference_test(self.value, self.drawn, self.buckets)
        told = np.array([value is not None for value in self.curve.theta])
        told[0] = False
        if p is not None or not told.any():
            return p
        t = np.abs(np.log(self.best[told])) / np.sqrt(np.diag(self.covariance)[told])
        return min(1.0, float(2 * stdtr(self.buckets - 1, -t.max())) * int(told.sum()))


def fitted(tables: LogTables, source: str) -> CurveFit | None:
    """The curve of one source of a log, fitted once; None where no page was shuffled."""

    def make() -> CurveFit | None:
        sums = shuffled_sums(tables) if source == "shuffled" else swap_sums(tables)[""]
        return None if sums is None else fit(sums, source)

    return tables.once(source, make)


def fits_of(log: Log, sources: Sequence[str]) -> dict[str, CurveFit | None]:
    """Curves by source of a log in memory; those of the last logs are kept, as one is often learned from again."""
    digest = hashlib.blake2b(digest_size=16)
    others = [] if log.randomized is None else [log.randomized]
    others += [log.columns["page_id"]] if "page_id" in log.columns else []
    ids = [np.asarray(log.lists.query_ids), np.asarray(log.lists.document_ids())]
    hash_arrays(digest, [*ids, log.query, log.offsets, log.row, log.position, log.click > 0, *others])
    known = _KEPT.pop(digest.digest(), {})
    if missing := [source for source in sources if source not in known]:
        with open_tables(log, threads=1) as tables:
            known |= {source: fitted(tables, source) for source in missing}
    _KEPT[digest.digest()] = known
    if len(_KEPT) > LOGS_KEPT:
        _KEPT.pop(next(iter(_KEPT)), None)
    return {source: known[source] for source in sources}


def fit(sums: SwapSums, source: str, kept: Array | None = None) -> CurveFit:
    """The curve of some sums; tests are of ranks with many clicks, or of those `kept` (from 0)."""
    ranks, buckets = len(sums.clicks), sums.buckets
    best, covariance = by.smooth(sums.up, sums.clicks, by.looked_at(source, ranks))
    error = np.sqrt(np.diag(covariance))
    reason = [None, *(_reason(rank, best, error, sums, source) for rank in range(1, ranks))]
    alone = own_ranks(sums) if kept is None else kept
    up = sums.up[np.ix_(np.arange(len(sums.up)), alone, alone)]
    draws = np.concatenate([np.ones((1, len(up))), by.draw_buckets(len(up))])
    values = np.full((len(draws), ranks), np.nan)
    values[:, alone] = by.ESTIMATORS[source](np.tensordot(draws, up, axes=1))
    values[:, [rank == 0 or why is not None for rank, why in enumerate(reason)]] = np.nan
    half = by.half_width(error, buckets)
    low, theta, high = (
        tuple(None if why else float(end) for end, why in zip(np.exp(best + side * half), reason, strict=True))
        for side in (-1, 0, 1)
    )
    few = tuple(at + 1 for at, why in enumerate(reason) if at and why is None and sums.clicks[at] < ENOUGH)
    curve = Examination(theta, source, low, high, tuple(reason), few, round(float(sums.clicks.sum())), sums.share)
    return CurveFit(curve, np.exp(best), covariance, sums.clicks, values[0], values[1:], buckets)


def own_ranks(sums: SwapSums) -> Array:
    """The first rank and those with clicks enough to be compared by themselves, from 0."""
    enough = sums.clicks >= ENOUGH
    enough[0] = True
    return np.flatnonzero(enough)


def _reason(rank: int, best: Array, error: Array, sums: SwapSums, source: str) -> str | None:
    """Why a rank (from 0) has no estimate; None where it has. The one threshold of all that says "linked"."""
    below, shuffled, coverage = float(sums.clicks[1:].sum()), source == "shuffled", sums.coverage
    if coverage is not None and not coverage.moved:
        rest = " in slots that were not shuffled" if coverage.natural else ""
        return f"no document was shown at two ranks for one query{rest}"
    if below < ENOUGH:
        where = "shuffled pages" if shuffled else "documents that were also shown elsewhere"
        return f"{below:.0f} clicks below rank 1 on {where}; {ENOUGH} are the fewest"
    if coverage is not None and not coverage.documents[rank][rank]:
        return UNSHOWN
    if coverage is not None and not coverage.documents[0][0]:
        return "no page shows rank 1, which all others are relative to"
    if not np.isfinite(best[rank]):
        if shuffled:
            return "shuffled pages that reach it have no click there, nor at rank 1"
        return "no document ties it to rank 1: none was shown, and clicked, at both or at ranks between"
    if sums.buckets < by.FEWEST_BUCKETS:
        return f"only {sums.buckets} groups of queries tell of it; chance is told from {by.FEWEST_BUCKETS} on"
    if error[rank] > WIDEST:
        return f"too few clicks: an interval would span a factor of {np.exp(4 * WIDEST):.0f}"
    if error[rank] < 1e-9:
        return "clicks do not vary: everything, or always the same, was clicked"
    return None


# ---- two curves ----


def _agreement(first: CurveFit, second: CurveFit) -> Agreement:
    """Whether two curves of one log tell the same."""
    names = (first.curve.source, second.curve.source)
    gap, drawn = first.value - second.value, first.drawn - second.drawn
    common = np.isfinite(gap)
    if not common.any():
        return Agreement(*names, None, None, "no rank that both tell by itself")
    p = by.difference_test(gap, drawn, min(first.buckets, second.buckets))
    ratio = float(np.exp(gap[common].mean()))
    return Agreement(*names, p, ratio, None if p is not None else "they rest on the same clicks")


def context_curves(tables: LogTables, segment: str) -> Contexts:
    """A curve for each value of a segment, and a test of each against all others."""
    found = swap_sums(tables, segment)
    curves = {value: fit(sums, "swaps") for value, sums in found.items()}
    p: dict[str, float | None] = {}
    reason: dict[str, str | None] = {}
    for value, own in curves.items():
        others = [sums for name, sums in found.items() if name != value]
        if own.curve.known < 2:
            p[value], reason[value] = None, own.curve.why or ONE_RANK
        elif not others:
            p[value], reason[value] = None, "there is no other value"
        else:
            rest = fit(sum(others[1:], others[0]), "swaps", own_ranks(found[value]))
            p[value] = _agreement(own, rest).p
            reason[value] = None if p[value] is not None else "the others tell too little"
    tested = sum(each is not None for each in p.values())
    p = {value: None if each is None else min(1.0, each * tested) for value, each in p.items()}
    return Contexts(segment, {value: each.curve for value, each in curves.items()}, p, reason)
