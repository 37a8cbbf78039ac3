"""Where a run stands against the order that was shown, by clicks on held-out pages, or that they cannot tell.

Each held-out click counts 1 / log2(1 + k) at its rank k in the learned order, and in the order shown. On a page
that was shuffled every result had every rank, so the comparison is fair; the order shown is then that of the
query's other pages, or any order where all pages were shuffled. On other pages clicks favour the order shown: a
gain against them is one, but a loss may be bias. The interval is Student's, over queries. Where the same clicks
chose the weights, they flatter the run a little.

Legend: R distinct pages, K results of a page.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import stdtrit

from unskew.clicks.counts.reduction import Counts
from unskew.learning.scorer import Scorer
from unskew.running.data import HeldOut
from unskew.types import Array, Lists

Verdict = Literal["better", "worse", "cannot tell"]


@dataclass(frozen=True)
class Standing:
    """A learned order beside the one shown."""

    verdict: Verdict
    sentence: str
    """The verdict with its numbers, in words."""
    learned: float | None = None
    """What a held-out click counts in the learned order: 1 at the top."""
    shown: float | None = None
    """What it counts in the order shown."""
    interval: tuple[float, float] | None = None
    """95 % interval of learned - shown."""
    shuffled: bool = False
    """Whether the clicks are those of shuffled pages."""
    tested: bool = False
    """Whether they are those of a test log, which played no part in choosing weights."""
    queries: int = 0
    never_shown: float | None = None
    """Share of the documents of the held-out lists that no held-out page shows."""

    def to_dict(self) -> dict[str, Any]:
        """For metrics.json."""
        return asdict(self)


def standing(scorer: Scorer, pages: HeldOut, *, tested: bool = False) -> Standing:
    """How the clicks of held-out pages judge a model; `tested` where they are those of a test log."""
    part = pages.shuffled or pages.usual
    if part is None or not part.clicks.any():
        return Standing("cannot tell", f"{_CANNOT}: no click was held out.")
    if int(part.where.sum(1).max()) < 2:
        return Standing("cannot tell", f"{_CANNOT}: their pages have one result each.")
    fair = pages.shuffled is not None
    learned = discounts(_scores(scorer, part), part.row)
    shown = usual_discounts(part, pages.usual) if fair else discounts(-part.position, part.row)
    clicks, (one, other) = by_query(part, learned, shown)
    means = float(one.sum() / clicks.sum()), float(other.sum() / clicks.sum())
    low, high = ratio_interval(one - other, clicks)
    verdict: Verdict = "better" if low > 0 else "worse" if high < 0 and fair else "cannot tell"
    missing = never_shown(pages)
    return Standing(
        verdict,
        sentence(verdict, means, (low, high), len(clicks), missing, fair=fair, tested=tested),
        learned=means[0],
        shown=means[1],
        interval=None if np.isinf(low) else (low, high),
        shuffled=fair,
        tested=tested,
        queries=len(clicks),
        never_shown=missing,
    )


def warn_if_worse(found: Standing) -> None:
    """Say it where nobody reads metrics.json."""
    if found.verdict == "worse":
        warnings.warn(found.sentence, stacklevel=4)  # the line that called `learn`


def discounts(keys: Array, row: Array) -> Array:
    """1 / log2(1 + rank) of each result by descending key, [R, K]; 0 where padded. Ties go by document.

    >>> discounts(np.array([[0.2, 0.9, 0.0]]), np.array([[4, 7, -1]])).round(4).tolist()
    [[0.6309, 1.0, 0.0]]
    """
    order = np.lexsort((row, np.where(row >= 0, -keys, np.inf)), axis=-1)
    value = np.empty(row.shape)
    ladder = 1 / np.log2(np.arange(2, row.shape[1] + 2))
    np.put_along_axis(value, order, np.broadcast_to(ladder, row.shape), axis=-1)
    return np.where(row >= 0, value, 0.0)


def usual_discounts(shuffled: Counts, usual: Counts | None) -> Array:
    """Discounts of the results of shuffled pages in the order of the query's other pages, on average, [R, K].

    A page with a result that those never show, or whose query has no others, takes the mean over all orders.
    """
    where, width = shuffled.where, shuffled.row.shape[1]
    size = where.sum(1)
    ladder = np.cumsum(1 / np.log2(np.arange(2, width + 2)))
    value = np.where(where, (ladder[size - 1] / size)[:, None], 0.0)
    if usual is None:
        return value
    total, shown = (
        np.bincount(usual.row[usual.where], each[usual.where], minlength=len(usual.lists.features))
        for each in (usual.position * usual.impressions, usual.impressions)
    )
    known: Array = np.all(~where | (shown[shuffled.row] > 0), axis=1)
    place = total[shuffled.row] / np.maximum(shown[shuffled.row], 1e-12)
    return np.where(known[:, None], discounts(-place, shuffled.row), value)


def by_query(part: Counts, *values: Array) -> tuple[Array, list[Array]]:
    """Clicks of each query that has any, [Q], and the sum over them of each of the values [R, K]."""
    _, query = np.unique(part.query, return_inverse=True)
    clicks = np.bincount(query, part.clicks.sum(1))
    some = clicks > 0
    return clicks[some], [np.bincount(query, (part.clicks * value).sum(1))[some] for value in values]


def ratio_interval(total: Array, weight: Array) -> tuple[float, float]:
    """95 % interval of sum(total) / sum(weight) over queries drawn at random; without bounds below two queries.

    >>> [round(end, 3) for end in ratio_interval(np.array([1.0, 2.0, 3.0]), np.ones(3))]  # 2 +- 4.303 / sqrt(3)
    [-0.484, 4.484]
    """
    n, mean = len(total), total.sum() / weight.sum()
    if n < 2:
        return -np.inf, np.inf
    reach = stdtrit(n - 1, 0.975) * ratio_error(total, weight)
    return float(mean - reach), float(mean + reach)


def ratio_error(total: Array, weight: Array) -> float:
    """Standard error of sum(total) / sum(weight) over queries drawn at random; none below two queries.

    >>> round(ratio_error(np.array([1.0, 2.0, 3.0]), np.ones(3)), 4)  # 1 / sqrt(3)
    0.5774
    """
    n, mean = len(total), total.sum() / weight.sum()
    if n < 2:
        return float("inf")
    return float(np.sqrt(n / (n - 1) * np.square(total - mean * weight).sum()) / weight.sum())


def never_shown(pages: HeldOut) -> float:
    """Share of the documents of the held-out queries that none of their pages shows."""
    parts = [part for part in (pages.usual, pages.shuffled) if part is not None]
    queries = np.unique(np.concatenate([part.query for part in parts]))
    shown = np.unique(np.concatenate([part.row[part.where] for part in parts]))
    return float(1 - len(shown) / parts[0].lists.sizes[queries].sum())


_CANNOT = "Held-out clicks cannot tell whether it ranks better than what was shown"
_SAID = {
    "better": "By held-out clicks it ranks better than what was shown",
    "worse": "By held-out clicks it ranks worse than what was shown",
    "cannot tell": _CANNOT,
}


def sentence(
    verdict: Verdict,
    means: tuple[float, float],
    interval: tuple[float, float],
    queries: int,
    missing: float,
    *,
    fair: bool,
    tested: bool = False,
) -> str:
    """The verdict with its numbers."""
    kind = "shuffled test" if fair and tested else "shuffled" if fair else "test" if tested else "held-out"
    where = f"{kind} pages of {queries} quer{'y' if queries == 1 else 'ies'}"
    said = f"{_SAID[verdict]}: a click counts {means[0]:.3f} in its order and {means[1]:.3f} in that one"
    if np.isfinite(interval[0]):
        said += f" (difference {interval[0]:+.3f} to {interval[1]:+.3f}, {where})"
    else:
        said += f" ({where})"
    if not fair and verdict == "cannot tell":
        said += "; no such page is known to be shuffled, and clicks favour the order shown"
    if missing >= 0.01:
        said += f". {missing:.0%} of the documents were never shown: clicks say nothing of them"
    return said + "."


def _scores(scorer: Scorer, part: Counts) -> Array:
    """Scores of the results, [R, K]; only the lists of these pages are scored."""
    queries, place = np.unique(part.query, return_inverse=True)
    lists: Lists = part.lists.take(queries)
    row = part.row - part.lists.offsets[part.query][:, None] + lists.offsets[place][:, None]
    scores: Array = scorer.score(lists)[np.where(part.where, row, 0)]
    return scores
