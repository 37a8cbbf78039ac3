"""What an experiment with people found: policies beside each other, or interleaved, with intervals by cluster.

A cluster is a person or a visit: clicks within it hang together, so it counts once. The metric of a policy is a
ratio of sums, m = sum y / sum n over its clusters (clicks by pages, clicks by results). Linearised, a cluster adds
psi = (y - m n) / sum n to its error, and

    Var(m) = C / (C - 1) sum psi²        Var(m_1 - m_0) = Var(m_1) + Var(m_0) - 2 Cov

The covariance is 0 unless clusters saw both policies. With one page per cluster this is Welch's test. Beside the
interval of a fixed sample stands a confidence sequence, which holds however often one has looked;
the verdict follows the latter. A. Deng, U. Knoblich, J. Lu, "Applying the delta method in metric analytics", KDD
2018, for the variance; A. Fabijan et al., "Diagnosing sample ratio mismatch in online controlled experiments", KDD
2019, for the check of shares.

The sequences are those of I. Waudby-Smith, D. Arbour, R. Sinha, E. H. Kennedy, A. Ramdas, "Time-uniform central
limit theory and asymptotic confidence sequences", Annals of Statistics 52(6), 2024, theorem 2.2 and its section on
tuning.

An interval of 95 % holds at one size of the sample, chosen before. Who looks every day and stops when it leaves 0
is wrong far more often than 5 in 100 times. A confidence sequence holds at all sizes at once:

    mean ± sigma sqrt(2 (t r² + 1) / (t² r²) log(sqrt(t r² + 1) / alpha))
    r² = (-2 log alpha + log(-2 log alpha + 1)) / planned

t is the number of independent units (people, visits) and sigma their standard deviation. It is narrowest near
`planned` units, and holds for any; `planned` must not be chosen after a look at the data.

Differences from the paper: sigma comes from a standard error over clusters, so t counts clusters.

Legend: C clusters, one entry each.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, exp, inf, log, sqrt

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from unskew.measuring.experiments.interleaving import SignTest
from unskew.results import Result
from unskew.types import Array

PLANNED = 10_000
"""Units that a sequence is narrowest at, unless told."""
FEWEST = 100
"""Units below which the central limit theorem says too little for a sequence."""
POWER = 0.8
"""Chance of finding a difference that sample sizes are for."""
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
    def clusters(self) -> int:
        """How many clusters it was shown to."""
        return int(self.seen.sum())

    @property
    def influence(self) -> Array:
        """What each cluster adds to the error of the mean, [C]; scaled so that squares add up to the variance."""
        psi = (self.y - self.mean * self.n) / self.n.sum()
        return np.asarray(psi * sqrt(self.clusters / max(self.clusters - 1, 1)))

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return sqrt(float((self.influence**2).sum()))


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
    """The settings that an experiment is judged by: level, planned size, smallest effect."""

    level: float = 0.95
    planned: int = PLANNED
    detect: float = 0.01
    """Relative difference that sample sizes are told for."""


@dataclass(frozen=True)
class Experiment(Result):
    """What an experiment found, as a whole."""

    kind: str
    """A/B or interleaving."""
    metric: str
    cluster: str
    """The column whose values count once."""
    level: float
    detect: float
    """The relative difference that sample sizes are told for."""
    arms: tuple[ShownPolicy, ...]
    effects: tuple[Effect, ...]
    shares_p: float | None
    """Of the test that policies were shown as often as they should be; for interleaving, picked first as often."""
    sign: SignTest | None
    """Interleaving: who preferred which."""
    verdict: str
    """better, worse, cannot tell; of the only policy beside the control, or of the best of several."""
    sentence: str
    notes: tuple[str, ...]

    @property
    def trusted(self) -> bool:
        """Whether policies were shown as often as they should be."""
        return self.shares_p is None or self.shares_p >= MISMATCH


def shown_policy(name: str, sums: Sums, ways: Ways) -> ShownPolicy:
    """One policy in numbers."""
    interval = None
    if sums.clusters > 1:
        half = _quantile(sums.clusters - 1, ways.level) * sums.error
        interval = (sums.mean - half, sums.mean + half)
    return ShownPolicy(name, sums.clusters, int(sums.pages.sum()), sums.mean, interval)


def effect(names: tuple[str, str], new: Sums, control: Sums, ways: Ways, *, several: int = 1) -> Effect:
    """A policy against the control, `names` of both; `several` comparisons share the level (Bonferroni)."""
    level = 1 - (1 - ways.level) / several
    var_new, var_base = new.error**2, control.error**2
    cov = float((new.influence * control.influence).sum())
    freedom = 0.0  # of Welch and Satterthwaite; none where a policy has a single cluster
    if min(new.clusters, control.clusters) > 1 and var_new + var_base > 0:
        parts = var_new**2 / (new.clusters - 1) + var_base**2 / (control.clusters - 1)
        freedom = (var_new + var_base) ** 2 / parts
    told = _judged(
        names,
        (new.mean - control.mean, sqrt(max(var_new + var_base - 2 * cov, 0.0)), freedom),
        units=int((new.seen | control.seen).sum()),
        pages=float((new.pages + control.pages).sum()),
        wanted=ways.detect * control.mean,
        ways=replace(ways, level=level),
        several=several,
    )
    if not control.mean > 0:
        return told
    # the relative difference, with its standard error by the delta method
    ratio = new.mean / control.mean
    around = sqrt(max(var_new + ratio**2 * var_base - 2 * ratio * cov, 0.0)) / control.mean
    if told.interval is None:
        return replace(told, lift=ratio - 1)
    half = _quantile(freedom, level) * around
    return replace(told, lift=ratio - 1, lift_interval=(ratio - 1 - half, ratio - 1 + half))


def preference(names: tuple[str, str], wins: Sums, ways: Ways) -> Effect:
    """Interleaved: the share of pages that the second of `names` (policy, control) wins, against one half.

    `difference` is that share less 0.5; the sample sizes are for a share that is `detect` away from it.
    """
    found, pages = (wins.mean - 0.5, wins.error, wins.clusters - 1), float(wins.pages.sum())
    return _judged(names, found, units=wins.clusters, pages=pages, wanted=ways.detect, ways=ways)


def share_mismatch(counts: Mapping[str, int], shares: Mapping[str, float]) -> float:
    """p-value that clusters were dealt out by these shares, by a chi-squared test.

    >>> round(share_mismatch({"a": 5000, "b": 5300}, {"a": 0.5, "b": 0.5}), 5)
    0.00312
    """
    from scipy.stats import chisquare  # takes long to import

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
        found.append(_two_sided(off, sums.error, len(total) - 1))
    return min(1.0, min(found) * len(found))


def _judged(
    names: tuple[str, str],
    found: tuple[float, float, float],
    *,
    units: int,
    pages: float,
    wanted: float,
    ways: Ways,
    several: int = 1,
) -> Effect:
    """Intervals, p-values, the verdict, what could have been found, and what finds a difference `wanted`.

    `found` is a difference, its standard error and their degrees of freedom, over so many clusters and pages.
    """
    (value, error, freedom), level, planned = found, ways.level, ways.planned
    half = _quantile(freedom, level) * error if freedom > 0 and error > 0 else None
    deviation = error * sqrt(units)
    radius = sequence_radius(max(units, 1), planned=planned, level=level) * deviation
    safe = units >= FEWEST and half is not None
    always = (value - radius, value + radius) if safe else None
    verdict = "cannot tell"
    if always is not None and (always[0] > 0 or always[1] < 0):
        verdict = "better" if always[0] > 0 else "worse"
    running = always_valid_p(value, error, units, planned=planned) if safe else None
    findable = deviation > 0 and wanted > 0
    once = units_needed(deviation, wanted, level=level) if findable else None
    ever = sequential_units_needed(deviation, wanted, planned=planned, level=level) if findable else None
    return Effect(
        *names,
        value,
        interval=None if half is None else (value - half, value + half),
        always=always,
        p=None if half is None else min(1.0, _two_sided(value, error, freedom) * several),
        always_p=None if running is None else min(1.0, running * several),
        lift=None,
        lift_interval=None,
        smallest=None if half is None else reach(level) * error,
        clusters_needed=once,
        clusters_needed_always=ever,
        pages_needed=None if once is None else ceil(once * (pages / max(units, 1))),
        verdict=verdict,
    )


def _quantile(freedom: float, level: float) -> float:
    return float(stdtrit(freedom, (1 + level) / 2))


def _two_sided(difference: float, error: float, freedom: float) -> float:
    if not error > 0:
        return 0.0 if difference else 1.0
    return float(2 * stdtr(freedom, -abs(difference) / error))


# ---- intervals that may be looked at every day ----


def sequence_radius(units: int, *, planned: int = PLANNED, level: float = 0.95) -> float:
    """Half the width of a confidence sequence in standard deviations of a unit.

    >>> round(sequence_radius(10_000) / (1.959964 / 100), 3)  # beside an interval of a fixed size
    1.549
    """
    spread = _spread(planned, level)
    grown = units * spread + 1
    return sqrt(2 * grown / (units**2 * spread) * log(sqrt(grown) / (1 - level)))


def always_valid_p(difference: float, error: float, units: int, *, planned: int = PLANNED) -> float:
    """The smallest alpha whose sequence has left 0: a p-value that may be looked at every day.

    >>> always_valid_p(0.0, 1.0, 1000)
    1.0
    """
    if not error > 0:
        return 0.0 if difference else 1.0
    spread = _spread(planned, 0.95)
    grown = units * spread + 1
    return min(1.0, sqrt(grown) * exp(-((difference / error) ** 2) * units * spread / (2 * grown)))


def units_needed(deviation: float, difference: float, *, level: float = 0.95) -> int:
    """Units that find a difference, which is not 0, with the chance POWER, looked at once.

    (z_{1 - alpha / 2} + z_power)² deviation² / difference², with the standard deviation of a unit.

    >>> units_needed(1.0, 0.1)
    785
    """
    return ceil((reach(level) * deviation / difference) ** 2)


def reach(level: float = 0.95) -> float:
    """Standard errors that a difference must measure to be found with the chance POWER: 2.8 at 95 %."""
    return float(ndtri((1 + level) / 2) + ndtri(POWER))


def sequential_units_needed(
    deviation: float, difference: float, *, planned: int = PLANNED, level: float = 0.95
) -> int:
    """Units at which the sequence has left 0 with the chance POWER: more than `units_needed`."""
    effect, z = abs(difference) / deviation if deviation else inf, float(ndtri(POWER))

    def found(units: int) -> bool:
        return sequence_radius(units, planned=planned, level=level) + z / sqrt(units) <= effect

    return FEWEST + bisect_left(range(FEWEST, 2**52), True, key=found)


def _spread(planned: int, level: float) -> float:
    """r², by which the sequence is narrowest at so many units."""
    twice = -2 * log(1 - level)
    return (twice + log(twice + 1)) / planned
