"""A whole diagnosis: equal twice and in any order of rows; estimators agree on halves of a real log."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from test_diagnosis_curves import RANKLENS, ranklens

from tests.helpers.uncleaned import open_tables, uncleaned
from unskew.diagnosis.curves.matrix import click_matrix
from unskew.diagnosis.diagnosis import diagnose
from unskew.diagnosis.evidence import pairs
from unskew.diagnosis.evidence import sums as evidence
from unskew.diagnosis.evidence.evidence import evidence as evidence_of


@pytest.fixture(scope="module")
def log() -> pa.Table:
    """Five ranks of eight documents; a third of the pages is shuffled; a column that tells phones from desks."""
    rng, pages = np.random.default_rng(0), 1500
    query = rng.integers(30, size=pages)
    relevance = rng.uniform(0.1, 0.9, (30, 8))
    random = rng.random(pages) < 0.3
    score = np.where(
        random[:, None], rng.random((pages, 8)) * 9, relevance[query] + rng.normal(0, 0.4, (pages, 8))
    )
    shown = np.argsort(-score, axis=1)[:, :5]
    click = rng.random((pages, 5)) < np.arange(1, 6) ** -0.7 * np.take_along_axis(relevance[query], shown, axis=1)
    columns = {
        "page_id": np.repeat([f"p{page}" for page in range(pages)], 5),
        "query_id": np.repeat([f"q{one}" for one in query], 5),
        "doc_id": [f"d{one}" for one in shown.ravel()],
        "position": np.tile(np.arange(1, 6), pages),
        "click": click.ravel().astype(np.int8),
        "randomized": np.repeat(random, 5),
        "device": np.repeat(np.where(rng.random(pages) < 0.5, "phone", "desk"), 5),
    }
    return pa.table(columns)


def told(log: pa.Table, **options: Any) -> dict[str, Any]:
    return diagnose(uncleaned(log), segments=["device"], **options).to_dict()


@pytest.fixture(scope="module")
def first(log: pa.Table) -> dict[str, Any]:
    return told(log, threads=1)


def test_a_diagnosis_is_equal_twice_and_in_any_order_of_rows(log: pa.Table, first: dict[str, Any]) -> None:
    assert first["evidence"]["chosen"] == "shuffled"
    assert json.dumps(told(log, threads=1)) == json.dumps(first)
    turned = log.take(np.random.default_rng(1).permutation(log.num_rows))
    assert close("", told(turned, threads=2), first) == []


def test_of_a_large_log_every_part_says_which_share_it_looked_at(
    log: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "MOST_CELLS", 600)
    monkeypatch.setattr(evidence, "MOST_CELLS", 600)
    with open_tables(log, threads=1) as tables:
        share = 600 * 4096 // tables.size / 4096
        told = evidence_of(tables)
        found = click_matrix(tables, draws=9), told.graph, told.curves["swaps"]
    assert 0.4 < share < 0.7
    assert [part.share for part in found] == [share] * 3


def close(name: str, one: Any, other: Any) -> list[str]:
    """Names of numbers that differ by more than the order of sums."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), name
        return [each for key in one for each in close(f"{name}.{key}", one[key], other[key])]
    if isinstance(one, list | tuple):
        assert len(one) == len(other), name
        return [
            each for at, pair in enumerate(zip(one, other, strict=True)) for each in close(f"{name}[{at}]", *pair)
        ]
    if isinstance(one, float) and isinstance(other, float):
        return [] if math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9) else [name]
    return [] if one == other else [name]


def test_natural_swaps_of_one_half_tell_what_shuffled_pages_of_the_other_do(data_folder: Path) -> None:
    """Every page of RankLens is shuffled: one half is marked so, of the other documents at several ranks count."""
    table = ranklens(data_folder)
    rates = np.array([float(rate) for rate in RANKLENS.split()])
    names, page = np.unique(table["page_id"], return_inverse=True)
    marked = np.random.default_rng(0).random(len(names))[page] < 0.5
    with open_tables(table | {"randomized": marked}, threads=1) as tables:
        found = evidence_of(tables)
    truth = rates[1:] / rates[0]
    for method in ("shuffled", "swaps", "pivot"):
        spans = [span for span in found.curves[method].interval[1:] if span is not None]
        assert len(spans) == 23
        inside = [low <= value <= high for (low, high), value in zip(spans, truth, strict=True)]
        assert sum(inside) >= 21, method  # 23 intervals of 95 % that hang together by rank 1
    agreement = {(each.first, each.second): each.p for each in found.agreement}
    p = agreement["shuffled", "swaps"]
    assert p is not None
    assert p > 0.01
