"""Does an order that a paper claims hold here? A test over seeds and queries, and a count of seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy as np

from unskew.measuring import PairedTest, crossed_t_test, holm
from unskew.pages.numbers import p_value
from unskew.studies.compare.verdict import Row
from unskew.types import Array
from unskew_reproductions.recipe import Claim

LEVEL = 0.05
TIE = 0.0005
"""Means closer than this read the same with the three digits that papers print."""
RESULTS = (
    "holds",
    "holds, not significant",
    "tied",
    "no difference found",
    "reversed, not significant",
    "reversed",
    "differs",
    "cannot be tested",
)
"""How a claim can end, from agreement to disagreement; "no difference found" and "differs" are those of ~."""
CLAIM_COLUMNS = ("claim", "difference", "p", "seeds", "here")


@dataclass(frozen=True)
class Judged:
    """A claim, tested."""

    first: str
    relation: str
    second: str
    by: str
    difference: float
    """Mean of the recipe's metric of the first minus that of the second."""
    p: float
    """After Holm's correction over the claims of one table."""
    wins: int
    """Seeds with which the first is ahead."""
    seeds: int
    result: str

    @property
    def text(self) -> str:
        """The claim as an order."""
        return f"{self.first} {self.relation} {self.second}" + ("" if self.by == "paper" else " (expected)")

    def cells(self) -> list[str]:
        """The row of a table."""
        if self.result == "cannot be tested" and isnan(self.difference):
            return [self.text, "", "", "", self.result]
        seeds = f"{self.wins} of {self.seeds}"
        return [self.text, f"{self.difference:+.4f}", p_value(self.p), seeds, self.result]


def judge(rows: Mapping[str, Row], claims: Sequence[tuple[Claim, str]], metric: str = "ndcg@10") -> list[Judged]:
    """Test every claim over seeds and queries; one about something without a result is listed all the same."""
    return judge_values({name: list(row.values[metric]) for name, row in rows.items()}, claims, crossed_t_test)


def judge_values(
    values: Mapping[str, list[Array]],
    claims: Sequence[tuple[Claim, str]],
    test: Callable[[list[Array], list[Array]], PairedTest],
) -> list[Judged]:
    """The same of values by seed and query of every method, by any test of two of them."""
    pairs = [
        (values[claim.first], values[second]) if claim.first in values and second in values else None
        for claim, second in claims
    ]
    tests = [None if pair is None else test(*pair) for pair in pairs]
    adjusted = holm([nan if tested is None else tested.p for tested in tests])
    judged = []
    for (claim, second), pair, tested, p in zip(claims, pairs, tests, adjusted, strict=True):
        about = (claim.first, claim.relation, second, claim.by)
        if pair is None or tested is None:
            judged.append(Judged(*about, nan, nan, 0, 0, "cannot be tested"))
            continue
        ahead = [bool(np.nanmean(a - b) > 0) for a, b in zip(*pair, strict=True) if len(a)]
        ended = result(tested.difference, float(p), claim.relation)
        judged.append(Judged(*about, tested.difference, float(p), sum(ahead), len(ahead), ended))
    return judged


def result(difference: float, p: float, relation: str = ">") -> str:
    """What came of a claim, from the difference first - second and its p-value.

    >>> result(0.01, 0.001), result(0.01, 0.2), result(-0.01, 0.001), result(0.0001, 0.9)
    ('holds', 'holds, not significant', 'reversed', 'tied')
    """
    if isnan(p):
        return "cannot be tested"
    if relation == "~":
        return "differs" if p < LEVEL else "no difference found"
    if p < LEVEL:
        return "holds" if difference > 0 else "reversed"
    if abs(difference) < TIE:
        return "tied"
    return ("holds" if difference > 0 else "reversed") + ", not significant"


def tally(judged: Sequence[Judged]) -> str:
    """How many claims ended how, in one sentence.

    >>> tally([])
    'No order is claimed here.'
    """
    if not judged:
        return "No order is claimed here."
    counts = {name: sum(one.result == name for one in judged) for name in RESULTS}
    parts = [f"{name}: {count}" for name, count in counts.items() if count]
    return f"{len(judged)} order{'s' * (len(judged) > 1)} tested. {'; '.join(parts).capitalize()}."
