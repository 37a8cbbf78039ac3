"""Whether a log can be learned from at all, and what it cannot tell: refused, or learned with a warning.

nothing is clicked            nothing says what is wanted: refused
everything is clicked         nothing says what is not: refused
pages of one result           nothing can be compared: refused by methods that compare the results of a page
one rank                      position bias cannot be known: a warning
one query                     pages are held out in the place of queries: a warning
"""

from __future__ import annotations

import warnings

import numpy as np

from unskew.errors import DataError
from unskew.learning.methods import LEARNERS, Learner, MethodConfig
from unskew.logs.counts.reduction import Facts

STACK = 4
"""Calls between a warning and the line that called `learn`."""


def check_worth(method: Learner, facts: Facts, *, drawn: bool = False) -> None:
    """Refuse a log that the method can learn nothing from, and warn of what the log cannot tell.

    `drawn` says that the results learned from were put first at random, which leaves one rank and no bias of it.
    """
    if method.target == "labels":
        return
    what = f"{facts.impressions:,} impressions"
    if not facts.clicks and facts.weighted is None:
        hint = 'name the column of clicks, columns={"click": "THEIRS"}, or take pages with clicks'
        raise DataError(f"nothing is clicked in {what}, so nothing says what is wanted", hint=hint)
    if facts.weighted is None and facts.clicks >= facts.impressions:
        hint = "log what was shown and not clicked too"
        raise DataError(f"every one of {what} is clicked, so nothing says what is not wanted", hint=hint)
    single = facts.pages == facts.impressions
    if single and compares(method):
        able = ", ".join(name for name in sorted(LEARNERS) if not compares(LEARNERS[name](name=name)))
        raise DataError(
            f"every page has one result, and {method.name} as it is set compares the results of a page",
            hint=f"give results that were shown together one page_id, or take a method of single clicks: {able}",
        )
    if not drawn:
        warn_of_one_rank(method, facts)


def compares(method: Learner) -> bool:
    """Whether a method learns only from results that were shown together."""
    beside = isinstance(method, MethodConfig) and method.unseen is not None
    return not method.needs_clickless and not beside


def warn_of_one_rank(method: Learner, facts: Facts) -> None:
    """Say so where all was shown at one rank."""
    shown = np.flatnonzero(facts.by_rank[0]) + 1
    if len(shown) == 1:
        warnings.warn(
            f"everything was shown at rank {shown[0]}, so position bias cannot be known: {method.name} "
            "learns what is clicked there, and its examination says nothing",
            stacklevel=STACK,
        )


def warn_of_one_query() -> None:
    """Say so where pages are held out in the place of queries."""
    warnings.warn(
        "the log has one query, so pages of it are held out in the place of queries; how the ranker "
        "does on other queries cannot be known",
        stacklevel=STACK,
    )
