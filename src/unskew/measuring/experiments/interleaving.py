"""Team-draft interleaving: two rankings in one list, and which of them the clicks were for.

F. Radlinski, M. Kurup, T. Joachims, "How does clickthrough data reflect retrieval quality?", CIKM 2008: the
drafting of teams (its algorithm 2), and a win for the ranking whose team got more clicks of a page.

    round by round a coin says who picks first; each team takes its best result that is not in the list yet

Two rankings that are the same win half of the pages each, whatever people look at: both teams have the same chance
of every place. So no examination curve is needed.

Differences from the paper: a page without a winner counts half a win for each, so that the share of wins is a mean
over all pages; pages of one person hang together, so intervals and the sign test are by person or visit.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from unskew.types import Array

Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True)
class Interleaved(Generic[Item]):
    """One list of two rankings, and which of them each result is for."""

    items: tuple[Item, ...]
    teams: tuple[int, ...]
    """0 where the first ranking picked it, 1 where the second did."""


def team_draft(
    first: Sequence[Item],
    second: Sequence[Item],
    *,
    length: int | None = None,
    seed: int | np.random.Generator = 0,
) -> Interleaved[Item]:
    """Interleave two rankings, best first, into a list of at most `length` results.

    A ranking that has nothing left to pick leaves the rest to the other. `seed` is a number, or a generator that
    goes on from page to page: with one number every page gets the same coins.

    >>> team_draft("abc", "bad", seed=1)
    Interleaved(items=('b', 'a', 'd', 'c'), teams=(1, 0, 1, 0))
    """
    rng = np.random.default_rng(seed)
    waiting = (iter(first), iter(second))
    items: list[Item] = []
    teams: list[int] = []
    taken: set[Item] = set()
    while length is None or len(items) < length:
        order = (0, 1) if rng.random() < 0.5 else (1, 0)
        before = len(items)
        for team in order:
            for item in waiting[team] if len(items) != length else ():
                if item not in taken:
                    items.append(item)
                    teams.append(team)
                    taken.add(item)
                    break
        if len(items) == before:
            break
    return Interleaved(tuple(items), tuple(teams))


@dataclass(frozen=True)
class SignTest:
    """How many of those who preferred one of two preferred the second, and how likely that is by chance."""

    second: int
    first: int
    even: int
    """Those who preferred neither; they do not count."""
    p: float


def sign_test(preference: Array) -> SignTest:
    """The exact two-sided sign test of preferences, above 0 for the second; one for each person or visit.

    >>> sign_test(np.array([1, 1, 1, 1, -1, 0]))
    SignTest(second=4, first=1, even=1, p=0.375)
    """
    from scipy.stats import binomtest  # takes long to import

    second, first = int((preference > 0).sum()), int((preference < 0).sum())
    p = float(binomtest(second, second + first).pvalue) if second + first else 1.0
    return SignTest(second, first, len(preference) - second - first, p)
