"""Which columns of the page change clicks, and by how much, at one rank and for one query and document.

For a column with values v, beside a term for every rank k, within query-document pairs (`pairs`):

    E[clicks] = n g_p θ_k exp(δ_v)                    the column changes how often a result is clicked
    E[clicks] = n g_p θ_k exp(δ_v + s_v log k)        and how fast clicks fall with the rank

δ is told only by pairs seen under several values; s by all; neither is where the rank says which value it is.
Each is tested by a Wald chi-square with errors added up by query; p is multiplied by the number of tests
(Bonferroni). A column that never varies within a pair may still be the document itself: its δ is not told, and s
is not its doing alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.diagnosis.evidence.pairs import SwapPairs, fit_within, rank_design, read_pairs
from unskew.results import Result
from unskew.types import Array

if TYPE_CHECKING:
    from unskew.diagnosis.evidence.tables import LogTables

MOST_VALUES = 6
"""Values of a column that are compared, the most frequent ones."""
LEAST_CLICKS = 100
"""Clicks of a value, on pairs that tell of it, below which it is left out."""


@dataclass(frozen=True)
class FactorEffect:
    """What one column does to clicks."""

    name: str
    values: tuple[str, ...]
    """The most frequent first, which the others are relative to."""
    effect: tuple[float | None, ...]
    """exp(δ): clicks relative to the first value, at one rank and for one query and document."""
    interval: tuple[tuple[float, float] | None, ...]
    p: float | None
    """Of no effect, corrected for the number of tests."""
    decay: tuple[float | None, ...]
    """s: how much slower clicks fall with the logarithm of the rank, relative to the first value."""
    decay_interval: tuple[tuple[float, float] | None, ...]
    decay_p: float | None
    """Of curves that fall alike, corrected for the number of tests."""
    pairs: int
    """Pairs seen under several values."""
    reason: str | None = None
    """Why something is not told."""


@dataclass(frozen=True)
class FactorEffects(Result):
    """What columns do to clicks."""

    factors: tuple[FactorEffect, ...]
    reason: str | None = None
    """Why there are none."""


def factors(tables: LogTables, names: tuple[str, ...] | None = None) -> FactorEffects:
    """What columns do to clicks: the segments that the tables were opened with, or some of them."""
    chosen = tables.segments if names is None else names
    if not chosen:
        return FactorEffects(
            (), "the log has no serp_* column, and no other was named: results are told apart by rank only"
        )
    tests = 2 * len(chosen)
    return FactorEffects(tuple(_factor(tables, name, tests) for name in chosen))


def _factor(tables: LogTables, name: str, tests: int) -> FactorEffect:
    """One column."""
    cells: Any = tables.cells
    counted = cells.group_by(name).agg(clicks=cells.clicks.sum())
    rows = sorted(tables.engine.rows(counted), key=lambda row: (-row["clicks"], row[name]))
    values = tuple(row[name] for row in rows if row["clicks"] >= LEAST_CLICKS)[:MOST_VALUES]
    if len(values) < 2:
        return _untold(name, values, f"fewer than two values of {name} have {LEAST_CLICKS} clicks")
    pairs = read_pairs(tables, name, values)
    ranks = pairs.shown.shape[1] // len(values)
    by_value = pairs.shown.reshape(len(pairs), len(values), ranks).sum(2) > 0
    several = int((by_value.sum(1) > 1).sum())
    if pairs.clicks.sum() < LEAST_CLICKS:
        return _untold(name, values, "too few documents were seen under two ranks or values")
    level = _levels(pairs, ranks, values, tests)
    decay = _decays(pairs, ranks, values, tests)
    reason = None if level[2] is not None else _hidden(name, several)
    return FactorEffect(name, values, *level, *decay, several, reason)


def _hidden(name: str, several: int) -> str:
    """Why nothing is told of a column that has values enough."""
    if several:
        return f"{name} follows from the rank, or hardly varies at one rank for one query and document"
    return f"{name} never varies within one query and document"


def _untold(name: str, values: tuple[str, ...], reason: str) -> FactorEffect:
    none = (None,) * len(values)
    return FactorEffect(name, values, none, none, None, none, none, None, 0, reason)


Told = tuple[tuple[float | None, ...], tuple[tuple[float, float] | None, ...], float | None]


def _levels(pairs: SwapPairs, ranks: int, values: tuple[str, ...], tests: int) -> Told:
    """exp(δ), its intervals and p."""
    plain = _rank_terms(ranks, len(values))
    told = [
        number for number in range(1, len(values)) if _between(pairs, ranks, number, len(values)) >= LEAST_CLICKS
    ]
    terms = np.zeros((len(values) * ranks, len(told)))
    for column, number in enumerate(told):
        terms[number * ranks : (number + 1) * ranks, column] = 1.0
    return _told(pairs, plain, terms, told, values, tests, exponent=True)


def _decays(pairs: SwapPairs, ranks: int, values: tuple[str, ...], tests: int) -> Told:
    """s, its intervals and p, beside δ."""
    plain = _rank_terms(ranks, len(values))
    level = np.kron(np.eye(len(values))[:, 1:], np.ones((ranks, 1)))
    slope = np.kron(np.eye(len(values))[:, 1:], np.log(np.arange(1.0, ranks + 1))[:, None])
    told = list(range(1, len(values)))
    return _told(pairs, np.hstack([plain, level]), slope, told, values, tests, exponent=False)


def _told_apart(information: Array, first: int) -> bool:
    """Whether coefficients from `first` on follow from clicks, and not from others: e is in the span of J."""
    spanned = np.linalg.pinv(information, hermitian=True, rcond=1e-9) @ information
    return bool((np.diag(spanned)[first:] > 1 - 1e-6).all())


def _rank_terms(ranks: int, values: int) -> Array:
    """Terms of ranks that all values share."""
    return np.vstack([rank_design(ranks, np.arange(ranks))] * values)


def _between(pairs: SwapPairs, ranks: int, number: int, values: int) -> float:
    """Clicks on pairs seen under this value and another one."""
    seen = pairs.shown.reshape(len(pairs), values, ranks).sum(2) > 0
    both = seen[:, number] & (seen.sum(1) > 1)
    return float(pairs.clicks[both].sum())


def _told(
    pairs: SwapPairs,
    plain: Array,
    terms: Array,
    told: list[int],
    values: tuple[str, ...],
    tests: int,
    *,
    exponent: bool,
) -> Told:
    """Coefficients of terms by value, with intervals and one p; the first value is the reference."""
    effect: list[float | None] = [None] * len(values)
    interval: list[tuple[float, float] | None] = [None] * len(values)
    if not told or len(np.unique(pairs.cluster)) < 10:
        return tuple(effect), tuple(interval), None
    shape = np.exp if exponent else np.asarray
    design, first = np.hstack([plain, terms]), plain.shape[1]
    fit = fit_within(pairs, design)
    if not _told_apart(design.T @ fit.information @ design, first):
        return tuple(effect), tuple(interval), None
    effect[0], interval[0] = float(shape(0.0)), (float(shape(0.0)),) * 2
    for column, number in enumerate(told):
        b, error = float(fit.b[first + column]), fit.error(first + column)
        effect[number] = float(shape(b))
        interval[number] = (float(shape(b - 1.96 * error)), float(shape(b + 1.96 * error)))
    p = fit.wald(np.arange(first, first + len(told)))[1]
    return tuple(effect), tuple(interval), min(1.0, p * tests)
