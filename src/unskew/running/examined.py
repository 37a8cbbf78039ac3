"""Examination by rank for a judgement by clicks: from a file, from a run, or from what the log itself swapped.

Shuffled pages need nothing here: the judge measures examination on them as it goes. Where there are none,
documents that one query had at several ranks tell it, as in a diagnosis (`diagnosis/harvesting.py`), from arrays
and part after part:

    up_jk = sum over documents of c_j n_k / (n_j + n_k)        n impressions, c clicks of the document at a rank

Legend: N impressions, U documents shown at two ranks or more, P ranks, B buckets of queries, R draws.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from unskew.diagnosis.evidence import RANKS, SwapEvidence
from unskew.diagnosis.tables import BUCKETS
from unskew.errors import DataError
from unskew.learning.bias import checked_propensities, read_propensities
from unskew.learning.scorer import Scorer, load_scorer
from unskew.measuring.counterfactual import LoggedPages, RankExamination
from unskew.measuring.counterfactual.pages import FEW_QUERIES
from unskew.running.rankings import model_of
from unskew.types import Array

Examined = Any
"""A `RankExamination`, a file of it, a run that learned it, or numbers by rank; None: found in the log."""
ENOUGH = 100
"""Clicks on shuffled slots from which on the judge measures examination on them."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


def known_examination(given: Examined) -> RankExamination | None:
    """Examination as a file, a run or the caller tells it; None where the log is to tell."""
    if given is None or isinstance(given, RankExamination):
        return given
    if (model := model_of(given)) is not None:
        return _of_model(model, str(model.card.method["name"]))
    if isinstance(given, str | Path):
        if (Path(given) / "model.json").exists():
            return _of_model(load_scorer(given), str(given))
        return RankExamination(_relative(read_propensities(Path(given))), "file")
    return RankExamination(_relative(checked_propensities(np.asarray(given, np.float64))), "file")


def _of_model(model: Scorer, name: str) -> RankExamination:
    theta = model.propensity()
    if theta is None:
        hint = "take a run of dla, ipw or regression_em, a file, or leave it to the log"
        raise DataError(f"{model.card.method['name']} learns no examination by rank", path=name, hint=hint)
    return RankExamination(_relative(np.asarray(theta, np.float64)), f"run {name}")


def _relative(theta: Array) -> Array:
    relative: Array = theta / theta[0]
    return relative


# ---- from swaps ----


def swapped_examination(parts: Iterable[LoggedPages]) -> RankExamination | None:
    """Examination from documents at several ranks of a log in parts; None where they tell of rank 1 alone."""
    found = [swapped_evidence(pages) for pages in parts]
    if not found:
        return None
    ranks = max(len(each.clicks) for each in found)
    return fitted_examination(reduce(add, (_widened(each, ranks) for each in found)))


def fitted_examination(evidence: SwapEvidence, method: str = "all_pairs") -> RankExamination | None:
    """The curve of some evidence up to its first gap, with draws; None where it tells of rank 1 alone."""
    from unskew.diagnosis.harvesting import draw_buckets, pool_ranks, sum_groups  # these take longest to import
    from unskew.diagnosis.interventions import LEAST, METHODS, fit

    told = fit(evidence, method).curve.examination
    end = told.index(None) if None in told else len(told)
    if end < 2:
        return None
    theta = np.array(told[:end], np.float64)
    groups = pool_ranks(evidence.clicks, LEAST)
    up = sum_groups(evidence.up, groups, (1, 2))
    drawn = METHODS[method][1](np.tensordot(draw_buckets(len(up)), up, axes=1))  # [R, groups]
    group = np.repeat(np.arange(len(groups)), [len(each) for each in groups])[:end]
    draws = np.exp(drawn[:, group])
    return RankExamination(theta, "swaps", np.where(np.isfinite(draws) & (draws > 0), draws, theta))


def swapped_evidence(pages: LoggedPages) -> SwapEvidence:
    """What documents at several ranks tell; slots that were shuffled among others are left out."""
    kept = pages.position <= RANKS
    if pages.shuffled.any() and not pages.shuffled.all():
        kept &= ~pages.shuffled
    rows = slice(None) if kept.all() else kept
    document, position, click = (each[rows] for each in (pages.document, pages.position, pages.click))
    if len(document) and document.max() > 4 * len(document):  # numbers that are not those of a part
        document = np.unique(document, return_inverse=True)[1]
    ranks, count = int(position.max(initial=1)), int(document.max(initial=0)) + 1
    cell = document * ranks + position - 1
    n = np.bincount(cell, minlength=count * ranks).reshape(count, ranks)
    c = np.bincount(cell, click > 0, minlength=count * ranks).reshape(count, ranks)
    of_query = len(np.unique(pages.query)) >= FEW_QUERIES
    number = np.zeros(count, np.int64)
    number[document] = pages.query[pages.page[rows]] if of_query else document
    moved = ((n > 0).sum(axis=1) > 1) & (c.sum(axis=1) > 0)  # [U]
    return _added(n[moved].astype(np.float64), c[moved], _buckets(number[moved]))


def _added(n: Array, c: Array, bucket: Array) -> SwapEvidence:
    """Impressions and clicks [U, P] of documents of buckets [U], as evidence."""
    ranks = n.shape[1]
    up = np.zeros((BUCKETS, ranks, ranks))
    for j in range(ranks):
        here = n[:, j] > 0
        with np.errstate(invalid="ignore"):
            share = n[here] / (n[here, j, None] + n[here])
        value = c[here, j, None] * share
        value[:, j] = 0.0
        cell = bucket[here, None] * ranks + np.arange(ranks)
        up[:, j] = np.bincount(cell.ravel(), value.ravel(), minlength=BUCKETS * ranks).reshape(BUCKETS, ranks)
    return SwapEvidence(up, c.sum(axis=0))


def _buckets(number: Array) -> Array:
    """The bucket of each query or document, by a hash of its number."""
    return ((number.astype(np.uint64) * _MIX) >> np.uint64(40)).astype(np.int64) % BUCKETS


def _widened(found: SwapEvidence, ranks: int) -> SwapEvidence:
    """The same for more ranks."""
    more = ranks - len(found.clicks)
    return SwapEvidence(np.pad(found.up, ((0, 0), (0, more), (0, more))), np.pad(found.clicks, (0, more)))
