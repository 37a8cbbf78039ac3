"""Which columns of the page change clicks, and by how much, at one rank and for one query and document.

For a column with values v, beside a term for every rank k, within query-document pairs (`pairs`):

    E[clicks] = n g_p θ_k exp(δ_v)                    the column changes how often a result is clicked
    E[clicks] = n g_p θ_k exp(δ_v + s_v log k)        and how fast clicks fall with the rank

δ is told only by pairs seen under several values; s by all; neither is where the rank says which value it is.
Each is tested by a Wald chi-square with errors added up by query; p is multiplied by the number of tests
(Bonferroni). A column that never varies within a pair may still be the document itself: its δ is not told, and s
is not its doing alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from unskew.diagnosis.evidence.pairs import SwapPairs, fit_within, rank_design, read_pairs
from unskew.diagnosis.evidence.tables import LogTables
from unskew.results import Result
from unskew.types import Array

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


def factors(tables: LogTables) -> FactorEffects:
    """What columns do to clicks: the segments that the tables were opened with."""
    if not tables.segments:
        why = "the log has no serp_* column, and no other was named: results are told apart by rank only"
        return FactorEffects((), why)
    return FactorEffects(tuple(_factor(tables, name, 2 * len(tables.segments)) for name in tables.segments))


def _factor(tables: LogTables, name: str, tests: int) -> FactorEffect:
    """One column, whose p are of so many tests."""
    cells: Any = tables.cells
    counted = cells.group_by(name).agg(clicks=cells.clicks.sum())
    rows = sorted(tables.engine.rows(counted), key=lambda row: (-row["clicks"], row[name]))
    values = tuple(row[name] for row in rows if row["clicks"] >= LEAST_CLICKS)[:MOST_VALUES]
    reason = f"fewer than two values of {name} have {LEAST_CLICKS} clicks" if len(values) < 2 else None
    pairs = None if reason else read_pairs(tables, name, values)
    if pairs is None or pairs.clicks.sum() < LEAST_CLICKS:
        none = (None,) * len(values)
        few = reason or "too few documents were seen under two ranks or values"
        return FactorEffect(name, values, none, none, None, none, none, None, 0, few)
    ranks = pairs.shown.shape[1] // len(values)
    seen = pairs.shown.reshape(len(pairs), len(values), ranks).sum(2) > 0
    several = seen.sum(1) > 1
    told = [at for at in range(1, len(values)) if pairs.clicks[seen[:, at] & several].sum() >= LEAST_CLICKS]
    level = np.kron(np.eye(len(values)), np.ones((ranks, 1)))
    slope = np.kron(np.eye(len(values)), np.log(np.arange(1.0, ranks + 1))[:, None])
    plain = np.vstack([rank_design(ranks, np.arange(ranks))] * len(values))  # ranks, which all values share
    effect = _tested(pairs, plain, level, told, tests, np.exp)
    decay = _tested(pairs, np.hstack([plain, level[:, 1:]]), slope, list(range(1, len(values))), tests)
    if effect[2] is None and several.any():
        reason = f"{name} follows from the rank, or hardly varies at one rank for one query and document"
    elif effect[2] is None:
        reason = f"{name} never varies within one query and document"
    return FactorEffect(name, values, *effect, *decay, int(several.sum()), reason)


def _tested(
    pairs: SwapPairs, plain: Array, terms: Array, told: list[int], tests: int, shape: Any = np.asarray
) -> tuple[tuple[float | None, ...], tuple[tuple[float, float] | None, ...], float | None]:
    """Coefficients of terms [X, V], those told, with intervals and one p, beside plain ones; the first is 0."""
    effect: list[float | None] = [None] * terms.shape[1]
    interval: list[tuple[float, float] | None] = [None] * terms.shape[1]
    p = None
    design, first = np.hstack([plain, terms[:, told]]), plain.shape[1]
    if told and len(np.unique(pairs.cluster)) >= 10:
        fit = fit_within(pairs, design)
        information = design.T @ fit.information @ design
        spanned = np.linalg.pinv(information, hermitian=True, rcond=1e-9) @ information
        if (np.diag(spanned)[first:] > 1 - 1e-6).all():  # they follow from clicks, and not from other terms
            spans = {0: (0.0, 0.0, 0.0)} | {at: fit.span(first + column) for column, at in enumerate(told)}
            for at, span in spans.items():
                effect[at], low, high = (float(shape(each)) for each in span)
                interval[at] = (low, high)
            p = min(1.0, tests * fit.wald(np.arange(first, first + len(told))))
    return tuple(effect), tuple(interval), p
