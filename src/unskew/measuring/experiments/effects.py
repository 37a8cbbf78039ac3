"""What an experiment with people found: policies beside each other, or interleaved, with intervals by cluster.

A cluster is a person or a visit: clicks within it hang together, so it counts once. The metric of a policy is a
ratio of sums, m = sum y / sum n over its clusters (clicks by pages, clicks by results). Linearised, a cluster adds
psi = (y - m n) / sum n to its error, and

    Var(m) = C / (C - 1) sum psi²        Var(m_1 - m_0) = Var(m_1) + Var(m_0) - 2 Cov

The covariance is 0 unless clusters saw both policies. With one page per cluster this is Welch's test. Beside the
interval of a fixed sample stands a confidence sequence (`sequential`), which holds however often one has looked;
the verdict follows the latter. A. Deng, U. Knoblich, J. Lu, "Applying the delta method in metric analytics", KDD
2018, for the variance; A. Fabijan et al., "Diagnosing sample ratio mismatch in online controlled experiments", KDD
2019, for the check of shares.

Legend: C clusters, one entry each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf, sqrt

import numpy as np
from scipy.special import stdtr, stdtrit
from scipy.stats import chisquare

from unskew.measuring.experiments import sequential as seq
from unskew.types import Array

MISMATCH = 0.001
"""A p-value of shares below which an experiment is not to be trusted."""


@dataclass(frozen=True)
class Sums:
    """What clusters did under one policy, [C] each; 0 in n for those that it was not shown to."""

    y: Array
    n: Array
    pages: Array

    @property
    def seen(self) -> Array:
        """Which clusters it was shown to, [C] bool."""
        return self.pages > 0

    @property
    def mean(self) -> float:
        """sum y / sum n."""
        return float(self.y.sum() / self.n.sum())

    @property
    def influence(self) -> Array:
        """What each cluster adds to the error of the mean, [C]; scaled so that squares add up to the variance."""
        clusters = int(self.seen.sum())
        psi = (self.y - self.mean * self.n) / self.n.sum()
        return np.asarray(psi * sqrt(clusters / max(clusters - 1, 1)))


@dataclass(frozen=True)
class ShownPolicy:
    """One policy: how much it was shown, and its metric."""

    name: str
    clusters: int
    pages: int
    mean: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Effect:
    """A policy against the control; numbers are None where there are too few clusters."""

    policy: str
    control: str
    difference: float
    interval: tuple[float, float] | None
    """Of a sample whose size was fixed before."""
    always: tuple[float, float] | None
    """Holds however often one has looked."""
    p: float | None
    always_p: float | None
    lift: float | None
    """Difference over the control's metric."""
    lift_interval: tuple[float, float] | None
    smallest: float | None
    """The smallest difference that this sample finds in 8 of 10 cases, looked at once."""
    clusters_needed: int | None
    """Clusters, in all, that find the difference asked about in 8 of 10 cases, looked at once."""
    clusters_needed_always: int | None
    """The same with a look at any time."""
    pages_needed: int | None
    verdict: str
    """better, worse or cannot tell."""


@dataclass(frozen=True)
class Ways:
    """How an experiment is judged."""

    level: float = 0.95
    planned: int = seq.PLANNED
    detect: float = 0.01
    """Relative difference that sample sizes are told for."""


def shown_policy(name: str, sums: Sums, ways: Ways) -> ShownPolicy:
    """One policy in numbers."""
    clusters = int(sums.seen.sum())
    error = sqrt(float((sums.influence**2).sum()))
    half = _quantile(clusters - 1, ways.level) * error if clusters > 1 else inf
    interval = (sums.mean - half, sums.mean + half) if clusters > 1 else None
    return ShownPolicy(name, clusters, int(sums.pages.sum()), sums.mean, interval)


def effect(names: tuple[str, str], new: Sums, control: Sums, ways: Ways, *, several: int = 1) -> Effect:
    """A policy against the control, `names` of both; `several` comparisons share the level (Bonferroni)."""
    level = 1 - (1 - ways.level) / several
    a, b = new.influence, control.influence
    var_new, var_base, cov = float((a**2).sum()), float((b**2).sum()), float((a * b).sum())
    found = _Difference(
        new.mean - control.mean,
        sqrt(max(var_new + var_base - 2 * cov, 0.0)),
        int((new.seen | control.seen).sum()),
        _welch(a, b, new, control),
        float((new.pages + control.pages).sum()),
    )
    told = found.judged(names, ways.detect * control.mean, level, ways.planned, several)
    lift, around = _lift(new.mean, control.mean, var_new, var_base, cov)
    if lift is None or told.interval is None:
        return replace(told, lift=lift)
    half = _quantile(found.freedom, level) * around
    return replace(told, lift=lift, lift_interval=(lift - half, lift + half))


def preference(names: tuple[str, str], wins: Sums, ways: Ways) -> Effect:
    """Interleaved: the share of pages that the second of `names` (policy, control) wins, against one half.

    `difference` is that share less 0.5; the sample sizes are for a share that is `detect` away from it.
    """
    units, error = int(wins.seen.sum()), sqrt(float((wins.influence**2).sum()))
    found = _Difference(wins.mean - 0.5, error, units, units - 1, float(wins.pages.sum()))
    return found.judged(names, ways.detect, ways.level, ways.planned, 1)


def share_mismatch(counts: Mapping[str, int], shares: Mapping[str, float]) -> float:
    """p-value that clusters were dealt out by these shares, by a chi-squared test.

    >>> round(share_mismatch({"a": 5000, "b": 5300}, {"a": 0.5, "b": 0.5}), 5)
    0.00312
    """
    total = sum(counts.values())
    wanted = [shares[name] / sum(shares.values()) * total for name in counts]
    return float(chisquare(list(counts.values()), wanted).pvalue)


def page_share_mismatch(pages: Mapping[str, Array], shares: Mapping[str, float]) -> float:
    """The same where clusters saw several policies, [C] pages each: the smallest p, times their number."""
    total = sum(pages.values(), np.zeros(1))
    found = []
    for name, own in pages.items():
        sums = Sums(own, total, total)
        off = sums.mean - shares[name] / sum(shares.values())
        error = sqrt(float((sums.influence**2).sum()))
        found.append(_two_sided(off, error, len(total) - 1))
    return min(1.0, min(found) * len(found))


@dataclass(frozen=True)
class _Difference:
    """A difference with its standard error, over so many clusters and their pages."""

    value: float
    error: float
    units: int
    freedom: float
    pages: float

    def judged(self, names: tuple[str, str], wanted: float, level: float, planned: int, several: int) -> Effect:
        """Intervals, p-values, the verdict, what could have been found, and what finds a difference `wanted`."""
        value, error, units = self.value, self.error, self.units
        half = _quantile(self.freedom, level) * error if self.freedom > 0 and error > 0 else None
        radius = seq.sequence_radius(max(units, 1), planned=planned, level=level) * error * sqrt(units)
        safe = units >= seq.FEWEST and half is not None
        always = (value - radius, value + radius) if safe else None
        verdict = "cannot tell"
        if always is not None and (always[0] > 0 or always[1] < 0):
            verdict = "better" if always[0] > 0 else "worse"
        running = seq.always_valid_p(value, error, units, planned=planned) if safe else None
        deviation = error * sqrt(units)
        findable = deviation > 0 and wanted > 0
        once = seq.units_needed(deviation, wanted, level=level) if findable else None
        ever = seq.sequential_units_needed(deviation, wanted, planned=planned, level=level) if findable else None
        return Effect(
            *names,
            value,
            interval=None if half is None else (value - half, value + half),
            always=always,
            p=None if half is None else min(1.0, _two_sided(value, error, self.freedom) * several),
            always_p=None if running is None else min(1.0, running * several),
            lift=None,
            lift_interval=None,
            smallest=None if half is None else seq.reach(level) * error,
            clusters_needed=once,
            clusters_needed_always=ever,
            pages_needed=None if once is None else ceil(once * (self.pages / max(units, 1))),
            verdict=verdict,
        )


def _lift(new: float, base: float, var_new: float, var_base: float, cov: float) -> tuple[float | None, float]:
    """Relative difference, and its standard error by the delta method; none where the control has nothing."""
    if not base > 0:
        return None, inf
    ratio = new / base
    return ratio - 1, sqrt(max(var_new + ratio**2 * var_base - 2 * ratio * cov, 0.0)) / base


def _welch(a: Array, b: Array, new: Sums, control: Sums) -> float:
    """Degrees of freedom by Welch and Satterthwaite; 0 where a policy has a single cluster."""
    sizes = int(new.seen.sum()) - 1, int(control.seen.sum()) - 1
    variances = float((a**2).sum()), float((b**2).sum())
    if min(sizes) < 1 or not sum(variances) > 0:
        return 0.0
    return sum(variances) ** 2 / sum(v**2 / size for v, size in zip(variances, sizes, strict=True))


def _quantile(freedom: float, level: float) -> float:
    return float(stdtrit(freedom, (1 + level) / 2))


def _two_sided(difference: float, error: float, freedom: float) -> float:
    if not error > 0:
        return 0.0 if difference else 1.0
    return float(2 * stdtr(freedom, -abs(difference) / error))
