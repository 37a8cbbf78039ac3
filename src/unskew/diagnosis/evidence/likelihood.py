"""Examination from clicks that two ranks got from the same documents: the likelihood, estimators, draws and tests.

Which rank of a document got its clicks tells of examination alone, as relevance drops out of the conditional
likelihood (J. Hausman, B. Hall and Z. Griliches, Econometrica 52, 1984). Added up over documents, by two ranks at
a time, it is that of Agarwal, Zaitsev, Wang, Li, Najork, Joachims, "Estimating Position Bias without Intrusive
Interventions", WSDM 2019. A document of a query that was shown at ranks j and k, n_j and n_k times with c_j and
c_k clicks, says

    up_jk = sum c_j n_k / (n_j + n_k),   up_kj = sum c_k n_j / (n_j + n_k),   E up_kj / E up_jk = theta_k / theta_j

    l(theta) = sum over j, k of up_jk log(theta_j / (theta_j + theta_k))

over all pairs of ranks (swaps), over pairs with rank 1 (pivot: theta_k = up_k1 / up_1k at the maximum), or over
neighbours (adjacent: theta_k = theta_{k-1} up_{k,k-1} / up_{k-1,k}). Shuffled pages are pairs with rank 1 too.

Ranks with few clicks lean on their neighbours by a prior: steps of log theta from rank to rank are those of a
power law, give or take WANDER per unit of log rank. Errors hold both the chance of the clicks and how far a curve
may stray.

Differences from the paper: a document counts as much as its impressions can tell (Mantel-Haenszel), not as much as
every other one. Chance is told by buckets of queries.

Legend: B buckets of queries, P ranks, R draws. Everything is on the scale of log theta.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import fdtrc, stdtrit

from unskew.types import Array

DRAWS = 400
GROUPS = 50
"""Parts that a jackknife leaves out, one at a time."""
ENOUGH = 30
"""Clicks below rank 1 below which there is no curve; clicks of a rank below which it leans on its neighbours."""
WIDEST = 0.7
"""Standard error of log theta past which a rank is not linked: its interval would span a factor of 16."""
FEWEST_BUCKETS = 10
"""Buckets of queries with evidence below which nothing is said of chance."""
WANDER = 1.0
"""How far a curve strays from a power law: the standard deviation of its steps, per unit of log rank."""
OWN = 30.0
"""Clicks of a rank that count as much for its variance as all ranks do."""

Estimator = Callable[[Array], Array]
"""From evidence [R, P, P] to log theta [R, P], NaN where it does not reach."""


def maximum(slopes: Callable[[Array], tuple[Array, Array]], start: Array, rounds: int = 50) -> Array:
    """Where a concave function is largest, from a start [R, D], by Newton steps, none of them a leap.

    `slopes` gives the gradient, [R, D], and the curvature turned around, [R, D, D].
    """
    value, ridge = start, 1e-6 * np.eye(start.shape[1])
    for _ in range(rounds if start.shape[1] else 0):
        slope, curve = slopes(value)
        step = np.linalg.solve(curve + ridge, slope[:, :, None])[:, :, 0].clip(-1.0, 1.0)
        value = (value + step).clip(-20.0, 20.0)
        if np.abs(step).max() < 1e-9:
            break
    return value


def pair_slopes(up: Array, value: Array) -> tuple[Array, Array]:
    """The gradient of l at log theta, [R, P], and its curvature turned around, [R, P, P]."""
    total = up + up.swapaxes(1, 2)
    share = 1 / (1 + np.exp(value[:, None, :] - value[:, :, None]))  # of j against k
    bend = total * share * (1 - share)
    curve = np.einsum("rj,jk->rjk", bend.sum(axis=2), np.eye(up.shape[1])) - bend
    return up.sum(axis=2) - (total * share).sum(axis=2), curve


def best_theta(up: Array, penalty: Array | float = 0.0) -> Array:
    """log theta [R, P] at the maximum of l - log theta' penalty log theta / 2, the first rank 0."""
    draws, ranks = up.shape[:2]
    back = np.zeros((ranks, ranks)) + penalty

    def below(free: Array) -> tuple[Array, Array]:
        value = np.concatenate([np.zeros((draws, 1)), free], axis=1)
        slope, curve = pair_slopes(up, value)
        return (slope - value @ back)[:, 1:], (curve + back)[:, 1:, 1:]

    return np.concatenate([np.zeros((draws, 1)), maximum(below, np.zeros((draws, ranks - 1)))], axis=1)


# ---- estimators ----


def pivot(up: Array) -> Array:
    """Every rank against the first.

    >>> pivot(np.array([[[0.0, 8.0], [4.0, 0.0]]])).round(3).tolist()
    [[0.0, -0.693]]
    """
    found: Array = log_ratio(up[:, :, 0], up[:, 0, :])
    found[:, 0] = 0.0
    return found


def adjacent(up: Array) -> Array:
    """Every rank against the one above, multiplied up from the first; it ends where a link is missing."""
    ranks = np.arange(1, up.shape[1])
    steps = log_ratio(up[:, ranks, ranks - 1], up[:, ranks - 1, ranks])
    return np.concatenate([np.zeros((len(up), 1)), np.cumsum(steps, axis=1)], axis=1)


def swaps(up: Array) -> Array:
    """Every rank against every other that ties it to the first.

    >>> up = np.array([[[0.0, 8.0, 0.0], [4.0, 0.0, 6.0], [0.0, 3.0, 0.0]]])
    >>> np.exp(swaps(up)).round(3).tolist()
    [[1.0, 0.5, 0.25]]
    """
    whole = up.sum(axis=0)
    some = tied((whole > 0) & (whole.T > 0))
    found = np.full(up.shape[:2], np.nan)
    found[:, some] = best_theta(up[np.ix_(np.arange(len(up)), some, some)])
    return found


ESTIMATORS: dict[str, Estimator] = {"shuffled": pivot, "swaps": swaps, "pivot": pivot, "adjacent": adjacent}
"""By the source of an `Examination`."""


def looked_at(source: str, ranks: int) -> Array:
    """Pairs of ranks that l goes over, [P, P]."""
    one, other = np.arange(ranks)[:, None], np.arange(ranks)
    if source == "swaps":
        return np.ones((ranks, ranks), bool)
    return np.asarray(np.abs(one - other) == 1 if source == "adjacent" else one * other == 0)


def tied(link: Array) -> Array:
    """Ranks that links [P, P] tie to the first, by whatever way round, ascending."""
    from scipy.sparse.csgraph import connected_components  # who only scores needs no graphs

    _, part = connected_components(link, directed=False)
    return np.flatnonzero(part == part[0])


def log_ratio(over: Array, under: Array) -> Array:
    """log(over / under), NaN where either has nothing."""
    some = (over > 0) & (under > 0)
    return np.log(np.where(some, over, 1.0)) - np.log(np.where(some, under, 1.0)) + np.where(some, 0.0, np.nan)


# ---- few clicks ----


def roughness(ranks: Array) -> Array:
    """Omega [P, P]: log theta' Omega log theta is 0 for a power law of the rank, and grows with steps off it.

    Steps of log theta from rank to rank over the root of those of log rank, less what their mean slope explains.

    >>> rough = roughness(np.array([1, 2, 4]))
    >>> value = np.array([0.0, -1.0, -2.0])
    >>> abs(round(float(value @ rough @ value), 9)), round(float(np.array([0, -1, -1]) @ rough @ [0, -1, -1]), 4)
    (0.0, 0.7213)
    """
    gap = np.diff(np.log(ranks))
    steps = np.diff(np.eye(len(ranks)), axis=0) / np.sqrt(gap)[:, None]
    slope = np.sqrt(gap / max(float(gap.sum()), 1e-300))
    left = steps - np.outer(slope, slope @ steps)
    return np.asarray(left.T @ left)


def smooth(up: Array, clicks: Array, looked: Array) -> tuple[Array, Array]:
    """log theta [P] and covariance [P, P] from evidence by bucket [B, P, P]; NaN where no link leads to rank 1.

    The maximum of l / phi - log theta' Omega log theta / (2 WANDER^2): phi is the variance of the slope of l, by
    buckets, over its curvature, so that l says as much as it knows. A rank with many clicks stays what it is; one
    with few is drawn to its neighbours in log rank. With A the curvature of the sum and J the variance of that
    slope,

        covariance = A^-1 (J / phi^2 + Omega / WANDER^2) A^-1

    chance of the clicks, and how far a curve may be from what is drawn through it. `clicks` [P] say how far the
    variance of a rank is its own, `looked` [P, P] which pairs are.
    """
    used = up * looked
    whole = used.sum(axis=0)
    some = tied(whole + whole.T > 0)
    value, spread = np.full(len(clicks), np.nan), np.full((len(clicks),) * 2, np.nan)
    value[0], spread[0, 0] = 0.0, 0.0
    if len(some) > 1:
        part = used[np.ix_(np.arange(len(up)), some, some)]
        value[some], spread[np.ix_(some, some)] = _smoothed(part, clicks[some], roughness(some + 1) / WANDER**2)
    return value, spread


def _smoothed(up: Array, clicks: Array, prior: Array) -> tuple[Array, Array]:
    """log theta and covariance of tied ranks; 0 where clicks do not vary."""
    whole, phi = up.sum(axis=0)[None], 1.0
    for _ in range(3):
        value = best_theta(whole, phi * prior)
        by_bucket, curve = pair_slopes(up, np.repeat(value, len(up), axis=0))[0], pair_slopes(whole, value)[1][0]
        used = by_bucket[np.abs(by_bucket).sum(axis=1) > 0]
        left = used - used.mean(axis=0) if len(used) else used
        spread = left.T @ left * len(used) / max(len(used) - 1, 1)
        phi = max(float(np.trace(spread[1:, 1:]) / np.trace(curve[1:, 1:])), 1e-3)
    covariance = np.zeros_like(prior)
    if np.trace(spread) < 1e-9 * np.trace(curve):
        return value[0], covariance
    own = np.sqrt((clicks + OWN * phi * np.diag(curve) / np.maximum(np.diag(spread), 1e-12)) / (clicks + OWN))
    spread = spread * np.outer(own, own)
    bread = np.linalg.inv((curve / phi + prior)[1:, 1:] + 1e-9 * np.eye(len(clicks) - 1))
    covariance[1:, 1:] = bread @ (spread / phi**2 + prior)[1:, 1:] @ bread
    return value[0], covariance


# ---- chance ----


@lru_cache(maxsize=4)
def draw_buckets(buckets: int, seed: int = 0, draws: int = DRAWS) -> Array:
    """How often each bucket is taken when as many are drawn with replacement, [R, B]; kept for the next."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.multinomial(buckets, np.full(buckets, 1 / buckets), size=draws).astype(np.float64))


def standard_errors(drawn: Array, buckets: int) -> Array:
    """Of every column of draws [R, P]; NaN where a tenth of the draws has nothing."""
    lost = np.isnan(drawn).mean(axis=0) > 0.1
    with np.errstate(invalid="ignore"):
        safe = np.where(np.isnan(drawn).all(axis=0), 0.0, drawn)
        spread = np.nanstd(safe, axis=0, ddof=1) * np.sqrt(buckets / max(buckets - 1, 1))
    return np.where(lost, np.nan, spread)


def dealt(owner: Array) -> Array:
    """The part of each row, [N], by what it belongs to (from 0), which is dealt out at random, always alike."""
    return np.asarray(np.random.default_rng(0).permutation(int(owner.max()) + 1)[owner] % GROUPS)


def jackknife(left: Array) -> Array:
    """Standard errors from values with a part left out, [G, ...].

    >>> jackknife(np.array([1.5, 2.0, 2.5])).round(4).item()
    0.5774
    """
    return np.asarray(np.sqrt((len(left) - 1) / len(left) * ((left - left.mean(0)) ** 2).sum(0)))


def ratio_and_error(over: Array, under: Array) -> tuple[float, float]:
    """Sum over sum of parts [B] that are independent of each other, and its standard error.

    >>> ratio_and_error(np.array([1.0, 3.0]), np.ones(2))
    (2.0, 1.0)
    """
    total, used = float(under.sum()), int((under > 0).sum())
    value = float(over.sum()) / total
    spread = float(((over - value * under) ** 2).sum()) * used / max(used - 1, 1)
    return value, float(np.sqrt(spread)) / total


def half_width(errors: Array, buckets: int) -> Array:
    """Half of the 95 % interval on the scale of the errors."""
    return np.asarray(errors * stdtrit(max(buckets - 1, 1), 0.975))


def difference_test(gap: Array, drawn: Array, buckets: int) -> float | None:
    """p of Hotelling's test that gaps [P] are chance, given draws of them [R, P]; None where nothing can be said.

    At most a fifth as many gaps as buckets take part, from the top rank on.
    """
    usable = np.isfinite(gap) & (np.isfinite(drawn).mean(axis=0) > 0.9)
    usable &= np.where(np.isnan(drawn), gap, drawn).std(axis=0) > 1e-6
    usable[np.flatnonzero(usable)[max(buckets // 5, 1) :]] = False
    size = int(usable.sum())
    if not size or buckets < FEWEST_BUCKETS:
        return None
    rows = drawn[:, usable]
    rows = rows[np.isfinite(rows).all(axis=1)]
    spread = np.atleast_2d(np.cov(rows, rowvar=False)) * buckets / (buckets - 1)
    spread += 1e-9 * np.trace(spread) / size * np.eye(size)
    squared = float(gap[usable] @ np.linalg.solve(spread, gap[usable]))
    ratio = squared * (buckets - size) / (size * (buckets - 1))
    return float(fdtrc(size, buckets - size, ratio))
