"""Examination from swaps and shuffled pages: formulas by hand, known curves found again, what cannot be told."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import unskew
from tests.helpers.uncleaned import open_tables
from unskew.diagnosis.evidence import evidence as counted
from unskew.diagnosis.evidence import likelihood
from unskew.diagnosis.evidence.evidence import Evidence, chosen_curve, evidence
from unskew.diagnosis.evidence.sums import shuffled_sums, swap_sums
from unskew.tables.engine.engine import Engine

CURVE = 0.9 * np.arange(1, 7) ** -0.8


def world(
    seed: int, *, pages: int = 6000, shuffled: float = 0.2, noise: float = 0.5, curve: Any = CURVE
) -> dict[str, Any]:
    """Impressions of people who look at rank k with probability curve[k - 1]; documents move by noise."""
    rng, ranks, queries = np.random.default_rng(seed), len(CURVE), 120
    query = rng.integers(queries, size=pages)
    relevance = rng.beta(0.8, 1.5, (queries, ranks))
    score = (
        relevance[query] + rng.normal(0, 0.3, (queries, ranks))[query] + rng.normal(0, 1, (pages, ranks)) * noise
    )
    random = rng.random(pages) < shuffled
    score[random] = rng.random((int(random.sum()), ranks))
    shown = np.argsort(-score, axis=1)
    phone = rng.random(pages) < 0.5
    seen = np.where(phone[:, None], np.broadcast_to(curve, shown.shape), CURVE)
    click = rng.random(shown.shape) < seen * np.take_along_axis(relevance[query], shown, axis=1)
    return {
        "page_id": np.repeat(np.arange(pages), ranks),
        "query_id": np.repeat(query, ranks),
        "doc_id": shown.ravel(),
        "position": np.tile(np.arange(1, ranks + 1), pages),
        "click": click.ravel().astype(np.int8),
        "randomized": np.repeat(random, ranks),
        "device": np.repeat(np.where(phone, "phone", "desk"), ranks),
        "city": np.repeat(np.where(np.arange(pages) < 3, "Ulm", "Bonn"), ranks),
    }


def found_in(table: dict[str, Any], **options: Any) -> Evidence:
    with open_tables(pa.table(table), threads=1, **options) as tables:
        return evidence(tables)


@pytest.fixture(scope="module")
def found() -> Evidence:
    return found_in(world(0), segments=["device", "city"])


def test_evidence_of_two_ranks_is_the_formula(engine: Engine) -> None:
    """One document 3 times at rank 1 with 2 clicks, once at rank 3 with 1; another that did not move."""
    rows = [("a", 1, 1), ("a", 1, 1), ("a", 1, 0), ("a", 3, 1), ("b", 2, 1), ("b", 2, 0)]
    document, position, click = (list(column) for column in zip(*rows, strict=True))
    table = {"page_id": range(6), "query_id": ["q"] * 6, "doc_id": document, "position": position, "click": click}
    swaps = swap_sums(open_tables({k: list(v) for k, v in table.items()}, engine=engine))[""]
    up, coverage = swaps.up.sum(axis=0), swaps.coverage
    assert up.tolist() == [[0, 0, 2 * 1 / 4], [0, 0, 0], [1 * 3 / 4, 0, 0]]
    assert swaps.clicks.tolist() == [2, 0, 1]
    assert coverage is not None
    assert coverage.documents == ((1, 0, 1), (0, 1, 0), (1, 0, 1))
    assert coverage.clicks == ((0, 0, 3), (0, 0, 0), (3, 0, 0))


def test_shuffled_pages_count_against_the_top_of_pages_that_reach_the_rank(engine: Engine) -> None:
    pages = {1: [1, 0, 1], 2: [1, 1], 3: [0, 1, 0]}
    rows = [(page, rank, click) for page, clicks in pages.items() for rank, click in enumerate(clicks, start=1)]
    page, rank, click = (list(column) for column in zip(*rows, strict=True))
    table = {"page_id": page, "query_id": page, "doc_id": rank, "position": rank, "click": click}
    told = shuffled_sums(open_tables(table | {"randomized": [True] * 8}, engine=engine))
    assert told is not None
    assert told.up.sum(axis=0).tolist() == [[0, 2, 1], [2, 0, 0], [1, 0, 0]]
    half = open_tables(table | {"randomized": [True] * 7 + [False]}, engine=engine)
    told = shuffled_sums(half)
    assert told is not None
    assert told.up.sum(axis=0).tolist() == [[0, 2, 1], [2, 0, 0], [1, 0, 0]]  # rank 3 of page 3 was not shuffled
    pinned = open_tables(table | {"randomized": [False] + [True] * 7}, engine=engine)
    told = shuffled_sums(pinned)
    assert told is not None
    assert told.up.sum(axis=0).tolist() == [[0, 1, 0], [2, 0, 0], [0, 0, 0]]  # rank 1 of page 1 was not


def test_estimators_agree_with_formulas_on_exact_evidence() -> None:
    theta = np.array([1.0, 0.6, 0.5, 0.2])
    up = theta[:, None] * np.array([[0, 3, 2, 1], [3, 0, 4, 2], [2, 4, 0, 5], [1, 2, 5, 0.0]])
    for estimator in (likelihood.pivot, likelihood.adjacent, likelihood.swaps):
        assert np.exp(estimator(up[None])[0]) == pytest.approx(theta, rel=1e-6)


def test_all_pairs_is_the_maximum_of_its_likelihood() -> None:
    up = np.array([[0, 30.0, 11], [20, 0, 17], [4, 9, 0]])
    best = likelihood.swaps(up[None])[0]

    def likely(value: Any) -> float:
        cells = [(j, k) for j in range(3) for k in range(3)]
        return sum(up[j, k] * (value[j] - math.log(math.exp(value[j]) + math.exp(value[k]))) for j, k in cells)

    for step in ([0, 1e-3, 0], [0, 0, 1e-3], [0, -1e-3, 0], [0, 0, -1e-3]):
        assert likely(best) > likely(best + np.array(step))


def test_known_examination_is_found_and_covered(found: Evidence) -> None:
    truth = CURVE / CURVE[0]
    for method, curve in found.curves.items():
        assert curve.known == 6, method
        assert [seen for seen in curve.theta if seen] == pytest.approx(truth, rel=0.25), method
    spans = [curve.interval for seed in (1, 2, 3) for curve in found_in(world(seed)).curves.values()]
    covered = [
        low <= value <= high for span in spans for (low, high), value in zip(span[1:], truth[1:], strict=True)
    ]
    assert 0.85 <= np.mean(covered) <= 1.0  # 60 intervals that hang together
    assert found.examination is found.curves["shuffled"]


def test_estimators_agree_where_nothing_but_rank_matters(found: Evidence) -> None:
    told = {(each.first, each.second): each for each in found.agreement}
    assert len(told) == 6
    natural = told["shuffled", "swaps"]
    assert natural.p is not None
    assert natural.p > 0.01
    assert natural.ratio == pytest.approx(1.0, abs=0.15)


def test_estimators_differ_where_relevance_moves_with_the_rank() -> None:
    """Documents that rise because they are wanted: each page shows on top what its people want."""
    table = world(4, noise=0.0)
    rng = np.random.default_rng(4)
    natural = ~table["randomized"]
    extra = natural & (table["position"] == 1) & (rng.random(len(natural)) < 0.5)
    table["click"] = np.where(extra, 1, table["click"]).astype(np.int8)
    swapped = np.flatnonzero(natural.reshape(-1, 6)[:, 0] & (rng.random(len(natural) // 6) < 0.3)) * 6
    table["doc_id"][swapped], table["doc_id"][swapped + 1] = table["doc_id"][swapped + 1], table["doc_id"][swapped]
    told = {(each.first, each.second): each.p for each in found_in(table).agreement}
    p = told["shuffled", "swaps"]
    assert p is not None
    assert p < 0.01


def test_contexts_with_one_curve_and_with_two(found: Evidence) -> None:
    device, city = found.contexts
    assert device.one_curve is True
    assert set(device.curves) == {"phone", "desk"}
    assert city.curves["Ulm"].known == 1
    assert city.p["Ulm"] is None
    assert city.reason["Ulm"]
    steep = found_in(world(5, shuffled=0.0, curve=CURVE ** np.array([1, 2, 2, 2, 2, 2])), segments=["device"])
    assert steep.contexts[0].one_curve is False
    assert "shuffled" not in steep.curves


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: {name: values[table["position"] == 1] for name, values in table.items()}, "one rank only"),
        (lambda table: table | {"doc_id": table["position"]}, "no document was shown at two ranks"),
        (lambda table: {name: values[:12] for name, values in table.items()}, "at two ranks"),
        (lambda table: table | {"query_id": np.zeros_like(table["query_id"])}, "groups of queries"),
        (lambda table: table | {"click": np.zeros_like(table["click"])}, "0 clicks below rank 1"),
        (lambda table: table | {"click": np.ones_like(table["click"])}, "do not vary"),
        (lambda table: table | {"position": table["position"] + 6}, "no page shows rank 1"),
    ],
)
def test_what_cannot_be_told_is_none_with_a_reason(change: Any, words: str) -> None:
    told = found_in(change(world(6, pages=1500, shuffled=0.0)))
    assert told.chosen is None
    assert told.reason is not None
    assert words in told.reason
    for curve in told.curves.values():
        lost = [reason for value, reason in zip(curve.theta, curve.reason, strict=True) if value is None]
        assert all(lost)


def test_ranks_that_nothing_ties_have_none() -> None:
    up = np.zeros((1, 4, 4))
    up[0, 0, 1], up[0, 1, 0], up[0, 2, 3], up[0, 3, 2] = 8, 4, 9, 3
    assert np.isnan(likelihood.swaps(up)[0]).tolist() == [False, False, True, True]
    value, spread = likelihood.smooth(up, np.full(4, 9.0), np.ones((4, 4), bool))
    assert np.isnan(value).tolist() == np.isnan(np.diag(spread)).tolist() == [False, False, True, True]


def spread_out(theta: Any, size: Any, buckets: int = 50) -> Any:
    """Evidence of shuffled pages: clicks at ranks and, of the same pages, at rank 1, dealt out to buckets."""
    rng = np.random.default_rng(0)
    up = np.zeros((buckets, len(theta), len(theta)))
    up[:, 1:, 0] = rng.poisson(np.asarray(theta)[1:] * np.asarray(size)[1:] / buckets, (buckets, len(theta) - 1))
    up[:, 0, 1:] = rng.poisson(np.asarray(size)[1:] / buckets, (buckets, len(theta) - 1))
    return up


def test_many_clicks_are_not_drawn_to_neighbours_and_few_are() -> None:
    theta, star = np.array([1, 0.5, 0.1, 0.4]), likelihood.looked_at("pivot", 4)  # rank 3 is odd
    many = spread_out(theta, np.full(4, 40_000))
    value, spread = likelihood.smooth(many, many[:, :, 0].sum(axis=0), star)
    assert value == pytest.approx(likelihood.pivot(many.sum(axis=0)[None])[0], abs=0.02)
    error = np.sqrt(np.diag(spread))
    few = spread_out(theta, [40_000, 40_000, 20, 40_000])
    clicks = few[:, :, 0].sum(axis=0)
    assert clicks[2] < 10
    thin, thin_spread = likelihood.smooth(few, clicks, star)
    alone = likelihood.pivot(few.sum(axis=0)[None])[0]
    assert alone[2] + 0.1 < thin[2] < -0.5
    assert thin[3] == pytest.approx(alone[3], abs=0.02)
    assert np.sqrt(thin_spread[2, 2]) > 5 * error[2]


def test_a_rank_without_clicks_has_a_wide_interval_below_its_neighbours() -> None:
    up = spread_out([1, 0.3, 0.0, 0.1, 0.1], np.full(5, 60))
    value, spread = likelihood.smooth(up, up[:, :, 0].sum(axis=0), likelihood.looked_at("pivot", 5))
    assert up[:, 2, 0].sum() == 0
    assert value[2] < value[1] - 0.3
    assert 0.3 < np.sqrt(spread[2, 2]) < 0.9


def test_roughness_of_a_line_is_none_and_of_a_step_by_hand() -> None:
    """Steps u = d / sqrt(gap) of ranks 1, 2, 4 with gaps log 2: (0, -1, -1) has u = (-1, 0) / sqrt(log 2)."""
    rough = likelihood.roughness(np.array([1, 2, 4]))
    line, step = -0.7 * np.log([1, 2, 4]), np.array([0.0, -1.0, -1.0])
    assert line @ rough @ line == pytest.approx(0.0, abs=1e-12)
    assert step @ rough @ step == pytest.approx(1 / math.log(2) - (1 / math.sqrt(2 * math.log(2))) ** 2)


def test_the_test_of_differences_keeps_its_level() -> None:
    rng, draws, low = np.random.default_rng(0), likelihood.draw_buckets(100), 0
    for _ in range(200):
        values = rng.normal(size=(100, 5))
        p = likelihood.difference_test(values.mean(axis=0), draws @ values / 100, 100)
        low += p is not None and p < 0.05
    assert 2 <= low <= 20


def test_everything_goes_into_json(found: Evidence) -> None:
    told = found.to_dict()
    assert told["chosen"] == "shuffled"
    assert len(told["coverage"]["documents"]) == 6
    assert told["curves"]["swaps"]["lower"][0] == told["curves"]["swaps"]["upper"][0] == 1.0
    assert told["contexts"][0]["one_curve"] is True


def test_a_log_that_is_learned_from_again_is_not_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = unskew.make_lists(queries=20, features=4, documents=6, seed=0)
    log = unskew.simulate(lists, pages=2000, randomized=0.5, seed=0)
    monkeypatch.setattr(counted, "_KEPT", {})
    curve, _ = chosen_curve(log)
    assert curve is not None
    with monkeypatch.context() as patch:
        patch.setattr(counted, "open_tables", None)  # nothing is counted from here on
        assert chosen_curve(replace(log, row=log.row.copy()))[0] == curve
    fewer = np.where((log.position == 2) & (np.arange(len(log.row)) % 2 == 0), 0, log.click).astype(np.uint8)
    less, _ = chosen_curve(replace(log, click=fewer))
    assert less is not None
    assert less.values[1] < 0.7 * curve.values[1]
    unmarked = chosen_curve(replace(log, randomized=np.zeros(len(log.row), bool)))[0]
    assert (curve.source, unmarked and unmarked.source) == ("shuffled", "swaps")
