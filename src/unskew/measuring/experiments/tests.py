"""Is one run better than another: paired t-test, bootstrap intervals, seeds, Holm's correction, gap closed.

Runs are compared on their per-query values, in the same query order. A query that either run skipped (NaN) is
dropped from both, and the result says how many were.
"""

from dataclasses import dataclass, replace
from math import inf, nan, sqrt

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr

from unskew.errors import ConfigError, DataError
from unskew.options.runs import MeasureArguments
from unskew.types import Array

_BLOCK = 1_000_000  # values drawn at a time by the bootstrap: 16 MB, whatever the number of queries


@dataclass(frozen=True)
class PairedTest:
    """Mean difference first - second, with Student's t and its two-sided p-value."""

    difference: float
    t: float
    p: float
    queries: int
    """Queries that both runs have a value for."""
    dropped: int
    """Queries that one of them skipped."""

    def __str__(self) -> str:
        return f"{self.difference:+.4f} (t = {self.t:.2f}, p = {self.p:.3g}, {_over(self.queries, self.dropped)})"


@dataclass(frozen=True)
class Interval:
    """A mean, or a mean difference, with its percentile bootstrap interval."""

    mean: float
    low: float
    high: float
    level: float
    queries: int
    dropped: int

    def __str__(self) -> str:
        bounds = f"[{self.low:.4f}, {self.high:.4f}]"
        return f"{self.mean:.4f} {bounds} ({self.level:.0%} bootstrap, {_over(self.queries, self.dropped)})"


@dataclass(frozen=True)
class SeedSummary:
    """Mean and sample standard deviation of one number over repeated runs."""

    mean: float
    sd: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.sd:.4f} ({self.seeds} seed{'s' * (self.seeds != 1)})"


def paired_t_test(first: ArrayLike, second: ArrayLike) -> PairedTest:
    """Student's t = mean(d) / (sd(d) / sqrt(n)) over the n differences d = first - second.

    The p-value is two-sided, from n - 1 degrees of freedom. No difference on any query gives t = 0 and
    p = 1; fewer than two queries give t = p = NaN.

    >>> print(paired_t_test([0.5, 0.7, 0.9], [0.4, 0.5, 0.6]))
    +0.2000 (t = 3.46, p = 0.0742, 3 queries)
    """
    d, dropped = _kept(_differences(first, second))
    n, mean = len(d), _mean(d)
    if n < 2:
        return PairedTest(mean, nan, nan, n, dropped)
    return _two_sided(mean, float(d.std(ddof=1)) / sqrt(n), n - 1, n, dropped)


def crossed_t_test(first: ArrayLike, second: ArrayLike) -> PairedTest:
    """Student's t of mean(first - second) over seeds and queries [S, Q], both of which might have been others.

    The difference of seed s on query q is taken as mu + a_s + b_q + e_sq with all three drawn at random. With the
    mean squares of seeds, queries and rest, (MS_a + MS_b - MS_e) / SQ estimates the variance of the mean, and
    Satterthwaite's formula its degrees of freedom. That formula trusts a spread between two or three seeds too
    much, so p is never below that of the t-test over the means of seeds alone, nor over those of queries: with two
    seeds, one degree of freedom, little is significant. One seed gives the paired t-test over queries.

    >>> print(crossed_t_test([[0.5, 0.7, 0.9], [0.6, 0.8, 0.8]], [[0.4, 0.5, 0.6], [0.4, 0.5, 0.6]]))
    +0.2167 (t = 6.50, p = 0.0489, 3 queries)
    """
    a, b = np.atleast_2d(np.asarray(first, np.float64)), np.atleast_2d(np.asarray(second, np.float64))
    if a.shape != b.shape or a.ndim != 2:
        raise DataError(f"the runs have values of shape {a.shape} and {b.shape}, not one of seeds by queries")
    kept = ~np.isnan(a - b).any(0)
    d, dropped = (a - b)[:, kept], int((~kept).sum())
    seeds, queries = d.shape
    if seeds < 2 or queries < 2:
        return replace(paired_t_test(d.mean(0), np.zeros(queries)), dropped=dropped)
    mean, by_seed, by_query = float(d.mean()), d.mean(1), d.mean(0)
    rest = d - by_seed[:, None] - by_query + mean
    freedom = np.array([queries - 1, seeds - 1, (queries - 1) * (seeds - 1)])
    squares = np.array([by_query.var(ddof=1) * seeds, by_seed.var(ddof=1) * queries, (rest**2).sum() / freedom[2]])
    used = np.array([1.0, 1.0, -1.0])
    if (used * squares).sum() <= squares[:2].max():  # less spread between seeds, or queries, than chance gives
        used = np.eye(3)[int(squares[:2].argmax())]
    variance = float((used * squares).sum()) / d.size
    df = variance**2 / float(((used * squares / d.size) ** 2 / freedom).sum()) if variance > 0 else 1.0
    test = _two_sided(mean, sqrt(variance), df, queries, dropped)
    alone = (_two_sided(mean, sqrt(squares[i] / d.size), freedom[i], queries, dropped).p for i in (0, 1))
    return replace(test, p=max(test.p, *alone))


def paired_bootstrap(first: ArrayLike, second: ArrayLike, *, seed: int = 0) -> Interval:
    """95 % percentile interval of mean(first - second) when the queries are drawn again with replacement.

    Fewer than two queries give NaN bounds.

    >>> print(paired_bootstrap([0.5, 0.7, 0.9, 0.6], [0.4, 0.5, 0.6, 0.5]))
    0.1750 [0.1000, 0.2500] (95% bootstrap, 4 queries)
    """
    return bootstrap_mean(_differences(first, second), seed=seed)


def bootstrap_mean(values: ArrayLike, *, resamples: int = 10_000, level: float = 0.95, seed: int = 0) -> Interval:
    """Mean over the queries of one run, with its percentile bootstrap interval.

    >>> print(bootstrap_mean([1.0, 0.0, 1.0, 1.0, float("nan")]))
    0.7500 [0.2500, 1.0000] (95% bootstrap, 4 queries, 1 dropped)
    """
    if resamples < 1:
        raise ConfigError("must be at least 1", argument="resamples", value=resamples)
    MeasureArguments.check(level=level)
    kept, dropped = _kept(_flat(values))
    n = len(kept)
    if n < 2:
        return Interval(_mean(kept), nan, nan, level, n, dropped)
    rng, means, rows = np.random.default_rng(seed), np.empty(resamples), max(1, _BLOCK // n)
    for start in range(0, resamples, rows):
        block = means[start : start + rows]
        block[:] = kept[rng.integers(0, n, size=(len(block), n))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(_mean(kept), float(low), float(high), level, n, dropped)


def mean_over_seeds(values: ArrayLike) -> SeedSummary:
    """Mean and standard deviation (n - 1 in the divisor) over seeds; one seed has the deviation NaN.

    >>> print(mean_over_seeds([0.70, 0.72, 0.71]))
    0.7100 ± 0.0100 (3 seeds)
    """
    runs = _flat(values)
    if np.any(np.isnan(runs)):
        raise DataError(f"{np.isnan(runs).sum()} of {len(runs)} seeds have no value (NaN)", hint="rerun them")
    return SeedSummary(_mean(runs), float(runs.std(ddof=1)) if len(runs) > 1 else nan, len(runs))


def holm(p_values: ArrayLike) -> Array:
    """Holm's step-down adjustment: the i-th smallest of m becomes max_{j <= i} min(1, (m - j + 1) p_(j)).

    Compare the result with the level wanted for the whole family. NaN stays NaN and does not count in m.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = _flat(p_values)
    tested = np.flatnonzero(~np.isnan(p))
    if np.any((p[tested] < 0) | (p[tested] > 1)):
        raise DataError("p-values must lie between 0 and 1")
    order = tested[np.argsort(p[tested], kind="stable")]
    adjusted = np.full(len(p), nan)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)))
    return adjusted


def gap_closed(value: float, naive: float, labeled: float) -> float:
    """Share of the gap that a method closes: (value - naive) / (labeled - naive).

    0 is no better than learning from raw clicks, 1 as good as learning from labels; it may be below 0 or above 1.
    NaN where labels are not better than clicks (labeled <= naive): then bias did no harm, there is no gap to
    close and the share means nothing. For a metric where less is better, negate all three.

    >>> round(gap_closed(0.72, naive=0.70, labeled=0.75), 6)
    0.4
    """
    gap = labeled - naive
    return (value - naive) / gap if gap > 0 else nan


def _two_sided(mean: float, error: float, freedom: float, queries: int, dropped: int) -> PairedTest:
    t = mean / error if error > 0 else inf * np.sign(mean) if mean else 0.0
    return PairedTest(mean, float(t), float(2 * stdtr(freedom, -abs(t))), queries, dropped)


def _differences(first: ArrayLike, second: ArrayLike) -> Array:
    a, b = _flat(first), _flat(second)
    if len(a) != len(b):
        raise DataError(
            f"the runs have {len(a)} and {len(b)} queries",
            hint="compare runs on the same queries in the same order",
        )
    difference: Array = a - b
    return difference


def _kept(values: Array) -> tuple[Array, int]:
    kept = values[~np.isnan(values)]
    return kept, len(values) - len(kept)


def _flat(values: ArrayLike) -> Array:
    flat = np.asarray(values, dtype=np.float64)
    if flat.ndim != 1 or np.any(np.isinf(flat)):
        raise DataError(f"expected a flat array without infinities, got the shape {flat.shape}")
    return flat


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else nan


def _over(queries: int, dropped: int) -> str:
    return f"{queries} {'query' if queries == 1 else 'queries'}" + (f", {dropped} dropped" if dropped else "")
