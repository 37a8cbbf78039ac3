"""Simulated clicks: golden probabilities, rates against analytic ones, and the promises of simulate()."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import unskew.simulation.simulation as simulation
from unskew.errors import ConfigError, DataError
from unskew.options.logs import SimulateArguments
from unskew.simulation import (
    LOGGERS,
    Behaviour,
    Cascade,
    FeatureLogger,
    PositionBias,
    ScoresLogger,
    Shown,
    SvmLogger,
    TrustBias,
    UserBrowsing,
    logging_scores,
    simulate,
)
from unskew.simulation.logger import sample_queries
from unskew.simulation.simulation import lay_out
from unskew.simulation.synthetic import make_lists
from unskew.types import Array, Lists, Log
from unskew.workflows.twins.simulate import simulate_to
from unskew_reproductions.behaviours import EVERY, ClickMatrix, DynamicBayesian, IndividualBias, Mixture
from unskew_reproductions.behaviours.individual import WEIGHTS

THETA = [0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06]
GAMMA = [0.1, 0.16, 0.28, 0.52, 1.0]
DEFAULTS = [pytest.param(kind, id=name) for name, kind in EVERY.items()]


def lists_of(*grades: list[int], features: int = 10) -> Lists:
    """Lists with these grades, features all 1, in the order of the file."""
    labels = np.array([grade for one in grades for grade in one], np.int16)
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in grades])])
    return Lists(np.ones((len(labels), features), np.float32), offsets, labels, np.arange(len(grades)))


def shown_of(*grades: list[int]) -> Shown:
    """Pages with these grades, padded to the longest."""
    lists, width = lists_of(*grades), max(map(len, grades))
    rows = np.full((len(grades), width), -1)
    labels = np.zeros((len(grades), width), np.int16)
    for q, one in enumerate(grades):
        rows[q, : len(one)] = np.arange(len(one)) + lists.offsets[q]
        labels[q, : len(one)] = one
    return Shown(lists, rows, labels, rows >= 0)


def same(first: Log, second: Log) -> bool:
    """Whether two logs are equal in every array."""
    names = ["query", "offsets", "row", "position", "click", "randomized"]
    pairs = [(getattr(first, name), getattr(second, name)) for name in names]
    pairs += [(first.columns[name], second.columns.get(name)) for name in first.columns]
    return all(np.array_equal(a, b) if a is not None else b is None for a, b in pairs)


def each_grade_at_every_rank() -> Shown:
    """Row y is ten results of grade y."""
    return shown_of(*([y] * 10 for y in range(5)))


@pytest.fixture(scope="module")
def world() -> Lists:
    return make_lists(queries=60, features=12, documents=(1, 16), seed=5)


# ---- golden probabilities (reference tables of the field, three digits where the source has three) ----


def test_position_is_examination_times_relevance() -> None:
    shown = each_grade_at_every_rank()
    expected = [[theta * gamma for theta in THETA] for gamma in GAMMA]
    np.testing.assert_allclose(PositionBias().click_probability(shown), expected, rtol=1e-6)
    harsher = PositionBias(severity=2.0).click_probability(shown)
    np.testing.assert_allclose(harsher[4], [theta**2 for theta in THETA], rtol=1e-6)


def test_position_reuses_its_last_value_and_the_highest_grade() -> None:
    probability = PositionBias().click_probability(shown_of([4] * 12, [7] * 12))
    np.testing.assert_allclose(probability[0, 9:], 0.06, rtol=1e-6)
    np.testing.assert_array_equal(probability[0], probability[1])


def test_kept_share_of_lists_with_a_click() -> None:
    # reference: 26, 39, 59, 83, 98 % of lists with grade 0, 1, 2, 3, 4 throughout have at least one click
    probability = PositionBias().click_probability(each_grade_at_every_rank())
    kept = [round(100 * (1 - math.prod(1 - p for p in row))) for row in probability.tolist()]
    assert kept == [26, 39, 59, 83, 98]


def test_cascade_by_hand() -> None:
    probability = Cascade().click_probability(shown_of([1, 2, 3]))
    np.testing.assert_allclose(probability[0], [0.16, 0.84 * 0.28, 0.84 * 0.72 * 0.52], rtol=1e-6)


def test_user_browsing_by_hand() -> None:
    g1, g2, g3 = 0.16, 0.28, 0.52
    second = g2 * (g1 * 0.98 + (1 - g1) * 1.0)
    none = (1 - g1) * (1 - 1.0 * g2)
    first_only = g1 * (1 - 0.98 * g2)
    third = g3 * (second * 1.0 + first_only * 0.62 + none * 0.95)
    probability = UserBrowsing().click_probability(shown_of([1, 2, 3]))
    np.testing.assert_allclose(probability[0], [g1, second, third], rtol=1e-6)


def test_user_browsing_beyond_the_table() -> None:
    model = UserBrowsing()
    assert model.examination(10, 1) == 0.12
    assert model.examination(10, 0) == model.examination(37, 0) == 0.43
    assert model.examination(30, 29) == 1.0  # distance 1, as at rank 10
    assert model.examination(30, 25) == 0.52  # distance 5
    assert model.examination(30, 2) == 0.12  # distance 28: the farthest of row 10
    with pytest.raises(ConfigError, match="UserBrowsing: row 2 of the table must have 2 entries"):
        UserBrowsing(table=((1.0,), (0.5,)))


def test_dynamic_bayesian_by_hand() -> None:
    probability = DynamicBayesian(satisfaction=0.5, continuation=0.8).click_probability(shown_of([1, 2, 3]))
    second = 0.8 * (1 - 0.5 * 0.16**2)
    third = second * 0.8 * (1 - 0.5 * 0.28**2)
    np.testing.assert_allclose(probability[0], [0.16, second * 0.28, third * 0.52], rtol=1e-6)


@pytest.mark.parametrize(
    ("version", "ranks"),
    [
        (
            "published",
            {
                1: [0.464, 0.478, 0.505, 0.559, 0.666],
                5: [0.059, 0.073, 0.100, 0.154, 0.263],
                10: [0.009, 0.012, 0.018, 0.030, 0.053],
            },
        ),
        (
            "paper",
            {
                1: [0.442, 0.457, 0.487, 0.547, 0.666],
                5: [0.036, 0.052, 0.082, 0.142, 0.263],
                10: [0.004, 0.007, 0.014, 0.027, 0.053],
            },
        ),
    ],
)
def test_trust_golden(version: str, ranks: dict[int, list[float]]) -> None:
    probability = TrustBias(version=version).click_probability(each_grade_at_every_rank())  # type: ignore[arg-type]
    for rank, expected in ranks.items():
        np.testing.assert_allclose(probability[:, rank - 1], expected, atol=5.5e-4)


def test_trust_affine_parameters() -> None:
    alpha, beta = TrustBias().affine(10)
    golden_alpha = [0.224, 0.393, 0.357, 0.268, 0.227, 0.164, 0.091, 0.083, 0.066, 0.050]
    golden_beta = [0.442, 0.198, 0.104, 0.055, 0.036, 0.022, 0.010, 0.008, 0.006, 0.004]
    np.testing.assert_allclose(alpha, golden_alpha, atol=5.5e-4)
    np.testing.assert_allclose(beta, golden_beta, atol=5.5e-4)


def test_matrix_singular_values_and_edges() -> None:
    singular = np.linalg.svd(ClickMatrix().table(10), compute_uv=False)
    np.testing.assert_allclose(singular, [1.399, 0.151, 0.069, 0.057, 0.033], atol=5e-4)
    probability = ClickMatrix().click_probability(shown_of([0] * 12, [4] * 12, [6] * 12))
    assert probability[0, 0] == 0.59053
    assert (probability[:, 10:] == 0).all()
    np.testing.assert_array_equal(probability[1], probability[2])
    with pytest.raises(ConfigError, match="one length"):
        ClickMatrix(matrix=((0.1, 0.2), (0.3,)))


def test_matrix_truth_is_exact_for_a_product() -> None:
    model = ClickMatrix(matrix=((0.1, 0.05), (0.8, 0.4)))
    theta, gamma = model.product(2)
    np.testing.assert_allclose(gamma, [0.125, 1.0], rtol=1e-5)
    np.testing.assert_allclose(theta, [0.8, 0.4], rtol=1e-5)


def test_mixture_by_hand() -> None:
    shown = shown_of([2] * 12)
    kinds = {
        (1.0, 0.0, 0.0, 0.0): [0.1] * 12,
        (0.0, 1.0, 0.0, 0.0): [0.5 / k for k in range(1, 13)],
        (0.0, 0.0, 1.0, 0.0): [0.5 * 0.28] * 12,
        (0.0, 0.0, 0.0, 1.0): [0.28 / k for k in range(1, 13)],
    }
    for ratio, expected in kinds.items():
        np.testing.assert_allclose(Mixture(ratio=ratio).click_probability(shown)[0], expected, rtol=1e-5)
    even = Mixture().click_probability(shown)[0]
    np.testing.assert_allclose(even, np.mean(list(kinds.values()), axis=0), rtol=1e-5)


def test_individual_golden_exponent() -> None:
    # all ten features 1 at coupling 0.1: exponent .965311, θ_1 -> .689158, θ_10 -> .066151
    model = IndividualBias(features=tuple(range(10)))
    shown = shown_of([4] * 10)
    assert model.document_terms(shown.lists)[0] == pytest.approx(1 + 0.1 * sum(WEIGHTS), abs=1e-6)
    assert model.document_terms(shown.lists)[0] == pytest.approx(0.965311, abs=2e-6)  # w is printed to 5 digits
    probability = model.click_probability(shown)[0]
    assert probability[0] == pytest.approx(0.689158, abs=1e-6)
    assert probability[9] == pytest.approx(0.066151, abs=1e-6)


def test_individual_without_coupling_is_position_bias(world: Lists) -> None:
    chosen = IndividualBias(severity=0.0, choose="random")
    plain = simulate(world, PositionBias(), pages=300, logger="oracle", truth=True)
    log = simulate(world, chosen, pages=300, logger="oracle", truth=True)
    assert same(replace(plain, columns={}), log)
    np.testing.assert_allclose(log.columns["true_examination"], plain.columns["true_examination"], rtol=1e-6)


def test_individual_chooses_features(world: Lists) -> None:
    informative = replace(world, features=world.features.copy())
    informative.features[:, 7] = world.labels
    chosen = IndividualBias(trees=20, sample=300).prepare(informative).features
    assert chosen is not None
    assert chosen[0] == 7
    assert len(set(chosen)) == 10
    assert IndividualBias(choose="random", seed=1).prepare(world) == IndividualBias(
        choose="random", seed=1
    ).prepare(world)
    with pytest.raises(DataError, match="must be columns of 12"):
        IndividualBias(features=(3, 12)).prepare(world)


# ---- every behaviour ----


def quick(kind: type[Behaviour]) -> Behaviour:
    """The default behaviour; individual with a strong coupling and a cheap choice of features."""
    return IndividualBias(severity=0.5, choose="random") if kind is IndividualBias else kind()


@pytest.mark.parametrize("kind", DEFAULTS)
def test_rates_match_the_click_probability(kind: type[Behaviour]) -> None:
    lists = make_lists(queries=6, features=12, documents=(3, 13), seed=2)
    behaviour = quick(kind).prepare(lists)
    pages = 30_000
    log = simulate(lists, behaviour, pages=pages, seed=11, logger="oracle", cutoff=12)
    flat = np.repeat(log.query, log.sizes) * 12 + log.position - 1
    pages = lay_out(lists, logging_scores(lists, "oracle"), 12)
    probability = behaviour.click_probability(Shown(lists, pages.rows, pages.labels, pages.where)).ravel()
    shown = np.bincount(flat, minlength=len(probability))
    clicked = np.bincount(flat, weights=log.click, minlength=len(probability))
    never = probability <= 0
    assert (clicked[never] == 0).all()
    spread = np.sqrt(shown * probability * (1 - probability))
    z = np.abs(clicked - shown * probability)[~never] / np.maximum(spread[~never], 1e-9)
    certain = np.isclose(probability[~never], 1)
    assert (clicked[~never][certain] == shown[~never][certain]).all()
    # 8 behaviours with at most 72 cells each: |z| > 5 has probability 6e-7, times 576 still below 4e-4
    assert z[~certain & (spread[~never] ** 2 > 5)].max() < 5


@pytest.mark.parametrize("kind", DEFAULTS)
def test_same_seed_same_log_however_it_is_cut(
    kind: type[Behaviour], world: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    behaviour = quick(kind)
    settings = {"pages": 500, "seed": 3, "randomized": 0.3, "truth": True, "drop_clickless": True}
    log = simulate(world, behaviour, **settings)  # type: ignore[arg-type]
    assert same(log, simulate(world, behaviour, **settings))  # type: ignore[arg-type]
    assert not same(log, simulate(world, behaviour, **{**settings, "seed": 4}))  # type: ignore[arg-type]
    monkeypatch.setattr(simulation, "DRAWN_CELLS", 370)
    assert same(log, simulate(world, behaviour, **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", DEFAULTS)
def test_padding_is_never_clicked(kind: type[Behaviour]) -> None:
    shown = shown_of([4] * 14, [4], [0, 4])
    behaviour = quick(kind).prepare(shown.lists)
    rng = np.random.default_rng(0)
    for _ in range(200):
        outcome = behaviour.draw(shown, rng)
        assert not outcome.clicks[~shown.where].any()
        assert all(part.shape == shown.where.shape for part in (*outcome[:3], *outcome.looks.values()))
        assert outcome.examination.dtype == outcome.relevance.dtype == np.float32
    assert (behaviour.click_probability(shown)[~shown.where] == 0).all()


@pytest.mark.parametrize("kind", DEFAULTS)
def test_configs_are_strict_frozen_and_round_trip(kind: type[Behaviour]) -> None:
    behaviour = kind()
    assert kind.model_validate_json(behaviour.model_dump_json()) == behaviour
    assert (
        kind.model_validate({name: listed(value) for name, value in behaviour.model_dump().items()}) == behaviour
    )
    with pytest.raises(ValidationError, match="Extra inputs"):
        kind.model_validate({"nois": 0.1})
    with pytest.raises(ValidationError, match="frozen"):
        behaviour.noise = 0.5  # type: ignore[attr-defined]
    assert all(field.description for field in kind.model_fields.values())
    if "noise" in kind.model_fields:
        for wrong in (1.5, "0.1"):
            with pytest.raises(ValidationError, match="noise"):
                kind.model_validate({"noise": wrong})


def listed(value: object) -> object:
    """Tuples as lists, as a TOML reader gives them."""
    return [listed(part) for part in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("kind", [PositionBias, Cascade, UserBrowsing, DynamicBayesian])
def test_truth_multiplies_to_the_chance_of_a_click(kind: type[Behaviour]) -> None:
    lists = lists_of([2, 0, 3, 1, 4, 2])
    log = simulate(lists, kind(), pages=40_000, logger=ScoresLogger(values=-np.arange(6)), truth=True)
    expected = log.columns["true_examination"] * log.columns["true_relevance"]
    for rank in range(1, 7):
        at = log.position == rank
        spread = math.sqrt(float((expected[at] * (1 - expected[at])).sum()))
        assert abs(float(log.click[at].sum()) - float(expected[at].sum(dtype=float))) < 5 * spread + 1e-6


def test_dynamic_bayesian_is_the_model_with_hidden_states() -> None:
    # the same model drawn with its hidden states, as the paper has it; joint click patterns must agree
    rng, gamma, pages = np.random.default_rng(0), [0.52, 0.28, 0.52], 60_000
    open_, patterns = np.ones(pages, bool), np.zeros(pages, int)
    for k, g in enumerate(gamma):
        click = open_ & (rng.random(pages) < g)
        left = click & (rng.random(pages) < 0.7 * g)
        open_ &= ~left & (rng.random(pages) < 0.9)
        patterns += click * 2**k
    lists = lists_of([3, 2, 3])
    log = simulate(lists, DynamicBayesian(), pages=pages, logger=ScoresLogger(values=[3, 2, 1]))
    ours = log.click.reshape(-1, 3) @ np.array([1, 2, 4])
    first, second = np.bincount(patterns, minlength=8), np.bincount(ours, minlength=8)
    assert (np.abs(first - second) < 5 * np.sqrt(first + second)).all()


def test_cascade_has_at_most_one_click(world: Lists) -> None:
    log = simulate(world, Cascade(), pages=2000, truth=True)
    page = np.repeat(np.arange(len(log)), log.sizes)
    assert np.bincount(page, log.click).max() == 1
    examined = log.columns["true_examination"]
    before = np.cumsum(log.click) - log.click
    before -= np.repeat(before[log.offsets[:-1]], log.sizes)
    np.testing.assert_array_equal(examined, before == 0)


# ---- simulate() ----


def test_log_is_well_formed(world: Lists) -> None:
    log = simulate(world, "position", pages=400, seed=1)
    assert len(log) == 400
    np.testing.assert_array_equal(log.sizes, np.minimum(world.sizes, 10)[log.query])
    starts = np.repeat(log.offsets[:-1], log.sizes)
    np.testing.assert_array_equal(log.position, np.arange(len(log.row)) - starts + 1)
    query = np.searchsorted(world.offsets, log.row, side="right") - 1
    np.testing.assert_array_equal(query, np.repeat(log.query, log.sizes))
    kinds = [part.dtype for part in (log.query, log.offsets, log.row, log.position, log.click)]
    assert kinds == [np.int64, np.int64, np.int64, np.int16, np.uint8]
    assert log.randomized is None
    assert log.columns == {}


def test_order_follows_the_scores_and_ties_keep_file_order() -> None:
    lists = lists_of([0, 0, 0, 0])
    log = simulate(lists, "position", pages=1, logger=ScoresLogger(values=[1.0, 2.0, 1.0, 2.0]))
    assert log.row.tolist() == [1, 3, 0, 2]


def test_cutoff(world: Lists) -> None:
    longest = int(world.sizes.max())
    assert longest > 10
    assert simulate(world, "position", pages=500).position.max() == 10
    assert simulate(world, "position", pages=500, cutoff=3).position.max() == 3
    assert simulate(world, "position", pages=500, cutoff=0).position.max() == longest
    assert simulate(world, Mixture(), pages=500).position.max() == longest
    assert simulate(world, Mixture(), pages=500, cutoff=10).position.max() == 10


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("target", [1, 7, 1000])
def test_clicks_target_ends_with_the_page_that_reaches_it(world: Lists, drop: bool, target: int) -> None:
    log = simulate(world, Cascade(), clicks=target, drop_clickless=drop)
    assert log.click.sum() == target  # a cascade clicks once at most
    assert log.click[log.offsets[-2] :].any()
    many = simulate(world, PositionBias(curve=(1.0,)), clicks=target, drop_clickless=drop)
    assert many.click.sum() >= target
    assert many.click[: many.offsets[-2]].sum() < target


def test_drop_clickless_is_the_full_log_without_clickless_pages(world: Lists) -> None:
    log = simulate(world, "position", pages=3000, truth=True, randomized=0.2)
    kept = np.add.reduceat(log.click, log.offsets[:-1]) > 0
    dropped = simulate(world, "position", pages=int(kept.sum()), truth=True, randomized=0.2, drop_clickless=True)
    assert len(dropped) == kept.sum()
    assert same(log.take(kept), dropped)


def test_randomized_pages_are_shuffled_and_marked() -> None:
    lists = lists_of(list(range(4)), [1])
    scores = ScoresLogger(values=[4.0, 3.0, 2.0, 1.0, 0.0])
    log = simulate(lists, "position", pages=40_000, cutoff=3, randomized=0.25, logger=scores)
    assert log.randomized is not None
    marked = np.logical_or.reduceat(log.randomized, log.offsets[:-1])
    np.testing.assert_array_equal(np.repeat(marked, log.sizes), log.randomized)
    assert abs(marked.mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 40_000)
    long = log.take(marked & (log.query == 0)).row.reshape(-1, 3)
    assert set(long.ravel().tolist()) == {0, 1, 2}  # only the top three of the logging ranking
    orders, counts = np.unique(long, axis=0, return_counts=True)
    assert len(orders) == 6
    assert (np.abs(counts - len(long) / 6) < 5 * math.sqrt(len(long) / 6)).all()
    plain = log.take(~marked & (log.query == 0)).row.reshape(-1, 3)
    assert (plain == [0, 1, 2]).all()


def test_shuffling_does_not_disturb_labels() -> None:
    lists = lists_of([4, 0, 0, 0, 0, 0])
    log = simulate(lists, PositionBias(curve=(1.0,), noise=0.0), pages=500, randomized=1.0, logger="oracle")
    np.testing.assert_array_equal(log.click, log.row == 0)


def test_truth_columns(world: Lists) -> None:
    log = simulate(world, PositionBias(), pages=100, truth=True)
    assert {name: part.dtype for name, part in log.columns.items()} == {
        "true_examination": np.float32,
        "true_relevance": np.float32,
    }
    np.testing.assert_allclose(log.columns["true_examination"], np.array(THETA)[log.position - 1], rtol=1e-6)
    np.testing.assert_allclose(log.columns["true_relevance"], np.array(GAMMA)[world.labels[log.row]], rtol=1e-6)


def test_queries_without_documents_are_not_drawn() -> None:
    log = simulate(lists_of([], [1, 2], [], [3], []), "position", pages=200, logger="oracle")
    assert set(log.query.tolist()) == {1, 3}
    with pytest.raises(DataError, match="no query has a document"):
        simulate(lists_of([], []), "position", pages=1, logger="oracle")


def test_empty_log(world: Lists) -> None:
    log = simulate(world, "position", pages=0, randomized=0.5, truth=True)
    assert len(log) == len(log.row) == 0
    assert log.offsets.tolist() == [0]


@pytest.mark.parametrize("goal", [{"pages": 5, "drop_clickless": True}, {"clicks": 5}])
def test_a_user_who_never_clicks_does_not_hang(goal: dict[str, int]) -> None:
    with pytest.raises(DataError, match="simulated pages gave 0"):
        simulate(lists_of([0, 0]), PositionBias(noise=0.0), logger="oracle", **goal)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give pages= or clicks="),
        ({"pages": 1, "clicks": 1}, "give pages= or clicks="),
        ({"pages": -1}, "pages=: input should be greater than or equal to 0, not -1"),
        ({"pages": 1, "randomized": 1.5}, "randomized=: input should be less than or equal to 1, not 1.5"),
        ({"pages": 1, "cutoff": -1}, "cutoff=: input should be greater than or equal to 0"),
        ({"pages": 1, "behaviour": "positon"}, "Did you mean position"),
        ({"pages": 1, "logger": "svn"}, "Did you mean svm"),
        ({"pages": 1, "logger": "feature"}, "logger.column: missing"),
    ],
)
def test_wrong_settings_are_refused(world: Lists, settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(world, **settings)  # type: ignore[arg-type]


# ---- logging rankers ----


def ndcg(lists: Lists, scores: Array) -> float:
    """Mean nDCG@10 over queries with a relevant document, written out."""
    values = []
    for start, end in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):
        gains = 2.0 ** lists.labels[start:end] - 1
        ranked, ideal = gains[np.argsort(-scores[start:end], kind="stable")][:10], np.sort(gains)[::-1][:10]
        discount = 1 / np.log2(np.arange(2, len(ideal) + 2))
        if gains.any():
            values.append(float((ranked @ discount) / (ideal @ discount)))
    return float(np.mean(values))


def test_svm_ranks_better_than_chance_and_worse_than_the_truth() -> None:
    lists = make_lists(queries=600, features=15, seed=4, confounder=False)
    svm, random, oracle = (ndcg(lists, logging_scores(lists, name)) for name in ("svm", "random", "oracle"))
    assert random + 0.1 < svm < oracle == 1


def test_svm_is_seeded_and_sees_only_its_share() -> None:
    lists = make_lists(queries=200, features=8, seed=4)
    first = logging_scores(lists, "svm", 1)
    np.testing.assert_array_equal(first, logging_scores(lists, "svm", 1))
    assert not np.array_equal(first, logging_scores(lists, "svm", 2))
    assert first.dtype == np.float64


def test_svm_likes_the_planted_confounder() -> None:
    lists = make_lists(queries=300, features=12, seed=4)
    assert lists.confounder is not None
    column = lists.features[:, lists.confounder]
    with_it = np.corrcoef(logging_scores(lists, SvmLogger()), column)[0, 1]
    without = np.corrcoef(logging_scores(lists, SvmLogger(favourite=0.0)), column)[0, 1]
    assert with_it > 0.7
    assert abs(without) < 0.6
    plain = logging_scores(lists, SvmLogger(favourite=0.0))
    wanted = (plain - plain.mean()) / plain.std() + 1.5 * (column - column.mean()) / column.std()
    ours = logging_scores(lists, SvmLogger())
    np.testing.assert_allclose(ours - ours.mean(), wanted - wanted.mean(), atol=1e-4)


def test_a_trained_svm_scores_other_lists() -> None:
    train, test = make_lists(queries=200, seed=1), make_lists(queries=50, seed=2)
    ranker = SvmLogger(share=0.1).fit(train)
    np.testing.assert_array_equal(ranker.scores(train), logging_scores(train, SvmLogger(share=0.1)))
    assert ranker.scores(test).shape == (len(test.features),)


def test_svm_with_a_single_pair_and_with_none() -> None:
    one = Lists(np.array([[0.0, 1.0], [1.0, 1.0]], np.float32), np.array([0, 2]), np.array([0, 2]), np.array([1]))
    scores = logging_scores(one, "svm")
    assert scores[1] > scores[0]
    with pytest.raises(DataError, match="different grades"):
        logging_scores(lists_of([1, 1], [2]), "svm")


def test_simple_loggers(world: Lists) -> None:
    assert sorted(LOGGERS) == ["feature", "oracle", "random", "scores", "svm"]
    np.testing.assert_array_equal(logging_scores(world, FeatureLogger(column=2)), world.features[:, 2])
    np.testing.assert_array_equal(
        logging_scores(world, FeatureLogger(column=2, descending=False)), -world.features[:, 2].astype(float)
    )
    np.testing.assert_array_equal(logging_scores(world, "oracle"), world.labels)
    with pytest.raises(DataError, match="no feature 99"):
        logging_scores(world, FeatureLogger(column=99))
    with pytest.raises(DataError, match="one score for each document"):
        logging_scores(world, ScoresLogger(values=[1.0]))
    broken = np.zeros(len(world.features))
    broken[3] = np.nan
    with pytest.raises(DataError, match="document 3 with nan"):
        logging_scores(world, ScoresLogger(values=broken))


def test_svm_sees_no_grade_but_those_of_its_share() -> None:
    """Grades of all other queries may be anything: the logging ranker is the same."""
    lists = make_lists(queries=200, features=8, seed=4)
    sample = sample_queries(lists, 0.01, np.random.default_rng(1))
    assert len(sample) == 2
    asked = np.isin(np.repeat(lists.query_ids, lists.sizes), sample.query_ids)
    varied = np.where(asked, lists.labels, np.arange(len(lists.labels)) % 3).astype(lists.labels.dtype)
    # every other query has different grades before and after, so that the draw among them is the same
    before, after = replace(lists, labels=varied), replace(lists, labels=np.where(asked, varied, (varied + 1) % 3))
    np.testing.assert_array_equal(logging_scores(before, "svm", 1), logging_scores(after, "svm", 1))
    every = [logging_scores(each, SvmLogger(share=1.0), 1) for each in (before, after)]
    assert not np.array_equal(*every)


def test_what_is_drawn_has_random_numbers_of_its_own(world: Lists) -> None:
    """Queries stay the same where pages are shuffled or people click otherwise, and nothing follows another."""
    plain = simulate(world, "position", pages=300, seed=3)
    shuffled = simulate(world, "position", pages=300, seed=3, randomized=0.5)
    other = simulate(world, "cascade", pages=300, seed=3)
    np.testing.assert_array_equal(plain.query, shuffled.query)
    np.testing.assert_array_equal(plain.query, other.query)
    again = simulate(world, "position", pages=300, seed=4)
    assert not np.array_equal(plain.query, again.query)
    assert not np.array_equal(plain.row[: plain.sizes[0]], first_page(again, plain.query[0]))  # another logger
    stream = simulation.PageStream(lay_out(world, np.zeros(len(world.features)), 10), PositionBias(), 3, 0.5)
    drawn = [rng.random(4) for rng in (stream.query_rng, stream.flag_rng, stream.order_rng, stream.click_rng)]
    assert len({tuple(numbers) for numbers in drawn}) == 4


def first_page(log: Log, query: int) -> Array:
    """The rows of the first page of a query."""
    page = int(np.flatnonzero(log.query == query)[0])
    return log.row[log.offsets[page] : log.offsets[page + 1]]


def test_truth_of_trust_bias_is_examination_and_relevance_without_trust() -> None:
    lists = lists_of([4, 0, 2, 1, 3])
    log = simulate(lists, TrustBias(severity=2.0), pages=50, truth=True, seed=0)
    theta = np.array(THETA)[log.position - 1] ** 2
    np.testing.assert_allclose(log.columns["true_examination"], theta, rtol=1e-5)
    g = (2.0 ** lists.labels[log.row] - 1) / 15
    np.testing.assert_allclose(log.columns["true_relevance"], g, rtol=1e-5)
    alpha, beta = TrustBias(severity=2.0).affine(2)
    assert alpha == pytest.approx([0.68**2 * (0.98 - 0.65), 0.61**2 * (0.97 - 0.325)])
    assert beta == pytest.approx([0.68**2 * 0.65, 0.61**2 * 0.325])


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        (0, lambda k: 0.1 + 0 * k),
        (1, lambda k: 0.5 / k),
        (2, lambda k: 0.5 + 0 * k),
        (3, lambda k: 1.0 / k),
    ],
)
def test_truth_of_a_mixture_is_that_of_the_kind_of_the_page(kind: int, factor: Callable[[Array], Array]) -> None:
    ratio = tuple(float(part == kind) for part in range(4))
    lists = lists_of([4, 0, 2, 1, 3, 0, 0])
    log = simulate(lists, Mixture(ratio=ratio), pages=20_000, truth=True, seed=0)
    np.testing.assert_allclose(log.columns["true_examination"], factor(log.position.astype(float)), rtol=1e-5)
    gamma = np.array(GAMMA)[lists.labels[log.row]]
    np.testing.assert_allclose(log.columns["true_relevance"], gamma, rtol=1e-5)
    chance = log.columns["true_examination"] * (1.0 if kind < 2 else gamma)
    for grade in range(5):  # the first two kinds click without regard to grades
        at = lists.labels[log.row] == grade
        error = math.sqrt(float((chance[at] * (1 - chance[at])).sum()))
        assert abs(float(log.click[at].sum()) - float(chance[at].sum())) < 5 * error + 1e-6


def test_a_behaviour_of_ones_own_is_named_by_its_place(tmp_path: Path) -> None:
    words = {"lists": ("synthetic",), "queries": 5, "pages": 20, "out": tmp_path / "log.parquet"}
    place = "unskew.simulation.behaviours.cascade:Cascade"
    asked = SimulateArguments(**words, behaviour=place)
    simulate_to(asked)
    simulate_to(asked.model_copy(update={"behaviour": "cascade", "out": tmp_path / "other.parquet"}))
    assert pq.read_table(tmp_path / "log.parquet")["click"] == pq.read_table(tmp_path / "other.parquet")["click"]
    with pytest.raises(ConfigError, match=r"no subclass of unskew.simulation.behaviours.behaviour.Behaviour"):
        simulate_to(asked.model_copy(update={"behaviour": "json:JSONDecoder"}))
