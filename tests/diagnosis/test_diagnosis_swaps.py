"""Matrix, trust, factors, co-clicks and the graph over ranks, by hand and on worlds whose truth is known."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.helpers.uncleaned import open_tables
from unskew.diagnosis.curves.co_clicks import co_clicks
from unskew.diagnosis.curves.factors import factors
from unskew.diagnosis.curves.matrix import LevelSums, click_matrix, levels_of, read_labels
from unskew.diagnosis.curves.ordering import rank_by_features
from unskew.diagnosis.curves.trust import trust
from unskew.diagnosis.diagnosis import conclude
from unskew.diagnosis.evidence.evidence import evidence
from unskew.diagnosis.evidence.links import rank_graph, resistance
from unskew.diagnosis.evidence.pairs import SwapPairs, fit_within, rank_design, read_pairs
from unskew.diagnosis.verdicts.verdict import verdicts
from unskew.simulation import FeatureLogger, PositionBias, TrustBias, WholePage, simulate
from unskew.simulation.synthetic import make_lists
from unskew_reproductions.behaviours import IndividualBias, Mixture

PEOPLE = {
    "position": PositionBias(),
    "trust": TrustBias(),
    "mixture": Mixture(),
    "individual": IndividualBias(severity=1.0, choose="random"),
    "page": WholePage(),
}


PRESENT = {
    "position": {"position"},
    "trust": {"position", "trust"},
    "mixture": {"position", "people"},
    "individual": {"position", "documents"},
    "page": {"position", "page"},
}


@pytest.fixture(scope="module")
def worlds():
    """What every part of the diagnosis found in every world."""
    lists, found = make_lists(queries=150, features=20, documents=14, seed=1), {}
    for name, people in PEOPLE.items():
        log = simulate(lists, people, pages=20_000, cutoff=10, randomized=0.5, seed=3, logger="random")
        coin = np.random.default_rng(0).integers(0, 2, len(log.row))
        log.columns["serp_coin"] = np.array(["heads", "tails"])[coin]
        segments = ["serp_coin", "serp_media"] if name == "page" else ["serp_coin"]
        with open_tables(log, segments=segments) as tables:
            found[name] = {
                "evidence": evidence(tables),
                "matrix": click_matrix(tables, draws=99),
                "trust": trust(tables),
                "factors": factors(tables),
                "together": co_clicks(tables),
            }
    return found


def table(rows):
    names = ("page_id", "query_id", "doc_id", "position", "click")
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})


def test_two_ranks_shown_equally_often_have_the_ratio_of_their_clicks():
    shown = np.array([[10.0, 10.0], [4.0, 4.0], [7.0, 7.0]])
    clicks = np.array([[6.0, 2.0], [1.0, 1.0], [0.0, 1.0]])
    fit = fit_within(SwapPairs(shown, clicks, np.arange(3), 3), rank_design(2, np.arange(2)))
    assert fit.b[0] == pytest.approx(math.log(4 / 7))
    share = 4 / 11
    assert fit.information[0, 0] == pytest.approx(11 * share * (1 - share))
    left = [2 - 8 * share, 1 - 2 * share, 1 - share]
    meat = sum(value**2 for value in left) * 3 / 2
    assert np.sqrt(fit.covariance[0, 0]) == pytest.approx(math.sqrt(meat) / (11 * share * (1 - share)))


def test_halves_deal_out_every_display_and_click_once():
    rng = np.random.default_rng(0)
    shown = rng.integers(0, 9, (50, 4)).astype(float)
    clicks = rng.binomial(shown.astype(int), 0.4).astype(float)
    one, other = SwapPairs(shown, clicks, np.arange(50), 50).halves(1)
    assert np.array_equal(one.shown + other.shown, shown)
    assert np.array_equal(one.clicks + other.clicks, clicks)
    assert (one.clicks <= one.shown).all()
    assert (other.clicks <= other.shown).all()
    assert abs(one.shown - other.shown).max() <= 1


def test_resistance_of_a_chain_adds_up_and_parts_are_infinitely_far():
    chain = np.array([[2.0, -2, 0, 0], [-2, 6, -4, 0], [0, -4, 4, 0], [0, 0, 0, 0]])
    found = resistance(chain)
    assert found[0, 2] == pytest.approx(1 / 2 + 1 / 4)
    assert np.isinf(found[0, 3])


def test_examination_within_pairs_is_that_of_the_world_and_json_holds_it(worlds):
    found = worlds["position"]["evidence"]
    assert found.linked
    assert found.graph.components == (tuple(range(1, 11)),)
    assert found.flat < 1e-6
    truth = np.array(PositionBias().curve) / PositionBias().curve[0]
    inside = [low <= value <= high for value, (low, high) in zip(truth, found.examination.interval, strict=True)]
    assert sum(inside) >= 9
    assert json.loads(found.to_json())["curves"]["swaps"]["examination"][0] == 1.0


def test_a_log_without_swaps_is_not_connected_and_gets_a_plan():
    rng = np.random.default_rng(0)
    rows = [
        (page, page % 20, f"d{rank}", rank, int(rng.random() < 0.4 / rank))
        for page in range(400)
        for rank in (1, 2, 3)
    ]
    with open_tables(table(rows)) as tables:
        seen = evidence(tables)
        found = rank_graph(tables, seen.examination, seen.reason, precision=0.2)
        assert click_matrix(tables).reason
        assert trust(tables).reason
        assert factors(tables).reason
    assert not found.connected
    assert seen.examination.theta == (1.0, None, None)
    assert "two ranks" in found.reason
    assert [swap.ranks for swap in found.plan.swaps] == [(1, 2), (2, 3)]
    clicks = np.array([[row[4] for row in rows if row[3] == rank] for rank in (1, 2, 3)]).mean(1)
    each = clicks[0] * clicks[1] / (clicks[0] + clicks[1])
    assert found.plan.swaps[0].pages == math.ceil(1 / (0.2**2 * each * (1 - 20 / 400)))


def test_the_pages_of_a_plan_give_its_precision():
    """Swapping two ranks for as many pages as are asked for gives the standard error that was asked for."""
    rng = np.random.default_rng(1)

    def page(number, swapped):
        worth = (0.5, 0.3)
        order = (1, 0) if swapped else (0, 1)
        return [
            (number, number % 10, f"d{one}", rank + 1, int(rng.random() < worth[one] * (1.0, 0.5)[rank]))
            for rank, one in enumerate(order)
        ]

    with open_tables(table([row for number in range(500) for row in page(number, False)])) as tables:
        pages = rank_graph(tables, evidence(tables).examination).plan.pages
    swaps = [row for number in range(pages) for row in page(number, rng.random() < 0.5)]
    with open_tables(table(swaps)) as tables:
        fit = fit_within(read_pairs(tables), rank_design(2, np.arange(2)))
        low, high = evidence(tables).examination.interval[1]
    assert np.sqrt(fit.covariance[0, 0]) == pytest.approx(0.1, rel=0.4)
    assert (math.log(high) - math.log(low)) / (2 * 1.96) == pytest.approx(0.1, rel=0.6)


def test_rank_one_holds_under_the_examination_hypothesis_and_not_under_trust(worlds):
    plain, trusting = (worlds[name]["matrix"] for name in ("position", "trust"))
    assert plain.p > 0.01
    assert plain.d == 1
    assert trusting.p == pytest.approx(0.01)
    assert trusting.d > 1
    assert trusting.second > plain.second
    assert trusting.flatter_interval[0] > 0
    assert len(plain.rates) == len(plain.levels)
    assert all(len(row) == len(plain.ranks) for row in plain.rates)
    first = [row[0] for row in plain.rates]
    assert first == sorted(first)


def test_levels_from_labels_are_plain_rates():
    rng = np.random.default_rng(0)
    label, rank = rng.integers(0, 3, 30_000), rng.integers(1, 4, 30_000)
    click = rng.random(30_000) < (label + 1) / 4 / rank
    columns = {"page_id": np.arange(30_000), "query_id": label, "doc_id": label, "position": rank}
    made = pa.table({**columns, "click": click.astype(int), "label": label})
    with open_tables(made) as tables:
        found = click_matrix(tables, labels=read_labels(tables), draws=99)
    assert found.levels == ("0", "1", "2")
    assert found.p > 0.01
    assert found.by == "labels"
    assert found.rates[2][0] == pytest.approx(click[(label == 2) & (rank == 1)].mean(), rel=0.02)


def test_sums_of_levels_are_the_formulas_and_draws_have_their_means():
    shown = np.array([[2.0, 1.0], [1.0, 0.0], [1.0, 3.0], [0.0, 0.0]])
    pairs = SwapPairs(shown, np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), np.arange(4), 4)
    cells, clicks = LevelSums.of(pairs, np.array([1, 0, 1, 1]))
    theta = np.array([1.0, 0.5])
    due = {0: [1.0, 0.0], 1: [1 * 2 / 2.5 + 2 * 1 / 2.5, 1 * 0.5 / 2.5 + 2 * 1.5 / 2.5]}
    assert cells.by_level(cells.expected(clicks, theta)).tolist() == [pytest.approx(due[0]), pytest.approx(due[1])]
    information = due[1][0] - (
        1 * (2 / 2.5) ** 2 + 2 * (1 / 2.5) ** 2
    )  # of rank 1, which is all but that of rank 2
    assert cells.excess(clicks, theta) == pytest.approx((1 - due[1][0]) ** 2 / information)
    assert cells.rates(clicks, theta)[1, 0] == pytest.approx(3 / (3 + 4 * 0.5) * 1 / due[1][0])
    rng, chance = np.random.default_rng(0), np.array([0.5, 0.25, 0.75, 0.5, 0.2])
    drawn = np.mean([cells.draw(chance, rng) for _ in range(4000)], axis=0)
    assert drawn.ravel()[cells.cells] == pytest.approx(cells.shown.ravel()[cells.cells] * chance, abs=0.05)


def test_equal_worth_is_one_level():
    level, count = levels_of(np.zeros(5), np.ones(5), 4)
    assert count == 1
    assert not level.any()


def test_a_click_at_the_top_means_less_where_the_top_is_trusted(worlds):
    plain, trusting = worlds["position"]["trust"], worlds["trust"]["trust"]
    assert abs(plain.slope) < 3 * plain.slope_error
    assert trusting.slope > 5 * trusting.slope_error
    alpha, _ = TrustBias().affine(2)
    low, high = trusting.alpha_interval[1]
    assert low < alpha[1] / alpha[0] < high
    assert plain.alpha[0] == 1.0


def test_documents_that_differ_in_their_curves_are_told_from_trust(worlds):
    found = {name: worlds[name]["trust"] for name in ("position", "trust", "individual")}
    z = {name: one.documents / one.documents_error for name, one in found.items()}
    assert z["individual"] > 3.5
    assert z["position"] < 3
    assert z["trust"] < 3


def test_clicks_of_a_page_hang_together_where_people_are_of_several_kinds(worlds):
    mixed, plain = worlds["mixture"]["together"], worlds["position"]["together"]
    assert mixed.lower > 3 * mixed.lower_error
    assert abs(plain.lower) < 3 * plain.lower_error
    assert np.allclose(np.diag(mixed.matrix), 1.0)


def test_media_change_clicks_and_a_coin_does_not(worlds):
    coin, media = worlds["page"]["factors"].factors
    assert coin.p > 0.01
    assert media.p < 1e-6
    assert media.effect[media.values.index("text")] < media.effect[media.values.index("video")] / 2


@pytest.mark.parametrize("name", PEOPLE)
def test_verdicts_name_the_biases_of_a_world_and_no_other(worlds, name):
    said = {one.key: one for one in verdicts(**worlds[name])}
    assert {key for key, one in said.items() if one.state == "present"} - {"trust"} == PRESENT[name] - {"trust"}
    # of a mixture those who click by rank alone are as good as trust, if weak
    assert name == "mixture" or (said["trust"].state == "present") is (name == "trust")
    assert said["people"].state == ("present" if name == "mixture" else "absent")
    assert all(one.evidence and one.advice.text for one in said.values())
    json.dumps([one.to_dict() for one in said.values()])


def test_a_whole_graph_makes_relevance_recoverable_and_trust_rules_out_plain_methods(worlds):
    ends = conclude(verdicts(**worlds["trust"]), worlds["trust"]["evidence"])
    holds = {method: one.holds for one in ends.methods for method in one.methods}
    assert ends.recoverable == "yes"
    assert holds["dla"] is False
    assert holds["affine"] is not False
    assert any("affine" in step.text for step in ends.next)
    assert json.loads(json.dumps(ends.to_dict()))["next"][0]["text"] == ends.next[0].text


def with_interval(found, low, high):
    """The evidence with a flat curve, and these intervals."""
    curve = replace(found.examination, theta=(1.0,) * 10, lower=(low,) * 10, upper=(high,) * 10)
    return replace(found, curves={**found.curves, found.chosen: curve}, flat=0.5)


def test_a_log_without_bias_is_told_not_to_be_debiased(worlds):
    flat = with_interval(worlds["position"]["evidence"], 0.95, 1.05)
    said = verdicts(**worlds["position"] | {"evidence": flat})
    ends = conclude(said, flat)
    assert said[0].state == "absent"
    assert ends.recoverable == "yes"
    assert "do not debias" in ends.next[0].text


def test_wide_intervals_are_not_taken_for_absence(worlds):
    parts = worlds["position"]
    graph = with_interval(parts["evidence"], 0.5, 2.0)
    wide = replace(parts["trust"], slope=0.0, slope_error=0.2, documents=0.0, documents_error=0.2)
    pages = replace(parts["together"], lower=0.0, lower_error=0.1)
    said = verdicts(graph, parts["matrix"], wide, parts["factors"], pages)
    assert [one.state for one in said if one.key != "page"] == ["cannot tell"] * 4


def test_without_shuffled_pages_swaps_tell_of_trust(worlds):
    missing = {name: replace(parts["trust"], slope=None, documents=None) for name, parts in worlds.items()}
    said = {
        name: {one.key: one.state for one in verdicts(**worlds[name] | {"trust": missing[name]})}
        for name in ("position", "trust")
    }
    assert said["position"]["trust"] != "present"
    assert said["position"]["documents"] == "cannot tell"


def test_features_tell_the_rank_of_a_ranker_and_not_of_shuffled_pages():
    lists = make_lists(queries=60, features=8, documents=10, seed=2)
    ranked = simulate(lists, "position", pages=300, logger=FeatureLogger(column=0), seed=0)
    shuffled = simulate(lists, "position", pages=300, randomized=1.0, logger="random", seed=0)

    def told(log):
        with open_tables(log) as tables:
            return rank_by_features(tables, lists)

    found = told(ranked)
    assert found.r2 > 0.5
    assert found.correlation > 0.9
    mixed = told(shuffled)
    assert mixed.r2 < 0.1
    assert abs(mixed.correlation) < 0.2
    assert told(ranked.take(np.arange(3))).reason
