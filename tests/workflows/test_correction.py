"""Scores that begin as the engine: the prior by rank, the weights, clicks of pairs, and what carries them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.optimize import minimize

import unskew
from unskew.engine_prior import EnginePrior, factors, levels, strength
from unskew.examination import Examination
from unskew.learning.fitting.choices import QueryChoices, Shows
from unskew.learning.fitting.straight import habits, straight
from unskew.learning.scoring.combination import Combination, KnownPairs
from unskew.logs.log import write_log
from unskew.measuring import ndcg_metric
from unskew.serving.requests.bodies import BadRequest
from unskew.serving.requests.features import read_candidates
from unskew.serving.requests.parsing import read_request
from unskew.serving.scoring.models import Served
from unskew.types import Array, Lists, Log
from unskew.workflows.runs import run as runs
from unskew.workflows.runs.correction import Gains, gains_along, make_safe

THETA = (1.0, 0.7, 0.5, 0.4, 0.3, 0.25, 0.2, 0.17, 0.15, 0.13)
QUICK: dict[str, Any] = {"ranker": "linear", "steps": 60, "threads": 1, "engine": "auto"}


def engine_log(seed: int, *, engine: float, know: float, pages: int = 6000, moved: float = 0.15) -> Log:
    """Ten of 20 documents a page, in an order that moves a little; the engine knows u, features a part of it."""
    draw, queries, size = np.random.default_rng(seed), 150, 20
    x = draw.normal(size=(queries * size, 6))
    u = np.sqrt(know) * x[:, :3].sum(1) / np.sqrt(3) + np.sqrt(1 - know) * draw.normal(size=len(x))
    score = engine * u + np.sqrt(1 - engine**2) * draw.normal(size=len(x))
    grade = np.searchsorted(np.quantile(u, [0.55, 0.75, 0.88, 0.96]), u)
    asked = draw.choice(queries, size=pages, p=(p := 1 / np.arange(1, queries + 1) ** 0.8) / p.sum())
    order = np.argsort(-score.reshape(queries, size)[asked] - moved * draw.normal(size=(pages, size)), 1)[:, :10]
    row = asked[:, None] * size + order
    click = draw.random(row.shape) < np.array([0.02, 0.05, 0.1, 0.25, 0.5])[grade][row] * np.array(THETA)
    ids = np.array([f"d{number}" for number in range(len(x))], object)
    lists = Lists(
        x.astype(np.float32), np.arange(queries + 1) * size, grade.astype(np.int16), np.arange(queries), ids
    )
    position = np.tile(np.arange(1, 11), pages).astype(np.int16)
    return Log(lists, asked, np.arange(pages + 1) * 10, row.ravel(), position, click.ravel().astype(np.uint8))


def ndcg(scores: Array, lists: Lists) -> float:
    return float(np.nanmean(ndcg_metric(scores, lists.labels, offsets=lists.offsets, at=10)))


@pytest.fixture(scope="module")
def strong() -> Log:
    return engine_log(0, engine=0.97, know=0.6)


@pytest.fixture(scope="module")
def begun(strong: Log, tmp_path_factory: pytest.TempPathFactory) -> unskew.Run:
    return unskew.learn(strong, "additive", out=tmp_path_factory.mktemp("engine") / "run", **QUICK)


# ---- the prior ----


def test_relevance_by_rank_is_clicks_over_examination_and_never_rises() -> None:
    counts = np.array([1000.0, 1000.0, 1000.0]), np.array([200.0, 110.0, 20.0])
    prior = EnginePrior.of(*counts, Examination.of([1.0, 0.5, 0.2], "numbers"))
    half = 0.5 * 1700 / 330  # looks that bring half a click at the rate of the log
    rates = [clicks / (looks + half) for clicks, looks in ((200.5, 1000), (110.5, 500), (20.5, 200))]
    pool = (1000 * rates[0] + 500 * rates[1]) / 1500  # the second rank has more than the first
    steps, clicks = [math.log(each) for each in (pool, pool, rates[2])], (200.5, 110.5, 20.5)
    x = [math.log(rank) for rank in (1, 2, 3)]
    middle, level = (sum(c * each for c, each in zip(clicks, some, strict=True)) / 331.5 for some in (x, steps))
    slope = sum(c * (a - middle) * b for c, a, b in zip(clicks, x, steps, strict=True))
    slope /= sum(c * (a - middle) ** 2 for c, a in zip(clicks, x, strict=True))
    curve = [(b + level + slope * (a - middle)) / 2 for a, b in zip(x, steps, strict=True)]
    raw = [math.log(c / (1000 + 0.5 * 3000 / 330)) for c in clicks]  # of which a fifth is relevance at least
    falls = [min(curve[at + 1] - curve[at], 0.2 * (raw[at + 1] - raw[at])) for at in (0, 1)]
    wanted = [math.exp(each) for each in (curve[0], curve[0] + falls[0], curve[0] + sum(falls))]
    assert prior.relevance == pytest.approx(wanted, rel=1e-9)
    assert prior.relevance[0] > prior.relevance[1] > prior.relevance[2]
    trusting = EnginePrior.of(*counts, None, "nothing was moved")
    assert trusting.steepness > prior.steepness  # where examination is not known, the engine is trusted most


def test_where_examination_takes_all_the_order_still_tells_something() -> None:
    """People who leave after a click: what is left of clicks over examination is level, and engines are good."""
    shown, theta = np.full(10, 1e6), np.exp(-1.1 * np.arange(10))
    clicks = 0.9 * shown * theta
    prior = EnginePrior.of(shown, clicks, Examination.of(theta, "swaps"))
    assert prior.steepness == pytest.approx(math.exp(0.2 * 1.1 * 9), rel=0.01)


def test_examination_is_carried_on_by_a_power_of_the_rank_and_never_rises() -> None:
    theta = np.arange(1, 11) ** -0.8
    seen = Examination.of(theta, "swaps", lower=tuple(theta * 0.9), upper=tuple(theta * 1.1))
    assert seen.reaching(40).values == pytest.approx(np.arange(1, 41) ** -0.8, rel=1e-6)
    uneven = theta * np.array([1, 1, 1, 1, 1, 1.5, 1, 1, 1, 1])
    wide = Examination.of(uneven, "swaps", lower=tuple(uneven / 2), upper=tuple(uneven * 2)).reaching(10)
    assert np.all(np.diff(wide.values) <= 0)


def test_ranks_between_and_below_and_none() -> None:
    prior = EnginePrior((0.4, 0.2, 0.1), "numbers")
    found = prior.log_at(np.array([1.0, 1.5, 2.0, 3.0, 30.0, np.nan]))
    assert np.all(np.diff(found[:5]) < 0)
    assert found[1] == pytest.approx((found[0] + found[2]) / 2)
    assert found[3] - found[4] == pytest.approx((found[0] - found[3]) / np.log(3) * np.log(10))
    assert np.isnan(found[5])
    flat = EnginePrior((0.2, 0.2), "numbers").log_at(np.array([1.0, 2.0, 9.0]))
    assert np.all(np.diff(flat) < 0)  # before the first click the order is the one shown


def test_clicks_of_pairs_are_counted_from_the_level_of_their_query() -> None:
    """A query that is clicked three times as often as expected says nothing of its pairs."""
    lists = Lists(np.zeros((40, 1), np.float32), np.arange(11) * 4, np.zeros(40, np.int16), np.arange(10))
    lists = replace(lists, doc_ids=np.arange(40).astype(str), shown=np.tile([1.0, 2.0, 3.0, 4.0], 10))
    clicks = np.repeat(np.where(np.arange(10) % 2, 30.0, 10.0), 4)
    found = Shows(lists, np.arange(40), np.ones(40), clicks).pairs(np.zeros(40), clicks=True)
    assert found is not None
    assert np.abs(found.gains).max() < 0.05
    assert levels(clicks, np.full(40, 20.0), np.repeat(np.arange(10), 4))[[0, 4]] == pytest.approx([0.5, 1.5], 0.1)


def test_the_strength_of_factors_is_recovered() -> None:
    draw = np.random.default_rng(0)
    expected = draw.uniform(0.1, 5, 20_000)
    for true in (0.5, 4.0):
        clicks = draw.poisson(expected * draw.gamma(true, 1 / true, len(expected)))
        assert strength(clicks, expected) == pytest.approx(true, rel=0.1)
    assert strength(draw.poisson(expected), expected) > 100  # no factor at all
    assert factors(np.array([3.0]), np.array([1.0]), 1.0).tolist() == [2.0]


# ---- the weights ----


def test_weights_are_those_of_an_independent_optimiser() -> None:
    draw = np.random.default_rng(1)
    query = np.repeat(np.arange(30), 5)
    columns, exposure = draw.normal(size=(150, 2)), draw.uniform(0.5, 9, 150)
    clicks = draw.poisson(exposure * np.exp(columns @ [0.8, -0.3])).astype(float)
    choices, mean, deviation = (
        QueryChoices(columns, exposure, clicks, query),
        np.array([1.0, 0.0]),
        np.array([0.4, 0.2]),
    )

    def cost(weights: Array) -> float:
        total = -0.5 * (((weights - mean) / deviation) ** 2).sum()
        for number in range(30):
            own = query == number
            z = columns[own] @ weights + np.log(exposure[own])
            total += clicks[own] @ (z - np.log(np.exp(z).sum()))
        return -float(total)

    assert choices.fit(mean, deviation) == pytest.approx(minimize(cost, mean).x, abs=1e-4)
    assert -choices.value(np.array([0.3, 0.1]), mean, deviation) == pytest.approx(cost(np.array([0.3, 0.1])))
    step, at = 1e-4, np.array([0.7, 0.1])
    for column in np.eye(2):  # second derivatives by differences
        around = [cost(at + sign * step * column) for sign in (-1, 0, 1)]
        second = (around[0] - 2 * around[1] + around[2]) / step**2
        assert column @ choices.bend(at, deviation) @ column == pytest.approx(second, rel=1e-3)


def test_the_correction_is_believed_by_what_clicks_say_at_least() -> None:
    draw, query = np.random.default_rng(3), np.repeat(np.arange(60), 6)
    columns, exposure = draw.normal(size=(360, 2)), np.ones(360)

    def weights(pages: float, b: float) -> tuple[float, float]:
        clicks = draw.poisson(pages * np.exp(columns @ [0.9, b]) / 3).astype(float)
        return QueryChoices(columns, exposure, clicks, query).doubted()

    surely = weights(200.0, 0.5)
    assert surely == pytest.approx((0.9, 0.5), abs=0.05)
    assert surely[1] < 0.5
    assert 0 < weights(0.5, 0.5)[1] < 0.45
    nothing = [weights(0.5, 0.0) for _ in range(40)]
    assert sum(b > 0 for _, b in nothing) <= 6
    assert {a for a, b in nothing if b == 0} == {1.0}


def test_clicks_of_a_query_count_for_what_they_tell_where_its_pairs_differ_by_more() -> None:
    """Ten times the pages of a query tell hardly more of columns, if its pairs have ways of their own."""
    draw, query = np.random.default_rng(5), np.repeat(np.arange(200), 6)
    pages = np.where(query % 2, 100.0, 10.0)
    own, column = draw.gamma(2.0, 0.5, 1200), draw.normal(size=1200)
    clicks = draw.poisson(pages * own).astype(float)
    prior = np.zeros(1), np.ones(1)
    found = QueryChoices(column[:, None], pages, clicks, query).tempered(*prior)
    p, total = QueryChoices(column[:, None], pages, clicks, query).chances(found.fit(*prior))
    s = strength(clicks, total * p)
    assert 1.5 < s < 3.5  # of what is left beside the level of the query
    for number in (0, 1):
        here = query == number
        m = (total * p)[here]
        share = m.sum() / (m.sum() + (m**2).sum() / s)
        assert found.clicks[here] == pytest.approx(share * clicks[here], rel=0.01)
    alike = QueryChoices(column[:, None], pages, draw.poisson(pages).astype(float), query)
    assert alike.tempered(*prior).clicks.sum() == pytest.approx(alike.clicks.sum(), rel=0.05)


def test_the_spread_of_weights_is_that_which_makes_clicks_most_likely() -> None:
    """Of one column the marginal likelihood can be summed up over its weight."""
    draw, query = np.random.default_rng(9), np.repeat(np.arange(40), 6)
    column = draw.normal(size=(240, 1))
    clicks = draw.poisson(2 * np.exp(0.5 * column[:, 0])).astype(float)
    choices = QueryChoices(column, np.ones(240), clicks, query)
    grid = np.linspace(-2, 3, 4001)
    for deviation in (0.05, 0.3, 2.0):
        values = [choices.value(np.array([w]), np.zeros(1), np.array([deviation])) for w in grid]
        exact = np.log(np.exp(np.array(values) - max(values)).sum() * (grid[1] - grid[0])) + max(values)
        exact -= np.log(deviation) + np.log(2 * np.pi) / 2
        found, weights = choices.evidence(np.zeros(1), np.array([deviation]))
        assert found == pytest.approx(exact, abs=0.02)
        assert weights[0] == pytest.approx(grid[int(np.argmax(values))], abs=0.002)


def line_of(log: Log) -> tuple[Any, Log]:
    log = log.with_ranks()
    examination = Examination.of(THETA, "numbers")
    prior = EnginePrior.of(*_counts(log), examination)
    return straight(lambda some: some.features, log.lists.dim, log, prior, examination), log


def _counts(log: Log) -> tuple[Array, Array]:
    return np.bincount(log.position)[1:].astype(float), np.bincount(log.position, log.click)[1:]


def test_features_along_straight_lines_are_believed_by_queries_that_they_have_not_seen() -> None:
    found, log = line_of(engine_log(5, engine=0.5, know=0.95, pages=3000))
    assert found.weights is not None
    first, rest = found.weights[:3], found.weights[3:]
    assert min(first) > 3 * np.abs(rest).max()  # three features count, and alike
    assert max(first) < 1.5 * min(first)
    assert 0 <= found.scale < 0.7  # most of what the engine knows is in them
    assert found.clicks == log.click.sum()
    knows_nothing, _ = line_of(engine_log(6, engine=0.9, know=0.0, pages=1500))
    assert knows_nothing.weights is None
    assert knows_nothing.scale == 1.0
    few, _ = line_of(engine_log(5, engine=0.5, know=0.95, pages=15))
    assert few.weights is None


def test_no_query_is_judged_by_what_its_own_clicks_said() -> None:
    """The clicks of a query change what is said of others, and nothing of its own."""
    log = engine_log(7, engine=0.5, know=0.9, pages=300)
    here = np.repeat(log.query == 3, log.sizes)
    turned = replace(log, click=np.where(here, log.position == 10, log.click).astype(np.uint8))
    (one, at), (other, _) = line_of(log), line_of(turned)
    assert one.fold.tolist() == other.fold.tolist()

    def changed(fold: int) -> float:
        ways = [each.others[fold] / np.linalg.norm(each.others[fold]) for each in (one, other)]
        return float(np.linalg.norm(ways[0] - ways[1]))

    own, another = int(one.fold[3]), int(one.fold[3] + 1) % len(one.others)
    assert changed(own) < changed(another) / 3
    by_one = one.others[own]
    lists = at.lists
    query, engine = np.repeat(np.arange(len(lists)), lists.sizes), np.zeros(len(lists.features))
    said = one.apart(engine, lists.features, query)
    assert said[query == 3] == pytest.approx(lists.features[query == 3] @ by_one)


def test_a_sample_of_queries_is_looked_at_where_there_is_much_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    log = engine_log(5, engine=0.5, know=0.95, pages=3000)
    everything, _ = line_of(log)
    monkeypatch.setattr("unskew.learning.fitting.straight.PAIRS", (900, 900))
    some, _ = line_of(log)
    assert some.weights is not None
    assert everything.weights is not None
    assert some.weights.tolist() != everything.weights.tolist()
    assert some.weights == pytest.approx(everything.weights, abs=0.3)


def test_habits_are_what_features_say_of_the_engine_within_queries() -> None:
    draw, queries = np.random.default_rng(7), 60
    x = draw.normal(size=(queries * 8, 3))
    x[:, 2] = np.repeat(100 * np.arange(queries), 8)  # of the query alone
    prior = EnginePrior((0.4, 0.2, 0.1, 0.05), "numbers")
    score = 2 * x[:, 0] - x[:, 1] + 0.1 * draw.normal(size=len(x))
    rank = (np.argsort(np.argsort(-score.reshape(queries, 8), 1), 1) + 1.0).ravel()
    lists = Lists(x, np.arange(queries + 1) * 8, np.zeros(len(x), np.int16), np.arange(queries))
    row = np.flatnonzero(rank < 5)
    log = Log(
        lists, np.arange(queries), np.arange(queries + 1) * 4, row, rank[row].astype(np.int16), np.zeros(len(row))
    )
    log = log.with_ranks()

    found = habits(log.lists.features, log.lists, prior)
    target = prior.log_at(np.minimum(rank, 5.0)).reshape(queries, 8)
    centred = [
        (each.reshape(queries, 8) - each.reshape(queries, 8).mean(1, keepdims=True)).ravel()
        for each in (*x.T[:2], target)
    ]
    gram = np.array([[one @ other for other in centred] for one in centred])
    expected = np.linalg.solve(gram[:2, :2] * (1 + np.eye(2) * 30 / len(x)), gram[:2, 2])
    assert found.tolist() == pytest.approx([*expected, 0.0], abs=1e-4)


def test_reasons_add_up_to_the_score_without_the_engine() -> None:
    draw = np.random.default_rng(8)
    prepared, parts = draw.normal(size=(2, 5, 4))
    found = Combination(EnginePrior((0.4, 0.1), "numbers"), 1.0, 0.5, 0.0, 9, 2.0, np.array([1.0, -1.0, 0.5]))
    lists = Lists(prepared, np.array([0, 5]), np.zeros(5, np.int16), np.array([0]))
    sides = np.stack([parts.sum(1), found.along(prepared)], 1)
    assert found.reasons(parts, prepared).sum(1) == pytest.approx(found.scores(sides, lists), abs=1e-5)


def test_a_document_without_a_rank_has_the_mean() -> None:
    found = Combination(EnginePrior((0.4, 0.1), "numbers"), 1.0, 1.0, -1.5, 100)
    lists = Lists(np.zeros((3, 1), np.float32), np.array([0, 3]), np.zeros(3, np.int16), np.array([0]))
    ranked = replace(lists, shown=np.array([1.0, np.nan, 2.0]))
    scores = found.scores(np.zeros((3, 2)), ranked)
    assert scores[1] == pytest.approx(-1.5)
    assert scores[0] > scores[1] > scores[2]
    told = np.array([[1.0, 0.0], [2.0, 5.0], [3.0, 0.0]])  # nothing is known of an engine
    assert found.scores(told, lists).tolist() == [1.0, 2.0, 3.0]
    assert replace(found, slope=1.0).scores(told, lists).tolist() == [1.0, 7.0, 3.0]
    assert replace(found, weight=0.0).scores(told, lists).tolist() == [1.0, 2.0, 3.0]  # neither has a say


def test_pairs_are_known_by_both_ids() -> None:
    lists = Lists(np.zeros((4, 1), np.float32), np.array([0, 2, 4]), np.zeros(4, np.int16), np.array(["a", "b"]))
    lists = replace(lists, doc_ids=np.array(["x", "y", "x", "z"]), shown=np.array([1.0, 2.0, 1.0, 2.0]))
    known = KnownPairs.of(lists, np.array([0, 2]), np.array([0.5, -0.5]))
    ranks, gains = known.at(replace(lists, shown=None))
    assert gains.tolist() == [0.5, 0.0, -0.5, 0.0]
    assert ranks[[0, 2]].tolist() == [1.0, 1.0]
    assert np.isnan(ranks[[1, 3]]).all()


# ---- a run ----


def test_a_run_is_no_worse_than_a_strong_engine_and_better_than_features(strong: Log, begun: unskew.Run) -> None:
    lists = strong.with_ranks().lists
    assert lists.shown is not None
    shown, alone = ndcg(-lists.shown, lists), ndcg(begun.model.correction(lists), lists)
    assert shown > alone + 0.1
    assert ndcg(begun.score(lists), lists) > shown - 0.003
    assert begun.metrics.engine is not None
    assert "begins as the order shown" in begun.metrics.engine.sentence


def test_a_weak_engine_is_left_behind() -> None:
    log = engine_log(1, engine=0.4, know=0.9)
    run, lists = unskew.learn(log, "additive", **QUICK), log.with_ranks().lists
    assert lists.shown is not None
    assert ndcg(run.score(lists), lists) > ndcg(-lists.shown, lists) + 0.2
    assert ndcg(run.score(lists), lists) > ndcg(run.model.correction(lists), lists) - 0.01
    assert run.model.combination is not None
    assert run.model.combination.moved
    assert run.model.combination.scale < 0.5


def test_where_a_log_tells_no_examination_a_run_begins_if_it_is_told_to() -> None:
    """Engines good and bad whose order never moves: no worse than the order, and better than features alone."""
    for engine, more in ((0.97, -0.01), (0.5, 0.05)):
        fixed = engine_log(2, engine=engine, know=0.6, pages=3000, moved=0.0)
        alone, lists = unskew.learn(fixed, "additive", **QUICK), fixed.with_ranks().lists
        assert alone.model.combination is None
        assert alone.metrics.engine is not None
        assert "tells no examination" in alone.metrics.engine.sentence
        run = unskew.learn(fixed, "additive", **QUICK | {"engine": "shown"})
        begun = run.metrics.engine
        assert lists.shown is not None
        assert begun is not None
        assert begun.combination is not None
        assert begun.combination.prior.reason is not None
        assert "The log tells no examination, " in begun.sentence
        assert ndcg(run.score(lists), lists) > ndcg(-lists.shown, lists) + more
        assert ndcg(run.score(lists), lists) > ndcg(alone.score(lists), lists) + 0.02
    assert unskew.learn(fixed, "additive", **QUICK | {"engine": "none"}).metrics.engine is None


def test_a_run_keeps_what_it_learned_of_pairs_and_judges_itself_without(
    strong: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(model: Any, *given: Any, **more: Any) -> Any:
        seen.append(model.combination is not None and model.combination.pairs is None)
        return standing(model, *given, **more)

    standing = runs.standing
    monkeypatch.setattr(runs, "standing", spy)
    run = unskew.learn(strong, "naive", **QUICK)
    assert all(seen)
    assert run.model.combination is not None
    assert run.model.combination.pairs is not None
    assert len(run.model.combination.pairs.keys) == len(np.unique(strong.row))


def test_what_is_saved_scores_as_the_run_does_with_and_without_torch(strong: Log, begun: unskew.Run) -> None:
    lists = strong.with_ranks().lists
    assert begun.folder is not None
    expected = begun.score(lists)
    assert unskew.load(begun.folder).score(lists) == pytest.approx(expected, abs=1e-5)
    assert Served.load(begun.folder).score(lists) == pytest.approx(expected, abs=1e-4)
    unknown = replace(lists, shown=None)  # the ranks of training stand in
    known = np.isin(np.arange(len(expected)), strong.row)
    assert begun.score(unknown)[known] == pytest.approx(expected[known], abs=1e-5)


def test_trees_and_packages_begin_as_the_engine(strong: Log, tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    lists = strong.with_ranks().lists
    assert lists.shown is not None
    for method, ranker in (("naive", "trees"), ("lightgbm", None)):
        how = {"steps": 10, "validate_on": "clicks", "engine": "auto", "out": tmp_path / method}
        run = unskew.learn(strong, method, ranker=ranker, **how)
        assert ndcg(run.score(lists), lists) > ndcg(-lists.shown, lists) - 0.01
        assert unskew.load(tmp_path / method).score(lists) == pytest.approx(run.score(lists), abs=1e-5)


@pytest.mark.parametrize("engine", ["auto", "safe"])
def test_a_log_in_shards_begins_as_the_engine_by_its_held_out_pages(tmp_path: Path, engine: str) -> None:
    log = engine_log(8, engine=0.8, know=0.6, pages=9000)
    write_log(log, tmp_path / "log.parquet")
    pages = np.repeat(log.lists.query_ids, log.lists.sizes)
    rows = {"query_id": pages, "doc_id": log.lists.document_ids()}
    rows |= {f"f{number}": log.lists.features[:, number] for number in range(6)}
    pq.write_table(pa.table(rows), tmp_path / "features.parquet")
    asked = f'engine = "{engine}"\n[data]\nlog = "log.parquet"\nfeatures = "features.parquet"\nshards = 2\n'
    (tmp_path / "run.toml").write_text(f'{asked}[ranker]\nname = "linear"\n[training]\nsteps = 60\nthreads = 1\n')
    run = unskew.learn(tmp_path / "run.toml", out=tmp_path / "run")
    lists = log.with_ranks().lists
    assert lists.shown is not None
    lists = replace(lists, columns=unskew.types.Columns(tuple(f"f{number}" for number in range(6))))
    begun = run.metrics.engine
    assert begun is not None
    assert begun.combination is not None
    assert begun.combination.clicks < log.click.sum() / 2  # those of the held-out shard, each once
    assert ndcg(run.score(lists), lists) > ndcg(-lists.shown, lists) + (0.005 if engine == "auto" else -1e-6)
    assert unskew.load(tmp_path / "run").score(lists) == pytest.approx(run.score(lists), abs=1e-5)


def test_predict_takes_ranks_from_the_log(strong: Log, tmp_path: Path) -> None:
    columns = {"query_id": strong.lists.query_ids.repeat(20), "doc_id": strong.lists.document_ids()}
    features = {f"f{number}": strong.lists.features[:, number] for number in range(6)}
    page = np.repeat(np.arange(len(strong)), 10)
    shown = {"page_id": page, "query_id": strong.query[page], "doc_id": columns["doc_id"][strong.row]}
    shown |= {"position": strong.position, "click": strong.click}
    run = unskew.learn(shown, "additive", features=columns | features, **QUICK)
    lists = replace(strong.with_ranks().lists, columns=unskew.types.Columns(tuple(features)))
    found = unskew.predict(run, columns | features, candidates=shown).table
    assert found["score"].to_numpy() == pytest.approx(run.score(lists), abs=1e-4)
    first = found["rank"].to_numpy() == 1
    assert strong.lists.labels[first].mean() > 2


# ---- safe ----


def test_with_few_clicks_a_safe_run_ranks_as_was_shown() -> None:
    log = engine_log(3, engine=0.9, know=0.3, pages=400)
    run, lists = unskew.learn(log, "naive", **QUICK | {"engine": "safe"}), log.with_ranks().lists
    assert run.metrics.safety is not None
    assert run.metrics.safety.share == 0
    assert lists.shown is not None
    for start, stop in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):
        if np.isfinite(lists.shown[start:stop]).all():
            by_score = np.argsort(-run.score(lists)[start:stop], kind="stable")
            assert by_score.tolist() == np.argsort(lists.shown[start:stop], kind="stable").tolist()
    assert "ranks as was shown" in run.metrics.safety.sentence


def test_with_many_clicks_a_safe_run_moves() -> None:
    log = engine_log(4, engine=0.4, know=0.95, pages=20_000)
    run, lists = unskew.learn(log, "additive", **QUICK | {"engine": "safe"}), log.with_ranks().lists
    assert run.metrics.safety is not None
    assert run.metrics.safety.share > 0
    assert run.metrics.safety.bound is not None
    assert run.metrics.safety.bound > 0
    assert lists.shown is not None
    assert ndcg(run.score(lists), lists) > ndcg(-lists.shown, lists) + 0.05


def test_a_safe_run_leaves_below_what_no_page_showed() -> None:
    found = Combination(EnginePrior((0.4, 0.2, 0.1), "numbers"), 1.0, 5.0, -1.5, 100, depth=3)
    lists = Lists(np.zeros((5, 1), np.float32), np.array([0, 5]), np.zeros(5, np.int16), np.array([0]))
    ranked = replace(lists, shown=np.array([1.0, 2.0, 4.0, 5.0, np.nan]))
    sides = np.array([[0.0, 0.0], [1.0, 0.0], [9.0, 0.0], [10.0, 0.0], [8.0, 0.0]])
    order = np.argsort(-found.scores(sides, ranked))
    assert order[:2].tolist() == [1, 0]  # features turn what was shown
    assert set(order[2:].tolist()) == {2, 3, 4}
    assert found.scores(sides, ranked)[2] > found.scores(sides, ranked)[3]
    assert np.argsort(-replace(found, depth=None).scores(sides, ranked))[0] == 3
    few = engine_log(4, engine=0.4, know=0.95, pages=6000)
    run, lists = unskew.learn(few, "additive", **QUICK | {"engine": "safe"}), few.with_ranks().lists
    assert run.metrics.safety is not None
    assert run.metrics.safety.share > 0
    assert lists.shown is not None
    scores = run.score(lists)
    for start, stop in list(zip(lists.offsets[:-1], lists.offsets[1:], strict=True))[:20]:
        seen = lists.shown[start:stop] <= 10
        assert scores[start:stop][seen].min() > scores[start:stop][~seen].max()


def test_pages_that_were_learned_from_judge_what_others_say_of_them(strong: Log) -> None:
    log = engine_log(4, engine=0.4, know=0.95, pages=3000).with_ranks()
    run = unskew.learn(log, "naive", **QUICK | {"engine": "shown"})
    begun = run.metrics.engine
    assert begun is not None
    assert begun.combination is not None
    assert begun.line is not None
    combination = replace(begun.combination, scale=begun.line.scale, weight=0.0, slope=1.0, depth=10)
    found, shuffled = gains_along(run.model, combination, begun.line, log, begun.examination)
    assert shuffled is None
    assert found.bounds().max() > 0.005
    assert len(found.clicks) == len(np.unique(log.query[np.add.reduceat(log.click, log.offsets[:-1]) > 0]))


def test_bounds_are_students_over_queries() -> None:
    draw = np.random.default_rng(0)
    clicks, gain = np.full(40, 5.0), np.stack([draw.normal(1.0, 1.0, 40), draw.normal(0.05, 5.0, 40)])
    found = Gains(clicks, np.concatenate([gain, gain[:1]])).bounds()
    from scipy.stats import ttest_1samp

    expected = ttest_1samp(gain[0] / 5, 0, alternative="greater").confidence_interval(1 - 0.05 / 2 / 3).low
    assert found[0] == pytest.approx(expected)
    assert found[0] > 0 > found[1]
    assert np.all(Gains(clicks[:5], gain[:, :5]).bounds() == -np.inf)


def test_shuffled_pages_may_speak_against_a_move(strong: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    run = unskew.learn(strong, "naive", **QUICK | {"engine": "shown"})
    good, bad = (
        Gains(np.full(20, 10.0), np.full((3, 20), each) + np.linspace(0, 0.1, 20)) for each in (2.0, -2.0)
    )
    assert run.metrics.engine is not None
    for shuffled, share in ((None, 0.25), (good, 0.25), (bad, 0.0)):
        for judge in ("gains_of", "gains_along"):
            monkeypatch.setattr(
                f"unskew.workflows.runs.correction.{judge}", lambda *_, other=shuffled: (good, other)
            )
        assert make_safe(run.model, run.metrics.engine, strong, strong)[1].share == share


def test_a_safe_run_falls_back_to_the_order_shown_though_features_made_it_superfluous(
    strong: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = unskew.learn(strong, "naive", **QUICK | {"engine": "shown"})
    assert run.metrics.engine is not None
    assert run.metrics.engine.combination is not None
    nothing = Gains(np.full(20, 10.0), np.zeros((3, 20)))
    for judge in ("gains_of", "gains_along"):
        monkeypatch.setattr(f"unskew.workflows.runs.correction.{judge}", lambda *_: (nothing, None))
    alone = replace(run.metrics.engine.combination, scale=0.0, pairs=None)
    make_safe(run.model, replace(run.metrics.engine, combination=alone), strong, strong)
    lists = strong.with_ranks().lists.take(slice(0, 1))
    assert lists.shown is not None
    assert np.argsort(-run.score(lists), kind="stable").tolist() == np.argsort(lists.shown, kind="stable").tolist()


# ---- requests ----


def test_a_request_comes_in_the_engines_order_unless_it_says_otherwise(strong: Log, begun: unskew.Run) -> None:
    assert begun.folder is not None
    served = Served.load(begun.folder)
    lists = strong.lists.take(slice(0, 1))
    documents = [{"id": f"new{at}", "features": row} for at, row in enumerate(lists.features.tolist())]

    def asked(**more: Any) -> Array:
        found = read_request({"query": "none", "documents": documents, **more})
        return served.score(read_candidates(served, [found], None)[0])

    expected = begun.score(replace(lists, doc_ids=None, shown=np.arange(1.0, 21)))
    assert asked() == pytest.approx(expected, abs=1e-4)
    assert asked(position=[*range(1, 21)]) == pytest.approx(expected, abs=1e-4)
    assert asked(engine_score=[*range(20, 0, -1)]) == pytest.approx(expected, abs=1e-4)
    turned = begun.score(replace(lists, doc_ids=None, shown=np.arange(20.0, 0, -1)))
    assert asked(engine_score=[*range(20)]) == pytest.approx(turned, abs=1e-4)
    assert np.isfinite(asked(position=[None] * 20)).all()
    for wrong, said in (
        ({"position": [1]}, "20 documents, and 1 of position"),
        ({"position": [0] * 20}, "greater"),
    ):
        with pytest.raises(BadRequest, match=said):
            asked(**wrong)
    with pytest.raises(BadRequest, match="not both"):
        asked(position=[1] * 20, engine_score=[1] * 20)
