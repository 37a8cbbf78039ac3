"""Columns of a log as variables that independence can be tested on, and a note for each that is not what it seems.

| a column                                   | becomes                                                           |
|--------------------------------------------|-------------------------------------------------------------------|
| of text, of booleans                       | one column of zeros and ones per category                         |
| of more than 20 categories                 | the 19 commonest, the others in one                               |
| of up to 100 whole numbers                 | its order, as Bradley-Terry scores                                |
| of other numbers                           | itself                                                            |
| with one value, or missing for most        | nothing: left out                                                 |
| equal to the click, or to another column   | nothing: left out                                                 |
| with missing values                        | itself, without the impressions that lack one                     |

Legend: N impressions, d columns of a variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from unskew.diagnosis.causal.graph import CLICK, in_tiers
from unskew.diagnosis.evidence.likelihood import maximum
from unskew.errors import DataError
from unskew.logs.presentation import Tally, as_arrow, kind_of, tally_columns
from unskew.types import Array

CATEGORIES = 20
"""Categories that a variable may have."""
MOST_MISSING = 0.5
"""Share of missing values past which a column is left out."""
FEWEST = 50
"""Impressions that tests need at least."""


def order_scores(count: int, prior: float = 1.0) -> Array:
    """Scores s of `count` ordered values by a Bradley-Terry model, ascending, [count] float64; they sum to 0.

    With two values sig(-(s_2 - s_1)) = prior s_2 and s_1 = -s_2.

    >>> order_scores(2).round(4).tolist(), order_scores(1).tolist()
    ([-0.3374, 0.3374], [0.0])
    """
    place = np.arange(count)
    higher = np.sign(place[:, None] - place)  # 1 where i is the higher value

    def slopes(scores: Array) -> tuple[Array, Array]:
        lost = expit(-higher * (scores.T - scores)) * np.abs(higher)
        spread = lost * (1 - lost)
        gradient = (higher * lost).sum(1) - prior * scores
        return gradient, (np.diag(spread.sum(1) + prior) - spread)[None]

    return np.asarray(maximum(slopes, np.zeros((1, count)))[0])


@dataclass(frozen=True)
class Variables:
    """Columns ready to be tested."""

    values: Mapping[str, Array]
    """[N, d] float64 each, in the order of the tiers; numbers standardised, categories as zeros and ones."""
    codes: Mapping[str, Array]
    """[N] int64 each: the same as categories, numbers cut into four parts as full as each other."""
    rows: Array  # [N] int64: which of the impressions these are
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def names(self) -> tuple[str, ...]:
        """The variables that are left."""
        return tuple(self.values)

    def take(self, rows: Array) -> Variables:
        """Some of the impressions."""
        values, codes = ({name: each[rows] for name, each in of.items()} for of in (self.values, self.codes))
        return Variables(values, codes, self.rows[rows], self.notes)


def variables_of(columns: Mapping[str, Array]) -> Variables:
    """Variables of the columns [N], among which is `click`; see the head of this file."""
    notes: list[str] = []
    named = {name: columns[name] for name in in_tiers(columns)}
    if not len(named[CLICK]):
        raise DataError("there are no impressions to find causes in")
    rows, complete = _without_missing(named, notes)
    values, codes = {}, {}
    for name, column in complete.items():
        tally = tally_columns({name: column}, [name])[name]
        if len(tally.values) < 2:
            notes.append(f"{name} has one value: left out")
        else:
            codes[name], values[name] = _as_numbers(name, column, tally, notes)
    if len(rows) < FEWEST:
        raise DataError(f"causes cannot be told from {len(rows)} impressions", hint=f"give {FEWEST} at least")
    if CLICK not in values:
        raise DataError("every impression is clicked, or none is, so nothing tells what causes clicks")
    for name in _repeated(values, notes):
        del values[name], codes[name]
    return Variables(values, codes, rows, tuple(notes))


def _without_missing(columns: Mapping[str, Array], notes: list[str]) -> tuple[Array, dict[str, Array]]:
    """The impressions that have all values, and columns of these; without columns that mostly have none."""
    total = len(columns[CLICK])
    kept, there = {}, np.ones(total, bool)
    for name, column in columns.items():
        missing = as_arrow(name, column).is_null().to_numpy(zero_copy_only=False)
        if missing.mean() > MOST_MISSING:
            notes.append(f"{name} is missing in {missing.mean():.0%} of the impressions: left out")
            continue
        kept[name] = column
        there &= ~missing
    if not there.all():
        notes.append(f"{total - int(there.sum()):,} of {total:,} impressions lack a value: left out")
    return np.flatnonzero(there), {name: column[there] for name, column in kept.items()}


def _as_numbers(name: str, column: Array, tally: Tally, notes: list[str]) -> tuple[Array, Array]:
    """A column as codes [N] and as numbers [N, d]."""
    values = as_arrow(name, column).to_numpy(zero_copy_only=False)
    kind = kind_of(tally)
    place = np.searchsorted(tally.values, values)  # [N] among the values, ascending
    if kind == "categorical":
        codes = _common(name, place, len(tally.values), notes)
        return codes, np.eye(codes.max() + 1)[codes]
    numbers = order_scores(len(tally.values))[place] if kind == "ordinal" else values.astype(float)
    few = len(tally.values) <= 5
    codes = place if few else np.searchsorted(np.quantile(numbers, (0.25, 0.5, 0.75)), numbers, side="right")
    return codes, ((numbers - numbers.mean()) / numbers.std())[:, None]


def _common(name: str, place: Array, count: int, notes: list[str]) -> Array:
    """Codes of categories [N], the rare ones in one."""
    if count <= CATEGORIES:
        return place
    order = np.argsort(-np.bincount(place, minlength=count), kind="stable")
    code = np.full(count, CATEGORIES - 1)
    code[order[: CATEGORIES - 1]] = np.arange(CATEGORIES - 1)
    notes.append(f"{name} has {count} categories: all but the commonest {CATEGORIES - 1} are taken as one")
    return code[place]


def _repeated(kept: Mapping[str, Array], notes: list[str]) -> list[str]:
    """Variables that say the same as the click, or as one before them."""
    gone: list[str] = []
    for name in (name for name in kept if name != CLICK):
        before = [CLICK, *(other for other in kept if other not in gone and other != CLICK)]
        twin = next((other for other in before[: before.index(name)] if _same(kept[name], kept[other])), None)
        if twin is not None:
            why = "follows from the click, so it is no cause of it" if twin == CLICK else f"repeats {twin}"
            notes.append(f"{name} {why}: left out")
            gone.append(name)
    return gone


def _same(one: Array, other: Array) -> bool:
    """Whether each of two variables [N, d] can be told from the other."""
    if one.shape[1] == other.shape[1] == 1:
        return bool(abs(np.corrcoef(one[:, 0], other[:, 0])[0, 1]) > 1 - 1e-9)
    first, second = (np.unique(each, axis=0, return_inverse=True)[1] for each in (one, other))
    pairs = len(np.unique(np.stack([first, second]), axis=1).T)
    return bool(pairs == first.max() + 1 == second.max() + 1)
