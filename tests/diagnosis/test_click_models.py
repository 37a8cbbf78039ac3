"""Click models against brute force: every click pattern and hidden state written out, slopes by differences.

Nothing here shares code with the models: `outcomes` draws each model as its paper tells it, result by result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.helpers.uncleaned import uncleaned
from unskew.diagnosis.click_models import CLICK_MODELS, SDBN, ClickModel, ModelMixture, Prior, em, fit, read_pages
from unskew.diagnosis.click_models.em import Assumed, one_round, penalty
from unskew.diagnosis.click_models.fitted import FittedClickModel, find_model, fit_model
from unskew.diagnosis.click_models.pages import ClickPages
from unskew.engine_prior import worth
from unskew.errors import DataError

NAMES = (*CLICK_MODELS, "pbm+dctr", "dbn+rctr")
GIVEN = {"attractiveness": Prior(mean=0.3, strength=2.0)}
"""Priors in numbers, so that nothing is found in the log."""


def table_of(pages: list[tuple[str, str, str, int]]) -> pa.Table:
    """Pages as query, documents, clicks ("010"), how many: an impressions table."""
    rows = []
    number = 0
    for query, documents, clicks, times in pages:
        for _ in range(times):
            for at, (document, click) in enumerate(zip(documents, clicks, strict=True)):
                rows.append((number, query, document, at + 1, int(click)))
            number += 1
    columns = zip(*rows, strict=True)
    return pa.table(dict(zip(("page_id", "query_id", "doc_id", "position", "click"), columns, strict=True)))


LOG = [
    ("q", "abc", "000", 7),
    ("q", "abc", "100", 6),
    ("q", "abc", "010", 2),
    ("q", "abc", "101", 2),
    ("q", "bca", "001", 3),
    ("q", "bca", "100", 2),
    ("q", "bca", "110", 2),
    ("q", "cab", "000", 4),
    ("q", "cab", "010", 3),
    ("q", "cab", "111", 1),
    ("r", "xy", "00", 3),
    ("r", "xy", "10", 4),
    ("r", "yx", "11", 1),
    ("r", "yx", "01", 2),
]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return table_of(LOG)


@pytest.fixture(scope="module")
def pages(table: pa.Table) -> ClickPages:
    return read_pages(uncleaned(table), threads=1)


def model_with(name: str, **settings: Any) -> ClickModel:
    """A model with priors in numbers and few ranks."""
    model = find_model(name)[1]
    if isinstance(model, ModelMixture):
        parts = tuple(model_with(part, **settings) for part in name.split("+"))
        return ModelMixture(models=parts, **settings)
    both = dict(GIVEN)
    if "satisfaction" in type(model).model_fields:
        both["satisfaction"] = Prior(mean=0.4, strength=3.0)
    return type(model)(ranks=3, **both, **settings)


@pytest.fixture(scope="module")
def fitted(pages: ClickPages) -> dict[str, FittedClickModel]:
    """Every model, climbed as far as it goes."""
    found = {}
    for name in NAMES:
        model = model_with(name, tolerance=1e-15, rounds=6000)
        found[name] = fit_model(name, model, pages)
    return found


# ------------------------------------------------------------------------------------- brute force


def bernoulli(p: float) -> list[tuple[bool, float]]:
    return [(True, p), (False, 1 - p)]


def outcomes(name: str, p: dict[str, Any], pair: list[int]) -> Iterator[tuple[tuple[int, ...], float]]:
    """Click patterns with their probabilities, one for each course of hidden events."""
    yield from _walk(name, p, pair, (), 1.0, True)


def _walk(name: str, p: dict[str, Any], pair: list[int], done: tuple[int, ...], mass: float, on: bool) -> Any:
    k = len(done)
    if k == len(pair):
        yield done, mass
        return
    a = None if name in ("rcm", "rctr") else p["attractiveness"][pair[k]]
    for seen, seen_mass in _examined(name, p, done, on):
        chance = {"rcm": lambda: p["rate"][0], "rctr": lambda: p["rate"][k]}.get(name, lambda: a)()
        for click, click_mass in bernoulli(chance) if seen else [(False, 1.0)]:
            for goes_on, on_mass in _goes_on(name, p, pair[k], k, seen, click):
                yield from _walk(
                    name, p, pair, (*done, int(click)), mass * seen_mass * click_mass * on_mass, goes_on
                )


def _examined(name: str, p: dict[str, Any], done: tuple[int, ...], on: bool) -> list[tuple[bool, float]]:
    k = len(done)
    if name == "pbm":
        return bernoulli(p["examination"][k])
    if name == "ubm":
        last = max((at + 1 for at, click in enumerate(done) if click), default=0)
        return bernoulli(p["examination"][k * 4 + last])
    return [(on, 1.0)]


def _goes_on(name: str, p: dict[str, Any], pair: int, k: int, seen: bool, click: bool) -> list[tuple[bool, float]]:
    """Whether the next result is reached, one entry for each course of what is hidden."""
    if name in ("rcm", "rctr", "dctr", "pbm", "ubm"):
        return [(True, 1.0)]
    if not seen:
        return [(False, 1.0)]
    if name == "cascade":
        return [(not click, 1.0)]
    if name == "dcm":
        return bernoulli(p["continuation"][k]) if click else [(True, 1.0)]
    if name in ("sdbn", "dbn"):
        s = p["satisfaction"][pair] if click else 0.0
        gamma = 1.0 if name == "sdbn" else p["continuation"][0]
        return [(False, s), *((on, (1 - s) * mass) for on, mass in bernoulli(gamma))]
    skip, poor, good = p["continuation"]
    if not click:
        return bernoulli(skip)
    a = p["attractiveness"][pair]
    return [(on, a * mass) for on, mass in bernoulli(good)] + [
        (on, (1 - a) * mass) for on, mass in bernoulli(poor)
    ]


def pattern_chances(name: str, p: dict[str, Any], pair: list[int]) -> dict[tuple[int, ...], float]:
    """P(click pattern), hidden events summed out."""
    if "+" in name:
        total: dict[tuple[int, ...], float] = {}
        for z, part in enumerate(name.split("+")):
            own = {key[2:]: values for key, values in p.items() if key.startswith(f"{z} ")}
            for clicks, mass in pattern_chances(part, own, pair).items():
                total[clicks] = total.get(clicks, 0.0) + p["share"][z] * mass
        return total
    found: dict[tuple[int, ...], float] = {}
    for clicks, mass in outcomes(name, p, pair):
        found[clicks] = found.get(clicks, 0.0) + mass
    return found


def patterns(pages: ClickPages, at: int) -> tuple[ClickPages, list[int], list[tuple[int, ...]]]:
    """All click patterns of one ranking, as pages."""
    pair = pages.pair[at][pages.where[at]].tolist()
    every = list(itertools.product((0, 1), repeat=len(pair)))
    some = pages.take(np.full(len(every), at))
    click = np.zeros(some.click.shape, bool)
    click[:, : len(pair)] = every
    return replace(some, click=click), pair, every


@pytest.mark.parametrize("name", NAMES)
def test_likelihood_is_that_of_all_hidden_courses(
    name: str, fitted: dict[str, FittedClickModel], pages: ClickPages
) -> None:
    model = fitted[name]
    for at in range(0, len(pages), 3):
        some, pair, every = patterns(pages, at)
        truth = pattern_chances(name, model.parameters, pair)
        assert sum(truth.values()) == pytest.approx(1.0)
        expected = [truth.get(clicks, 0.0) for clicks in every]
        found = np.exp(model.page_log_likelihood(some))
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-5)  # chances are clipped at 1e-6
        marginal = model.click_probability(some.take(np.arange(1)))
        for k in range(len(pair)):
            assert marginal[k] == pytest.approx(sum(mass for clicks, mass in truth.items() if clicks[k]))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cascade"])
def test_counts_give_the_likelihood_of_the_pages(
    name: str, fitted: dict[str, FittedClickModel], pages: ClickPages
) -> None:
    """What rounds climb is Σ w log P(page), although they see counts."""
    model = fitted[name]
    counts = model.model.counter(pages)(pages.weight)
    total = 0.0
    for at in range(len(pages)):
        pair = pages.pair[at][pages.where[at]].tolist()
        clicks = tuple(pages.click[at][: len(pair)].astype(int).tolist())
        total += pages.weight[at] * math.log(pattern_chances(name, model.parameters, pair)[clicks])
    assert model.model.expect(counts, model.parameters).log_likelihood == pytest.approx(total, rel=1e-9)


# ----------------------------------------------------------------------------------------- climbing


def objective(model: FittedClickModel, counts: Any, parameters: dict[str, Any]) -> float:
    found = model.model.expect(counts, parameters).log_likelihood
    return found + penalty(parameters, model.assumed)


def moved(parameters: dict[str, Any], name: str, at: int, step: float) -> dict[str, Any]:
    """One parameter moved in log-odds; shares stay on their simplex."""
    values = parameters[name].copy()
    odds = math.log(values[at] / (1 - values[at])) + step
    values[at] = 1 / (1 + math.exp(-odds))
    if name == "share":
        others = np.arange(len(values)) != at
        values[others] *= (1 - values[at]) / values[others].sum()
    return parameters | {name: values}


@pytest.mark.parametrize("name", NAMES)
def test_rounds_end_where_the_penalised_likelihood_is_flat(
    name: str, fitted: dict[str, FittedClickModel], pages: ClickPages
) -> None:
    model = fitted[name]
    counts = model.model.counter(pages)(pages.weight)
    for kind, values in model.parameters.items():
        for at in range(len(values)) if kind not in model.model.held(pages) else ():
            above, below = (
                objective(model, counts, moved(model.parameters, kind, at, step)) for step in (1e-4, -1e-4)
            )
            assert (above - below) / 2e-4 == pytest.approx(0.0, abs=2e-3), (kind, at)


@pytest.mark.parametrize("name", NAMES)
def test_no_round_lowers_the_penalised_likelihood(name: str, pages: ClickPages) -> None:
    model = fit(pages, name)
    assert len(model.trace) > 2
    assert np.diff(model.trace).min() >= -1e-9 * abs(model.trace[-1])
    plain = model_with(name)
    counts, here = plain.counter(pages)(pages.weight), plain.start(pages)
    assumed = {kind: Assumed(prior.mean or 0.5, prior.strength or 1.0) for kind, prior in plain.priors().items()}
    values = []
    for _ in range(25):
        value, here = one_round(lambda p: plain.expect(counts, p), here, assumed)
        values.append(value)
    assert np.diff(values).min() >= -1e-9
    assert model.converged


def test_extrapolation_ends_where_plain_rounds_end_and_sooner(pages: ClickPages) -> None:
    model = model_with("pbm", tolerance=1e-12, rounds=20000)
    found = fit_model("pbm", model, pages)
    counts, here = model.counter(pages)(pages.weight), model.start(pages)
    for _ in range(3 * len(found.trace)):
        value, here = one_round(lambda p: model.expect(counts, p), here | model.held(pages), found.assumed)
    assert found.trace[-1] >= value


def test_a_leap_that_lowers_the_likelihood_is_not_taken(
    pages: ClickPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = fit(pages, "dbn")
    monkeypatch.setattr(
        em, "extrapolated", lambda *points: {k: np.full_like(v, 0.99) for k, v in points[0].items()}
    )
    led_astray = fit(pages, "dbn")
    assert np.diff(led_astray.trace).min() >= 0
    assert led_astray.trace[-1] == pytest.approx(straight.trace[-1], rel=1e-4)


def test_the_worth_of_a_mean_is_that_of_a_beta_distribution() -> None:
    rng = np.random.default_rng(0)
    p = rng.beta(0.3 * 8, 0.7 * 8, 4000)
    trials = rng.integers(1, 40, 4000).astype(float)
    found = worth(rng.binomial(trials.astype(int), p).astype(float), trials, np.full(4000, 0.3))
    assert found == pytest.approx(8.0, rel=0.1)


@pytest.mark.parametrize("name", ["dctr", "pbm", "ubm", "dcm", "sdbn", "dbn", "ccm"])
def test_standard_errors_are_those_of_the_curvature(
    name: str, fitted: dict[str, FittedClickModel], pages: ClickPages
) -> None:
    """One over the second derivative of the penalised likelihood, of one parameter at a time."""
    model = fitted[name]
    counts = model.model.counter(pages)(pages.weight)
    for pair in range(len(pages.pairs)):
        relative = 0.0
        for kind in model.model.of_pairs:
            at, step = model.parameters[kind][pair], 1e-4

            def value(to: float, kind: str = kind, pair: int = pair) -> float:
                values = model.parameters[kind].copy()
                values[pair] = to
                return objective(model, counts, model.parameters | {kind: values})

            curvature = (value(at + step) - 2 * value(at) + value(at - step)) / step**2
            relative += -1 / curvature / at**2
        relevance = math.prod(model.parameters[kind][pair] for kind in model.model.of_pairs)
        assert "standard_error" in model.evidence
        assert model.evidence["standard_error"][pair] == pytest.approx(relevance * math.sqrt(relative), rel=1e-2)


# ------------------------------------------------------------------------------- session by session


def test_counts_fit_as_sessions_do(table: pa.Table, pages: ClickPages) -> None:
    """The position-based model page by page, in plain Python: the same numbers after the same rounds."""
    a, theta = dict.fromkeys({(q, d) for q, docs, _, _ in LOG for d in docs}, 0.3), [0.9, 0.6, 0.4]
    for _ in range(4):
        tried, hit, seen, shown = dict.fromkeys(a, 2.0), dict.fromkeys(a, 0.6), [0.5] * 3, [1.0] * 3
        for query, documents, clicks, times in LOG:
            for _ in range(times):
                for k, (document, click) in enumerate(zip(documents, clicks, strict=True)):
                    p = a[query, document]
                    q = 1.0 if click == "1" else theta[k] * (1 - p) / (1 - theta[k] * p)
                    tried[query, document] += q
                    hit[query, document] += click == "1"
                    seen[k] += q
                    shown[k] += 1
        a, theta = {key: hit[key] / tried[key] for key in a}, [x / n for x, n in zip(seen, shown, strict=True)]
    model = model_with("pbm")
    here = {"attractiveness": np.full(6, 0.3), "examination": np.array([0.9, 0.6, 0.4])}
    counts = model.counter(pages)(pages.weight)
    assumed = {"attractiveness": Assumed(0.3, 2.0), "examination": Assumed(0.5, 1.0)}
    for _ in range(4):
        _, here = one_round(lambda p: model.expect(counts, p), here, assumed)
    assert here["examination"] == pytest.approx(theta)
    names = zip(pages.pairs.query_id.to_pylist(), pages.pairs.doc_id.to_pylist(), strict=True)
    assert here["attractiveness"][:-1] == pytest.approx([a[name] for name in names])
    assert here["attractiveness"][-1] == pytest.approx(0.3)  # a pair that was never shown


@pytest.mark.parametrize("name", NAMES)
def test_pages_one_by_one_fit_as_reduced_pages_do(name: str, pages: ClickPages) -> None:
    apart = pages.take(np.repeat(np.arange(len(pages)), pages.weight.astype(int))[::-1])
    apart = replace(apart, weight=np.ones(len(apart)))
    one, other = fit(pages, name), fit(apart, name)
    for kind, values in one.parameters.items():
        assert other.parameters[kind] == pytest.approx(values, rel=1e-6)


def test_the_published_closed_form_of_sdbn(pages: ClickPages) -> None:
    """Of a for q: clicks over what lies above a last click or on a page without one, last clicks over clicks."""
    weak = Prior(mean=0.5, strength=0.0)
    model = fit(pages, SDBN(closed_form=True, attractiveness=weak, satisfaction=weak))
    pair = list(zip(pages.pairs.query_id.to_pylist(), pages.pairs.doc_id.to_pylist(), strict=True)).index(
        ("q", "a")
    )
    seen = 7 + 6 + 2 + 2 + 3 + 4 + 3 + 1
    clicks, last = 6 + 2 + 3 + 3 + 1, 6 + 3 + 3
    assert model.parameters["attractiveness"][pair] == pytest.approx(clicks / seen)
    assert model.parameters["satisfaction"][pair] == pytest.approx(last / clicks)


# ---------------------------------------------------------------------------------------- bad input


def test_a_log_without_clicks_is_refused() -> None:
    with pytest.raises(DataError, match="no click"):
        fit(table_of([("q", "ab", "00", 3)]), "pbm")


def test_a_table_without_a_column_is_refused(table: pa.Table) -> None:
    with pytest.raises(DataError, match="missing columns: click"):
        fit(table.drop_columns(["click"]), "pbm")
