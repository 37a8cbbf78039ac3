"""The graph over ranks: equal documents as links, plans that serving can carry out, samples of queries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unskew
from tests.helpers.uncleaned import open_tables
from unskew.diagnosis.evidence import pairs
from unskew.diagnosis.evidence.evidence import evidence
from unskew.diagnosis.evidence.links import linked_by_features, plan_swaps, rank_graph
from unskew.diagnosis.evidence.pairs import equal_documents, fit_within, rank_design, read_pairs
from unskew.tables.engine.engine import Engine

NAMES = ("page_id", "query_id", "doc_id", "position", "click")


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(NAMES)})


def featured(values: dict[tuple[Any, Any], float]) -> unskew.Lists:
    """Lists of documents with one feature each."""
    pairs_of = sorted(values)
    queries, sizes = np.unique([query for query, _ in pairs_of], return_counts=True)
    features = np.array([[values[pair]] for pair in pairs_of], np.float32)
    ids = np.array([document for _, document in pairs_of])
    return unskew.Lists(features, np.append(0, np.cumsum(sizes)), np.zeros(len(ids), np.int16), queries, ids)


@pytest.fixture(scope="module")
def fixed() -> pa.Table:
    """Every query has a document of its own at each of three ranks, which never move; clicks fall as 1 / rank."""
    rng = np.random.default_rng(0)
    return table(
        [
            (page, page % 30, f"{page % 30}-{rank}", rank, int(rng.random() < 0.6 / rank))
            for page in range(3000)
            for rank in (1, 2, 3)
        ]
    )


def test_documents_of_equal_features_link_ranks_that_no_document_does(fixed: pa.Table) -> None:
    """In query q the feature at rank k is (q + k) % 3, so each value stands at every rank in some query."""
    keys = featured({(query, f"{query}-{rank}"): (query + rank) % 3 for query in range(30) for rank in (1, 2, 3)})
    with open_tables(fixed, threads=1) as tables:
        plain = rank_graph(tables, evidence(tables).examination)
        linked, pairs_of = linked_by_features(tables, keys), read_pairs(tables, equal=equal_documents(keys))
    assert (plain.connected, plain.pairs) == (False, 0)
    assert (linked, len(pairs_of)) == (((1, 2, 3),), 3)
    b = fit_within(pairs_of, rank_design(3, np.arange(3))).b
    assert np.exp(b).round(1).tolist() == [0.5, 0.3]


def test_equal_documents_by_hand(engine: Engine) -> None:
    rows = [
        (1, "q", "a", 1, 1),
        (1, "q", "b", 2, 0),
        (2, "q", "b", 1, 1),
        (2, "q", "c", 2, 1),
        (3, "r", "c", 3, 1),
    ]
    features = featured({("q", "a"): 1.0, ("q", "c"): 1.0, ("r", "c"): 1.0})
    tables = open_tables(table(rows), engine=engine)
    found = read_pairs(tables, equal=equal_documents(features))
    assert found.shown.tolist() == [[1, 1, 1], [1, 1, 0]]  # a, c of q and c of r are one; b is not told
    assert found.clicks.tolist() == [[1, 1, 1], [1, 0, 0]]


def test_missing_numbers_and_zeros_of_either_sign_are_equal() -> None:
    lists = unskew.Lists(
        np.array([[0.0, 1.0], [np.nan, 1.0], [-0.0, 1.0], [np.nan, 1.0]], np.float32),
        np.array([0, 2, 4]),
        np.zeros(4, np.int16),
        np.array(["q", "r"]),
        np.array(list("abab")),
    )
    codes = equal_documents(lists)["equal"].to_pylist()
    assert codes[0] == codes[2] != codes[1] == codes[3]


def test_shares_of_a_plan_are_of_the_traffic_and_add_up_to_one_at_most() -> None:
    rates, nothing = np.array([0.2, 0.1, 0.05]), np.zeros((3, 3))
    few, _ = plan_swaps(nothing, rates, 1000, 100, 0.1)
    many, _ = plan_swaps(nothing, rates, 1_000_000, 100, 0.1)
    assert few is not None
    assert many is not None
    first = math.ceil(1 / (0.1**2 * (0.2 * 0.1 / 0.3) * 0.9))
    assert (few.swaps[0].pages, few.swaps[0].impressions) == (first, 2 * first)
    assert sum(swap.share for swap in few.swaps) == pytest.approx(1.0)
    assert few.logs == pytest.approx(few.pages / 1000)
    assert [swap.share for swap in many.swaps] == [swap.pages / 1_000_000 for swap in many.swaps]
    assert many.swaps[0].ranks == (1, 2)


def test_a_large_log_is_looked_at_by_whole_queries(fixed: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs_of = zip(fixed["query_id"].to_pylist(), fixed["doc_id"].to_pylist(), strict=True)
    alike = featured({pair: pair[0] for pair in pairs_of})
    monkeypatch.setattr(pairs, "MOST_CELLS", 45)
    with open_tables(fixed, threads=1) as tables:
        found = read_pairs(tables, equal=equal_documents(alike))
        turns = {row["query_id"]: row["turn"] for row in tables.engine.rows(tables.queries)}
    assert found.share == 0.5
    assert len(found) == sum(turn < 2048 for turn in turns.values())


def test_every_two_ranks_that_can_be_compared_are_a_link() -> None:
    rng = np.random.default_rng(0)
    rows = [
        (page, page % 5, int(one), rank + 1, int(rng.random() < 0.5))
        for page in range(300)
        for rank, one in enumerate(rng.permutation(15))
    ]
    with open_tables(table(rows), threads=1) as tables:
        found = evidence(tables).graph
    assert len(found.links) == 105
    assert found.swap_plan == [{"ranks": list(swap.ranks), "share": swap.share} for swap in found.plan.swaps]  # type: ignore[union-attr]
