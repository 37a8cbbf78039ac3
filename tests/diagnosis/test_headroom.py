"""What is left to gain by the order of results: known worlds found again, and one thing said everywhere."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.helpers.uncleaned import open_tables, uncleaned
from unskew import diagnose
from unskew.diagnosis.curves.headroom import Headroom, headroom
from unskew.diagnosis.diagnosis import Diagnosis
from unskew.diagnosis.evidence.evidence import evidence
from unskew.pages.documents.diagnosis import diagnosis_page
from unskew.pages.page import markdown

SEEN = np.arange(1, 7) ** -0.8


def world(noise: float, *, flat: bool = False, pages: int = 8000) -> tuple[dict[str, Any], float]:
    """A log of an order that is that of relevance and noise, and the true share of the best order's clicks."""
    rng, queries, documents = np.random.default_rng(4), 120, 10
    relevance = np.full((queries, documents), 0.3) if flat else rng.beta(0.5, 2.0, (queries, documents))
    lasting = relevance + noise * rng.normal(size=relevance.shape)
    query = rng.integers(queries, size=pages)
    moved = lasting[query] + 0.1 * lasting.std() * rng.normal(size=(pages, documents))
    shown = np.argsort(-moved, axis=1)[:, : len(SEEN)]
    chance = SEEN * np.take_along_axis(relevance[query], shown, axis=1)
    ever = np.zeros((queries, documents))
    ever[np.repeat(query, len(SEEN)), shown.ravel()] = 1
    best = (-np.sort(-relevance * ever, axis=1)[:, : len(SEEN)] @ SEEN)[query]
    table = {
        "page_id": np.repeat(np.arange(pages), len(SEEN)),
        "query_id": np.repeat(query, len(SEEN)),
        "doc_id": shown.ravel(),
        "position": np.tile(np.arange(1, len(SEEN) + 1), pages),
        "click": (rng.random(chance.shape) < chance).ravel().astype(np.int8),
    }
    return table, float(chance.sum() / best.sum())


def found_in(table: dict[str, Any]) -> Headroom:
    with open_tables(pa.table(table), threads=1) as tables:
        return headroom(tables, evidence(tables))


@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_how_near_the_order_is_to_the_best_one_is_found_again(noise: float) -> None:
    table, true = world(noise)
    found = found_in(table)
    assert found.reached == pytest.approx(true, abs=0.05)
    assert found.gain == pytest.approx(1 / true - 1, rel=0.2, abs=0.05)
    assert found.interval is not None
    assert found.interval[0] < found.reached < found.interval[1]


def test_where_all_results_are_alike_nothing_is_left_to_gain() -> None:
    found = found_in(world(1.0, flat=True)[0])
    assert found.gain is not None
    assert found.gain < 0.04


def test_page_text_json_and_object_say_one_thing() -> None:
    found = diagnose(uncleaned(pa.table(world(0.15)[0])), threads=1)
    assert found.headroom is not None
    told = json.loads(found.to_json())["headroom"]
    assert (told["reached"], told["gain"]) == (found.headroom.reached, found.headroom.gain)
    assert told["sentence"] in markdown(diagnosis_page(found))
    assert f"gain {told['gain']:.1%} at most" in told["sentence"]
    assert Diagnosis.from_dict(json.loads(found.to_json())).headroom == found.headroom


def test_without_examination_the_reason_is_that_of_the_evidence() -> None:
    table, _ = world(0.15, pages=400)
    first = {name: values[table["position"] == 1] for name, values in table.items()}
    found = diagnose(uncleaned(pa.table(first)), threads=1)
    assert found.headroom == Headroom(None, reason=found.evidence.reason)
    assert "at most" not in found.headroom.sentence
