"""What a ranking is worth by logged clicks: places, sums in any cut, estimates by hand and on average."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn_pages import pages_by_rank
from hypothesis import given, settings
from hypothesis import strategies as st

import unskew
from unskew.errors import DataError
from unskew.examination import Examination
from unskew.measuring import Judge, LoggedPages, examination_of, places, shown_places
from unskew.measuring.counterfactual.contract import Reading, ratios
from unskew.measuring.counterfactual.evidence import GainEstimate
from unskew.measuring.counterfactual.judge import estimate
from unskew.measuring.counterfactual.sums import MOST, ClusterSums

D = [1 / math.log2(1 + place) for place in range(1, 11)]
"""Discounts of places 1, 2, ..."""


def pages_of(rows, *, shuffled=(), clusters=None, chances=None):
    """Pages from (query, [(document, click), ...]), in the order shown; `shuffled` are numbers of pages."""
    sizes = [len(results) for _, results in rows]
    flat = [pair for _, results in rows for pair in results]
    return LoggedPages(
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        position=np.concatenate([np.arange(1, size + 1) for size in sizes]),
        click=np.array([float(click) for _, click in flat]),
        shuffled=np.repeat([number in shuffled for number in range(len(rows))], sizes),
        query=np.array([query for query, _ in rows]),
        document=np.array([document for document, _ in flat]),
        cluster=np.arange(len(rows)) if clusters is None else np.array(clusters),
        propensity=None if chances is None else np.array(chances),
    )


def judged(pages, new, other=None, **asked):
    judge = Judge(**asked)
    judge.add(pages, np.asarray(new), shown_places(pages) if other is None else np.asarray(other))
    return judge.finish()


def drawn_pages(seed, queries=30, pages=600, ranks=5, shuffled=0.3):
    """Pages of a position-based user: relevance by document, theta 1/k, the same order but for shuffled pages."""
    rng = np.random.default_rng(seed)
    relevance = rng.uniform(0.1, 0.9, (queries, ranks))
    query = rng.integers(queries, size=pages)
    random = rng.random(pages) < shuffled
    return pages_by_rank(rng, relevance, query, np.arange(ranks), random, query), relevance.ravel()


def test_places_go_by_score_then_document_never_by_rank() -> None:
    pages = pages_of([(0, [(4, 0), (2, 1), (3, 0)]), (1, [(9, 0)])])
    assert places(np.array([0.0, 0.0, 1.0, 5.0]), pages).tolist() == [3, 2, 1, 1]
    with pytest.raises(DataError, match="missing"):
        places(np.array([0.0, np.nan, 1.0, 5.0]), pages)


def test_places_of_very_uneven_pages_are_those_of_padded_ones() -> None:
    rng = np.random.default_rng(0)
    long = [(0, [(k, 0) for k in range(200)])] + [
        (1 + k, [(500 + 2 * k, 0), (501 + 2 * k, 0)]) for k in range(300)
    ]
    uneven, even = pages_of(long), pages_of(long[1:])
    scores = rng.integers(0, 3, 800).astype(float)
    assert places(scores, uneven)[200:].tolist() == places(scores[200:], even).tolist()


def test_a_shuffled_page_is_held_against_the_usual_order() -> None:
    rows = [(0, [(1, 0), (2, 0), (3, 0)]), (0, [(3, 1), (1, 0), (2, 0)]), (1, [(8, 0), (7, 1)])]
    pages = pages_of(rows, shuffled={1, 2})
    assert shown_places(pages).tolist() == [1, 2, 3, 3, 1, 2, 0, 0]


def test_direct_and_raw_clicks_by_hand() -> None:
    rows = [(0, [(1, 1), (2, 0)]), (0, [(2, 1), (1, 0)])] * 20
    pages = pages_of(rows, shuffled=set(range(1, 40, 2)))
    found = judged(pages, [2, 1, 1, 2] * 20)  # document 2 first
    direct, raw = found["direct"], found["clicks"]
    assert (direct.new, direct.other) == pytest.approx((D[0], D[1]))  # shuffled pages click 2
    assert (raw.new, raw.other) == pytest.approx((D[1], D[0]))
    assert direct.interval == pytest.approx((D[0] - D[1],) * 2)
    assert (found.verdict, found.decided_by) == ("better", ("direct",))


def test_at_random_counts_the_mean_over_all_places() -> None:
    rows = [(query, [(2 * query, 1), (2 * query + 1, 0)]) for query in range(30)]
    found = judged(pages_of(rows, shuffled=set(range(30))), [1, 2] * 30)["direct"]
    assert (found.new, found.other) == pytest.approx((1.0, (D[0] + D[1]) / 2))


def test_weighted_clicks_by_hand() -> None:
    rows = [(0, [(1, 1), (2, 0), (3, 1)])] * 12 + [(0, [(1, 0), (2, 1), (3, 0)])] * 12
    pages = pages_of(rows)
    curve = Examination.of(np.array([1.0, 0.5, 0.04]), "file")
    found = judged(pages, [3, 2, 1] * 24, examination=curve)
    new = (12 * D[2] + 12 * 25 * D[0] + 12 * 2 * D[1]) / 24
    other = (12 * D[0] + 12 * 25 * D[2] + 12 * 2 * D[1]) / 24
    assert (found["ips"].new, found["ips"].other) == pytest.approx((new, other))
    assert found["ips"].effective == pytest.approx((12 + 12 * 25 + 24) ** 2 / (12 + 12 * 625 + 48))
    clipped = (12 * D[2] + 12 * 10 * D[0] + 12 * 2 * D[1]) / 24
    assert found["clipped"].new == pytest.approx(clipped)
    assert found["clipped"].overlap == pytest.approx((12 + 120 + 24) / (12 + 300 + 24))
    assert found["snips"].new == pytest.approx(24 * new / (12 + 300 + 24))


def test_expected_clicks_move_a_click_to_its_new_rank() -> None:
    pages = pages_of([(0, [(1, 0), (2, 1)])] * 30)
    curve = Examination.of(np.array([1.0, 0.5]), "file")
    found = judged(pages, [2, 1] * 30, examination=curve, metric="clicks")["ips"]
    assert (found.new, found.other) == pytest.approx((2.0, 1.0))


def test_without_examination_or_shuffled_pages_there_is_no_number_but_a_reason() -> None:
    found = judged(pages_of([(0, [(1, 0), (2, 1)])] * 30), [2, 1] * 30)
    assert found["ips"].difference is None
    assert "examination" in found["ips"].reason
    assert found["direct"].difference is None
    assert "shuffled" in found["direct"].reason
    assert found.verdict == "cannot tell"


def test_examination_is_measured_on_shuffled_pages() -> None:
    pages, relevance = drawn_pages(1, queries=40, pages=40_000, shuffled=0.5)
    found = judged(pages, places(relevance[pages.document], pages), examination=examination_of(pages))["ips"]
    truth = relevance.reshape(-1, 5)
    best = (-np.sort(-truth, axis=1) * D[:5]).sum(axis=1).mean()
    assert found.new == pytest.approx(best, rel=0.03)
    assert found.other == pytest.approx((truth * D[:5]).sum(axis=1).mean(), rel=0.03)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000))
def test_a_ranking_against_itself_is_0_without_doubt(seed: int) -> None:
    pages, _ = drawn_pages(seed, pages=200)
    place = places(np.random.default_rng(seed).random(150)[pages.document], pages)
    found = judged(pages, place, place)
    assert all(one.difference == 0 and one.interval == (0, 0) for one in found.estimates if not one.reason)
    assert found.verdict == "cannot tell"
    assert "alike" in found.sentence


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000), st.integers(1, 29))
def test_any_cut_by_queries_and_any_order_of_pages_say_the_same(seed: int, cut: int) -> None:
    pages, _ = drawn_pages(seed, pages=300)
    rng = np.random.default_rng(seed)
    score = rng.random(150)
    whole = judged(pages, places(score[pages.document], pages))
    judge = Judge()
    for some in (pages.query < cut, pages.query >= cut):
        part = pages.take(rng.permutation(np.flatnonzero(some)))
        judge.add(part, places(score[part.document], part), shown_places(part))
    for one, other in zip(whole.estimates, judge.finish().estimates, strict=True):
        assert one.reason == other.reason
        if not one.reason:
            assert (one.difference, *one.interval) == pytest.approx((other.difference, *other.interval), abs=1e-9)


def test_many_clusters_become_buckets_whatever_the_order() -> None:
    rng = np.random.default_rng(0)
    ids, values = rng.integers(0, 10**9, 5000), rng.random((5000, 2))
    one, other = ClusterSums(), ClusterSums()
    one.add(one.number(ids), values)
    for some in np.array_split(rng.permutation(5000), 7):
        other.add(other.number(ids[some]), values[some])
    assert len(one.ids) == len(other.ids) <= MOST
    np.testing.assert_allclose(one.sums, other.sums)
    np.testing.assert_allclose(one.sums.sum(axis=0), values.sum(axis=0))


@pytest.mark.parametrize("uneven", [0.0, 1.0, 2.0])
def test_intervals_hold_where_a_few_clusters_hold_most(uneven: float) -> None:
    """Nothing is gained in truth, cluster k counts k^-uneven as much as the first: neither side is 0 too often."""
    rng, weight = np.random.default_rng(3), np.arange(1, 61.0) ** -uneven
    missed = {1: 0, -1: 0}
    reading = Reading(GainEstimate("direct", "", "random", ""), ratios(0, 1, 2), 2)
    for seed in range(400):
        sums = ClusterSums()
        sums.add(np.arange(60), np.stack([weight * rng.standard_normal(60), 0 * weight, weight], axis=1))
        found, _ = estimate(reading, sums.sums, sums.draw(seed, 200), 0.95)
        if found.sign:
            missed[found.sign] += 1
    assert max(missed.values()) <= 0.025 * 400 + 6  # and two standard errors
    assert uneven or min(missed.values()) > 0  # an interval that never misses would be too wide


def test_item_position_by_hand() -> None:
    # document 1 is clicked at rank 1 in half of its displays and at rank 2 in a quarter; 2 in a quarter, never
    top = [(0, [(1, 1), (2, 0)]), (0, [(1, 0), (2, 0)])] * 40
    turned = [(0, [(2, 1), (1, 0)]), (0, [(2, 0), (1, 1)]), (0, [(2, 0), (1, 0)]), (0, [(2, 0), (1, 0)])] * 10
    found = judged(pages_of(top + turned), [2, 1] * 80 + [1, 2] * 40)["item-position"]  # 2 first on every page
    assert found.new == pytest.approx(0.25 + 0.25)
    assert found.other == pytest.approx((40 * 0.5 + 20 * (0.25 + 0.25)) / 60)
    assert found.overlap == 1.0
    assert found.effective == pytest.approx(240**2 / (40 * 2 * 3**2))  # displays at the places weigh 120 / 40


def test_logged_chances_are_taken_where_there_are_any() -> None:
    rows = [(number, [(2 * number, number % 2), (2 * number + 1, 0)]) for number in range(180)]
    chances = [0.25, 0.25] * 90 + [1.0, 1.0] * 90  # on the second half nothing was left to chance
    found = judged(pages_of(rows, chances=chances), [1, 2] * 60 + [2, 1] * 120, [1, 2] * 180)["item-position"]
    assert (found.new, found.other) == pytest.approx((4 * 30 / 90, 45 / 90))


def test_a_place_that_the_log_lacks_has_no_number() -> None:
    found = judged(pages_of([(0, [(1, 1), (2, 0)])] * 40), [2, 1] * 40)["item-position"]
    assert found.difference is None
    assert found.overlap is None
    assert "0% of what moves" in found.reason


def test_doubly_robust_by_hand() -> None:
    rows = [(0, [(1, 1), (2, 0)])] * 30 + [(0, [(2, 1), (1, 0)])] * 10
    pages, curve = pages_of(rows), Examination.of(np.array([1.0, 0.5]), "file")
    found = judged(pages, [2, 1] * 30 + [1, 2] * 10, examination=curve)["dr"]

    def model(own_click, own_theta, clicks, seen):  # from all other pages, pulled towards the mean of the query
        mean = (40 - 1) / (60 - 1.5)
        return (clicks - own_click + 2 * mean) / (seen - own_theta + 2)

    total = 0.0
    for pages_with, click, place, rank, clicks, seen, weight in (
        (30, 1, 2, 1, 30, 35, 0.0),  # document 1 at rank 1: it was examined 30 + 10 / 2 times
        (30, 0, 1, 2, 10, 25, 0.0),
        (10, 1, 1, 1, 10, 25, 4.0),  # document 2 at its place: 40 displays wanted there, 10 seen
        (10, 0, 2, 2, 30, 35, 4.0),
    ):
        relevance = model(click, 1 / rank, clicks, seen)
        total += pages_with * (relevance / place + weight * (click - relevance / rank))
    assert found.new == pytest.approx(total / 40)
    assert found.other == pytest.approx(1.0)  # what was shown got what it got


def test_pseudo_inverse_by_hand() -> None:
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    value = [[0.5, 0.2, 0.1], [0.4, 0.3, 0.0], [0.9, 0.1, 0.2]]  # of each document at each rank; any numbers
    rows = [(0, [(one, value[one][rank]) for rank, one in enumerate(order)]) for order in orders] * 20
    pages = pages_of(rows, shuffled=set(range(120)))
    place = np.array([2, 3, 1])  # of documents 0, 1, 2
    found = judged(pages, place[pages.document])["pseudo-inverse"]
    assert found.new == pytest.approx(value[0][1] + value[1][2] + value[2][0])
    assert found.other == pytest.approx(np.mean([sum(row) / 3 for row in value]) * 3)  # at random
    gamma = sum(np.outer(x, x) for x in map(as_cells, orders)) / 6
    weight = as_cells((2, 0, 1)) @ np.linalg.pinv(gamma) @ as_cells((2, 1, 0))
    assert weight == pytest.approx((3 - 1) * 1 - (3 - 2))  # one document stands where it should


def as_cells(order):
    """Which document stands where, as a vector."""
    cells = np.zeros((3, 3))
    cells[list(order), range(3)] = 1
    return cells.ravel()


def test_swapped_pairs_by_hand() -> None:
    # documents 1 and 2 at ranks 1 and 2: 40 pages with 1 on top, 20 of them clicked on 1, 8 on 2; 10 turned round
    top = [(0, [(1, int(n < 20)), (2, int(n < 8))]) for n in range(40)]
    turned = [(0, [(2, int(n < 6)), (1, int(n < 5))]) for n in range(10)]
    found = judged(pages_of(top + turned), [2, 1] * 40 + [1, 2] * 10, [1, 2] * 40 + [2, 1] * 10)["swaps"]
    on_2, on_1 = 8 * 10 / 50 + 6 * 40 / 50, 20 * 10 / 50 + 5 * 40 / 50
    assert (found.new, found.other) == pytest.approx((on_2 / (on_1 + on_2), on_1 / (on_1 + on_2)))
    assert found.overlap == 1.0
    alone = judged(pages_of(top), [2, 1] * 40)["swaps"]
    assert "both orders" in alone.reason


MEANT = {
    "direct": "flat",
    "pseudo-inverse": "clicks",
    "ips": "dcg",
    "item-position": "clicks",
    "dr": "clicks",
}
"""What each estimates, and what it takes for clicks of its users to be so."""


def test_estimates_are_right_on_average() -> None:
    """Mean over many logs against the truth, by the standard error of that mean."""
    queries, ranks = 12, 4
    theta = 1 / np.arange(1, ranks + 1)
    found = {name: [] for name in MEANT}
    score = np.random.default_rng(5).random(queries * ranks)
    relevance = np.random.default_rng(3).uniform(0.1, 0.9, (queries, ranks))
    place = np.argsort(np.argsort(-score.reshape(queries, ranks), axis=1), axis=1)
    for seed in range(60):
        pages = chance_pages(seed, relevance, pages=1500)
        judge = Judge(examination=Examination.of(theta, "file"))
        judge.add(pages, places(score[pages.document], pages), shown_places(pages))
        evidence = judge.finish()
        for name, values in found.items():
            values.append(evidence[name].difference)
    disc = np.array(D[:ranks])
    gain = (disc[place] - disc) * relevance
    truth = {
        "dcg": gain.sum(axis=1).mean(),
        "flat": gain.sum(axis=1).mean() * theta.mean(),
        "clicks": ((theta[place] - theta) * relevance).sum(axis=1).mean(),
    }
    for name, values in found.items():
        error = np.std(values, ddof=1) / math.sqrt(len(values))
        assert abs(np.mean(values) - truth[MEANT[name]]) < 3.5 * error, name


def chance_pages(seed, relevance, pages):
    """Pages of users who look at rank k with 1/k; half of them are shuffled."""
    rng, (queries, ranks) = np.random.default_rng(seed), relevance.shape
    query = np.arange(pages) % queries
    random = rng.random(pages) < 0.5
    return pages_by_rank(rng, relevance, query, np.arange(ranks), random, query)


def test_another_library_says_the_same_of_a_bandit_log() -> None:
    """IPS, self-normalised IPS, doubly robust of the Open Bandit Pipeline, written by experiments/bandits.py."""
    log = json.loads((Path(__file__).resolve().parents[1] / "samples" / "bandit.json").read_text())
    ranks, pages = log["ranks"], len(log["query"])
    logged = LoggedPages(
        offsets=np.arange(pages + 1) * ranks,
        position=np.tile(np.arange(1, ranks + 1), pages),
        click=np.array(log["click"], float),
        shuffled=np.zeros(pages * ranks, bool),
        query=np.array(log["query"]),
        document=np.arange(pages * ranks),
        cluster=np.arange(pages),
        propensity=np.array(log["chance"]),
    )
    found = judged(logged, log["place"], examination=Examination.of(np.array(log["theta"]), "file"))
    assert {name: found[name].new for name in log["obp"]} == pytest.approx(log["obp"], abs=1e-9)


@pytest.fixture(scope="module")
def log():
    lists = unskew.make_lists(queries=30, features=4, documents=5, seed=0)
    return unskew.simulate(lists, "position", pages=60, cutoff=4, randomized=0.2, logger="random", seed=0)


def test_pages_of_a_log_and_what_is_drawn_again(log) -> None:
    pages = LoggedPages.from_log(log)
    assert pages.cluster.tolist() == log.query.tolist()  # ids of the queries are their numbers here
    assert (pages.document == log.row).all()
    assert pages.shuffled.sum() == log.randomized.sum() > 0
    visit = np.repeat([f"v{page // 2}" for page in range(60)], log.sizes)
    visits = LoggedPages.from_log(replace(log, columns={"visit_id": visit})).cluster
    assert len(np.unique(visits)) == 30
    later = replace(log.take(np.arange(10, 60)), columns={"visit_id": visit[log.offsets[10] :]})
    assert LoggedPages.from_log(later).cluster.tolist() == visits[10:].tolist()  # the same in every part of a log
    few = log.take(log.query < 5)
    assert len(np.unique(LoggedPages.from_log(few).cluster)) == len(few)  # few queries: pages are drawn again
    with pytest.raises(DataError, match="names no visits"):
        LoggedPages.from_log(log, cluster="visit")
    person = np.where(np.arange(60) < 40, np.array([f"u{page // 5}" for page in range(60)], object), None)
    people = {"visit_id": visit, "user_id": np.repeat(person, log.sizes)}
    users = LoggedPages.from_log(replace(log, columns=people)).cluster
    assert len(np.unique(users)) == 8 + 20  # a page that tells no user is one by itself


def test_a_chance_that_is_none_is_refused(log) -> None:
    with pytest.raises(DataError, match="column propensity"):
        LoggedPages.from_log(replace(log, columns={"propensity": np.zeros(len(log.row))}))
