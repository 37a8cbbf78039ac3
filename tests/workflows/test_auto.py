"""`method = "auto"`: judges by hand, who is taken, and what a run says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import unskew
from tests.helpers.asked import settings
from unskew.engine_prior import EnginePrior
from unskew.errors import ConfigError
from unskew.learning.fitting.training import Training
from unskew.learning.methods import DLA, Naive
from unskew.sklearn import Ranker
from unskew.types import Lists, Log
from unskew.workflows.runs import auto as autos
from unskew.workflows.runs.auto import candidates, parts_of, with_method
from unskew.workflows.runs.judges import Contest
from unskew.workflows.runs.learn import learn
from unskew.workflows.runs.request import ask
from unskew.workflows.runs.run import run
from unskew.workflows.runs.settings import Auto

QUICK = {"ranker": "linear", "steps": 20, "threads": 1, "seed": 0}


def tiny() -> Log:
    """Two queries of three documents, a page each, the second one shuffled."""
    lists = Lists(np.zeros((6, 1), np.float32), np.array([0, 3, 6]), np.zeros(6, np.int16), np.array([0, 1]))
    return Log(
        lists=lists,
        offsets=np.array([0, 3, 6]),
        query=np.array([0, 1]),
        row=np.arange(6),
        position=np.array([1, 2, 3] * 2, np.int16),
        click=np.array([1, 0, 1, 0, 1, 0], np.uint8),
        randomized=np.array([False] * 3 + [True] * 3),
    )


@pytest.fixture(scope="module")
def shop() -> Log:
    lists = unskew.make_lists(40, features=6, seed=3)
    return unskew.simulate(lists, unskew.behaviours.PositionBias(), pages=1500, seed=3, randomized=0.1)


@pytest.fixture(scope="module")
def learned(shop: Log, tmp_path_factory: pytest.TempPathFactory) -> unskew.Run:
    out = tmp_path_factory.mktemp("auto") / "run"
    return learn(shop, Auto(candidates=("naive", "dla", "regression_em")), out=out, **QUICK)


@pytest.mark.parametrize(("steps", "each"), [(5000, 70), (20, 20), (None, 70)])
def test_a_candidate_takes_few_steps_and_who_is_taken_all(steps: int | None, each: int) -> None:
    asked = settings(Auto(steps=70), "linear", training=Training(steps=steps))
    assert with_method(asked, DLA(), budget=True).training.steps == each
    assert with_method(asked, DLA()).training.steps == steps


# ---- the judge ----


def clicked(scores: np.ndarray, log: Log, draw: np.random.Generator) -> Log:
    """The pages with clicks drawn by scores of documents: one of each page, at odds exp(score)."""
    odds = np.exp(scores[log.row]).reshape(len(log), -1)
    chosen = (odds / odds.sum(1, keepdims=True)).cumsum(1) > draw.random((len(log), 1))
    click = np.zeros(odds.shape, np.uint8)
    click[np.arange(len(log)), chosen.argmax(1)] = 1
    return replace(log, click=click.ravel())


def test_likelihood_by_hand() -> None:
    """With equal scores each result of a page is as likely to be clicked as the others."""
    contest = Contest(["flat"])
    contest.add(replace(tiny(), click=np.array([1, 0, 0, 0, 1, 0], np.uint8)), {"flat": np.zeros(6)})
    found = contest.finish()
    assert found.values["flat"] == pytest.approx(-np.log(3))
    assert found.alone == found.values["flat"]
    assert found.clicks == 2


def test_weights_come_from_the_other_half() -> None:
    """Two queries whose clicks speak against each other: what fits one makes the other less likely."""
    contest = Contest(["turned"])
    log = replace(tiny(), click=np.array([1, 0, 0, 0, 0, 1], np.uint8))
    contest.add(log, {"turned": np.array([1.0, 0.0, -1.0] * 2)})
    found = contest.finish()
    assert found.values["turned"] < found.alone


def test_who_makes_clicks_likely_stands_first(shop: Log) -> None:
    draw = np.random.default_rng(0)
    whole = shop.take(shop.sizes == shop.sizes.max())
    true, noise = draw.normal(size=(2, len(shop.lists.features)))
    contest = Contest(["noise", "half", "true"])
    contest.add(clicked(true, whole, draw), {"noise": noise, "half": true + noise, "true": true})
    found = contest.finish()
    assert found.order == ("true", "half", "noise")
    assert found.values["true"] > found.alone + 0.1


def test_what_the_order_shown_says_is_no_merit_of_a_ranker(shop: Log) -> None:
    """Where scores begin as the engine, a ranker that only knows its order adds nothing."""
    log = shop.with_ranks()
    assert log.lists.shown is not None
    prior, ranks = EnginePrior((0.4, 0.2, 0.1, 0.05), "numbers"), np.nan_to_num(log.lists.shown, nan=20.0)
    true = np.random.default_rng(1).normal(size=len(ranks))
    drawn = clicked(true - 2 * np.log(ranks), log.take(log.sizes == log.sizes.max()), np.random.default_rng(2))
    contest = Contest(["order", "true"], prior.log_at(ranks))
    contest.add(drawn, {"order": -np.log(ranks), "true": 0.5 * true - 0.1 * np.log(ranks)})
    found = contest.finish()
    assert found.order == ("true", "order")
    assert found.values["order"] < found.alone + 0.05


# ---- who is taken ----


def test_no_page_judges_a_ranker_that_has_seen_it(shop: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[set[int], set[int]]] = []

    def learns(asked: object, data: autos.LogData, part: np.ndarray) -> np.ndarray:
        left, judged = data.train.take(~part), data.train.take(part)
        seen.append((set(left.query.tolist()), set(judged.query.tolist())))
        return np.zeros(len(data.train.lists.features))

    monkeypatch.setattr(autos, "contestant", learns)
    asked = settings(Auto(candidates=("naive", "dla")), "linear", None, None, {"steps": 5}, None)
    autos.choose(asked, autos.LogData(shop.with_ranks()))
    assert seen
    assert all(not learned & judged for learned, judged in seen)


def test_a_candidate_learns_without_the_part_that_judges_it(shop: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = settings("naive", "linear", None, None, {"steps": 5, "threads": 1, "validate_on": "nothing"}, None)
    part, given = parts_of(shop, 3, 0)[0], []

    def watched(asked: object, data: autos.LogData, **more: object) -> unskew.Run:
        given.append(data.train)
        return run(asked, data, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(autos, "run", watched)
    autos.contestant(asked, autos.LogData(shop), part)
    assert [len(log) for log in given] == [int((~part).sum())]


def test_few_clicks_are_judged_part_after_part(shop: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autos, "MANY_CLICKS", 10**9)
    assert sum(parts_of(shop, 3, 0)).tolist() == [1] * len(shop)  # type: ignore[arg-type, union-attr]
    monkeypatch.setattr(autos, "MANY_CLICKS", 1)
    assert len(parts_of(shop, 3, 0)) == 1
    one = shop.take(shop.query == shop.query[0])
    assert 0 < parts_of(one, 3, 0)[0].sum() < len(one)


def test_too_few_clicks_leave_the_default(shop: Log) -> None:
    few = shop.take(np.arange(40))
    done = learn(few, "auto", validate_on="nothing", **QUICK)
    assert done.model.card.method["name"] == "dla"
    assert done.metrics.auto.because.startswith("auto cannot tell: ")


# ---- a run says so ----


def test_a_run_says_what_was_taken_and_why(learned: unskew.Run) -> None:
    told, folder = learned.metrics.auto, learned.folder
    assert folder is not None
    assert told is not None
    assert told.choice in (told.candidates or ())
    assert len(told.candidates or ()) == 3
    assert told.because.startswith(f"auto took {told.choice}: ")
    assert learned.model.card.method["name"] == told.method.name
    assert json.loads((folder / "metrics.json").read_text())["auto"]["choice"] == told.choice
    assert json.loads((folder / "config.json").read_text())["method"]["name"] == told.method.name
    assert set(told.likelihood or {}) == set(told.candidates or ())
    assert "held-out clicks" in told.because


def test_what_is_taken_learns_as_if_it_had_been_named(shop: Log, learned: unskew.Run) -> None:
    named = {"naive": Naive(), "dla": DLA()}.get(learned.metrics.auto.choice)
    again = learn(shop, named or "regression_em", **QUICK)
    assert np.array_equal(again.score(shop.lists), learned.score(shop.lists))


def test_a_candidate_that_cannot_learn_is_left_out(shop: Log) -> None:
    plain = replace(shop, randomized=None)
    done = learn(plain, Auto(candidates=("naive", "dla", "ipw")), **QUICK)
    assert list(done.metrics.auto.left_out) == ["ipw"]
    assert "ipw" not in done.metrics.auto.candidates


def test_the_ranker_is_chosen_where_none_is_named(shop: Log, tmp_path: Path) -> None:
    curious = Auto(candidates=("naive", "dla"), rankers=("linear",), steps=20)
    done = learn(shop, curious, out=tmp_path / "run", steps=20, threads=1, seed=0)
    told = done.metrics.auto
    assert told is not None
    assert "Of mlp and linear it ranks best with " in told.because
    taken = "linear" if told.ranker is not None else "mlp"
    assert done.model.card.ranker is not None
    assert done.model.card.ranker["name"] == taken == told.because.split()[-1].rstrip(".")
    named = learn(shop, curious, ranker="linear", steps=20, threads=1, seed=0).metrics.auto
    assert named is not None
    assert "ranks best" not in named.because


def test_scikit_learn_may_say_auto(shop: Log) -> None:
    page = np.repeat(np.arange(len(shop)), shop.sizes)
    first = page < 900
    ranker = Ranker(Auto(candidates=("naive", "dla")), "linear", steps=10)  # type: ignore[arg-type]
    shown = {"groups": shop.query[page][first], "page": page[first], "position": shop.position[first]}
    ranker.fit(shop.lists.features[shop.row][first], shop.click[first], **shown)
    assert ranker.metrics_.auto.choice in ("naive", "dla")
    assert ranker.predict(shop.lists.features[:5]).shape == (5,)


def test_a_run_file_may_say_auto(tmp_path: object) -> None:
    asked = ask("log", features="x.parquet", method="auto", settings={"method.candidates": ["naive", "tal"]})
    assert asked.settings.auto == Auto(candidates=("naive", "tal"))
    with pytest.raises(ConfigError, match=r"method\.candidats"):
        ask("log", features="x.parquet", method="auto", settings={"method.candidats": ["naive"]})


def test_candidates_are_methods_that_learn_from_clicks() -> None:
    tables = Auto(candidates=("naive", {"name": "naive", "loss": "sigmoid"}))
    assert list(candidates(tables)) == ["naive", "naive, loss = sigmoid"]
    with pytest.raises(ConfigError, match=r"candidates\.0: labeled cannot be one"):
        candidates(Auto(candidates=("labeled",)))
    with_factors = candidates(Auto(factors=("serp_media",)))
    assert with_factors["additive"].factors == ("serp_media",)  # type: ignore[attr-defined]
    assert "naive" not in with_factors
