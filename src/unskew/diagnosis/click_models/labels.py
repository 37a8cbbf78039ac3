"""Some labels beside clicks: of people, or of a language model; they make judgments better and are never needed.

    query_id, doc_id, label, and by, where several label: whose it is

What a label means is learned from clicks, for each who labels: with C clicks on T examinations of pairs in
queries of mean relevance L, a label l is worth f(l) = sum C / sum T L over the pairs that have it, never falling
with l, by clicks of other queries (cross-fitted). A pair is then expected to be as relevant as p = L f(l), which
joins what was expected of it, m, by how well both tell clicks:

    m* = m^(1 - d) p^d        d, and what m* is worth, by the marginal likelihood of clicks

Pairs without a label stay as they are.
"""

from itertools import product
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
import pyarrow as pa
from scipy.optimize import isotonic_regression

from unskew.diagnosis.click_models.pages import ShownPairs
from unskew.engine_prior import SMALL, likelihood, worth
from unskew.errors import Column, DataError
from unskew.settings import require_columns
from unskew.tables.frames import arrow_table, read_table
from unskew.tables.joins import encode
from unskew.types import Array

AnyLabels: TypeAlias = "pa.Table | Path | str | Any"
"""A table of labels, or where it lies: Parquet or CSV."""
FOLDS, TIE = 5, 1e-3
"""Parts of the queries; how much more a higher label is worth where clicks tell no difference."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""How far labels may take the place of what was expected."""
Labels: TypeAlias = "tuple[Array, Array, Array]"
"""Number of the pair, label, and number of who gave it, [N] each."""


def read_labels(source: AnyLabels, pairs: ShownPairs) -> Labels:
    """Labels of pairs that were shown; others are left out."""
    stored = isinstance(source, str | Path)
    table, place = (read_table(Path(source)), source) if stored else (arrow_table(source), "labels")
    require_columns(("query_id", "doc_id", "label"), table.column_names, path=place)
    try:
        label = table["label"].cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise DataError((Column("label"), f" is not a number ({error})"), path=place) from error
    ids = [table[name].combine_chunks() for name in ("query_id", "doc_id")]
    pair = pairs.find(ShownPairs(ids[0], ids[1], np.zeros(len(table), np.int64)))
    by = encode(table["by"])[0] if "by" in table.column_names else np.zeros(len(table), np.int64)
    kept = (pair < len(pairs)) & np.isfinite(label)
    if not kept.any():
        raise DataError("has no label of a query and document that was shown", path=place)
    return pair[kept], label[kept], np.asarray(by)[kept]


def labelled(
    labels: Labels, relevance: Array, evidence: dict[str, Array], pairs: ShownPairs, strength: float | None
) -> tuple[Array, Array]:
    """Relevance with labels, and its standard errors, [P + 1]; without a strength what clicks say is expected."""
    error, seen = evidence["standard_error"], evidence.get("examined", evidence["impressions"])
    _, group = np.unique(pairs.query, return_inverse=True)
    level = (np.bincount(group, relevance[:-1]) / np.bincount(group))[group]
    pair, told = meant(labels, evidence["clicks"], seen * np.append(level, 0.0), pairs)
    told = np.clip(told * level[pair], SMALL, 1 - SMALL)
    c, t = evidence["clicks"][pair], seen[pair]
    m, a = (relevance if strength is None else evidence["expected"])[pair], strength
    mixed = [m ** (1 - share) * told**share for share in SHARES]
    values = [worth(c, t, each) for each in mixed]
    best = int(np.argmax([likelihood(c, t, *each) for each in zip(mixed, values, strict=True)]))
    if a is None:  # its clicks are in what is expected
        c, t, a = 0.0 * c, 0.0 * t, relevance[pair] * (1 - relevance[pair]) / error[pair] ** 2 - 1
    trials = np.maximum(a, values[best])
    found, sure = relevance.copy(), error.copy()
    found[pair] = np.clip((trials * mixed[best] + c) / (trials + t), SMALL, 1 - SMALL)
    sure[pair] = np.minimum(sure[pair], np.sqrt(found[pair] * (1 - found[pair]) / (trials + t + 1)))
    return found, sure


def meant(labels: Labels, clicks: Array, due: Array, pairs: ShownPairs) -> tuple[Array, Array]:
    """The pairs that have labels, and how relevant these say they are, over their queries; by all that label."""
    pair, label, by = labels
    names = pairs.query_id.take(pa.array(pair)).to_pylist()
    fold = np.array([crc32(str(name).encode()) % FOLDS for name in names])
    total, count = np.zeros((2, len(pairs)))
    for who, part in product(np.unique(by), range(FOLDS)):
        mine, others = (by == who) & (fold == part), (by == who) & (fold != part)
        values, at = np.unique(label[others], return_inverse=True)
        if not len(values):
            continue
        weight = np.bincount(at, due[pair[others]]) + 0.5
        rate = (np.bincount(at, clicks[pair[others]]) + 0.5) / weight
        rising = isotonic_regression(rate, weights=weight).x * (1 + TIE * np.arange(len(values)))
        total += np.bincount(pair[mine], np.log(np.interp(label[mine], values, rising)), len(pairs))
        count += np.bincount(pair[mine], minlength=len(pairs))
    told = np.flatnonzero(count)
    return told, np.exp(total[told] / count[told])
